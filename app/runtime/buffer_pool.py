"""Large buffers that are reused, because touching new pages costs more than writing to them."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from .budget import Budget


class BufferPool:
    """Buffers to fill and then lend to readers. Safe to use from several threads (`budget` is not).

    A lent buffer returns when its last reader drops it, in any thread. A reader may keep it after the call
    that it was passed to, as an HTTP client does when it sends a request again.

    Args:
        budget: charged for all buffers (taken, lent and free) until the pool is closed.
        what: names them in the error.
        most_lent: how many are lent at a time. If there are more, the pool gives up the oldest: they belong
            to their readers, and are no longer charged.
    """

    def __init__(self, budget: Budget, what: str, *, most_lent: int) -> None:
        self._budget = budget
        self._what = what
        self._most_lent = most_lent
        self._free: list[NDArray[np.uint8]] = []
        self._lent: dict[int, int] = {}  # sizes, oldest first; no two buffers alive have one id
        self._returned: deque[NDArray[np.uint8]] = deque()
        self._charged = 0
        self._lock = threading.Lock()

    def __enter__(self) -> BufferPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def take(self, size: int) -> NDArray[np.uint8]:
        """A buffer of `size` to twice as many bytes, with undefined content.

        Raises:
            LimitExceeded: more than the budget.
        """
        with self._lock:
            self._collect()
            fitting = [index for index, free in enumerate(self._free) if size <= len(free) <= 2 * size]
            if fitting:
                return self._free.pop(min(fitting, key=lambda index: len(self._free[index])))
            self._budget.charge(size, self._what)
            self._charged += size
        # From numpy: it asks the system for large pages, which cost less to touch.
        return np.empty(size, np.uint8)

    def drop(self, buffer: NDArray[np.uint8]) -> None:
        """Drop a buffer that was taken and is no longer needed."""
        with self._lock:
            self._forget(len(buffer))

    def lend(self, buffer: NDArray[np.uint8], size: int) -> memoryview:
        """The first `size` bytes of a buffer that was taken, which readers may keep as long as they like."""
        view = buffer[:size]
        with self._lock:
            self._lent[id(buffer)] = len(buffer)
        # Everything made from the memoryview keeps `view` alive. No lock is taken where it ends.
        weakref.finalize(view, self._returned.append, buffer).atexit = False
        return view.data.toreadonly()

    def close(self) -> None:
        """Release the free buffers. Lent ones are released when they return."""
        with self._lock:
            self._free.clear()
            self._lent.clear()
            self._forget(self._charged)

    def _collect(self) -> None:
        while self._returned:
            buffer = self._returned.popleft()
            if self._lent.pop(id(buffer), None) is not None:
                self._free.append(buffer)
        while len(self._lent) > self._most_lent:
            self._forget(self._lent.pop(next(iter(self._lent))))

    def _forget(self, size: int) -> None:
        self._charged -= size
        self._budget.release(size)
