"""Traces of requests, recorded by OpenTelemetry where its own variables ask for them.

OpenTelemetry is an extra. It is imported by `otel.py` alone, and that when tracing starts; until then a span
costs one look at `_recorder`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from .otel import Recorder, RequestSpan

logger = logging.getLogger(__name__)

T = TypeVar("T")
Attributes: TypeAlias = Mapping[str, str | int | float]
#: What a span of several requests is linked with; None where a request is not recorded.
Mark: TypeAlias = "SpanContext | None"

#: The service looks for a collector only where it is told of one, though OpenTelemetry has a default.
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

_recorder: Recorder | None = None


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

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is recorded."""

    def drawn(self, items: Iterator[T]) -> Iterator[T]:
        """The same items; this step is what it takes to draw them."""
        return items


def stage(name: str, form: str) -> Stage:
    """A step that reads or writes `form`; its span ends with the last piece of work."""
    return _NO_STAGE if _recorder is None else _recorder.stage(name, {"shardsmith.form": form})


_NOTHING: Final = nullcontext()
_NO_STAGE: Final = Stage()
