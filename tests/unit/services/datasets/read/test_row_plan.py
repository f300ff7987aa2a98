"""Plans for rows: each row once, over all workers, in an order that the seed determines."""

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
from tests.arrow_rows import as_arrow
from tests.rows import Client
from tests.stores import FaultStore


def split_of(counts: list[int]) -> SplitPieces:
    """Pieces with so many records; the first has one at least."""
    return SplitPieces([StoredPiece("key", i, Piece(1, f"{i}", n)) for i, n in enumerate(counts)])


def rows_of(counts: list[int], start: int, stop: int, order: RowOrder) -> list[int]:
    """The rows that a plan keeps, in its order; pieces without records only where they belong."""
    plan = plan_rows(split_of(counts), start, stop, order)
    firsts = [sum(counts[:i]) for i in range(len(counts))]
    stream: list[int] = []
    before = -1
    for stored in plan.pieces:
        number = stored.offset
        assert stored.piece.num_records or before == number - 1
        before = number
        stream += range(firsts[number], firsts[number] + counts[number])
    kept = [row for first, last in plan.kept for row in stream[first:last]]
    assert plan.num_rows == len(kept)
    return kept


@settings(max_examples=50, deadline=None)
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
    assert sorted(row for share in shares for row in share) == list(range(start, stop))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    if not buffer:
        assert [row for share in shares for row in share] == list(range(start, stop))


def test_runs_are_read_in_another_order_each_epoch() -> None:
    counts = [3] * 20
    orders = {tuple(rows_of(counts, 0, 60, RowOrder(5, 1, epoch))) for epoch in range(4)}
    assert len(orders) == 4
    assert tuple(rows_of(counts, 0, 60, RowOrder(5, 1, 0))) in orders


def read(client: Client, offset: int = 0, length: int | None = None, **order: int) -> list[int]:
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
    # 138 pieces in all: a tenth of them, and one at either end that it shares.
    assert sum(operation == "get_range" for operation, _ in store.requests) <= 20
