"""Traces of requests, recorded by OpenTelemetry where its own variables ask for them.

OpenTelemetry is an extra. It is imported by `otel.py` alone, and that when tracing starts; until then a span
costs one look at `_recorder`. The stages of conversions are counted here, too, where metrics are served.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import get_ident, main_thread
from time import perf_counter_ns
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from .otel import Recorder, RequestSpan

logger = logging.getLogger(__name__)

T = TypeVar("T")
StageName: TypeAlias = Literal["decode", "encode"]
Attributes: TypeAlias = Mapping[str, str | int | float]
#: What a span of several requests is linked with; None where a request is not recorded.
Mark: TypeAlias = "SpanContext | None"
#: How many rows and how many bytes there are in what a stage gave.
Measure: TypeAlias = Callable[[T], tuple[int, int]]

#: The service looks for a collector only where it is told of one, though OpenTelemetry has a default.
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

_recorder: Recorder | None = None
_counting: MakeCountingStage | None = None


class Untraceable(Exception):
    """Traces are asked for and cannot be recorded; says why."""


def start_tracing() -> None:
    """Record traces from now on, if OpenTelemetry's variables ask for it.

    A service that cannot be traced still serves: what is wrong is logged.
    """
    global _recorder
    if not _is_wanted(os.environ):
        return
    try:
        from .otel import Recorder

        _recorder = Recorder(os.environ)
    except ImportError:
        logger.warning("No traces: OpenTelemetry's SDK is not installed. Install shardsmith[otel].")
    except Untraceable as error:
        logger.warning("No traces: %s", error)


def stop_tracing() -> None:
    """Record no more, and send what is left, unless that takes long."""
    global _recorder
    if _recorder is not None:
        stopped, _recorder = _recorder, None
        stopped.close()


def _is_wanted(environment: Mapping[str, str]) -> bool:
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if exporters := environment.get("OTEL_TRACES_EXPORTER", "").strip():
        return exporters != "none"
    return any(environment.get(name) for name in _ENDPOINTS)


def is_on() -> bool:
    """Whether traces are recorded."""
    return _recorder is not None


def begin_request(
    name: str, headers: Sequence[tuple[bytes, bytes]], attributes: Callable[[], Attributes]
) -> RequestSpan | None:
    """Begin the span of a request, as a part of the trace that its headers name; None where tracing is off.

    It is current in this task and in all that the task starts. The caller ends it.

    Args:
        attributes: asked for if the request is recorded.
    """
    return None if _recorder is None else _recorder.begin_request(name, headers, attributes)


def span(name: str, attributes: Attributes | None = None) -> AbstractContextManager[object]:
    """A span inside the current one, while the block runs; none where the current one is not recorded."""
    return _NOTHING if _recorder is None else _recorder.span(name, attributes or {})


def store_span(operation: str, key: str) -> AbstractContextManager[object]:
    """The span of an operation of the object store."""
    if _recorder is None:
        return _NOTHING
    return _recorder.span(f"store {operation}", {"shardsmith.store.key": key}, is_client=True)


def store_stage(operation: str, key: str) -> Stage:
    """As `stage`, for an operation of the object store whose results are drawn."""
    if _recorder is None:
        return _NO_STAGE
    return _recorder.stage(f"store {operation}", {"shardsmith.store.key": key}, is_client=True)


def root_span(name: str) -> AbstractContextManager[object]:
    """A span that begins a trace of its own, for work that no request asked for."""
    return _NOTHING if _recorder is None else _recorder.root_span(name)


def mark() -> Mark:
    """The current span, to link a later one with that is of several requests."""
    return None if _recorder is None else _recorder.mark()


def shared_span(name: str, marks: Sequence[Mark]) -> AbstractContextManager[object]:
    """A span inside the first of those that are recorded, and linked with the others; none if none is."""
    return _NOTHING if _recorder is None else _recorder.shared_span(name, marks)


def current_ids() -> tuple[str, str] | None:
    """The ids of the current trace and span, in hexadecimal digits; None outside of any."""
    return None if _recorder is None else _recorder.current_ids()


class Stage:
    """A step of a conversion, which may be done piece by piece as others draw its results.

    Enter it for each piece of work. This one records nothing: it stands where a request is not recorded.
    """

    __slots__ = ()

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is recorded."""

    def drawn(self, items: Iterator[T], measure: Measure[T] | None = None) -> Iterator[T]:
        """The same items; this step is what it takes to draw them.

        Args:
            measure: of an item that is to be counted.
        """
        del measure
        return items

    def count(self, num_rows: int = 0, num_bytes: int = 0) -> None:
        """Count what this piece of work has read or written, and what has arrived of the body."""


#: Name, form, what tells how much of a body has arrived, and the stage that records the same.
MakeCountingStage: TypeAlias = Callable[[StageName, str, Callable[[], int] | None, Stage | None], Stage]


def count_stages(make: MakeCountingStage) -> None:
    """Count stages from now on."""
    global _counting
    _counting = make


class WholeConversion:
    """A small conversion on the event loop that decodes all before it encodes any, and never waits.

    It is counted once, when its answer is drawn: two stages would take as long as the conversion of a tensor.

    Attributes:
        num_bytes: of the body.
        forms: of the body and the answer, as far as known.
        begun_ns: when decoding and encoding began.
    """

    __slots__ = ("begun_ns", "forms", "num_bytes")

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self.forms: list[str] = []
        self.begun_ns: list[int] = []


def begin_whole(num_bytes: int) -> WholeConversion | None:
    """What stages of a conversion note, if it is to be counted once; else they count by themselves.

    They do so where the request is recorded, which takes a span for each.

    Args:
        num_bytes: of the body.
    """
    if _counting is None or get_ident() != _MAIN_THREAD:
        return None
    if _recorder is not None and _recorder.is_recording():
        return None
    return WholeConversion(num_bytes)


def stage(
    name: StageName,
    form: str,
    received: Callable[[], int] | None = None,
    whole: WholeConversion | None = None,
) -> Stage:
    """A step that reads or writes `form`; its span ends with the last piece of work.

    Args:
        received: tells how many bytes of the body have arrived, if these are to be counted.
        whole: the conversion that it is half of, if that is counted once.
    """
    if whole is not None:
        whole.forms.append(form)
        whole.begun_ns.append(perf_counter_ns())
        return _NO_STAGE
    recorded = None if _recorder is None else _recorder.stage(name, {"shardsmith.form": form})
    if _counting is None:
        return recorded or _NO_STAGE
    return _counting(name, form, received, recorded)


#: The event loop is there.
_MAIN_THREAD: Final = main_thread().ident
_NOTHING: Final = nullcontext()
_NO_STAGE: Final = Stage()
