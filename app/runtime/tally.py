"""Bytes taken of a limit, by one process or by several that share it."""

from __future__ import annotations


class Tally:
    """What each process has taken of a limit.

    A process writes its own number alone, so none waits for another. Threads of one process have to lock it.

    Args:
        taken: a number for each process, in memory that they share; by default this process is alone.
        place: of this process in `taken`.
    """

    def __init__(self, taken: list[int] | memoryview[int] | None = None, place: int = 0) -> None:
        self._taken = [0] if taken is None else taken
        self._place = place

    @property
    def own(self) -> int:
        """Bytes that this process has taken."""
        return self._taken[self._place]

    @property
    def total(self) -> int:
        """Bytes that all processes have taken."""
        return sum(self._taken)

    @property
    def of_others(self) -> int:
        """Bytes that other processes have taken."""
        return self.total - self.own

    @property
    def is_shared(self) -> bool:
        """Whether there can be other processes."""
        return len(self._taken) > 1

    def add(self, num_bytes: int, limit: int) -> bool:
        """Take bytes, unless all together would be more than `limit`; whether they were taken."""
        if self.total + num_bytes > limit:
            return False
        # Written before the others are read again: of two processes that do this at once, one sees the other.
        self._taken[self._place] += num_bytes
        if self.total <= limit:
            return True
        self._taken[self._place] -= num_bytes
        return False

    def remove(self, num_bytes: int) -> None:
        """Return bytes."""
        self._taken[self._place] -= num_bytes
