"""The clock of an event loop, which passes only when a test says so."""

import asyncio
import contextvars
import heapq
from collections.abc import Callable
from itertools import count
from typing import Any, cast


class VirtualTimer:
    """What `call_at` gives."""

    def __init__(self, callback: Callable[[], Any], context: contextvars.Context | None) -> None:
        self.callback = callback
        self.context = context or contextvars.copy_context()
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualTime:
    """Seconds that a test lets pass, and the timers that ring meanwhile, in their order.

    `govern` gives an event loop whose clock this is; all else is the loop's own.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._order = count()

    def govern(self, loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
        assert self._loop in (None, loop)
        self._loop = loop
        return cast(asyncio.AbstractEventLoop, _Governed(loop, self))

    def call_at(
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> VirtualTimer:
        timer = VirtualTimer(lambda: callback(*args), context)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Let time pass for the loop, which runs in another thread; return once all timers due have rung."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._advance(seconds), self._loop).result(60)

    def advance_until(self, condition: Callable[[], bool], *, within_s: float, step_s: float = 1.0) -> None:
        """Let `step_s` pass at a time until the condition holds; fail after `within_s`."""
        until = self.now + within_s
        while not condition():
            assert self.now < until, f"it did not come within {within_s} s"
            self.advance(step_s)

    async def _advance(self, seconds: float) -> None:
        until = self.now + seconds
        while self._timers and self._timers[0][0] <= until:
            when, _, timer = heapq.heappop(self._timers)
            self.now = max(self.now, when)
            if not timer.cancelled:
                timer.context.run(timer.callback)
                await asyncio.sleep(0)
        self.now = until
        for _ in range(3):  # what has closed is told so, and is gone
            await asyncio.sleep(0)


class _Governed:
    def __init__(self, loop: asyncio.AbstractEventLoop, time: VirtualTime) -> None:
        self._loop = loop
        self._time = time
        self.call_at = time.call_at

    def time(self) -> float:
        return self._time.now

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> VirtualTimer:
        return self._time.call_at(self._time.now + delay, callback, *args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)
