"""The names that a request may have as its Host: any other may be a web page's, rebound to this address."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from ...domain.hosts import is_known, name_of
from ..http1.connections import PROBES
from ..problems import problem_response

_SHOWN: Final = 80
_MOST_KEPT: Final = 64


class KnownHosts:
    """Refuses requests whose Host is neither of loopback nor one of `names`.

    Once a page of evil.example is loaded, its name can be resolved to 127.0.0.1 (DNS rebinding). The browser
    then takes the service for the page's own origin, and only the Host shows that it is not. Probes pass,
    since a kubelet names the address of the pod. So does a request without a Host, which no browser sends.

    Args:
        names: `*.example.org` stands for all names below it, `*` for any. A port is ignored.
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = frozenset(map(name_of, names))
        #: Hosts that were found to be known. Clients use few, and looking one up takes longer than all else.
        self._known: set[bytes] = set()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            host = dict(scope["headers"]).get(b"host", b"")
            if host and not self._knows(host) and scope["path"] not in PROBES:
                return _refusal(host.decode("latin-1"))(scope, receive, send)
        return self._app(scope, receive, send)  # not awaited here: a coroutine less

    def _knows(self, host: bytes) -> bool:
        if host in self._known:
            return True
        known = is_known(host.decode("latin-1"), self._names)
        if known and len(host) <= _SHOWN and len(self._known) < _MOST_KEPT:
            self._known.add(host)
        return known


def _refusal(host: str) -> ASGIApp:
    return problem_response(
        421,
        "unknown_host",
        f"This service is not known as {name_of(host)[:_SHOWN]!a}. Add the name to "
        f"SHARDSMITH_ALLOWED_HOSTS, or ask for localhost.",
    )
