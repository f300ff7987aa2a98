"""Turns to compute: as many threads compute at a time as there are processors, and the others wait.

More threads would only compete for the interpreter's lock, which the event loop also needs. A thread keeps
its turn while it computes, and lends it to others while it waits for anything else.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Final

from ..errors import Overloaded

#: How long a thread computes while others wait: as long as Linux lets threads of one priority
#: (`RR_TIMESLICE`, include/linux/sched/rt.h). Shorter work is never interrupted.
_SLICE_S: Final = 0.1
#: How long a thread waits for a turn. Work that has begun then goes on without one, so that a lock that it
#: holds cannot stop everything; other work is refused. Large JSON takes many seconds in one turn.
_PATIENCE_S: Final = 30.0


#: Threads that hand the interpreter's lock to one another several times in a switch interval never let the
#: event loop have it. They pause for `_PAUSE_S`, at most `_PAUSES` times, until the loop has run.
_PAUSE_S: Final = 0.001
_PAUSES: Final = 20


class Turns:
    """At most `count` threads have a turn at one time; those that waited too long go on without one.

    Args:
        count: of threads.
        is_late: whether something more urgent than all of them waits for the interpreter's lock.
        on_wait: told how many seconds a thread has waited that found no turn free.
    """

    def __init__(
        self,
        count: int,
        is_late: Callable[[], bool] = lambda: False,
        on_wait: Callable[[float], object] = lambda _: None,
    ) -> None:
        self._is_late = is_late
        self._on_wait = on_wait
        self.count = count
        self._lock = threading.Lock()
        self._free = count
        #: Threads that come back from waiting go before those that have not begun.
        self._returning: deque[threading.Lock] = deque()
        self._queue: deque[threading.Lock] = deque()

    @property
    def in_use(self) -> int:
        """Threads that have a turn."""
        return self.count - self._free

    @property
    def num_waiting(self) -> int:
        """Threads that wait for one."""
        return len(self._queue) + len(self._returning)

    @property
    def wanted(self) -> bool:
        """Whether any thread waits for a turn."""
        return bool(self._queue or self._returning)

    @contextmanager
    def turn(self, *, has_begun: bool = False) -> Iterator[None]:
        """Wait for a turn, and hold it inside the block. Must not be nested.

        Args:
            has_begun: the thread helps one that has begun; it goes before those that have not, and goes on
                without a turn if none comes in time.

        Raises:
            Overloaded: no turn came in time.
        """
        self._take(self._returning if has_begun else self._queue, or_refuse=not has_begun)
        try:
            yield
        finally:
            self._give()

    @contextmanager
    def lend(self) -> Iterator[None]:
        """Lend this thread's turn to others inside the block."""
        self._give()
        try:
            yield
        finally:
            self._take(self._returning)

    def make_way(self) -> None:
        """Pause briefly while something more urgent waits."""
        for _ in range(_PAUSES):
            if not self._is_late():
                return
            time.sleep(_PAUSE_S)  # noqa: TID251  # more urgent work goes on meanwhile

    def pass_on(self) -> None:
        """Give the turn to another thread, if any waits, and queue behind it."""
        if self.wanted:
            self._give()
            self._take(self._queue)

    def _take(self, queue: deque[threading.Lock], *, or_refuse: bool = False) -> None:
        gate = self._free_or_gate(queue)
        if gate is not None:
            self._wait(queue, gate, or_refuse=or_refuse)
        _this.holder, _this.since = self, time.monotonic()

    def _free_or_gate(self, queue: deque[threading.Lock]) -> threading.Lock | None:
        """None if a turn was free; else a lock that is released when one is handed over."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return None
            gate = threading.Lock()
            gate.acquire()
            queue.append(gate)
            return gate

    def _wait(self, queue: deque[threading.Lock], gate: threading.Lock, *, or_refuse: bool) -> None:
        began = time.monotonic()
        try:
            if not gate.acquire(timeout=_PATIENCE_S):
                self._go_without(queue, gate, or_refuse=or_refuse)
        finally:
            self._on_wait(time.monotonic() - began)

    def _go_without(self, queue: deque[threading.Lock], gate: threading.Lock, *, or_refuse: bool) -> None:
        with self._lock:
            if gate not in queue:  # it has just been handed a turn
                return
            queue.remove(gate)
            if or_refuse:
                raise Overloaded(
                    "No processor came free in time; nothing was done. Try again.", short="processors"
                )
            self._free -= 1

    def _give(self) -> None:
        _this.holder = None
        with self._lock:
            self._free += 1
            queue = self._returning or self._queue
            if queue and self._free > 0:
                self._free -= 1
                queue.popleft().release()


class _OfThread(threading.local):
    holder: Turns | None = None
    since: float = 0.0


_this = _OfThread()


@contextmanager
def waiting() -> Iterator[None]:
    """Lend this thread's turn, if it has one, inside the block: for everything that makes a thread wait."""
    if _this.holder is None:
        yield
        return
    with _this.holder.lend():
        yield


def turns_of_helpers() -> Callable[[], AbstractContextManager[None]]:
    """What gives a turn to a thread that helps this one; nothing to wait for if this one has none."""
    holder = _this.holder
    return nullcontext if holder is None else partial(holder.turn, has_begun=True)


def pause(seconds: float) -> None:
    """Sleep, and lend this thread's turn meanwhile. Workers call this instead of `time.sleep`."""
    if seconds > 0:
        with waiting():
            time.sleep(seconds)  # noqa: TID251  # the turn is lent


def has_turn() -> bool:
    """Whether this thread has a turn, which others may be waiting for."""
    return _this.holder is not None


def offer_turn() -> None:
    """Let others compute if this thread has done so for long enough. Call it between steps of long work."""
    holder = _this.holder
    if holder is None:
        return
    holder.make_way()
    if time.monotonic() - _this.since > _SLICE_S:
        holder.pass_on()
