"""An answer with the headers that it is given, and no others."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


class BareResponse(Response):
    """Headers as they are given, and content that is complete; or none, where a subclass sends it."""

    def __init__(self, status: int, headers: Mapping[str, str], content: bytes = b"") -> None:
        self.status_code = status
        self.background = None
        self.body = content
        self.raw_headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Called by the operation."""
        del scope, receive
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        await send({"type": "http.response.body", "body": self.body})
