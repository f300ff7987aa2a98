"""Counting conversions by format: rows, bytes, and the time that decoding and encoding take.

A stage is done piece by piece where others draw its results, and one draws from another: encoding a batch has
one decoded first. The time of that counts for the inner stage alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from time import perf_counter_ns, thread_time_ns
from types import TracebackType
from typing import Final, TypeVar

from prometheus_client.metrics_core import CounterMetricFamily, Metric

from ..tracing import Measure, Stage, StageName, WholeConversion, count_stages
from .metrics import REGISTRY, Declared, declare

T = TypeVar("T")

#: What pieces took is added to the sums together; after so long they are not waited for any more.
_ADDED_AFTER_NS: Final = 1_000_000

_SECONDS: Final = declare(
    "shardsmith_codec_cpu_seconds_total",
    "counter",
    "Processor time that threads took to decode and encode, without waits for clients, the store or a turn.",
    ("direction", "form"),
)
_BYTES_IN: Final = declare(
    "shardsmith_decoded_bytes_total", "counter", "Bytes of bodies that were decoded, as sent.", ("form",)
)
_BYTES_OUT: Final = declare(
    "shardsmith_encoded_bytes_total",
    "counter",
    "Bytes that encoders made of answers and of rows to store.",
    ("form",),
)
_ROWS_IN: Final = declare(
    "shardsmith_decoded_rows_total", "counter", "Rows of bodies that were decoded.", ("form",)
)
_ROWS_OUT: Final = declare(
    "shardsmith_encoded_rows_total", "counter", "Rows of answers, and rows to store, encoded.", ("form",)
)


class _Counted:
    """What was counted of a format in one direction. To be changed under the lock."""

    __slots__ = ("nanoseconds", "num_bytes", "num_rows")

    def __init__(self) -> None:
        self.nanoseconds = 0
        self.num_bytes = 0
        self.num_rows = 0


class _Clock:
    """The clock of one thread.

    Attributes:
        now: in nanoseconds. On the event loop work is short and waits for nothing but the interpreter's lock,
            and the time of day is read ten times as fast as the processor time of a thread.
        inner: nanoseconds that inner stages took inside the one that the thread is in.
    """

    __slots__ = ("inner", "now")

    def __init__(self) -> None:
        on_loop = threading.current_thread() is threading.main_thread()
        self.now = perf_counter_ns if on_loop else thread_time_ns
        self.inner = 0


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.clock = _Clock()


#: By direction and form.
_counted: Final[dict[tuple[StageName, str], _Counted]] = {}
#: Several threads add to the same sums. It is held for a few additions, so hardly ever waited for.
_lock: Final = threading.Lock()
_this: Final = _OfThread()


class CountingStage(Stage):
    """Decoding or encoding, for one request. Enter it for each piece of work, in one thread at a time.

    Rows and bytes of a piece that fails do not count: what the event loop refuses is done again in a thread.

    Args:
        received: as of `stage`.
        recorded: the stage that records the same, if tracing is on.
    """

    __slots__ = (
        "_began",
        "_clock",
        "_key",
        "_num_bytes",
        "_num_rows",
        "_outer",
        "_received",
        "_recorded",
        "_seen",
    )

    def __init__(
        self, name: StageName, form: str, received: Callable[[], int] | None, recorded: Stage | None
    ) -> None:
        self._key = (name, form)
        self._received = received
        self._recorded = recorded
        self._seen = self._num_rows = self._num_bytes = 0

    def __enter__(self) -> Stage:
        if self._recorded is not None:
            self._recorded.__enter__()
        self._clock = clock = _this.clock
        self._outer, clock.inner = clock.inner, 0
        self._began = clock.now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        clock = self._clock
        took = clock.now() - self._began
        if kind is None:
            self._add(took - clock.inner, self._num_rows, self._num_bytes)
        else:
            self._add(took - clock.inner, 0, 0)
        self._num_rows = self._num_bytes = 0
        clock.inner = self._outer + took
        if self._recorded is not None:
            self._recorded.__exit__(kind, error, trace)

    def count(self, num_rows: int = 0, num_bytes: int = 0) -> None:
        self._num_rows += num_rows
        self._num_bytes += num_bytes + self._newly_received()

    def drawn(self, items: Iterator[T], measure: Measure[T] | None = None) -> Iterator[T]:
        # As `with self` around each step, in half the time.
        if self._recorded is not None:
            items = self._recorded.drawn(items)
        nanoseconds = num_rows = num_bytes = 0
        clock = _this.clock
        outer, clock.inner, began = clock.inner, 0, clock.now()
        is_drawing = True
        try:
            for item in items:
                took = clock.now() - began
                nanoseconds += took - clock.inner
                clock.inner = outer + took
                if measure is not None:
                    rows_of_item, bytes_of_item = measure(item)
                    num_rows += rows_of_item
                    num_bytes += bytes_of_item
                if nanoseconds > _ADDED_AFTER_NS:
                    self._add(nanoseconds, num_rows, num_bytes + self._newly_received())
                    nanoseconds = num_rows = num_bytes = 0
                is_drawing = False
                yield item
                clock = _this.clock
                outer, clock.inner, began = clock.inner, 0, clock.now()
                is_drawing = True
            num_bytes += self._newly_received()
        finally:
            if is_drawing:
                took = clock.now() - began
                nanoseconds += took - clock.inner
                clock.inner = outer + took
            else:  # nobody wants more
                num_bytes += self._newly_received()
            self._add(nanoseconds, num_rows, num_bytes)

    def _newly_received(self) -> int:
        """Bytes of the body that have arrived since it was last called."""
        if self._received is None:
            return 0
        received = self._received()
        seen, self._seen = self._seen, received
        return received - seen

    def _add(self, nanoseconds: int, num_rows: int, num_bytes: int) -> None:
        counted = _of(*self._key)
        with _lock:
            counted.nanoseconds += nanoseconds
            counted.num_rows += num_rows
            counted.num_bytes += num_bytes


def count_whole(whole: WholeConversion, ended_ns: int, num_bytes: int) -> None:
    """Count a conversion of which the answer is drawn.

    Args:
        ended_ns: when its last bytes were.
        num_bytes: of the answer.
    """
    (input_form, output_form), (began, half) = whole.forms, whole.begun_ns
    decoded, encoded = _of("decode", input_form), _of("encode", output_form)
    with _lock:
        decoded.nanoseconds += half - began
        decoded.num_bytes += whole.num_bytes
        encoded.nanoseconds += ended_ns - half
        encoded.num_bytes += num_bytes


def _of(direction: StageName, form: str) -> _Counted:
    key = (direction, form)
    return _counted.get(key) or _counted.setdefault(key, _Counted())


class _Stages:
    """What was counted, as metrics."""

    def collect(self) -> Iterator[Metric]:
        seconds, bytes_in, bytes_out, rows_in, rows_out = map(
            _counter, (_SECONDS, _BYTES_IN, _BYTES_OUT, _ROWS_IN, _ROWS_OUT)
        )
        for (direction, form), counted in list(_counted.items()):
            seconds.add_metric((direction, form), counted.nanoseconds / 1e9)
            num_bytes, num_rows = (bytes_in, rows_in) if direction == "decode" else (bytes_out, rows_out)
            num_bytes.add_metric((form,), counted.num_bytes)
            num_rows.add_metric((form,), counted.num_rows)
        yield from (seconds, bytes_in, bytes_out, rows_in, rows_out)


def _counter(declared: Declared) -> CounterMetricFamily:
    return CounterMetricFamily(declared.name, declared.meaning, labels=declared.labels)


REGISTRY.register(_Stages())


def count_conversions() -> None:
    """Count conversions from now on."""
    count_stages(CountingStage)
