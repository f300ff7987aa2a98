"""The span of a request, described by the attributes that OpenTelemetry defines for servers of HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ... import tracing
from ..auth.routes import access_table
from ..paths import routed_path
from .access_log import LONGEST_PATH, RequestLog
from .connections import PROBES

if TYPE_CHECKING:
    from ...otel import RequestSpan

_ROUTES: Final = access_table()
#: Others are called `_OTHER`: anybody may make some up, and names of spans are to be few.
_METHODS: Final = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})


def begin_span(scope: Any, log: RequestLog) -> RequestSpan | None:
    """Begin the span of a request; None for probes, and where tracing is off."""
    if not tracing.is_on() or scope["path"] in PROBES:
        return None
    path, method = routed_path(scope), scope["method"]
    found = _ROUTES.find(path)
    route = None if found is None else found[0].route
    known = method if method in _METHODS else "_OTHER"

    def attributes() -> tracing.Attributes:
        client, server = scope["client"], scope["server"]
        given = {
            "http.request.method": known,
            "http.route": route,
            # Without the query, which may hold a schema of some kilobytes. Spans wait in memory to be sent.
            "url.path": scope["path"][:LONGEST_PATH],
            "url.scheme": scope["scheme"],
            "network.protocol.version": scope["http_version"],
            "client.address": client and client[0],
            "server.address": server and server[0],
            "server.port": server and server[1],
            "shardsmith.request_id": log.id,
        }
        return {name: value for name, value in given.items() if value is not None}

    name = "HTTP" if known == "_OTHER" else known
    return tracing.begin_request(f"{name} {route}" if route else name, scope["headers"], attributes)


def end_span(span: RequestSpan, log: RequestLog) -> None:
    """End the span of a request as its log says that it ended."""
    failed = str(log.status) if log.status is not None and log.status >= 500 else None
    if log.ended == "broken_off":
        failed = log.ended

    def attributes() -> tracing.Attributes:
        given = {
            "http.response.status_code": log.status,
            "http.request.body.size": log.num_in,
            "http.response.body.size": log.num_out,
            "shardsmith.ended": log.ended,
        }
        return {name: value for name, value in given.items() if value is not None}

    span.end(attributes, failed)
