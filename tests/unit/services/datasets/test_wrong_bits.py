"""A wrong bit in an object: on its way from the store, it is as if it had not been; at rest, it is found."""

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import pytest

from app.domain.manifest import ShardEntry
from app.errors import CorruptData, OutcomeUnknown, StorageUnavailable
from app.runtime.budget import Budget
from app.runtime.streams import Buffer
from app.services.datasets.objects.catalog import Catalog
from app.services.datasets.objects.incarnation import DatasetOptions
from app.services.datasets.objects.layout import Layout
from app.services.datasets.objects.log import Decided, PublishLog
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.objects.slot import Dead, read_slot
from app.services.datasets.pieces.pieces import Piece
from app.services.datasets.publish.shards.writer import WrittenShard, read_done, write_done
from app.storage.object_store import ObjectStore
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support.dataset_rows import Client
from tests.support.faulty_store import FaultStore, Killed, WrongBitStore, keys, kill_at, with_wrong_bit

LAYOUT = Layout("d", 1)
#: Ids of appends: one with parts, one with its rows in the slot, one that is dead.
IN_PARTS, INLINE, DEAD = (sha256(key.encode()).hexdigest()[:32] for key in ("parts", "inline", "dead"))
DONE = "d/_g1/log/2.done/file"
DIGEST = sha256(b"").hexdigest()


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def catalog(store: ObjectStore) -> Catalog:
    return Catalog(store, ThreadPoolExecutor(1))


def log(store: ObjectStore) -> PublishLog:
    return PublishLog(store, LAYOUT, Decided())


@dataclass(frozen=True)
class Kind:
    """A kind of object.

    Attributes:
        read: what a new replica reads of it.
        nth: which read of the object that is, where others come before.
    """

    key: str
    read: Callable[[ObjectStore], object]
    nth: int = 0


KINDS: Final = {
    "incarnation": Kind(LAYOUT.incarnation, lambda store: catalog(store).open("d")),
    "schema": Kind(LAYOUT.schema(1), lambda store: catalog(store).schema(catalog(store).open("d"))),
    "commit": Kind(LAYOUT.slot(IN_PARTS), lambda store: read_slot(store, LAYOUT, IN_PARTS)),
    "commit with rows": Kind(LAYOUT.slot(INLINE), lambda store: read_slot(store, LAYOUT, INLINE)),
    "dead": Kind(LAYOUT.slot(DEAD), lambda store: read_slot(store, LAYOUT, DEAD)),
    "plan": Kind(LAYOUT.plan(1), lambda store: log(store).plan(1)),
    "manifest": Kind(LAYOUT.manifest(1), lambda store: log(store).verdict(1)),
    "aborted": Kind(LAYOUT.manifest(2), lambda store: log(store).verdict(2)),
    "manifest in a tar": Kind(
        LAYOUT.manifest(1), lambda store: Client(store).datasets.open_tar("d", "1.0.0").tag, nth=1
    ),
    "done": Kind(DONE, lambda store: read_done(store, DONE, "file")),
    "hint": Kind(LAYOUT.hint, lambda store: log(store).newest()),
}


@pytest.fixture(scope="module")
def stored() -> ObstoreStore:
    """A dataset with an object of each kind."""
    store = open_store("memory://")
    client = Client(store)
    client.datasets.create("d", None, DatasetOptions("Text."))
    client.append([1, 2, 3], key="inline", pad=1)
    client.append([4, 5], key="parts", pad=200_000)
    client.publish()
    store.create(LAYOUT.slot(DEAD), Dead("0" * 32).serialize())
    log(store).give_up(2, "asked to")
    write_done(store, DONE, WrittenShard(ShardEntry("file", 2, 40, DIGEST), (Piece(40, DIGEST, 2),)))
    return store


def at(bit: int) -> Callable[[bytes], int]:
    return lambda data: bit


def one_bit_of_each_byte(size: int) -> list[int]:
    return [8 * position + position % 8 for position in range(size)]


@pytest.mark.parametrize("name", KINDS)
def test_a_wrong_bit_on_the_way_changes_nothing(stored: ObstoreStore, name: str) -> None:
    kind = KINDS[name]
    expected = kind.read(stored)
    assert expected is not None
    for bit in one_bit_of_each_byte(len(stored.get(kind.key))):
        store = WrongBitStore(stored, kind.key, at(bit), (kind.nth,))
        assert kind.read(store) == expected
        assert store.reads > kind.nth


@pytest.mark.parametrize("name", sorted(KINDS.keys() - {"hint", "done", "manifest in a tar"}))
def test_a_wrong_bit_at_rest_is_found(stored: ObstoreStore, name: str) -> None:
    kind = KINDS[name]
    sealed = stored.get(kind.key).partition(b"\n")[0]
    for bit in one_bit_of_each_byte(len(sealed)):
        damaged = WrongBitStore(stored, kind.key, at(bit), range(9))
        with pytest.raises(CorruptData, match=kind.key):
            kind.read(damaged)
        assert damaged.reads == 2


def test_hint_with_a_wrong_bit_is_ignored(stored: ObstoreStore) -> None:
    assert log(stored).newest() == 1
    for bit in range(8 * len(stored.get(LAYOUT.hint))):
        store = WrongBitStore(stored, LAYOUT.hint, at(bit))
        assert log(store).newest() == 1
        assert store.requests[1] == ("head", LAYOUT.plan(1))


def test_note_with_a_wrong_bit_is_ignored(stored: ObstoreStore) -> None:
    for bit in range(8 * len(stored.get(DONE))):
        store = WrongBitStore(stored, DONE, at(bit), range(9))
        assert read_done(store, DONE, "file") is None


PUBLISH = PublishOptions(publish_key="k")


def killed_before_its_manifest(store: ObjectStore) -> str:
    """A publication that has written its shard; the key of the note that says so."""
    client = Client(killed := FaultStore(store))
    client.append(range(100))
    kill_at(killed, "create", "_manifest")
    with pytest.raises(Killed):
        client.publish(PUBLISH)
    [note] = keys(store, ".done/")
    return note


@pytest.mark.parametrize(
    "digest", [rb'"sha256":"[a-f]*(.)', rb'"pieces":\[\[\d+,"[a-f]*(.)'], ids=["shard", "piece"]
)
def test_a_wrong_bit_in_a_digest_does_not_spoil_the_versions_to_come(digest: bytes) -> None:
    """It went from the note of a shard into the version, on which then no other could be built."""
    inner = open_store("memory://")
    note = killed_before_its_manifest(inner)

    def bit(data: bytes) -> int:
        """Makes another decimal digit of one."""
        match = re.search(digest, data)
        assert match is not None
        return 8 * match.start(1)

    assert Client(WrongBitStore(inner, note, bit)).publish(PUBLISH).version == "1.0.0"
    client = Client(inner)
    client.append([100])
    assert client.publish().version == "1.1.0"
    assert client.read("1.0.0") == list(range(100))
    assert client.read() == list(range(101))
    assert client.datasets.validate("d", "1.0.0", Budget()).to_json()["valid"]


def test_a_shard_whose_note_is_damaged_is_written_again() -> None:
    inner = open_store("memory://")
    note = killed_before_its_manifest(inner)
    whole = inner.get(note)
    inner.put(note, with_wrong_bit(whole, 8 * whole.index(b"sha256")))
    store = FaultStore(inner)
    Client(store).publish(PUBLISH)
    assert ("put_stream", "d/1.0.0/d-train.tfrecord-00000-of-00001") in store.requests
    assert inner.get(note) == whole
    assert Client(inner).read() == list(range(100))


class AppliedAndLost(FaultStore):
    """Applies the first create of a slot, and fails; what it then says of the slot has a wrong bit."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.lies = True

    def create(self, key: str, data: Buffer) -> None:
        super().create(key, data)
        if "/slots/" in key:
            raise StorageUnavailable("applied, and the answer was lost")

    def get(self, key: str) -> bytes:
        data = super().get(key)
        return with_wrong_bit(data, 160) if self.lies and "/slots/" in key else data


def test_a_slot_that_may_be_ours_and_cannot_be_read_keeps_its_parts() -> None:
    inner = open_store("memory://")
    with pytest.raises(OutcomeUnknown):
        Client(AppliedAndLost(inner)).append([1], pad=400_000)
    assert any("/parts/" in key for key in keys(inner))
    client = Client(inner)
    client.publish()
    assert client.read() == [1]


def test_an_append_whose_slot_is_damaged_at_rest_is_named_and_can_be_left_out() -> None:
    inner = open_store("memory://")
    client = Client(inner)
    damaged = client.append([1]).append_id
    client.append([2])
    key = LAYOUT.slot(damaged)
    inner.put(key, with_wrong_bit(inner.get(key), 160))
    with pytest.raises(CorruptData, match=f"Append {damaged} cannot be read.*exclude="):
        client.publish()
    client.publish(PublishOptions(exclude=(damaged,)))
    assert client.read() == [2]
    client.append([3])
    client.publish()
    assert client.read() == [2, 3]
