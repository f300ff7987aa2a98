"""A global shuffle: all records once, in the order of the permutation, whatever room there is."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from app.domain.limits import MIB
from app.domain.sharding.permutation import Permutation
from app.domain.sharding.shard_plan import ShardPlan
from app.errors import SpoolUnavailable, StorageFull
from app.runtime.budget import Budget
from app.runtime.spool import Spool, SpoolFile
from app.runtime.streams import Buffer
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.pieces.cutter import RecordCutter
from app.services.datasets.pieces.pieces import Piece, SplitPieces, StoredPiece
from app.services.datasets.pieces.stream import piece_buffers
from app.services.datasets.publish.shards import shuffle, shuffle_pass
from app.services.datasets.publish.shards.shuffle import ShuffledShard, ShuffledSplit
from app.services.datasets.publish.shards.source import ShardSource
from app.storage.object_store import ObjectStore
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support import publish_plans
from tests.support.dataset_rows import Client
from tests.support.shard_readers import parse_frames, read_split
from tests.support.tfrecord_frames import frame


def stored(store: ObstoreStore, frames: Sequence[bytes]) -> SplitPieces:
    cutter = RecordCutter(64 * 1024, piece_buffers())
    cut: list[tuple[Buffer, int]] = []
    for data in frames:
        cut += cutter.add_run(memoryview(data), 1)
    pieces = []
    for index, (run, num_records) in enumerate([*cut, *cutter.flush()]):
        store.put(f"part/{index}", run)
        pieces.append(StoredPiece(f"part/{index}", 0, Piece.of(run, num_records)))
    return SplitPieces(pieces)


def shuffled(
    store: ObjectStore,
    split: SplitPieces,
    count: int,
    spool: Spool,
    bounds: Sequence[int],
    budget: Budget | None = None,
) -> list[bytes]:
    """All payloads, read in shards between `bounds`."""
    source = ShardSource.of(ShardPlan("train", "", 0, count), split)
    ranges = list(pairwise(bounds))
    whole = ShuffledSplit(source, count, split.num_bytes, "7/train", spool, ranges)
    try:
        found = []
        for start, stop in ranges:
            for run in ShuffledShard(whole, start, stop).runs(store, budget or Budget()):
                payloads = list(parse_frames(bytes(run.data)))
                assert len(payloads) == len(run.ends)
                found += payloads
        return found
    finally:
        whole.close()


def expected(payloads: Sequence[bytes]) -> list[bytes]:
    places = Permutation(len(payloads), "7/train").positions(np.arange(len(payloads)))
    found = [b""] * len(payloads)
    for payload, place in zip(payloads, places.tolist(), strict=True):
        found[place] = payload
    return found


@pytest.fixture
def store() -> ObstoreStore:
    return open_store("memory://")


PAYLOADS = [b"%d" % number * (number % 23) for number in range(3000)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100, 3000])
def test_every_record_comes_to_its_place(store: ObstoreStore, count: int) -> None:
    payloads = PAYLOADS[:count]
    split = stored(store, [frame(payload) for payload in payloads])
    spool = Spool(None, 100 * MIB)
    if count:
        assert shuffled(store, split, count, spool, [0, count]) == expected(payloads)
    assert spool.used == 0


@pytest.mark.sampled
@pytest.mark.parametrize("bucket_bytes", [200, 5000])
@pytest.mark.parametrize("batch_bytes", [300, 7000])
@pytest.mark.parametrize("room", [0, 3000, 10**9])
def test_neither_room_nor_sizes_change_the_order(
    store: ObstoreStore, monkeypatch: pytest.MonkeyPatch, bucket_bytes: int, batch_bytes: int, room: int
) -> None:
    payloads = [*PAYLOADS[:300], b"large" * 900, *PAYLOADS[300:320], b"larger" * 1500]
    split = stored(store, [frame(payload) for payload in payloads])
    monkeypatch.setattr(shuffle, "_MIN_BUCKET_BYTES", 100)
    monkeypatch.setattr(shuffle, "_BUCKET_BYTES", bucket_bytes)
    monkeypatch.setattr(shuffle_pass, "_BATCH_BYTES", batch_bytes)
    monkeypatch.setattr(shuffle_pass, "_RUN_BYTES", 150)
    monkeypatch.setattr(Spool, "available", property(lambda spool: room))
    spool = Spool(None, 10**9)
    found = shuffled(store, split, len(payloads), spool, [0, 100, 101, 200, 200, len(payloads)])
    assert found == expected(payloads)
    assert spool.used == 0


@pytest.mark.exhaustive
def test_a_spool_much_smaller_than_the_data_takes_several_passes(
    store: ObstoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = bytes(4000)
    count = 16_000  # 61 MiB
    frames = [frame(payload)] * count
    split = stored(store, frames)
    passes = 0
    begin = ShuffledSplit._begin_pass

    def counted(self: ShuffledSplit, *args: object) -> object:
        nonlocal passes
        passes += 1
        return begin(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(ShuffledSplit, "_begin_pass", counted)
    spool, budget = Spool(None, 16 * MIB), Budget()
    source = ShardSource.of(ShardPlan("train", "", 0, count), split)
    whole = ShuffledSplit(source, count, split.num_bytes, "7", spool, [(0, count)])
    peak = found = 0
    for run in whole.runs(0, count, store, budget, None):
        peak = max(peak, spool.used)
        found += len(run.ends)
    whole.close()
    assert found == count
    assert passes > 4
    assert peak <= 16 * MIB
    assert budget.peak <= 40 * MIB
    assert spool.used == 0


def test_a_full_spool_is_full_and_holds_nothing_afterwards(store: ObstoreStore) -> None:
    split = stored(store, [frame(bytes(50_000))] * 200)
    spool = Spool(None, 1 * MIB)
    with pytest.raises(StorageFull) as caught:
        shuffled(store, split, 200, spool, [0, 200])
    assert caught.value.code == "spool_full"
    assert spool.used == 0


def test_a_spool_that_gives_back_other_bytes_is_noticed(
    store: ObstoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = stored(store, [frame(payload) for payload in PAYLOADS])
    read_at = SpoolFile.read_at

    def damaged(self: SpoolFile, offset: int, n: int, /) -> bytes:
        data = bytearray(read_at(self, offset, n))
        data[20] ^= 1
        return bytes(data)

    monkeypatch.setattr(SpoolFile, "read_at", damaged)
    with pytest.raises(SpoolUnavailable, match="spool"):
        shuffled(store, split, 3000, Spool(None, 100 * MIB), [0, 3000])


def test_a_published_version_is_shuffled_as_a_whole(tmp_path: Path) -> None:
    client = Client(open_store(f"file://{tmp_path}"))
    client.append(range(200), pad=50)
    client.append(range(1000, 1010), pad=5, split="test")
    plain = client.publish(PublishOptions(num_shards=3))
    client.append(range(200, 300), pad=50)
    manifest = client.publish(PublishOptions(shuffle=True, seed=11, num_shards=4))
    for split, count in (("train", 300), ("test", 10)):
        rows = client.read(split=split)
        first = 1000 if split == "test" else 0
        places = Permutation(count, f"11/{split}").positions(np.arange(count))
        assert [rows[place] for place in places] == list(range(first, first + count))
    payloads = read_split(tmp_path / "d" / manifest.version, "train")
    before = read_split(tmp_path / "d" / plain.version, "train")
    assert set(before) < set(payloads)
    assert len(payloads) == len(set(payloads)) == 300


def test_the_same_plan_gives_the_same_bytes_with_any_spool(tmp_path: Path) -> None:
    digests = []
    for room in (1 << 30, 20 * MIB):
        client = Client(open_store(f"file://{tmp_path}/{room}"))
        client.datasets._backend = replace(client.datasets._backend, spool=Spool(None, room))
        client.append(range(300), key="k", pad=30_000)
        manifest = client.publish(PublishOptions(shuffle=True, seed=1))
        digests.append([shard.sha256 for shard in manifest.splits["train"].shards])
    assert digests[0] == digests[1]


def test_a_full_spool_publishes_nothing_and_a_larger_one_goes_on() -> None:
    inner = open_store("memory://")
    client = Client(inner)
    client.append(range(300), pad=30_000)
    plan = publish_plans.lay_down(client.datasets, options=PublishOptions(shuffle=True))
    client.datasets._backend = replace(client.datasets._backend, spool=Spool(None, 2 * MIB))
    with pytest.raises(StorageFull):
        publish_plans.executor(client.datasets).execute(plan)
    assert client.datasets._backend.spool.used == 0
    assert not [info.key for info in inner.list("d/1.0.0")]
    client.datasets._backend = replace(client.datasets._backend, spool=Spool(None, 100 * MIB))
    publish_plans.executor(client.datasets).execute(plan)
    assert sorted(client.read()) == list(range(300))
