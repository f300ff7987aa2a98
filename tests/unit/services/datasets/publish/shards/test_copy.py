"""Shards of the base taken over byte for byte, by the store or, where it cannot, through here."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.compression import Compression
from app.domain.manifest import Manifest
from app.errors import CorruptData, StorageFull, StorageUnavailable
from app.services.datasets.objects.layout import record_index
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.publish.shards.writer import read_done
from app.storage.object_store import ObjectStore
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support import publish_plans
from tests.support.dataset_rows import Client
from tests.support.faulty_store import FaultStore, Operation, When
from tests.support.shard_readers import read_by_index

COMPRESSIONS: list[Compression] = ["none", "gzip", "zlib"]


def base(store: ObjectStore, compression: Compression = "none", *, index: bool = False) -> Manifest:
    client = Client(store)
    client.append(range(100), pad=100)
    return client.publish(PublishOptions(num_shards=2, compression=compression, index=index))


def copied(
    store: ObjectStore, first: Manifest, compression: Compression = "none", *, index: bool = False
) -> Manifest:
    client = Client(store)
    client.append([100], pad=1)
    options = PublishOptions(compression=compression, index=index)
    return publish_plans.publish(client.datasets, publish_plans.copying(first), options=options)


def check(store: ObstoreStore, first: Manifest, second: Manifest) -> None:
    """The shards of the first are those of the second, which has one more."""
    pairs = list(zip(first.splits["train"].shards, second.splits["train"].shards, strict=False))
    assert len(pairs) == 2
    for old, new in pairs:
        assert store.get(f"d/1.0.0/{old.file}") == store.get(f"d/1.1.0/{new.file}")
        assert (old.num_records, old.num_bytes, old.sha256) == (new.num_records, new.num_bytes, new.sha256)
        note = read_done(store, f"d/_g1/log/2.done/{new.file}", new.file)
        assert note is not None
        assert note.entry == new
    assert Client(store).read() == list(range(101))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_store_copies_what_the_plan_says(compression: Compression) -> None:
    inner = open_store("memory://")
    first = base(inner, compression)
    store = FaultStore(inner)
    second = copied(store, first, compression)
    check(inner, first, second)
    written = [(operation, key) for operation, key in store.requests if ".tfrecord" in key]
    assert [operation for operation, _ in written if operation in ("copy", "put_stream")] == [
        "copy",
        "copy",
        "put_stream",
    ]
    assert not [key for operation, key in written if operation == "get_range" and "1.0.0" in key]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_store_that_fails_to_copy_is_copied_through_here(compression: Compression, when: When) -> None:
    inner = open_store("memory://")
    first = base(inner, compression)

    def fault(at: When, operation: Operation, key: str) -> None:
        if (at, operation) == (when, "copy"):
            raise StorageUnavailable("Not implemented.")

    check(inner, first, copied(FaultStore(inner, fault), first, compression))


def test_truncated_copy_is_repeated() -> None:
    inner = open_store("memory://")
    first = base(inner)

    class Short(FaultStore):
        def copy(self, source: str, target: str) -> None:
            inner.put(target, inner.get(source)[:-1])

    check(inner, first, copied(Short(inner), first))


def test_a_full_store_is_full() -> None:
    inner = open_store("memory://")
    first = base(inner)

    def fault(at: When, operation: Operation, key: str) -> None:
        if operation == "copy":
            raise StorageFull("No room.")

    with pytest.raises(StorageFull):
        copied(FaultStore(inner, fault), first)


def test_a_missing_shard_of_the_base_aborts() -> None:
    store = open_store("memory://")
    first = base(store)
    store.delete(f"d/1.0.0/{first.splits['train'].shards[0].file}")
    with pytest.raises(AssertionError, match="is missing"):
        copied(store, first)


def test_a_damaged_shard_of_the_base_is_not_streamed_on() -> None:
    inner = open_store("memory://")
    first = base(inner)
    key = f"d/1.0.0/{first.splits['train'].shards[0].file}"
    data = inner.get(key)
    inner.put(key, data[:-1] + bytes([data[-1] ^ 1]))

    def fault(at: When, operation: Operation, key: str) -> None:
        if operation == "copy":
            raise StorageUnavailable("Not implemented.")

    with pytest.raises(AssertionError, match="SHA-256"):
        copied(FaultStore(inner, fault), first)


@pytest.mark.parametrize("fails", [False, True])
def test_the_index_is_copied_too(tmp_path: Path, fails: bool) -> None:
    inner = open_store(f"file://{tmp_path}")
    first = base(inner, index=True)

    def fault(at: When, operation: Operation, key: str) -> None:
        if fails and operation == "copy":
            raise StorageUnavailable("Not implemented.")

    second = copied(FaultStore(inner, fault), first, index=True)
    found = []
    for shard in second.splits["train"].shards:
        assert shard.index is not None
        found += read_by_index(
            tmp_path / "d" / "1.1.0" / shard.file, tmp_path / "d" / "1.1.0" / shard.index.file
        )
    assert len(found) == 101


def test_a_damaged_index_of_the_base_is_not_streamed_on() -> None:
    inner = open_store("memory://")
    first = base(inner, index=True)
    inner.put(f"d/1.0.0/{record_index(first.splits['train'].shards[0].file)}", b"0 1\n")

    def fault(at: When, operation: Operation, key: str) -> None:
        if operation == "copy":
            raise StorageUnavailable("Not implemented.")

    with pytest.raises(AssertionError, match="SHA-256"):
        copied(FaultStore(inner, fault), first, index=True)


def test_an_index_that_the_base_does_not_have_is_made(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    first = base(store)
    second = copied(store, first, index=True)
    assert all(shard.index is not None for shard in second.splits["train"].shards)
    for old, new in zip(first.splits["train"].shards, second.splits["train"].shards, strict=False):
        assert store.get(f"d/1.0.0/{old.file}") == store.get(f"d/1.1.0/{new.file}")
    assert Client(store).read() == list(range(101))


def test_a_plan_that_copies_what_the_base_does_not_have_is_corrupt() -> None:
    store = open_store("memory://")
    first = base(store)
    client = Client(store)
    client.append([1], pad=1)
    plan = publish_plans.lay_down(client.datasets, publish_plans.copying(first))
    assert plan.work is not None
    shards = tuple(replace(shard, copy_of=shard.copy_of and "other") for shard in plan.work.shards)
    with pytest.raises(CorruptData, match="does not have"):
        publish_plans.executor(client.datasets).execute(replace(plan, work=replace(plan.work, shards=shards)))
