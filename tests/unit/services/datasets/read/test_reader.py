"""Reading: any range of rows, any range of bytes, and only what is published."""

import json
import random
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.compression import Compression
from app.domain.limits import MIB, Limits
from app.errors import CorruptData, MalformedInput, NotFound, Overloaded, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.memory import MemoryPool
from app.services.datasets.objects.layout import Layout, record_index
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.publish.shards import writer as shard_writer
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support.arrow_rows import as_arrow
from tests.support.checksummed_json import changed
from tests.support.dataset_rows import SCHEMA, Client
from tests.support.faulty_store import WRITES, FaultStore

LAYOUT = Layout("d", 1)


@pytest.fixture
def client(inner: ObstoreStore) -> Client:
    """Version 1.0.0 holds 0..9 in three shards, 1.1.0 has 10..11 as well."""
    client = Client(inner)
    client.append(range(10))
    client.publish(PublishOptions(num_shards=3))
    client.append([10, 11])
    client.publish(PublishOptions(num_shards=3))
    return client


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [
        (0, None, list(range(12))),
        (0, 1, [0]),
        (3, 2, [3, 4]),
        (3, 5, [3, 4, 5, 6, 7]),
        (11, 1, [11]),
        (11, 99, [11]),
        (12, None, []),
        (99, 1, []),
        (5, 0, []),
    ],
)
def test_a_range_of_rows(client: Client, offset: int, length: int | None, expected: list[int]) -> None:
    assert client.read(offset=offset, length=length) == expected


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_range_across_pieces_and_shards(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_writer, "PIECE_BYTES", data.draw(st.integers(30, 300)))
        client = Client(open_store("memory://"))
        client.append(range(40), pad=data.draw(st.integers(0, 60)))
        client.publish(PublishOptions(num_shards=data.draw(st.integers(1, 5))))
        offset, length = data.draw(st.integers(0, 45)), data.draw(st.integers(0, 45))
        assert client.read(offset=offset, length=length) == list(range(40))[offset : offset + length]


def test_a_few_rows_are_read_without_what_comes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_writer, "PIECE_BYTES", 10_000)
    store = FaultStore(open_store("memory://"))
    client = Client(store)
    client.append(range(1000), pad=1000)
    client.publish()
    client.read(offset=0, length=1)
    store.requests.clear()
    assert client.read(offset=500, length=3) == [500, 501, 502]
    assert [key for operation, key in store.requests if operation == "get_range"] == [
        "d/1.0.0/d-train.tfrecord-00000-of-00001"
    ]


def test_a_hundred_rows_of_a_million_are_one_request_for_each_shard_they_lie_in() -> None:
    num_rows, num_shards = 1_000_000, 8
    store = FaultStore(open_store("memory://"))
    client = Client(store)
    client.append(range(num_rows))
    client.publish(PublishOptions(num_shards=num_shards))
    client.read(length=1)
    per_shard = num_rows // num_shards
    for offset in [*random.Random(1).sample(range(num_rows - 100), 20), per_shard - 50, num_rows - 100]:
        store.requests.clear()
        assert client.read(offset=offset, length=100) == list(range(offset, offset + 100))
        touched = (offset + 99) // per_shard - offset // per_shard + 1
        read = [key for operation, key in store.requests if operation == "get_range"]
        assert len(read) == len(set(read)) == touched
        assert all(".tfrecord-" in key for key in read)
        # What else there is asks which version is the latest.
        assert len(store.requests) == touched + 3


def test_a_range_over_many_pieces_and_shards_is_one_request_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_writer, "PIECE_BYTES", 10_000)
    store = FaultStore(open_store("memory://"))
    client = Client(store)
    client.append(range(3000), pad=100)
    client.publish(PublishOptions(num_shards=3))
    client.read(length=1)
    store.requests.clear()
    assert client.read(offset=500, length=2000) == list(range(500, 2500))
    assert sorted(key for operation, key in store.requests if operation == "get_range") == [
        f"d/1.0.0/d-train.tfrecord-0000{shard}-of-00003" for shard in range(3)
    ]


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_rows_of_compressed_shards_are_found_as_well(
    compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_writer, "PIECE_BYTES", 10_000)
    store = FaultStore(open_store("memory://"))
    client = Client(store)
    client.append(range(1000), pad=1000)
    client.publish(PublishOptions(compression=compression))
    client.read(length=1)
    store.requests.clear()
    assert client.read(offset=495, length=30) == list(range(495, 525))
    assert sum(operation == "get_range" for operation, _ in store.requests) == 1


@pytest.mark.parametrize(
    ("offset", "length", "expected"), [(0, None, 12), (3, 4, 4), (11, 99, 1), (12, None, 0), (5, 0, 0)]
)
def test_the_number_of_rows_is_known_beforehand(
    client: Client, offset: int, length: int | None, expected: int
) -> None:
    rows = client.datasets.read_records("d", "latest", "train", offset=offset, length=length, budget=Budget())
    assert rows.num_rows == expected == sum(batch.num_rows for batch in as_arrow(rows))


def test_a_row_that_one_replica_took_every_other_can_read(inner: ObstoreStore) -> None:
    client = Client(inner)
    client.append([7], pad=3 * MIB, name="d")
    client.publish()
    small = Limits(max_record_bytes=1 * MIB)
    rows = Client(inner, small).datasets.read_records("d", "latest", "train", budget=Budget(small))
    assert [batch.num_rows for batch in as_arrow(rows)] == [1]


@pytest.mark.parametrize(("offset", "length"), [(-1, None), (0, -1)])
def test_a_range_is_not_negative(client: Client, offset: int, length: int | None) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        client.read(offset=offset, length=length)
    assert caught.value.code == "invalid_range"


def test_rows_come_with_the_schema_of_the_version(client: Client) -> None:
    assert client.datasets.read_records("d", "1.0.0", "train", budget=Budget()).schema == SCHEMA


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("1.2.0", "version_not_found"),
        ("2.0.0", "version_not_found"),
        ("0.0.0", "version_not_found"),
        ("1.0.1", "version_not_found"),
        ("999999999.0.0", "version_not_found"),
    ],
)
def test_unpublished_version_is_not_found(client: Client, version: str, code: str) -> None:
    with pytest.raises(NotFound) as caught:
        client.read(version)
    assert caught.value.code == code


def test_a_split_that_is_not_there_is_not_found(client: Client) -> None:
    with pytest.raises(NotFound) as caught:
        client.read(split="other")
    assert caught.value.code == "split_not_found"


@pytest.mark.parametrize("version", ["..", "1.0", "../1.0.0", "Latest"])
def test_a_version_is_checked_before_it_becomes_a_path(client: Client, version: str) -> None:
    with pytest.raises(MalformedInput):
        client.read(version)
    with pytest.raises(MalformedInput):
        client.datasets.open_file("d", version, "features.json")


def test_latest_is_the_last_published(client: Client) -> None:
    assert client.datasets.manifest("d", "latest") == client.datasets.manifest("d", "1.1.0")
    assert list(client.datasets.versions("d")) == ["1.0.0", "1.1.0"]


def test_a_deleted_version_is_not_found(client: Client, inner: ObstoreStore) -> None:
    inner.put(LAYOUT.deleted(1), b"{}")
    shard = client.datasets.manifest("d", "1.1.0").splits["train"].shards[0].file
    for ask in (
        lambda: client.datasets.manifest("d", "1.0.0"),
        lambda: client.datasets.open_file("d", "1.0.0", shard),
        lambda: client.datasets.open_tar("d", "1.0.0"),
        lambda: client.read("1.0.0"),
    ):
        with pytest.raises(NotFound) as caught:
            ask()
        assert caught.value.code == "version_not_found"
    assert list(client.datasets.versions("d")) == ["1.1.0"]
    assert client.read() == list(range(12))


def test_reading_writes_and_lists_nothing(client: Client, inner: ObstoreStore) -> None:
    store = FaultStore(inner)
    reader = Client(store)
    reader.read()
    reader.read("1.0.0")
    reader.datasets.versions("d")
    reader.datasets.open_file("d", "latest", "features.json")
    assert not [request for request in store.requests if request[0] in (*WRITES, "list")]


def test_latest_takes_few_requests_once_known(client: Client, inner: ObstoreStore) -> None:
    store = FaultStore(inner)
    reader = Client(store)
    reader.datasets.manifest("d", "latest")
    store.requests.clear()
    reader.datasets.manifest("d", "latest")
    assert store.requests == [
        ("head", "d/_gen/1.end"),
        ("get", "d/_g1/log/hint"),
        ("head", "d/_g1/log/3.plan"),
    ]


def test_every_file_of_the_manifest_opens(client: Client) -> None:
    manifest = client.datasets.manifest("d", "1.1.0")
    assert {"features.json", "schema.pbtxt", "dataset_info.json", "_index.json"} < set(manifest.by_file)
    for name, entry in manifest.by_file.items():
        file = client.datasets.open_file("d", "1.1.0", name)
        data = file.read_at(0, file.size)
        assert (file.size, file.sha256) == (entry.num_bytes, entry.sha256)
        assert sha256(data).hexdigest() == entry.sha256


def test_a_file_is_read_anywhere(client: Client, inner: ObstoreStore) -> None:
    shard = client.datasets.manifest("d", "1.0.0").splits["train"].shards[0].file
    data = inner.get(LAYOUT.file(1, shard))
    file = client.datasets.open_file("d", "1.0.0", shard)
    assert file.read_at(5, 7) == data[5:12]
    assert file.read_at(file.size - 2, 10) == data[-2:]
    assert file.read_at(file.size, 10) == file.read_at(file.size + 5, 1) == b""


def test_files_have_a_media_type(client: Client) -> None:
    shard = client.datasets.manifest("d", "1.0.0").splits["train"].shards[0].file
    types = [
        client.datasets.open_file("d", "1.0.0", name).media_type
        for name in (shard, "features.json", "schema.pbtxt", record_index(shard))
    ]
    text = "text/plain; charset=utf-8"
    assert types == ["application/x-tfrecord", "application/json", text, text]


@pytest.mark.parametrize(
    "name", ["_manifest.json", "_deleted.json", "other", "d-train.tfrecord-00000-of-00009"]
)
def test_file_outside_the_manifest_is_not_found(client: Client, inner: ObstoreStore, name: str) -> None:
    inner.put(LAYOUT.file(1, "other"), b"x")
    with pytest.raises(NotFound) as caught:
        client.datasets.open_file("d", "1.0.0", name)
    assert caught.value.code == "file_not_found"


class SigningStore(FaultStore):
    """As a store in a cloud."""

    def sign(self, key: str, expires_s: int) -> str | None:
        return f"https://store/{key}?expires={expires_s}"


def test_a_store_that_can_hands_out_a_signed_url(client: Client, inner: ObstoreStore) -> None:
    file = Client(SigningStore(inner)).datasets.open_file("d", "1.0.0", "features.json")
    assert file.sign() == "https://store/d/1.0.0/features.json?expires=3600"


def test_a_store_that_cannot_sign_says_so(client: Client) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        client.datasets.open_file("d", "1.0.0", "features.json").sign()
    assert caught.value.code == "cannot_sign"


@pytest.mark.parametrize("name", ["../1.1.0/features.json", "..", "a/b", ""])
def test_a_file_name_is_checked_before_it_becomes_a_path(client: Client, name: str) -> None:
    with pytest.raises(MalformedInput):
        client.datasets.open_file("d", "1.0.0", name)


@pytest.mark.parametrize("damage", ["short", "gone"])
def test_a_shard_that_is_not_as_published_is_corrupt(
    client: Client, inner: ObstoreStore, damage: str
) -> None:
    shard = client.datasets.manifest("d", "1.0.0").splits["train"].shards[1].file
    key = LAYOUT.file(1, shard)
    opened = client.datasets.open_file("d", "1.0.0", shard)
    data = inner.get(key)
    inner.delete(key)
    if damage == "short":
        inner.put(key, data[:-1])
    with pytest.raises(CorruptData):
        client.datasets.open_file("d", "1.0.0", shard)
    with pytest.raises(CorruptData):
        opened.read_at(0, opened.size)
    with pytest.raises(CorruptData):
        client.read("1.0.0")
    assert client.read("1.0.0", length=3) == [0, 1, 2]


def test_changed_bytes_are_never_handed_out_as_rows(client: Client, inner: ObstoreStore) -> None:
    shard = client.datasets.manifest("d", "1.0.0").splits["train"].shards[1].file
    key = LAYOUT.file(1, shard)
    other = client.datasets.manifest("d", "1.1.0").splits["train"].shards[1].file
    foreign = inner.get(LAYOUT.file(2, other))
    inner.put(key, foreign[: len(inner.get(key))])
    with pytest.raises(CorruptData):
        client.read("1.0.0")


def test_a_damaged_index_is_corrupt(client: Client, inner: ObstoreStore) -> None:
    key = LAYOUT.file(1, "_index.json")
    inner.put(key, json.dumps({"shards": {}}).encode())
    with pytest.raises(CorruptData, match="_index"):
        Client(inner).read("1.0.0")


def test_rows_that_do_not_decode_are_corrupt_and_not_the_clients_fault(
    client: Client, inner: ObstoreStore
) -> None:
    key, schema = LAYOUT.manifest(1), {"features": {"x": {"dtype": "float32"}}}
    inner.put(key, changed(inner.get(key), schema=schema))
    with pytest.raises(CorruptData, match="cannot be read"):
        Client(inner).read("1.0.0")


def test_without_memory_to_read_ahead_no_rows_are_read(inner: ObstoreStore) -> None:
    client = Client(inner)
    client.append(range(8), pad=MIB)
    client.publish()
    pool = MemoryPool(64 * MIB)
    other, share = pool.share(), pool.share()
    other.charge(50 * MIB)
    budget = Budget(Limits(), share)
    with pytest.raises(Overloaded, match="nothing was done"):
        client.datasets.read_records("d", "latest", "train", budget=budget)
    client.datasets.read_records("d", "latest", "train", length=0, budget=budget)
    other.end()
    rows = client.datasets.read_records("d", "latest", "train", budget=budget)
    assert sum(batch.num_rows for batch in as_arrow(rows)) == 8
    share.end()
    assert pool.used == 0
