"""Which pieces of a split are read for some of its rows, in which order, and which of their rows count.

A run of pieces that begins with a record and ends before the next piece that does so can be read on its
own, at any place of the stream. Runs are what is put in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge

import numpy as np

from ....domain.sharding.mixture import MixedPart
from ....domain.sharding.row_order import Part, RowOrder
from ....domain.sharding.windows import Ints, Windows
from ..pieces.pieces import SplitPieces, StoredPiece


@dataclass(frozen=True, slots=True)
class Kept:
    """Some records of a stream, and which rows they are.

    Attributes:
        begin, end: from, and up to, counted in the stream.
        row: the number of the first of them, as the runs in their order are counted.
    """

    begin: int
    end: int
    row: int


@dataclass(frozen=True, slots=True)
class _Run:
    """Pieces with `num_records`, of which those from `start` up to `stop` are the rows from `row` on."""

    pieces: Sequence[StoredPiece]
    num_records: int
    start: int
    stop: int
    row: int


class _Runs:
    """The runs of some rows, in order, as a few numbers each: a run is made when it is asked for.

    Attributes:
        rows: the number of the first row of each, and where the last one ends.
    """

    def __init__(self, split: SplitPieces, start: int, stop: int, order: RowOrder, row: int) -> None:
        self._pieces, skip = split.covering(start, stop)
        records = np.fromiter((stored.piece.num_records for stored in self._pieces), np.int64)
        begins = np.flatnonzero(records)
        arranged = order.arrange_runs(len(begins))
        self._begins = begins[arranged]
        self._ends = np.append(begins[1:], len(self._pieces))[arranged]
        self._records = records[self._begins]
        self._starts = np.where(arranged == 0, skip, 0)
        # Behind the last row, too, some records of its run may be none of these.
        rest = int(records.sum()) - skip - (stop - start)
        counts = self._records - self._starts - np.where(arranged == len(begins) - 1, rest, 0)
        self.rows: Ints = row + np.append(0, np.cumsum(counts))

    def __len__(self) -> int:
        return len(self._begins)

    def between(self, first: int, last: int) -> Iterator[_Run]:
        """Of the runs the rows from `first` up to `last`."""
        number = int(np.searchsorted(self.rows, first, side="right")) - 1
        while first < last:
            end = min(last, int(self.rows[number + 1]))
            start = int(self._starts[number]) + first - int(self.rows[number])
            pieces = self._pieces[int(self._begins[number]) : int(self._ends[number])]
            yield _Run(pieces, int(self._records[number]), start, start + end - first, first)
            first, number = end, number + 1


@dataclass(frozen=True, slots=True)
class RowPlan:
    """What is read. A split may have many pieces, so they are listed as they are drawn.

    Attributes:
        runs: in order.
        part: the places of those rows that are wanted.
        windows: what is shuffled; None keeps the order.
    """

    runs: _Runs
    part: Part | MixedPart
    windows: Windows | None = None

    def pieces(self) -> Iterator[StoredPiece]:
        """Those that are read; one after the other, a TFRecord stream."""
        for run in self._read():
            yield from run.pieces

    def kept(self) -> Iterator[Kept]:
        """Which of the records in that stream are needed, in ascending order."""
        offset = 0
        for run in self._read():
            yield Kept(offset + run.start, offset + run.stop, run.row)
            offset += run.num_records

    def _read(self) -> Iterator[_Run]:
        if self.windows is None:
            return self.runs.between(*self.part.bounds)
        lanes = (self._lane(lane, self.windows) for lane in range(self.windows.num_lanes))
        return (run for _, _, run in merge(*lanes, key=lambda item: item[:2]))

    def _lane(self, lane: int, windows: Windows) -> Iterator[tuple[int, int, _Run]]:
        """What lies in a lane of the windows that hold the part, and which of these needs it first."""
        low, high = windows.lane(lane, *windows.holding(*self.part.bounds))
        for run in self.runs.between(low, high):
            yield (run.row - low) // windows.depth, lane, run


def plan_rows(split: SplitPieces, start: int, stop: int, order: RowOrder, part: Part | MixedPart) -> RowPlan:
    """A plan for `part`, which has rows, of the records `start` to `stop` of a split in `order`."""
    if not order.shuffle_buffer:
        first, last = part.bounds
        return RowPlan(_Runs(split, start + first, start + last, order, first), part)
    runs = _Runs(split, start, stop, order, 0)
    return RowPlan(runs, part, Windows.of(stop - start, len(runs), order.shuffle_buffer))
