"""Without authentication nobody beyond this machine is let in, unless that is said in so many words."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Collection
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from ..problems import problem_response
from .foreign_pages import is_of_foreign_page

logger = logging.getLogger(__name__)

#: What `SHARDSMITH_ALLOW_UNAUTHENTICATED` has to say.
ALLOWED_BY: Final = "anyone-may-read-write-and-delete"
_WAYS_OUT: Final = (
    "Set SHARDSMITH_TOKENS_FILE or SHARDSMITH_OIDC_ISSUER (docs/auth.md), listen on 127.0.0.1, or say "
    f"SHARDSMITH_ALLOW_UNAUTHENTICATED={ALLOWED_BY}."
)
_FOREIGN_PAGE: Final = (
    "A page of another origin may send nothing but GET and HEAD here. SHARDSMITH_CORS_ORIGINS names the "
    "origins that may send more."
)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def refusal_to_listen(host: str) -> str:
    """Why the service does not listen on `host` without authentication, and what to do."""
    return f"Listening on {host!a} would let anyone who reaches it read, write and delete. {_WAYS_OUT}"


class WithoutAuthentication:
    """Stands where authentication would: refuses what comes from other machines, and from foreign pages.

    Other machines can reach a server whose address was set elsewhere, as by uvicorn's own options. No other
    machine reaches an address that is not an IP address (a Unix socket, a test). A page of another origin
    runs in a browser that reaches the service, and could send it forms that change datasets or cost work.

    Args:
        origins: of the pages that may.
        anyone: whether other machines are let in.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str] = (), *, anyone: bool = False) -> None:
        self._app = app
        self._origins = frozenset(origins)
        self._anyone = anyone
        self._complained = False

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        server = None if self._anyone else scope.get("server")
        if server is not None and server[0] != "127.0.0.1" and _reaches_beyond(server[0]):
            return self._refuse(server[0], scope, receive, send)
        if self._is_foreign(scope):
            return problem_response(403, "foreign_page", _FOREIGN_PAGE)(scope, receive, send)
        return self._app(scope, receive, send)  # not awaited here: a coroutine less

    def _is_foreign(self, scope: Scope) -> bool:
        acts = scope["type"] == "http" and scope["method"] not in ("GET", "HEAD", "OPTIONS")
        return acts and is_of_foreign_page(scope["headers"], self._origins)

    async def _refuse(self, address: str, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._complained:
            logger.error(refusal_to_listen(address))
            self._complained = True
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        detail = f"This service has no authentication and serves its own machine alone. {_WAYS_OUT}"
        await problem_response(403, "unauthenticated_service", detail)(scope, receive, send)


def _reaches_beyond(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
