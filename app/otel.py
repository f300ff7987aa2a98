"""Recording traces with OpenTelemetry's SDK; `tracing.py` imports this when tracing starts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import Token
from importlib.metadata import entry_points
from types import TracebackType
from typing import Any, Final, TypeVar

from opentelemetry.context import Context, attach, detach
from opentelemetry.propagate import extract, get_global_textmap
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    format_span_id,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)

from . import __version__
from .errors import ShardsmithError
from .tracing import Attributes, Mark, Measure, Stage, Untraceable

T = TypeVar("T")

_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
#: Protocol of OTLP -> the name under which its exporter is installed.
_OTLP: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
#: How long the end of the service waits for the last spans to be sent.
_LAST_SPANS_S: Final = 2.0
#: What an object store says, too, where all is well.
_ANSWERS: Final = frozenset({"object_exists", "object_not_found"})
_NOTHING: Final = nullcontext()


class Recorder:
    """Makes spans, and sends them as OpenTelemetry's variables say.

    Args:
        environment: has these variables. The SDK reads samplers, limits and endpoints from it by itself.

    Raises:
        Untraceable: an exporter is not installed, or cannot be set up.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        exporters = [_make_exporter(name) for name in _exporter_names(environment)]
        service = {"service.name": "shardsmith", "service.version": __version__}
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
        resource = Resource.create(service).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        for exporter in exporters:
            self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("shardsmith", __version__)
        # Of the propagators in OTEL_PROPAGATORS. Nothing here reads baggage or passes it on, and the SDK logs
        # each malformed member of it: a line for every few bytes that a client sends.
        self._context_headers = frozenset(name.encode() for name in get_global_textmap().fields - {"baggage"})

    def close(self) -> None:
        """Send what is left. A collector that does not answer must not delay the end of the service."""
        last = threading.Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
        last.start()
        last.join(_LAST_SPANS_S)

    def begin_request(
        self, name: str, headers: Sequence[tuple[bytes, bytes]], attributes: Callable[[], Attributes]
    ) -> RequestSpan:
        """As `tracing.begin_request`."""
        given: dict[str, list[str]] = {}
        for key, value in headers:
            if key in self._context_headers:
                given.setdefault(key.decode("latin-1"), []).append(value.decode("latin-1"))
        context = extract(given, Context()) if given else Context()
        begun = self._tracer.start_span(name, context, SpanKind.SERVER)
        attach(set_span_in_context(begun, context))
        if begun.is_recording():
            begun.set_attributes(attributes())
        return RequestSpan(begun)

    def is_recording(self) -> bool:
        """Whether the current request is recorded."""
        return get_current_span().is_recording()

    def span(
        self, name: str, attributes: Attributes, *, is_client: bool = False
    ) -> AbstractContextManager[object]:
        """As `tracing.span`."""
        if not self.is_recording():
            return _NOTHING
        return _Block(self._tracer.start_span(name, None, _kind(is_client), attributes))

    def root_span(self, name: str) -> AbstractContextManager[object]:
        """As `tracing.root_span`."""
        return _Block(self._tracer.start_span(name, Context()))

    def mark(self) -> Mark:
        """As `tracing.mark`."""
        current = get_current_span()
        return current.get_span_context() if current.is_recording() else None

    def shared_span(self, name: str, marks: Sequence[Mark]) -> AbstractContextManager[object]:
        """As `tracing.shared_span`."""
        recorded: list[SpanContext] = [mark for mark in marks if mark is not None]
        if not recorded:
            return _NOTHING
        first = set_span_in_context(NonRecordingSpan(recorded[0]), Context())
        return _Block(self._tracer.start_span(name, first, links=[Link(mark) for mark in recorded[1:]]))

    def stage(self, name: str, attributes: Attributes, *, is_client: bool = False) -> Stage:
        """As `tracing.stage`."""
        if not self.is_recording():
            return Stage()
        return _RecordedStage(self._tracer.start_span(name, None, _kind(is_client), attributes))

    def current_ids(self) -> tuple[str, str] | None:
        """As `tracing.current_ids`."""
        context = get_current_span().get_span_context()
        if not context.is_valid:
            return None
        return format_trace_id(context.trace_id), format_span_id(context.span_id)


def _kind(is_client: bool) -> SpanKind:
    return SpanKind.CLIENT if is_client else SpanKind.INTERNAL


def _exporter_names(environment: Mapping[str, str]) -> Iterator[str]:
    """The names under which the exporters that are asked for are installed."""
    for name in (environment.get("OTEL_TRACES_EXPORTER") or "otlp").split(","):
        protocol = next(filter(None, map(environment.get, _PROTOCOLS)), "http/protobuf").strip()
        yield _OTLP.get(protocol, protocol) if name.strip() == "otlp" else name.strip()


def _make_exporter(name: str) -> Any:
    """The exporter that is installed under that name; it reads its own variables.

    Raises:
        Untraceable: there is none, or it cannot be set up.
    """
    found = list(entry_points(group="opentelemetry_traces_exporter", name=name))
    if not found:
        raise Untraceable(
            f"No exporter {name!r} is installed. Install it, or correct OTEL_TRACES_EXPORTER or "
            "OTEL_EXPORTER_OTLP_PROTOCOL."
        )
    try:
        return found[0].load()()
    except Exception as error:  # whatever it says about one of its variables
        raise Untraceable(f"The exporter {name!r} cannot be set up: {error}") from error


class RequestSpan:
    """The span of a request, from its head to the end of its answer."""

    def __init__(self, begun: Span) -> None:
        self._span = begun

    def end(self, attributes: Callable[[], Attributes], failed: str | None) -> None:
        """End it.

        Args:
            attributes: asked for if the request is recorded.
            failed: how the service failed, if it did; a client's mistake is no failure of the service.
        """
        if self._span.is_recording():
            self._span.set_attributes(attributes())
            if failed is not None:
                self._span.set_status(StatusCode.ERROR)
                self._span.set_attribute("error.type", failed)
        self._span.end()


def _fail(span: Span, error: BaseException) -> None:
    # Neither message nor traceback: they may quote what a client sent.
    code = error.code if isinstance(error, ShardsmithError) else type(error).__qualname__
    span.set_attribute("error.type", code)
    if code not in _ANSWERS:
        span.set_status(StatusCode.ERROR)


class _Block:
    """Makes a span current while a block runs, and ends it."""

    def __init__(self, begun: Span) -> None:
        self._span = begun
        self._token: Token[Context] | None = None

    def __enter__(self) -> None:
        self._token = attach(set_span_in_context(self._span))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            detach(self._token)
        if error is not None:
            _fail(self._span, error)
        self._span.end()


class _OfThread(threading.local):
    #: The innermost stage that this thread is in.
    stage: _RecordedStage | None = None


_this = _OfThread()


class _RecordedStage(Stage):
    """Records a stage: one span from its first piece of work to its last, and how many seconds they took.

    Time in another stage, from which this one draws, counts for that one alone.
    """

    def __init__(self, begun: Span) -> None:
        self._span = begun
        self._context = set_span_in_context(begun)
        self._outer: _RecordedStage | None = None
        self._token: Token[Context] | None = None
        self._since = 0.0
        self._seconds = 0.0
        self._last_ns = time.time_ns()

    def __enter__(self) -> Stage:
        now = time.perf_counter()
        self._outer, _this.stage = _this.stage, self
        if self._outer is not None:
            self._outer.pause(now)
        self._since = now
        self._token = attach(self._context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            detach(self._token)
        now = time.perf_counter()
        self.pause(now)
        self._last_ns = time.time_ns()
        _this.stage = self._outer
        if self._outer is not None:
            self._outer.go_on(now)
            self._outer = None
        if error is not None and not isinstance(error, StopIteration):
            _fail(self._span, error)

    def pause(self, now: float) -> None:
        self._seconds += now - self._since

    def go_on(self, now: float) -> None:
        self._since = now

    def drawn(self, items: Iterator[T], measure: Measure[T] | None = None) -> Iterator[T]:
        del measure
        return _Drawn(self, items)

    def __del__(self) -> None:
        # When nothing draws from it any more, however that came about.
        self._span.set_attribute("shardsmith.seconds", round(self._seconds, 6))
        self._span.end(self._last_ns)


class _Drawn(Iterator[T]):
    """Items whose drawing is a stage. No generator, whose context would be that of who draws last."""

    def __init__(self, stage: _RecordedStage, items: Iterator[T]) -> None:
        self._stage = stage
        self._items = items

    def __next__(self) -> T:
        with self._stage:
            return next(self._items)
