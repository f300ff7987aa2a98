"""The order of rows for training, and which worker gets which rows: pure functions of a seed.

The random numbers are those of numpy's PCG64, whose raw output numpy promises never to change (NEP 19).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: A place in the buffer is found with 32 random bits. The memory limit is another, lower bound.
MAX_SHUFFLE_BUFFER: Final = 2**31


@dataclass(frozen=True, slots=True)
class RowOrder:
    """One pass over some rows, divided among workers.

    Attributes:
        shuffle_buffer: among how many rows the next one is drawn; 0 keeps the rows in order.
        seed, epoch: each pair gives another order.
        worker: which share of the rows, from 0.
        num_workers: how many shares there are; each row is in one of them.
    """

    shuffle_buffer: int = 0
    seed: int = 0
    epoch: int = 0
    worker: int = 0
    num_workers: int = 1

    def share(self, num_rows: int) -> tuple[int, int]:
        """The first row of this worker, and the end of its rows, in the order of all workers.

        No two shares differ by more than a row.
        """
        return (
            num_rows * self.worker // self.num_workers,
            num_rows * (self.worker + 1) // self.num_workers,
        )

    def arrange_runs(self, count: int) -> NDArray[np.int64]:
        """The numbers of `count` runs of rows in the order in which all workers read them."""
        if not self.shuffle_buffer:
            return np.arange(count)
        keys = np.random.PCG64([self.seed, self.epoch]).random_raw(count)
        return np.argsort(keys, kind="stable")

    def slots(self) -> Slots:
        """The slots of the buffer that are replaced, one for each arriving row."""
        return Slots(np.random.PCG64([self.seed, self.epoch, self.worker, self.num_workers]))


class Slots:
    """A sequence of random numbers that does not depend on how many are taken at a time."""

    def __init__(self, bits: np.random.PCG64) -> None:
        self._bits = bits

    def below(self, bound: int, count: int) -> NDArray[np.int64]:
        """`count` numbers from 0 up to `bound`, which is at most 2^31."""
        high = self._raw(count) >> np.uint64(32)
        return (high * np.uint64(bound) >> np.uint64(32)).astype(np.int64)

    def permutation(self, count: int) -> NDArray[np.int64]:
        """The numbers from 0 up to `count` in any order."""
        return np.argsort(self._raw(count), kind="stable")

    def _raw(self, count: int) -> NDArray[np.uint64]:
        return np.asarray(self._bits.random_raw(count), np.uint64)


#: All rows in the order of the version.
IN_ORDER: Final = RowOrder()
