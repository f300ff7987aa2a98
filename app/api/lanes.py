"""Threads that work is handed to from the event loop, and promises that they keep there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Generic, TypeVar

from ..errors import Overloaded

__all__ = ["Lane", "Promise"]

T = TypeVar("T")

#: How long a request waits for a worker before it is told to come again.
_ADMISSION_WAIT_S: Final = 10.0


class Lane:
    """Threads, and a queue in front of them in which nobody waits for long."""

    def __init__(self, num_threads: int, name: str, *, queued: int = 0) -> None:
        self.pool = ThreadPoolExecutor(num_threads, thread_name_prefix=name)
        self._free = asyncio.Semaphore(num_threads + queued)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def enter(self) -> None:
        """Wait for a thread.

        Raises:
            Overloaded: none came free in time.
        """
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_ADMISSION_WAIT_S):
                await self._free.acquire()
        except TimeoutError:
            raise Overloaded(
                f"No worker came free within {_ADMISSION_WAIT_S:g} s; nothing was done. Try again."
            ) from None

    def leave(self, broken: Promise[Any] | None = None) -> None:
        """A thread has come free; `broken` is what it was to keep, where it never began."""
        if broken is not None:
            broken.fail(Overloaded("The service is shutting down. Try again.", code="shutting_down"))
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._free.release)

    def close(self) -> None:
        """Wait for what runs; start nothing that waits."""
        self.pool.shutdown(wait=True, cancel_futures=True)


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
