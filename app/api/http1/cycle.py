"""One request and its answer: uvicorn's, with what it leaves to the client's good will."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from ..problems import PROBLEM_MEDIA_TYPE, problem
from .refusals import defect

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent

__all__ = ["Cycle"]


class Cycle(RequestResponseCycle):
    """Leaves the closing of the connection to the protocol, which lingers."""

    #: The connection ends with this answer.
    last = False

    async def send(self, message: ASGISendEvent) -> None:
        """Send a part of the answer; see the ASGI specification."""
        if self.waiting_for_100_continue:
            # Answered without asking for the body: whether it comes nevertheless cannot be known.
            self.keep_alive = False
        await super().send(message)
        if not self.keep_alive:
            self.keep_alive, self.last = True, True

    async def send_500_response(self) -> None:
        """The answer of an application that raised before it gave one."""
        refused = defect()
        body = json.dumps(problem(refused.status, refused.code, refused.detail)).encode("ascii")
        headers = [
            (b"content-type", PROBLEM_MEDIA_TYPE.encode("ascii")),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    def disconnect(self) -> None:
        """Tell the application that the client is gone; what it still sends goes nowhere."""
        if not self.response_complete:
            self.disconnected = True
            self.waiting_for_100_continue = False
        self.message_event.set()
