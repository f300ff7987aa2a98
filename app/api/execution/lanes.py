"""Threads that work is handed to from the event loop, and promises that they keep there."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from ...errors import Overloaded, ShardsmithError
from ...runtime.threads import Threads
from ..patience import shutting_down

T = TypeVar("T")

#: Where the store hangs, work that waits for a thread does too: what has waited longer is refused, before its
#: client gives up.
LONGEST_IN_QUEUE_S: Final = 10.0
#: How long a request waits for a worker before it is told to come again.
_ADMISSION_WAIT_S: Final = 10.0
#: Who would have to wait longer than this is told so at once. A queue is for bursts: one that stands only
#: makes every answer late, until clients give up before theirs comes ("Fail at Scale", ACM Queue 13/8, 2015).
_LONGEST_QUEUE_S: Final = 2.0
#: Weight of the latest interval between two workers that came free in the moving mean of all.
_LATEST: Final = 0.3

#: What a request is counted with: no group of requests has more than half of the threads, nor of the queue.
#: Requests that have several groups in common leave a quarter of those threads to others, so that no caller
#: takes all of a group that it shares. The first is the caller; whose caller has fewer threads goes first.
Groups = tuple[str, ...]


@dataclass(eq=False, slots=True)
class _Waiting:
    turn: asyncio.Future[None]
    groups: Groups


class Lane:
    """Threads, and a short queue in front of them. To be used on the event loop.

    Args:
        num_threads: how many there are.
        name: of the threads.
        queued: how many more may wait.
    """

    def __init__(self, num_threads: int, name: str, *, queued: int = 0) -> None:
        self._pool = Threads(num_threads, thread_name_prefix=name)
        self.name = name
        self.num_threads = num_threads
        self._free = num_threads
        self._most_of_group = max(1, self._free // 2)
        self._held: Counter[str | Groups] = Counter()
        self._queued = queued
        self._waiting: deque[_Waiting] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._interval_s = 0.0
        self._came_free = 0.0
        self._closed = False

    @property
    def num_taken(self) -> int:
        """Threads that are taken."""
        return self.num_threads - self._free

    @property
    def num_waiting(self) -> int:
        """Requests that wait for a thread."""
        return len(self._waiting)

    async def enter(self, groups: Groups = ()) -> None:
        """Take a thread, or wait for one.

        Raises:
            Overloaded: at once, where too many wait or the wait would be long; later, where none came free.
        """
        self._loop = asyncio.get_running_loop()
        if self._has_one_for(groups):
            self._take(groups)
            return
        if self.is_full_for(groups):
            raise Overloaded(
                "All workers are busy, or all that one caller may have; nothing was done. Try again.",
                short="threads",
            )
        if not self._waiting:
            self._came_free = time.monotonic()
        waiting = _Waiting(self._loop.create_future(), groups)
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(_ADMISSION_WAIT_S):
                await waiting.turn
        except TimeoutError:
            self._forgo(waiting)
            raise Overloaded(
                f"No worker came free within {_ADMISSION_WAIT_S:g} s; nothing was done. Try again.",
                short="threads",
            ) from None
        except BaseException:
            self._forgo(waiting)
            raise

    def is_full_for(self, groups: Groups) -> bool:
        """Whether who enters now is refused at once: too many wait, or the wait would be long."""
        if self._has_one_for(groups):
            return False
        if len(self._waiting) >= self._queued:
            return True
        most = -(-self._queued // 2)
        queued = Counter(waiting.groups for waiting in self._waiting)
        for group in groups:
            if sum(count for others, count in queued.items() if group in others) >= most:
                return True
        return self._expected_wait(groups, queued) > _LONGEST_QUEUE_S

    def leave(self, groups: Groups = ()) -> None:
        """A thread that was taken is free again; to be called in any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._come_free, groups)

    def start(
        self, function: Callable[[], Any], promise: Promise[Any], groups: Groups, *, within_s: float
    ) -> None:
        """Run `function`, which keeps `promise`, in the thread that was taken, which is then free again.

        Where it has not begun after `within_s`, or the service shuts down before, the promise is broken.
        """
        running = self._pool.submit(function)
        late = asyncio.get_running_loop().call_later(within_s, running.cancel)

        def end(done: Future[Any]) -> None:
            if done.cancelled():
                promise.fail(self._not_begun())
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._come_free, groups, late)

        running.add_done_callback(end)

    async def go_on(self, function: Callable[[], T], *, within_s: float) -> T:
        """Run `function` in the first thread that comes free, for what has been let in.

        Raises:
            Overloaded: it has not begun after `within_s`.
        """
        running = self._pool.submit(function)
        late = asyncio.get_running_loop().call_later(within_s, running.cancel)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise self._not_begun() from None
        finally:
            late.cancel()

    def close(self) -> None:
        """Wait for what runs; start nothing that waits."""
        self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _not_begun(self) -> ShardsmithError:
        if self._closed:
            return shutting_down()
        return Overloaded("The service is too busy; nothing was done. Try again.", short="threads")

    def _has_one_for(self, groups: Groups) -> bool:
        most = self._most_of_group
        return (
            self._free > 0
            and all(self._held[group] < most for group in groups)
            and (len(groups) < 2 or self._held[groups] < max(1, most - max(1, most // 4)))
        )

    def _take(self, groups: Groups) -> None:
        self._free -= 1
        self._held.update((*groups, groups))

    def _expected_wait(self, groups: Groups, queued: Counter[Groups]) -> float:
        """How long who comes now would wait, as threads have come free of late; or have not."""
        if not self._waiting:
            return 0.0
        # Where none has come free for a while, all of them may in a moment: they began together.
        together = self._most_of_group if groups else self.num_threads
        since = (time.monotonic() - self._came_free) / together
        # The others have their threads in turn.
        ahead = sum(min(count, queued[groups] + 1) for count in queued.values())
        return max(self._interval_s, since) * (ahead + 1)

    def _come_free(self, groups: Groups, late: asyncio.TimerHandle | None = None) -> None:
        if late is not None:
            late.cancel()
        now = time.monotonic()
        if self._waiting:
            latest = now - self._came_free
            weight = _LATEST if self._interval_s else 1 / self.num_threads
            self._interval_s += weight * (latest - self._interval_s)
            self._came_free = now
        self._give_back(groups)

    def _give_back(self, groups: Groups) -> None:
        self._free += 1
        keys: tuple[str | Groups, ...] = (*groups, groups)
        for key in keys:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]
        self._hand_over()

    def _hand_over(self) -> None:
        """Give free threads to those who may have one: to the caller with the fewest, in order of arrival."""
        while found := [waiting for waiting in self._waiting if self._has_one_for(waiting.groups)]:
            chosen = min(found, key=lambda waiting: self._held[waiting.groups[0]] if waiting.groups else 0)
            self._waiting.remove(chosen)
            if not chosen.turn.done():
                self._take(chosen.groups)
                chosen.turn.set_result(None)

    def _forgo(self, waiting: _Waiting) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
        elif waiting.turn.done() and not waiting.turn.cancelled():
            self._give_back(waiting.groups)


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
            drop_locals(caught)
            error = RuntimeError("an iterator ended where none should")
            error.__cause__ = caught
            self.fail(error)
            return error
        except BaseException as caught:  # carried to the event loop, which raises it there
            drop_locals(caught)
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


def drop_locals(error: BaseException) -> None:
    """Drop the local variables of the functions that raised `error`; its traceback still names their lines.

    They hold what the request was working on, 10 MB and more, and often refer to the error in turn: without
    this the memory comes back only when Python looks for cycles.
    """
    chain: list[BaseException | None] = [error]
    seen: set[int] = set()
    while chain:
        link = chain.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        traceback.clear_frames(link.__traceback__)
        chain += [link.__cause__, link.__context__]
