"""Shards of a version that is being published, to be written by any process that is told of them.

The plan says every byte of them, and an executor notes each one that is written. So any number of processes
may write any shards, at the same time or again, and whoever publishes finds what is missing by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

#: So many tasks for each process: shards differ in what they take.
_TASKS_EACH: Final = 4


@dataclass(frozen=True, slots=True)
class UnwrittenShards:
    """Some shards of a version. It can be sent to another process.

    Attributes:
        numbers: their places in the plan.
        shuffled: whoever writes one of a split reads all records of that split, once for all that it writes.
    """

    dataset: str
    version: str
    numbers: tuple[int, ...]
    shuffled: bool

    def share(self, index: int, of: int) -> UnwrittenShards:
        """Every `of`-th shard of the plan, from the one with that index."""
        return replace(self, numbers=tuple(number for number in self.numbers if number % of == index))

    def deal(self, processes: int) -> list[UnwrittenShards]:
        """The same shards in tasks for some processes."""
        count = min(len(self.numbers), processes * (1 if self.shuffled else _TASKS_EACH))
        bounds = [len(self.numbers) * index // count for index in range(count + 1)] if count else []
        return [replace(self, numbers=self.numbers[first:stop]) for first, stop in pairwise(bounds)]


#: Has shards written by several processes; those that are missing when it returns are written by who called
#: it. The second argument writes shards in this process.
Spread = Callable[[UnwrittenShards, Callable[[UnwrittenShards], None]], None]
