"""Which pieces of a split are read for some of its rows, in which order, and which of their rows count.

A run of pieces that begins with a record and ends before the next piece that does so can be read on its
own, at any place of the stream. Runs are what is put in order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from ....domain.sharding.mixture import MixedPart
from ....domain.sharding.row_order import Part, RowOrder
from ....domain.sharding.windows import Windows
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
class RowPlan:
    """What is read.

    Attributes:
        pieces: one after the other, a TFRecord stream.
        kept: of the records in it, in ascending order.
        part: the places of those that are wanted.
        windows: what is shuffled; None keeps the order.
    """

    pieces: Sequence[StoredPiece]
    kept: Sequence[Kept]
    part: Part | MixedPart
    windows: Windows | None = None


@dataclass(frozen=True, slots=True)
class _Run:
    """Pieces with `num_records`, of which those from `start` up to `stop` are the rows from `row` on."""

    pieces: Sequence[StoredPiece]
    num_records: int
    start: int
    stop: int
    row: int = 0

    def rows(self, first: int, last: int) -> _Run:
        """Of its rows those from `first` up to `last`, as they are numbered."""
        start = self.start + first - self.row
        return _Run(self.pieces, self.num_records, start, start + last - first, first)


def plan_rows(split: SplitPieces, start: int, stop: int, order: RowOrder, part: Part | MixedPart) -> RowPlan:
    """A plan for `part`, which has rows, of the records `start` to `stop` of a split in `order`."""
    if not order.shuffle_buffer:
        first, last = part.bounds
        runs = list(_runs(split, start + first, start + last))
        return RowPlan(*_stream(_numbered(runs, first)), part)
    runs = list(_runs(split, start, stop))
    runs = list(_numbered((runs[number] for number in order.arrange_runs(len(runs))), 0))
    windows = Windows.of(stop - start, len(runs), order.shuffle_buffer)
    return RowPlan(*_stream(_in_lanes(runs, windows, part)), part, windows)


def _runs(split: SplitPieces, start: int, stop: int) -> Iterator[_Run]:
    pieces, skip = split.covering(start, stop)
    begins = [number for number, stored in enumerate(pieces) if stored.piece.num_records]
    left = stop - start
    for begin, end in pairwise([*begins, len(pieces)]):
        num_records = pieces[begin].piece.num_records
        until = min(num_records, skip + left)
        yield _Run(pieces[begin:end], num_records, skip, until)
        left -= until - skip
        skip = 0


def _numbered(runs: Iterable[_Run], row: int) -> Iterator[_Run]:
    """The runs, with their rows numbered through from `row` on."""
    for run in runs:
        yield _Run(run.pieces, run.num_records, run.start, run.stop, row)
        row += run.stop - run.start


def _in_lanes(runs: Sequence[_Run], windows: Windows, part: Part | MixedPart) -> Iterator[_Run]:
    """What lies in each lane of the windows that hold `part`, in the order in which windows need it."""
    first, last = windows.holding(*part.bounds)
    begins = [run.row for run in runs]
    found: list[tuple[int, int, _Run]] = []
    for lane in range(windows.num_lanes):
        low, high = windows.lane(lane, first, last)
        row, number = low, bisect_right(begins, low) - 1
        while row < high:
            end = min(high, begins[number + 1]) if number + 1 < len(begins) else high
            found.append(((row - low) // windows.depth, lane, runs[number].rows(row, end)))
            row, number = end, number + 1
    found.sort(key=lambda item: item[:2])
    for _, _, run in found:
        yield run


def _stream(runs: Iterable[_Run]) -> tuple[list[StoredPiece], list[Kept]]:
    """The pieces of the runs, one after the other, and what is kept of them."""
    runs = list(runs)
    offsets = accumulate((run.num_records for run in runs), initial=0)
    kept = [
        Kept(offset + run.start, offset + run.stop, run.row)
        for offset, run in zip(offsets, runs, strict=False)
    ]
    return [stored for run in runs for stored in run.pieces], kept
