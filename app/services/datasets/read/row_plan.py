"""Which pieces of a split are read for some of its rows, in which order, and which of their rows count.

A run of pieces that begins with a record and ends before the next piece that does so can be read on its
own, at any place of the stream. Runs are what is put in order and shared out among workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ....domain.sharding.row_order import RowOrder
from ..pieces.pieces import SplitPieces, StoredPiece


@dataclass(frozen=True, slots=True)
class RowPlan:
    """What is read.

    Attributes:
        pieces: one after the other, a TFRecord stream.
        kept: of the records in it, counted from 0: from, and up to, in ascending order.
    """

    pieces: Sequence[StoredPiece]
    kept: Sequence[tuple[int, int]]

    @property
    def num_rows(self) -> int:
        return sum(stop - start for start, stop in self.kept)


NO_ROWS: Final = RowPlan((), ())


@dataclass(frozen=True, slots=True)
class _Run:
    """Pieces with `num_records`, of which those from `start` up to `stop` are wanted."""

    pieces: Sequence[StoredPiece]
    num_records: int
    start: int
    stop: int


def plan_rows(split: SplitPieces, start: int, stop: int, order: RowOrder) -> RowPlan:
    """A plan for the records `start` to `stop` of a split, or for the share of them that `order` names."""
    first, last = order.share(stop - start)
    if not order.shuffle_buffer:
        start, stop = start + first, start + last
        first, last = 0, stop - start
    if first == last:
        return NO_ROWS
    runs = list(_runs(split, start, stop))
    pieces: list[StoredPiece] = []
    kept: list[tuple[int, int]] = []
    passed = position = 0
    for number in order.arrange_runs(len(runs)):
        run = runs[number]
        # The share is one of rows in this order: runs at its ends may belong to two workers.
        low = run.start + max(0, first - passed)
        high = min(run.stop, run.start + last - passed)
        passed += run.stop - run.start
        if low < high:
            pieces += run.pieces
            kept.append((position + low, position + high))
            position += run.num_records
    return RowPlan(pieces, kept)


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
