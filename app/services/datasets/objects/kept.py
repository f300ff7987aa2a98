"""A bounded memory of things that never change, such as manifests."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Kept(Generic[KeyT, ValueT]):
    """Keeps values of `capacity` together, then forgets those first put. Safe to use from several threads.

    The value put last is kept, however large it is.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: dict[KeyT, ValueT] = {}
        self._sizes: dict[KeyT, int] = {}
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: KeyT) -> ValueT | None:
        """The value, or None where it is not kept."""
        return self._values.get(key)

    def put(self, key: KeyT, value: ValueT, size: int = 1) -> ValueT:
        """Keep `value` and return it.

        Args:
            size: in whatever the capacity is measured.
        """
        with self._lock:
            self._size += size - self._sizes.get(key, 0)
            self._values[key], self._sizes[key] = value, size
            while self._size > self._capacity and len(self._values) > 1:
                oldest = next(name for name in self._values if name != key)
                del self._values[oldest]
                self._size -= self._sizes.pop(oldest)
        return value
