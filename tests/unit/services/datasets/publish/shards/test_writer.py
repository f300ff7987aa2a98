"""Writing a shard: the planned records and nothing else, the same bytes every time."""

from collections.abc import Iterable, Sequence
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.sharding.shard_plan import ShardPlan
from app.errors import CorruptData, StorageUnavailable
from app.runtime.streams import Buffer
from app.services.datasets.pieces.cutter import RecordCutter
from app.services.datasets.pieces.pieces import Piece, SplitPieces, StoredPiece
from app.services.datasets.pieces.stream import piece_buffers
from app.services.datasets.publish.shards import writer as shard_writer
from app.services.datasets.publish.shards.source import ShardSource
from app.services.datasets.publish.shards.writer import (
    WrittenShard,
    is_stored,
    read_done,
    write_done,
    write_shard,
)
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support.checksummed_json import sealed
from tests.support.faulty_store import FaultStore
from tests.support.tfrecord_frames import frame


def stored(store: ObstoreStore, payloads: Sequence[bytes], piece_bytes: int) -> SplitPieces:
    """The payloads as an append would have left them, each piece an object of its own."""
    cutter = RecordCutter(piece_bytes, piece_buffers())
    cut = [item for data in payloads for item in cutter.add_run(memoryview(frame(data)), 1)]
    pieces = []
    for index, (data, num_records) in enumerate([*cut, *cutter.flush()]):
        store.put(f"part/{index}", data)
        pieces.append(StoredPiece(f"part/{index}", 0, Piece.of(data, num_records)))
    return SplitPieces(pieces)


def write(store: ObstoreStore, split: SplitPieces, start: int, stop: int, key: str = "shard") -> WrittenShard:
    plan = ShardPlan("train", "file", start, stop)
    return write_shard(plan, ShardSource.of(plan, split), store, key)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=30), st.data())
def test_a_shard_holds_exactly_its_records(payloads: list[bytes], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(payloads) - 1))
    stop = data.draw(st.integers(start + 1, len(payloads)))
    store = open_store("memory://")
    written = write(store, stored(store, payloads, data.draw(st.integers(20, 200))), start, stop)
    expected = b"".join(map(frame, payloads[start:stop]))
    assert store.get("shard") == expected
    assert written.entry.num_bytes == len(expected)
    assert written.entry.num_records == stop - start
    assert written.entry.sha256 == sha256(expected).hexdigest()


def test_its_pieces_do_not_depend_on_those_of_its_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_writer, "PIECE_BYTES", 100)
    payloads = [bytes(size) for size in (10, 300, 20, 30, 84, 85, 0)]
    written = []
    for piece_bytes in (30, 64, 10_000):
        store = open_store("memory://")
        written.append(write(store, stored(store, payloads, piece_bytes), 0, len(payloads)))
    assert written[0] == written[1] == written[2]
    assert [(piece.size, piece.num_records) for piece in written[0].pieces] == [
        (26, 1),
        (100, 1),
        (100, 0),
        (100, 0),
        (16, 0),
        (82, 2),
        (100, 1),
        (100, 1),
        (1, 0),
        (16, 1),
    ]


def test_an_empty_shard_is_an_empty_file() -> None:
    store = open_store("memory://")
    plan = ShardPlan("train", "file", 3, 3)
    written = write_shard(plan, ShardSource((), 0, 0), store, "shard")
    assert store.get("shard") == b""
    assert (written.entry.num_records, written.entry.num_bytes, written.pieces) == (0, 0, ())


def test_a_damaged_input_is_corrupt_and_leaves_no_shard() -> None:
    store = open_store("memory://")
    split = stored(store, [b"a", b"b"], 17)
    store.put("part/1", b"?" + store.get("part/1")[1:])
    with pytest.raises(CorruptData, match="part/1"):
        write(store, split, 0, 2)
    assert "shard" not in {info.key for info in store.list("")}


def test_an_input_with_fewer_records_than_counted_is_corrupt() -> None:
    store = open_store("memory://")
    data = frame(b"a")
    store.put("part", data)
    source = ShardSource((StoredPiece("part", 0, Piece.of(data, 2)),), 0, 2)
    with pytest.raises(CorruptData, match="1 records fewer"):
        write_shard(ShardPlan("train", "file", 0, 2), source, store, "shard")


def test_input_that_is_not_tfrecord_is_corrupt_data() -> None:
    store = open_store("memory://")
    store.put("part", b"x" * 40)
    source = ShardSource((StoredPiece("part", 0, Piece.of(b"x" * 40, 1)),), 0, 1)
    with pytest.raises(CorruptData, match="cannot be read"):
        write_shard(ShardPlan("train", "file", 0, 1), source, store, "shard")


@pytest.fixture
def store() -> ObstoreStore:
    return open_store("memory://")


def test_done_both_ways(store: ObstoreStore) -> None:
    written = write(store, stored(store, [b"a", b"b"], 17), 0, 2)
    assert read_done(store, "done", "file") is None
    write_done(store, "done", written)
    assert read_done(store, "done", "file") == written


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b'{"num_records":1,"num_bytes":1,"sha256":"%s","pieces":[]}' % (b"0" * 64),
        sealed(b'{"num_records":1}'),
        sealed(b'{"num_records":1,"num_bytes":1,"sha256":"x","pieces":[[1]]}'),
        sealed(b'{"num_records":1,"num_bytes":1,"sha256":"%s","pieces":[[1]]}' % (b"0" * 64)),
    ],
)
def test_malformed_note_is_ignored(store: ObstoreStore, data: bytes) -> None:
    store.put("done", data)
    assert read_done(store, "done", "file") is None


def test_a_shard_is_stored_only_at_its_full_length(store: ObstoreStore) -> None:
    written = write(store, stored(store, [b"a", b"b"], 17), 0, 2)
    data = store.get("shard")
    assert is_stored(store, "shard", written)
    for damaged in (data[:-1], data + b"x", b""):
        store.put("shard", damaged)
        assert not is_stored(store, "shard", written)
    store.delete("shard")
    assert not is_stored(store, "shard", written)


def test_a_shard_that_is_gone_once_written_is_the_stores_fault(store: ObstoreStore) -> None:
    class Forgetful(FaultStore):
        def put_stream(self, key: str, chunks: Iterable[Buffer]) -> int:
            return sum(len(chunk) for chunk in chunks)

    split = stored(store, [b"a"], 17)
    plan = ShardPlan("train", "file", 0, 1)
    with pytest.raises(StorageUnavailable):
        write_shard(plan, ShardSource.of(plan, split), Forgetful(store), "shard")
