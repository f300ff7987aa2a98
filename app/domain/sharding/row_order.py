"""The order of rows in an epoch, and which of them each worker gets: pure functions of a few numbers.

The order has two levels. Runs of stored rows come in a random order; then the rows are cut into windows
(`windows.py`), each of which is shuffled by itself. So rows are read in large pieces, and the window of any
place is found without the ones before it.

The random numbers are those of numpy's PCG64, whose raw output numpy promises never to change (NEP 19). It
gives any of them without the ones before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .windows import Ints, Windows

#: A place in a window takes half of a random number at most. The memory limit is another, lower bound.
MAX_SHUFFLE_BUFFER: Final = 2**31


@dataclass(frozen=True, slots=True)
class Part:
    """The places of an order that one worker gets: the same part of each step, and one of a short last step.

    Attributes:
        start: the place at which the first step begins.
        step: places of a step.
        num_steps: how many are full.
        begin, end: which places of a full step are this worker's.
        last_begin, last_end: which ones of the step behind those.
    """

    start: int
    step: int
    num_steps: int
    begin: int
    end: int
    last_begin: int
    last_end: int

    @property
    def num_rows(self) -> int:
        """How many places there are."""
        return self.num_steps * (self.end - self.begin) + self.last_end - self.last_begin

    @property
    def bounds(self) -> tuple[int, int]:
        """The first place, and the end of the last one; both the start where there is none."""
        if not self.num_rows:
            return self.start, self.start
        low = self.begin if self.num_steps else self.last_begin
        high = (self.num_steps - 1) * self.step + self.end
        if self.last_begin < self.last_end:
            high = self.num_steps * self.step + self.last_end
        return self.start + low, self.start + high

    def holds(self, places: Ints) -> NDArray[np.bool_]:
        """Whether each of `places` is this worker's."""
        steps, inside = np.divmod(places - self.start, self.step)
        full = (inside >= self.begin) & (inside < self.end)
        last = (inside >= self.last_begin) & (inside < self.last_end)
        held: NDArray[np.bool_] = (steps >= 0) & np.where(steps < self.num_steps, full, last)
        held &= steps <= self.num_steps
        return held

    def between(self, first: int, last: int) -> Ints:
        """The places of this worker from `first` up to `last`."""
        places = np.arange(first, last)
        return places[self.holds(places)]


@dataclass(frozen=True, slots=True)
class RowOrder:
    """One pass over some rows, divided among workers.

    Attributes:
        shuffle_buffer: rows of a window, about; 0 keeps the rows in order.
        seed, epoch: each pair gives another order.
        worker: which share of the rows, from 0.
        num_workers: how many shares there are; each row is in one of them.
        global_batch: rows of a step, of which each worker gets an equal part; a multiple of `num_workers`.
            0: all rows are one step.
        start, stop: the places of the order between which rows are dealt; None: up to its end.
        drop_remainder: rows at the end that do not fill a step are left out.
    """

    shuffle_buffer: int = 0
    seed: int = 0
    epoch: int = 0
    worker: int = 0
    num_workers: int = 1
    global_batch: int = 0
    start: int = 0
    stop: int | None = None
    drop_remainder: bool = False

    def part(self, num_rows: int) -> Part:
        """The places of this worker in an order of so many rows."""
        stop = num_rows if self.stop is None else min(num_rows, self.stop)
        start = min(self.start, stop)
        # Without a size, all rows are a step that is not full: it is shared as evenly as it can be.
        step = self.global_batch or stop - start + 1
        num_steps, rest = divmod(stop - start, step)
        if self.drop_remainder and self.global_batch:
            rest = 0
        return Part(start, step, num_steps, *self._share(step), *self._share(rest))

    def _share(self, num_rows: int) -> tuple[int, int]:
        """This worker's share of the rows of a step. No two shares differ by more than a row."""
        return (
            num_rows * self.worker // self.num_workers,
            num_rows * (self.worker + 1) // self.num_workers,
        )

    def arrange_runs(self, count: int) -> Ints:
        """The numbers of `count` runs of rows in the order in which they are read."""
        if not self.shuffle_buffer:
            return np.arange(count)
        keys = np.random.PCG64([self.seed, self.epoch]).random_raw(count)
        return np.argsort(keys, kind="stable")

    def arrange_rows(self, windows: Windows, first: int, last: int) -> Ints:
        """For each place in the windows `first` to `last`, the row that is there, as the runs give them."""
        begin, end = windows.places(first, last)
        random = np.random.PCG64([self.seed, self.epoch, 1]).advance(begin)
        keys = np.asarray(random.random_raw(end - begin), np.uint64)
        num_full = min(last, windows.num_full) - first
        full, rest = np.split(keys, [max(0, num_full) * windows.size])
        rows = windows.rows_of_full(first, _shuffled(full.reshape(-1, windows.size)))
        return np.concatenate((rows.reshape(-1), windows.rows_of_last()[_shuffled(rest)]))


def _shuffled(keys: NDArray[np.uint64]) -> Ints:
    """Along the last axis, the numbers 0, 1, ... in the order of their keys."""
    # A window may be far larger than all rows: of none of its size, nothing is made as long as one.
    if not keys.size:
        return keys.astype(np.int64)
    # They are the lower bits of what is sorted, so that no two are equal.
    size = keys.shape[-1]
    bits = np.uint64((1 << max(0, size - 1).bit_length()) - 1)
    keys = keys & ~bits | np.arange(size, dtype=np.uint64)
    keys.sort(axis=-1)
    return (keys & bits).astype(np.int64)


#: All rows in the order of the version.
IN_ORDER: Final = RowOrder()
