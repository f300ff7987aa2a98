"""Plans for rows: each row once, over all workers, in an order that the seed determines."""

import tracemalloc
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.sharding.row_order import RowOrder
from app.runtime.budget import Budget
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.pieces.pieces import Piece, SplitPieces, StoredPiece
from app.services.datasets.publish.shards import writer as shard_writer
from app.services.datasets.read.row_plan import plan_rows
from app.storage.obstore_store import open_store
from tests.support.arrow_rows import as_arrow
from tests.support.dataset_rows import Client
from tests.support.faulty_store import FaultStore


def split_of(counts: list[int]) -> SplitPieces:
    """Pieces with so many records; the first has one at least."""
    return SplitPieces([StoredPiece("key", i, Piece(1, f"{i}", n)) for i, n in enumerate(counts)])


def rows_of(counts: list[int], start: int, stop: int, order: RowOrder) -> list[int]:
    """The rows that a worker gets by a plan; pieces without records only where they belong."""
    part = order.part(stop - start)
    if not part.num_rows:
        return []
    plan = plan_rows(split_of(counts), start, stop, order, part)
    firsts = [sum(counts[:i]) for i in range(len(counts))]
    stream: list[int] = []
    before = -1
    for stored in plan.pieces():
        number = stored.offset
        assert stored.piece.num_records or before == number - 1
        before = number
        stream += range(firsts[number], firsts[number] + counts[number])
    by_number: dict[int, int] = {}
    for kept in plan.kept():
        by_number |= {kept.row + i: row for i, row in enumerate(stream[kept.begin : kept.end])}
    if plan.windows is None:
        first, last = part.bounds
        return [by_number[place] for place in part.between(first, last)]
    windows = plan.windows.holding(*part.bounds)
    first, last = plan.windows.places(*windows)
    rows = order.arrange_rows(plan.windows, *windows)
    return [by_number[row] for row in rows[part.between(first, last) - first]]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_every_row_is_one_workers_once(data: st.DataObject) -> None:
    counts = [data.draw(st.integers(1, 9)), *data.draw(st.lists(st.integers(0, 9), max_size=12))]
    total = sum(counts)
    start = data.draw(st.integers(0, total - 1))
    stop = data.draw(st.integers(start + 1, total))
    num_workers = data.draw(st.integers(1, 6))
    buffer = data.draw(st.sampled_from([0, 5]))
    orders = [RowOrder(buffer, 1, 2, worker, num_workers) for worker in range(num_workers)]
    shares = [rows_of(counts, start, stop, order) for order in orders]
    together = [row for share in shares for row in share]
    assert together == rows_of(counts, start, stop, RowOrder(buffer, 1, 2))
    assert sorted(together) == list(range(start, stop))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert buffer or together == sorted(together)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_an_order_is_found_from_any_row_on(data: st.DataObject) -> None:
    counts = [data.draw(st.integers(1, 9)), *data.draw(st.lists(st.integers(0, 9), max_size=12))]
    order = RowOrder(data.draw(st.sampled_from([0, 1, 5, 100])), 1, 2)
    first = data.draw(st.integers(0, sum(counts)))
    last = data.draw(st.integers(0, sum(counts)))
    found = rows_of(counts, 0, sum(counts), replace(order, start=first, stop=last))
    assert found == rows_of(counts, 0, sum(counts), order)[first:last]


@pytest.mark.parametrize("buffer", [0, 10_000])
def test_of_many_pieces_a_plan_holds_a_few_numbers_each(buffer: int) -> None:
    """200 GiB of pieces of 4 MiB; two TiB have ten times as many, for each worker that reads them."""
    counts = [4000] * 50_000
    split, order = split_of(counts), RowOrder(buffer, 1, global_batch=1024)
    tracemalloc.start()
    try:
        plan = plan_rows(split, 0, sum(counts), order, order.part(sum(counts)))
        assert len(list(islice(plan.pieces(), 100))) == len(list(islice(plan.kept(), 100))) == 100
        assert tracemalloc.get_traced_memory()[1] < 150 * len(counts)
    finally:
        tracemalloc.stop()


def test_runs_are_read_in_another_order_each_epoch() -> None:
    counts = [3] * 20
    orders = {tuple(rows_of(counts, 0, 60, RowOrder(5, 1, epoch))) for epoch in range(4)}
    assert len(orders) == 4
    assert tuple(rows_of(counts, 0, 60, RowOrder(5, 1, 0))) in orders


def read(client: Client, offset: int = 0, length: int | None = None, **order: Any) -> list[int]:
    rows = client.datasets.read_records(
        "d", "latest", "train", offset=offset, length=length, order=RowOrder(**order), budget=Budget()
    )
    values: list[Any] = [value for batch in as_arrow(rows) for value in batch.column("x").to_pylist()]
    assert rows.num_rows == len(values)
    return values


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_the_rows_of_a_version_come_once_in_any_order(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_writer, "PIECE_BYTES", data.draw(st.integers(30, 300)))
        client = Client(open_store("memory://"))
        client.append(range(60), pad=data.draw(st.integers(0, 60)))
        client.publish(PublishOptions(num_shards=data.draw(st.integers(1, 5))))
    offset, length = data.draw(st.integers(0, 50)), data.draw(st.integers(0, 70))
    workers = data.draw(st.integers(1, 4))
    buffer = data.draw(st.integers(1, 80))
    shares = [
        read(client, offset, length, shuffle_buffer=buffer, worker=worker, num_workers=workers)
        for worker in range(workers)
    ]
    wanted = list(range(60))[offset : offset + length]
    assert sorted(row for share in shares for row in share) == wanted


def test_seed_and_epoch_determine_the_order() -> None:
    client = Client(open_store("memory://"))
    client.append(range(1000))
    client.publish(PublishOptions(num_shards=4))
    one = read(client, shuffle_buffer=100, seed=1)
    assert one == read(Client(client.store), shuffle_buffer=100, seed=1)
    others = [
        read(client, shuffle_buffer=100, seed=2),
        read(client, shuffle_buffer=100, seed=1, epoch=1),
        read(client, shuffle_buffer=0),
    ]
    assert all(sorted(other) == list(range(1000)) and other != one for other in others)


def test_a_worker_reads_its_own_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_writer, "PIECE_BYTES", 1000)
    store = FaultStore(open_store("memory://"))
    client = Client(store)
    client.append(range(1000), pad=100)
    client.publish()
    read(client, 0, 1)
    store.requests.clear()
    read(client, shuffle_buffer=10, worker=1, num_workers=10)
    # 138 pieces in all: a tenth of them, and of eight lanes one at either end that it shares.
    assert sum(operation == "get_range" for operation, _ in store.requests) <= 14 + 16


@pytest.mark.parametrize("buffer", [0, 100])
def test_where_in_an_epoch_it_begins_changes_nothing_of_what_is_read(
    monkeypatch: pytest.MonkeyPatch, buffer: int
) -> None:
    """Of the rows before it, none are read but those of its window."""
    monkeypatch.setattr(shard_writer, "PIECE_BYTES", 1000)
    store = FaultStore(open_store("memory://"))
    client = Client(store)
    client.append(range(20_000), pad=100)
    client.publish()
    requests = set()
    for start in (0, 1000, 10_000, 19_900):
        store.requests.clear()
        rows = read(client, shuffle_buffer=buffer, start=start, stop=start + 64, global_batch=64)
        assert len(rows) == 64
        requests.add(sum(operation == "get_range" for operation, _ in store.requests) // 16)
    # Of 2,800 pieces: in order those of 64 rows; else of 8 lanes each those of 12 or 24 rows, and their ends.
    assert max(requests) <= (0 if not buffer else 2)
