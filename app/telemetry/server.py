"""The port that metrics are read from: a small HTTP server in threads, away from the event loop."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from http.server import ThreadingHTTPServer
from typing import Any, Final

from prometheus_client.exposition import MetricsHandler
from prometheus_client.registry import Collector as Collector

from ..domain.hosts import is_address, is_known, name_of

#: Seconds for a request and its answer; the connection is cut then.
_TIMEOUT_S: Final = 10.0
#: Until another connection is accepted, where the process has too many open files for one.
_PAUSE_S: Final = 0.5
#: Connections at a time; a Prometheus has one. Further ones are closed.
_CONNECTIONS: Final = 8


class MetricsServer:
    """Answers `GET /metrics` until it is closed, in Prometheus' text format or OpenMetrics.

    Args:
        host: the address to listen on.
        port: 0 picks a free one.
        source: asked for the metrics at each request.
        names: that it may be asked under, beside addresses and localhost; `*` for any.

    Raises:
        OSError: it cannot listen there.
    """

    def __init__(self, host: str, port: int, source: Collector, names: Collection[str] = ()) -> None:
        handler = type("Handler", (_Handler,), {"registry": source, "names": frozenset(map(name_of, names))})
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = type("Server", (_Server,), {"address_family": family})((host, port), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        port: int = self._server.server_address[1]
        return port

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(MetricsHandler):
    names: Collection[str]
    error_message_format = "%(message)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def end_headers(self) -> None:
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def do_GET(self) -> None:  # noqa: N802  # as http.server names it
        # Without the query: prometheus-client would take it for names, which are not known of workers.
        self.path = self.path.partition("?")[0]
        host = self.headers.get("Host", "")
        if host and not is_known(host, self.names) and not is_address(host):
            self.send_error(421, "Not a name of this service. Add it to SHARDSMITH_ALLOWED_HOSTS.")
        elif self.path == "/metrics":
            super().do_GET()
        else:
            self.send_error(404, "Metrics are at /metrics.")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[MetricsHandler]) -> None:
        #: Open connections, and when each is cut.
        self._cut_at: dict[socket.socket, float] = {}
        super().__init__(address, handler)

    def server_bind(self) -> None:
        # That of HTTPServer looks up the name of the host, which takes seconds where no DNS answers.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "metrics", self.server_address[1]

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            time.sleep(_PAUSE_S)  # noqa: TID251  # what waits to be accepted would be tried again at once
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._cut_at) < _CONNECTIONS:
            self._cut_at[request] = time.monotonic() + _TIMEOUT_S
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        self._cut_at.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut what takes too long; called twice a second."""
        now = time.monotonic()
        for request, cut_at in list(self._cut_at.items()):
            if now >= cut_at:
                with suppress(OSError):  # it has just been closed
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or says nothing, is no event of this service."""
