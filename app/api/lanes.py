"""Threads that work is handed to from the event loop, and promises that they keep there."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Generic, TypeVar

from ..errors import Overloaded

__all__ = ["Lane", "Promise"]

T = TypeVar("T")

#: How long a request waits for a worker before it is told to come again.
_ADMISSION_WAIT_S: Final = 10.0
#: Who would have to wait longer than this is told so at once. A queue is for bursts: one that stands only
#: makes every answer late, until clients give up before theirs comes ("Fail at Scale", ACM Queue 13/8, 2015).
_LONGEST_QUEUE_S: Final = 2.0
#: Weight of the latest interval between two workers that came free in the moving mean of all.
_LATEST: Final = 0.3


class Lane:
    """Threads, and a short queue in front of them. All but `leave` is called on the event loop.

    Args:
        num_threads: how many there are.
        name: of the threads.
        ahead: what is handed to busy threads, to be taken up without a detour over the event loop.
        queued: how many more may wait.
    """

    def __init__(self, num_threads: int, name: str, *, ahead: int = 0, queued: int = 0) -> None:
        self.pool = ThreadPoolExecutor(num_threads, thread_name_prefix=name)
        self._num_threads = num_threads
        self._free = num_threads + ahead
        self._queued = queued
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._interval_s = 0.0
        self._came_free = 0.0

    async def enter(self) -> None:
        """Take a thread, or wait for one.

        Raises:
            Overloaded: at once, where too many wait or the wait would be long; later, where none came free.
        """
        self._loop = asyncio.get_running_loop()
        if self._free:
            self._free -= 1
            return
        if self.is_full:
            raise Overloaded("All workers are busy; nothing was done. Try again.")
        if not self._waiting:
            self._came_free = time.monotonic()
        turn = self._loop.create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(_ADMISSION_WAIT_S):
                await turn
        except TimeoutError:
            self._forgo(turn)
            raise Overloaded(
                f"No worker came free within {_ADMISSION_WAIT_S:g} s; nothing was done. Try again."
            ) from None
        except BaseException:
            self._forgo(turn)
            raise

    @property
    def is_full(self) -> bool:
        """Whether who enters now is refused at once: too many wait, or the wait would be long."""
        if self._free:
            return False
        return len(self._waiting) >= self._queued or self._expected_wait() > _LONGEST_QUEUE_S

    def leave(self, broken: Promise[Any] | None = None) -> None:
        """A thread has come free; `broken` is what it was to keep, where it never began."""
        if broken is not None:
            broken.fail(Overloaded("The service is shutting down. Try again.", code="shutting_down"))
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._come_free)

    def close(self) -> None:
        """Wait for what runs; start nothing that waits."""
        self.pool.shutdown(wait=True, cancel_futures=True)

    def _expected_wait(self) -> float:
        """How long who comes now would wait, as threads have come free of late; or have not."""
        if not self._waiting:
            return 0.0
        # Where none has come free for a while, all of them may in a moment: they began together.
        since = (time.monotonic() - self._came_free) / self._num_threads
        return max(self._interval_s, since) * (len(self._waiting) + 1)

    def _come_free(self) -> None:
        now = time.monotonic()
        if self._waiting:
            latest = now - self._came_free
            weight = _LATEST if self._interval_s else 1 / self._num_threads
            self._interval_s += weight * (latest - self._interval_s)
            self._came_free = now
        self._hand_over()

    def _hand_over(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _forgo(self, turn: asyncio.Future[None]) -> None:
        if turn in self._waiting:
            self._waiting.remove(turn)
        elif turn.done() and not turn.cancelled():
            self._hand_over()


class Promise(Generic[T]):
    """Sets an asyncio future from another thread, once, and never after its loop is gone."""

    def __init__(self, future: asyncio.Future[T]) -> None:
        self._future = future
        self._loop = future.get_loop()

    def keep(self, value: T) -> None:
        """Set the result."""
        self._call(lambda: self._future.set_result(value))

    def kept_by(self, function: Callable[[], None]) -> BaseException | None:
        """Run what is to deliver the answer; what it raises is the answer, unless that has begun."""
        try:
            function()
        except StopIteration as caught:  # which no future takes
            error = RuntimeError("an iterator ended where none should")
            error.__cause__ = caught
            self.fail(error)
            return error
        except BaseException as caught:  # carried to the event loop, which raises it there
            self.fail(caught)
            return caught
        return None

    def fail(self, error: BaseException) -> None:
        """Set the error."""
        self._call(lambda: self._future.set_exception(error))

    def _call(self, settle: Callable[[], None]) -> None:
        def once() -> None:
            if not self._future.done():
                settle()

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(once)
