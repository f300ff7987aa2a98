"""Rows in the order of an epoch, and the part of a worker: whatever is read or done in one go."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.codecs.columns import MAX_BATCH_ROWS, Records
from app.domain.limits import KIB, MIB, Limits
from app.domain.sharding.row_order import RowOrder
from app.domain.sharding.windows import Windows
from app.errors import LimitExceeded
from app.runtime.budget import Budget
from app.runtime.streams import Buffer
from app.services.datasets.pieces.pieces import Piece, SplitPieces, StoredPiece
from app.services.datasets.read.stored_split import StoredSplit
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support.arrow_rows import as_arrow
from tests.support.dataset_rows import PADDED, SCHEMA, records
from tests.support.format_cases import encode

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
        self.sizes = sizes
        self.split = SplitPieces(pieces)

    def read(self, order: RowOrder, budget: Budget, start: int = 0, stop: int | None = None) -> Records:
        length = None if stop is None else stop - start
        return self.stored().read(start, length, order, budget)

    def stored(self) -> StoredSplit:
        return StoredSplit(self.schema, self.count, lambda: self.split, self.store, POOL)

    def shuffled(self, buffer: int, budget: Budget | None = None) -> list[Any]:
        found = self.read(RowOrder(buffer, 1), budget or Budget())
        return values_of(found)


def values_of(found: Records) -> list[Any]:
    return [row for batch in as_arrow(found) for row in batch.column("x").to_pylist()]


def expected(sizes: Sequence[int], order: RowOrder) -> list[int]:
    """What the order says, of rows that lie in runs of these sizes."""
    count, first = sum(sizes), np.append(0, np.cumsum(sizes))
    part = order.part(count)
    if not order.shuffle_buffer:
        return list(part.between(0, count))
    runs = order.arrange_runs(len(sizes))
    rows = np.concatenate([np.arange(first[run], first[run + 1]) for run in runs])
    windows = Windows.of(count, len(sizes), order.shuffle_buffer)
    arranged = order.arrange_rows(windows, *windows.holding(0, count))
    return list(rows[arranged][part.between(0, count)])


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 1500), min_size=1, max_size=6), buffer=st.integers(1, 2500))
def test_rows_come_in_the_order_of_the_windows_however_they_lie(sizes: list[int], buffer: int) -> None:
    budget = Budget()
    assert Rows(sizes).shuffled(buffer, budget) == expected(sizes, RowOrder(buffer, 1))
    assert budget.remaining == Budget().remaining


@pytest.mark.parametrize(
    ("sizes", "buffer"),
    [
        ([1], 1),
        ([1], 5),
        ([8191, 1], 1),
        ([8192], 1),
        ([8193], 1),
        ([4000], 100),
        ([700] * 9, 100),
        ([5000] * 5, 8192),
        ([3000, 3000], 5999),
        ([3000, 3000], 6000),
        ([3000, 3000], 6001),
    ],
)
def test_sizes_that_a_window_fills_and_leaves(sizes: list[int], buffer: int) -> None:
    assert Rows(sizes).shuffled(buffer) == expected(sizes, RowOrder(buffer, 1))


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 1500), min_size=1, max_size=6),
    buffer=st.sampled_from([0, 1, 100, 2500]),
    worker=st.integers(0, 3),
    start=st.integers(0, 2000),
)
def test_a_worker_gets_its_part_of_each_step(sizes: list[int], buffer: int, worker: int, start: int) -> None:
    order = RowOrder(buffer, 1, worker=worker, num_workers=4, global_batch=64, start=start)
    assume(order.part(sum(sizes)).num_rows)
    budget = Budget()
    assert values_of(Rows(sizes).read(order, budget)) == expected(sizes, order)
    assert budget.remaining == Budget().remaining


def test_rows_of_many_bytes_leave_in_several_blocks() -> None:
    rows = Rows([1000] * 4, pad=KIB)
    assert rows.shuffled(1500) == expected([1000] * 4, RowOrder(1500, 1))


def test_many_short_rows_leave_in_batches() -> None:
    batches = [batch.num_rows for batch in Rows([30_000]).read(RowOrder(100, 1), Budget()).batches]
    assert sum(batches) == 30_000
    assert MAX_BATCH_ROWS - 100 < max(batches) <= MAX_BATCH_ROWS


def test_a_part_of_the_rows_is_shuffled() -> None:
    order = RowOrder(100, 1)
    found = values_of(Rows([1000, 1000, 1000]).read(order, Budget(), 400, 2300))
    assert found == [row + 400 for row in expected([600, 1000, 300], order)]


def test_rows_that_lie_together_are_spread_over_the_epoch() -> None:
    """Of four pieces of which the first two are of one class, each window has as many rows of both."""
    found = np.array(Rows([1500] * 4).shuffled(600)).reshape(-1, 600)
    assert ((found < 3000).sum(axis=1) == 300).all()


def test_every_record_comes_once_and_is_well_mixed() -> None:
    found = Rows([5000]).shuffled(1000)
    assert sorted(found) == list(range(5000))
    assert np.abs(np.array(found) - np.arange(5000)).mean() > 300
    assert np.mean(np.diff(found) == 1) < 0.01


def test_windows_of_one_keep_the_order() -> None:
    assert Rows([2000]).shuffled(1) == list(range(2000))
    assert Rows([1000, 1000]).shuffled(1) == expected([1000, 1000], RowOrder(1, 1))


def test_memory_is_bounded_by_the_window_and_not_by_the_rows() -> None:
    """Beside what reading them in order takes."""
    rows, peaks = Rows([200] * 60, pad=KIB), []
    for buffer in (0, 500):
        budget = Budget()
        assert sum(batch.num_rows for batch in rows.read(RowOrder(buffer, 1), budget).batches) == 12_000
        peaks.append(budget.peak)
    assert peaks[1] - peaks[0] < 12_000 * KIB / 2


def test_a_window_beyond_the_budget_is_refused() -> None:
    rows = Rows([500] * 10, pad=KIB)
    budget = Budget(Limits(max_decoded_bytes=2 * MIB))
    budget.charge(1 * MIB, "Something else")
    with pytest.raises(LimitExceeded, match="shuffle buffer"):
        rows.shuffled(100_000, budget)
    assert budget.remaining == 1 * MIB
