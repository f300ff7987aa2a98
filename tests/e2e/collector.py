"""A collector of traces: takes OTLP over HTTP on the loopback, and keeps the spans that arrive."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.support.waiting import wait_for


@dataclass(frozen=True)
class Recorded:
    """A span as it arrived."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    failed: bool
    begin: int
    end: int
    attributes: dict[str, Any]
    links: tuple[str, ...]
    trace_state: str

    @classmethod
    def of(cls, span: Span) -> "Recorded":
        return cls(
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
            span.status.code == Status.STATUS_CODE_ERROR,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "") for pair in span.attributes},
            tuple(link.span_id.hex() for link in span.links),
            span.trace_state,
        )


@dataclass
class Collector:
    """What has arrived.

    Attributes:
        endpoint: for OTEL_EXPORTER_OTLP_ENDPOINT.
        resource: attributes of the service that sent the latest spans.
    """

    endpoint: str
    spans: list[Recorded] = field(default_factory=list)
    resource: dict[str, str] = field(default_factory=dict)

    def take(self, data: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(data)
        for of_resource in request.resource_spans:
            attributes = of_resource.resource.attributes
            self.resource = {pair.key: pair.value.string_value for pair in attributes}
            for of_scope in of_resource.scope_spans:
                self.spans += map(Recorded.of, of_scope.spans)

    def trace(self, trace_id: str, *names: str) -> list[Recorded]:
        """All spans of a trace, once those with these names are there."""

        def arrived() -> list[Recorded]:
            return [span for span in list(self.spans) if span.trace_id == trace_id]

        wait_for(lambda: set(names) <= {span.name for span in arrived()})
        return arrived()


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
            collector.take(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name that it has there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
