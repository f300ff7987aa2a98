"""One line in the log for each request that may change what is stored: who, what, and what came of it."""

from __future__ import annotations

import logging
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...logs import AUDIT
from .principal import Principal

logger = logging.getLogger(AUDIT)


def audit(scope: Scope, principal: Principal, route: str, dataset: str | None, **outcome: object) -> None:
    """Write the line. What a client chose stands in it as JSON strings, so that it forges no other."""
    client = scope.get("client")
    fields: dict[str, Any] = {
        "who": principal.name,
        "via": principal.via,
        "tenant": principal.prefix or None,
        "method": scope["method"],
        "route": route,
        "dataset": dataset,
        "client": client[0] if client else None,
        **outcome,
    }
    logger.info("audit", extra={"fields": fields})


class Audited:
    """One request on its way through the application, watched for what the audit line says."""

    def __init__(self, scope: Scope, principal: Principal, route: str, dataset: str | None) -> None:
        self._of = (scope, principal, route, dataset)
        self._began = time.monotonic()
        self._num_bytes = 0
        self._status: int | None = None
        self._location: str | None = None
        self._whole = False

    async def run(self, app: ASGIApp, receive: Receive, send: Send) -> None:
        """Let the application answer, then write the line; also where it failed."""

        async def received() -> Message:
            message = await receive()
            self._num_bytes += len(message.get("body", b""))
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._begun(message)
            await send(message)
            self._whole = message["type"] == "http.response.body" and not message.get("more_body", False)

        try:
            await app(self._of[0], received, sent)
        finally:
            audit(
                *self._of,
                resource=self._location,
                status=self._status,
                # An answer that broke off: what was done may stand all the same.
                complete=self._whole,
                num_bytes=self._num_bytes,
                duration_ms=round((time.monotonic() - self._began) * 1e3, 1),
            )

    def _begun(self, message: Message) -> None:
        self._status = message["status"]
        for name, value in message.get("headers", ()):
            if name.lower() == b"location":  # the append, or the version
                self._location = value.decode("latin-1")
