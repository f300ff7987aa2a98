"""Rows that leave through a buffer: tf.data's shuffle, record by record, whatever is done in one go."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.columns import MAX_BATCH_ROWS, Records
from app.domain.limits import KIB, MIB, Limits
from app.domain.sharding.row_order import RowOrder, Slots
from app.errors import LimitExceeded
from app.runtime.budget import Budget
from app.runtime.streams import Buffer
from app.services.datasets.pieces.pieces import Piece, SplitPieces, StoredPiece
from app.services.datasets.read.row_plan import RowPlan
from app.services.datasets.read.rows import read_rows
from app.storage.obstore_store import ObstoreStore, open_store
from tests.arrow_rows import as_arrow
from tests.rows import PADDED, SCHEMA, records
from tests.unit.codecs.seam import encode

#: Pieces are read ahead as rows are drawn.
POOL = ThreadPoolExecutor(1)


class Rows:
    """Rows 0, 1, ... as they lie on a store, `sizes` of them in a piece."""

    def __init__(self, sizes: Sequence[int], pad: int | None = None) -> None:
        self.store: ObstoreStore = open_store("memory://")
        self.schema = SCHEMA if pad is None else PADDED
        self.count = sum(sizes)
        pieces, first = [], 0
        for size in sizes:
            data: Buffer = encode("tfrecord", records(range(first, first + size), pad=pad))
            self.store.put(f"part/{first}", data)
            pieces.append(StoredPiece(f"part/{first}", 0, Piece.of(data, size)))
            first += size
        self.split = SplitPieces(pieces)

    def read(self, order: RowOrder, budget: Budget, kept: Sequence[tuple[int, int]] | None = None) -> Records:
        plan = RowPlan(list(self.split.covering(0, self.count)[0]), kept or [(0, self.count)])
        return read_rows(plan, order, self.schema, self.store, POOL, budget)

    def shuffled(self, buffer: int, budget: Budget | None = None) -> list[Any]:
        found = self.read(RowOrder(buffer, 1), budget or Budget())
        return values_of(found)


def values_of(found: Records) -> list[Any]:
    return [row for batch in as_arrow(found) for row in batch.column("x").to_pylist()]


def one_at_a_time(rows: Sequence[int], size: int, slots: Slots) -> list[int]:
    """What `tf.data.Dataset.shuffle` does."""
    buffer, found = list(rows[:size]), []
    for row in rows[size:]:
        slot = int(slots.below(size, 1)[0])
        found.append(buffer[slot])
        buffer[slot] = row
    return found + [buffer[i] for i in slots.permutation(len(buffer))]


def expected(count: int, size: int) -> list[int]:
    return one_at_a_time(range(count), size, RowOrder(size, 1).slots())


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 1500), min_size=1, max_size=6), buffer=st.integers(1, 2500))
def test_many_in_one_go_are_as_one_at_a_time(sizes: list[int], buffer: int) -> None:
    budget = Budget()
    assert Rows(sizes).shuffled(buffer, budget) == expected(sum(sizes), buffer)
    assert budget.remaining == Budget().remaining


@pytest.mark.parametrize(
    ("sizes", "buffer"),
    [
        ([1], 1),
        ([1], 5),
        ([1023, 1], 1),
        ([1024], 1),
        ([1025], 1),
        ([4000], 100),
        ([700] * 9, 100),
        ([3000, 3000], 5999),
        ([3000, 3000], 6000),
        ([3000, 3000], 6001),
    ],
)
def test_sizes_that_a_buffer_fills_and_leaves(sizes: list[int], buffer: int) -> None:
    assert Rows(sizes).shuffled(buffer) == expected(sum(sizes), buffer)


def test_rows_of_many_bytes_leave_in_several_blocks() -> None:
    rows = Rows([1000] * 4, pad=KIB)
    assert rows.shuffled(1500) == expected(4000, 1500)


def test_many_short_rows_leave_in_batches() -> None:
    batches = [batch.num_rows for batch in Rows([30_000]).read(RowOrder(100, 1), Budget()).batches]
    assert (sum(batches), max(batches)) == (30_000, MAX_BATCH_ROWS)


def test_of_the_rows_that_are_read_those_that_are_kept_are_shuffled() -> None:
    kept = [(5, 20), (600, 1800), (1999, 2000)]
    found = Rows([1000, 1000]).read(RowOrder(100, 1), Budget(), kept)
    rows = [row for start, stop in kept for row in range(start, stop)]
    assert values_of(found) == one_at_a_time(rows, 100, RowOrder(100, 1).slots())


def test_every_record_leaves_once_and_is_well_mixed() -> None:
    found = Rows([5000]).shuffled(1000)
    assert sorted(found) == list(range(5000))
    assert np.abs(np.array(found) - np.arange(5000)).mean() > 500
    assert np.mean(np.diff(found) == 1) < 0.01


def test_a_buffer_of_one_keeps_the_order() -> None:
    assert Rows([2000]).shuffled(1) == list(range(2000))


def test_memory_is_bounded_by_the_buffer_and_not_by_the_rows() -> None:
    """Beside what reading them in order takes."""
    rows, peaks = Rows([200] * 60, pad=KIB), []
    for buffer in (0, 500):
        budget = Budget()
        assert sum(batch.num_rows for batch in rows.read(RowOrder(buffer, 1), budget).batches) == 12_000
        peaks.append(budget.peak)
    assert peaks[1] - peaks[0] < 12_000 * KIB / 2


def test_a_buffer_beyond_the_budget_is_refused() -> None:
    rows = Rows([500] * 10, pad=KIB)
    budget = Budget(Limits(max_decoded_bytes=2 * MIB))
    budget.charge(1 * MIB, "Something else")
    with pytest.raises(LimitExceeded, match="shuffle buffer"):
        rows.shuffled(100_000, budget)
    assert budget.remaining == 1 * MIB
