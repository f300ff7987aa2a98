"""A bounded memory of things that never change, such as manifests."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

__all__ = ["Kept"]

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Kept(Generic[KeyT, ValueT]):
    """Keeps up to `capacity` values, then forgets the one first put. Safe to use from several threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: dict[KeyT, ValueT] = {}
        self._lock = threading.Lock()

    def get(self, key: KeyT) -> ValueT | None:
        """The value, or None where it is not kept."""
        return self._values.get(key)

    def put(self, key: KeyT, value: ValueT) -> ValueT:
        """Keep `value` and return it."""
        with self._lock:
            while key not in self._values and len(self._values) >= self._capacity:
                del self._values[next(iter(self._values))]
            self._values[key] = value
        return value
