"""How rows are cut into windows, whose rows are shuffled together: pure functions of a few numbers.

The rows are cut into a few lanes of one length, and each window takes a few rows of each lane. So a window
has rows of several pieces of shards, wherever these lie, and every lane is read from its beginning to its
end. What lies in pieces that were stored together, such as all rows of one class, is spread over an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

#: For each lane, a piece of some 4 MiB is held. The number is part of what an order is: it never changes.
_MAX_LANES: Final = 8


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one size, and at the end one with what is left of the lanes, which is less.

    Attributes:
        num_rows: of all windows.
        num_lanes: how many lanes there are; their lengths differ by a row at most.
        depth: how many rows a full window takes of each lane.
    """

    num_rows: int
    num_lanes: int
    depth: int

    @classmethod
    def of(cls, num_rows: int, num_runs: int, size: int) -> Windows:
        """Windows of `size` rows or a few less.

        Args:
            num_runs: of rows that are read together: there are no more lanes.
        """
        num_lanes = max(1, min(_MAX_LANES, num_runs, size))
        return cls(num_rows, num_lanes, max(1, size // num_lanes))

    @property
    def size(self) -> int:
        """Rows of a full window."""
        return self.num_lanes * self.depth

    @property
    def num_full(self) -> int:
        """How many windows are full. Each lane has enough rows for these, and no lane for another one."""
        return self.num_rows // self.size

    def holding(self, first: int, last: int) -> tuple[int, int]:
        """The windows that have the places `first` to `last`, which is past it: from, and up to."""
        return first // self.size, (last - 1) // self.size + 1

    def places(self, first: int, last: int) -> tuple[int, int]:
        """The places of the windows `first` to `last`: from, and up to."""
        return first * self.size, self.num_rows if last > self.num_full else last * self.size

    def lane(self, number: int, first: int, last: int) -> tuple[int, int]:
        """The rows of a lane that the windows `first` to `last` take: from, and up to."""
        begin = self.num_rows * number // self.num_lanes
        end = self.num_rows * (number + 1) // self.num_lanes
        return begin + first * self.depth, end if last > self.num_full else begin + last * self.depth

    def rows_of_full(self, first: int, inside: Ints) -> Ints:
        """The rows of full windows, from the window `first` on.

        Args:
            inside: `[windows, size]`, which row of its window comes at each place, counted lane after lane.
        """
        begins = np.arange(self.num_lanes) * self.num_rows // self.num_lanes
        lanes, steps = np.divmod(inside, self.depth)
        windows = np.arange(first, first + len(inside)) * self.depth
        rows: Ints = begins[lanes] + steps + windows[:, np.newaxis]
        return rows

    def rows_of_last(self) -> Ints:
        """The rows of the window behind the full ones, which may have none, lane after lane."""
        lanes = (self.lane(number, self.num_full, self.num_full + 1) for number in range(self.num_lanes))
        return np.concatenate([np.arange(begin, end) for begin, end in lanes])
