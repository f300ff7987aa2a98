"""One line in the log for each request that may change what is stored: who, what, and what came of it."""

from __future__ import annotations

import logging
import re
import secrets
import time
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .principal import Principal

__all__ = ["Audited", "audit"]

logger = logging.getLogger("shardsmith.audit")

#: An id that a client or a proxy gave is kept if it is one; anything else is not repeated.
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_HEADER: Final = b"x-request-id"


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
    logger.info("audit", extra={"fields": {k: v for k, v in fields.items() if v is not None}})


class Audited:
    """One request on its way through the application, watched for what the audit line says."""

    def __init__(self, scope: Scope, principal: Principal, route: str, dataset: str | None) -> None:
        self._of = (scope, principal, route, dataset)
        self._request_id = _request_id(scope)
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
                message = self._begun(message)
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
                request_id=self._request_id,
            )

    def _begun(self, message: Message) -> Message:
        self._status = message["status"]
        headers = list(message.get("headers", ()))
        for name, value in headers:
            if name.lower() == b"location":  # the append, or the version
                self._location = value.decode("latin-1")
        return {**message, "headers": [*headers, (_HEADER, self._request_id.encode())]}


def _request_id(scope: Scope) -> str:
    given = [value for name, value in scope["headers"] if name == _HEADER]
    if len(given) == 1 and _REQUEST_ID.fullmatch(given[0]):
        return bytes(given[0]).decode("ascii")
    return secrets.token_hex(8)
