"""Datasets as a whole: the road from rows to versions, names, and many users at one time."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import count, islice
from pathlib import Path

import pytest

from app.domain.schema import Schema
from app.errors import Conflict, MalformedInput, NotFound, StorageUnavailable
from app.services.datasets.append.result import AppendResult
from app.services.datasets.objects.incarnation import DatasetOptions
from app.services.datasets.objects.layout import Layout
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.publish import new_appends
from app.services.datasets.publish.waiting import WaitingAppends
from app.storage.object_store import ObjectInfo
from app.storage.obstore_store import ObstoreStore, open_store
from app.telemetry.metrics import REGISTRY
from tests.support.checksummed_json import sealed
from tests.support.dataset_rows import SCHEMA, Client
from tests.support.faulty_store import FaultStore, Operation, When


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObstoreStore:
    return open_store("memory://" if request.param == "memory" else f"file://{tmp_path}/data")


def append_id_of(key: str) -> str:
    return sha256(key.encode()).hexdigest()[:32]


def by_id(result: AppendResult) -> str:
    return result.append_id


@pytest.fixture
def client(store: ObstoreStore) -> Client:
    return Client(store)


def test_a_dataset_is_created_once(client: Client) -> None:
    info, created = client.datasets.create("d", SCHEMA, DatasetOptions("Text."))
    assert created
    assert info.to_json() == {
        "dataset": "d",
        "generation": 1,
        "schema": SCHEMA.to_json(),
        "description": "Text.",
        "keep_versions": None,
        "latest_version": None,
        "waiting": {"num_appends": 0, "num_records": 0, "num_bytes": 0, "truncated": False},
    }
    assert client.datasets.create("d", SCHEMA, DatasetOptions("Text.")) == (info, False)
    with pytest.raises(Conflict):
        client.datasets.create("d", None, DatasetOptions("Text."))


def test_a_dataset_tells_its_latest_version(client: Client) -> None:
    client.append([1])
    assert client.datasets.get("d").latest_version is None
    client.publish()
    assert client.datasets.get("d").latest_version == "1.0.0"


def test_a_publication_that_the_end_of_the_process_cuts_short_is_none_that_failed() -> None:
    def fail(_: When, operation: Operation, __: str) -> None:
        if operation == "put_stream":
            raise StorageUnavailable("The object store cannot be reached.")

    store = FaultStore(open_store("memory://"))
    client = Client(store)
    client.append([1])
    store.fault = fail
    options = PublishOptions(publish_key="k")
    begun = num_failed()
    with pytest.raises(StorageUnavailable):
        client.publish(options)
    assert num_failed() == begun + 1
    client.datasets.close()
    with pytest.raises(StorageUnavailable):
        client.publish(options)
    assert num_failed() == begun + 1


def num_failed() -> float:
    counted = REGISTRY.get_sample_value("shardsmith_publications_total", {"outcome": "failed"})
    assert counted is not None
    return counted


def test_a_declared_schema_is_known_before_any_rows(client: Client) -> None:
    assert client.datasets.schema("d") is None
    client.datasets.create("d", None, DatasetOptions())
    assert client.datasets.schema("d") is None
    client.append([1])
    assert client.datasets.schema("d") == SCHEMA


def test_deleted_dataset_starts_again(client: Client, store: ObstoreStore) -> None:
    client.append([1], key="k")
    client.publish()
    client.datasets.delete("d")
    with pytest.raises(NotFound):
        client.datasets.get("d")
    with pytest.raises(NotFound):
        client.read("1.0.0")
    with pytest.raises(NotFound):
        client.publish()
    assert client.datasets.schema("d") is None
    assert not client.append([2], key="k").replayed
    manifest = client.publish()
    assert (manifest.version, client.read()) == ("2.0.0", [2])
    assert client.datasets.get("d").generation == 2
    with pytest.raises(NotFound):
        client.read("1.0.0")
    assert list(Client(store).datasets.versions("d")) == ["2.0.0"]


def test_datasets_are_listed(client: Client) -> None:
    for name in ("b", "a-1", "gone"):
        client.append([1], name=name)
    client.datasets.delete("gone")
    assert list(client.datasets.list()) == ["a-1", "b"]


@pytest.mark.parametrize("name", ["_probe", "a/b", "..", "", "é"])
def test_a_name_is_checked_by_every_call(client: Client, name: str) -> None:
    datasets = client.datasets
    for call in (
        lambda: datasets.create(name, None, DatasetOptions()),
        lambda: datasets.get(name),
        lambda: datasets.delete(name),
        lambda: datasets.schema(name),
        lambda: client.append([1], name=name),
        lambda: datasets.get_append(name, "0" * 32),
        lambda: datasets.publish(name, PublishOptions()),
        lambda: datasets.versions(name),
        lambda: datasets.manifest(name, "latest"),
        lambda: datasets.open_file(name, "latest", "features.json"),
    ):
        with pytest.raises(MalformedInput) as caught:
            call()
        assert caught.value.code == "invalid_dataset_name"


def test_an_append_is_followed_to_its_version(client: Client, store: ObstoreStore) -> None:
    result = client.append([1, 2], split="test")
    known = {"dataset": "d", "split": "test", "append_id": result.append_id, "num_records": 2}
    known["num_bytes"] = result.num_bytes
    assert client.datasets.get_append("d", result.append_id) == {**known, "state": "acknowledged"}
    client.publish()
    published = {**known, "state": "published", "version": "1.0.0"}
    assert client.datasets.get_append("d", result.append_id) == published
    client.append([3])
    client.publish()
    assert Client(store).datasets.get_append("d", result.append_id) == published


def test_a_dead_append_is_said_to_be(client: Client, store: ObstoreStore) -> None:
    client.append([1])
    store.create(Layout("d", 1).slot("0" * 32), sealed(b'{"nonce":"x","fate":"dead"}') + b"\n")
    assert client.datasets.get_append("d", "0" * 32)["state"] == "dead"
    client.publish()
    assert client.read() == [1]


@pytest.mark.parametrize("most_listed", [3, 1000], ids=["folder by folder", "by one request"])
def test_waiting_appends_are_listed_by_id_a_page_at_a_time(
    client: Client, store: ObstoreStore, most_listed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_appends, "_PAGE", most_listed)
    names = (f"k{number}" for number in count())
    keys = list(islice((name for name in names if append_id_of(name).startswith("a")), 7))  # one folder
    appended = sorted((client.append([1, 2], key=key) for key in keys), key=by_id)
    client.append([0], key="published")
    store.create(Layout("d", 1).slot("0" * 32), sealed(b'{"nonce":"x","fate":"dead"}') + b"\n")
    first = Client(store).datasets.waiting_appends("d", limit=4)
    assert first.next == first.appends[-1].append_id  # the dead one was looked at, too
    rest = client.datasets.waiting_appends("d", after=first.next, limit=4)
    assert rest.next == rest.appends[-1].append_id
    last = client.datasets.waiting_appends("d", after=rest.next, limit=4)
    assert last.next is None
    listed = [append.append_id for page in (first, rest, last) for append in page.appends]
    assert listed == sorted([*(result.append_id for result in appended), append_id_of("published")])


def test_of_many_waiting_appends_a_dataset_counts_the_first(client: Client) -> None:
    for number in range(257):
        client.append([number], key=f"k{number}")
    counts = client.datasets.get("d").to_json()["waiting"]
    assert (counts["num_appends"], counts["num_records"], counts["truncated"]) == (256, 256, True)
    client.publish(PublishOptions(exclude=(append_id_of("k0"),)))
    assert client.datasets.get("d").waiting == WaitingAppends()
    client.append([1, 2])
    counts = client.datasets.get("d").to_json()["waiting"]
    assert (counts["num_appends"], counts["num_records"], counts["truncated"]) == (1, 2, False)


def test_a_dataset_is_shown_without_listing_all_its_appends(
    client: Client, store: ObstoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a slot for each append of a week, waiting or not."""
    monkeypatch.setattr(new_appends, "_PAGE", 3)
    for number in range(3):
        client.append([number], key=f"k{number}")
    assert client.datasets.get("d").to_json()["waiting"]["truncated"] is False
    for number in range(5):
        store.create(Layout("d", 1).slot(f"a{number:031}"), sealed(b'{"nonce":"x","fate":"dead"}') + b"\n")
    listed: list[str] = []
    list_all = ObstoreStore.list
    slots = Layout("d", 1).all_slots

    def counted(self: ObstoreStore, prefix: str) -> Iterator[ObjectInfo]:
        for info in list_all(self, prefix):
            listed.append(prefix)
            yield info

    monkeypatch.setattr(ObstoreStore, "list", counted)
    waiting = client.datasets.get("d").to_json()["waiting"]
    assert (listed.count(slots), listed.count(f"{slots}/a"), waiting["truncated"]) == (3, 3, True)
    assert len(client.datasets.waiting_appends("d").appends) == 3, "all of them are listed here"


def test_the_list_of_consumed_appends_is_read_once_for_each_version(
    client: Client, store: ObstoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    get = ObstoreStore.get

    def recorded(self: ObstoreStore, key: str) -> bytes:
        read.append(key)
        return get(self, key)

    monkeypatch.setattr(ObstoreStore, "get", recorded)
    for number in range(2):
        client.append([number], key=f"k{number}")
        version = client.publish().version
        reading = Client(store).datasets
        read.clear()
        for _ in range(3):
            assert reading.get("d").waiting == WaitingAppends()
            fate = reading.get_append("d", append_id_of(f"k{number}"))
            assert (fate["state"], fate["version"]) == ("published", version)
        assert len([key for key in read if ".seen" in key]) == 1, read


def test_an_append_that_never_was_is_not_found(client: Client) -> None:
    client.append([1])
    with pytest.raises(NotFound) as caught:
        client.datasets.get_append("d", "0" * 32)
    assert caught.value.code == "append_not_found"
    with pytest.raises(MalformedInput):
        client.datasets.get_append("d", "../x")


def test_a_rich_schema_comes_back_as_it_was(client: Client) -> None:
    schema = Schema.from_json(
        {
            "features": {
                "z": {"dtype": "text", "nullable": True},
                "a": {"dtype": "float32", "shape": [None, 2]},
            }
        }
    )
    client.datasets.create("d", schema, DatasetOptions())
    stored = Client(client.store).datasets.schema("d")
    assert stored == schema
    assert stored is not None
    assert stored.names == ("z", "a")


def test_many_writers_and_publishers_at_one_time(store: ObstoreStore) -> None:
    """Every acknowledged row is in the last version once; no version ever has one twice or loses one."""
    writers, appends, rows = 6, 8, 5
    replicas = [Client(store) for _ in range(3)]
    stop = threading.Event()

    def write(writer: int) -> list[int]:
        client = replicas[writer % len(replicas)]
        sent: list[int] = []
        for index in range(appends):
            first = (writer * appends + index) * rows
            values = list(range(first, first + rows))
            key = f"{writer}-{index}" if index % 2 else None
            client.append(values, key=key)
            if key is not None:
                # A client that did not hear the answer asks again, some other replica.
                assert replicas[(writer + 1) % len(replicas)].append(values, key=key).replayed
            sent += values
        return sent

    def publish(client: Client) -> None:
        while not stop.is_set():
            try:
                client.publish(PublishOptions(num_shards=2))
            except (Conflict, NotFound):
                stop.wait(0.005)

    with ThreadPoolExecutor(writers + len(replicas)) as pool:
        publishers = [pool.submit(publish, client) for client in replicas]
        sent = [value for values in pool.map(write, range(writers)) for value in values]
        stop.set()
        for publisher in publishers:
            publisher.result()
    last = Client(store)
    wants = last.append([10**6])
    last.publish(wants=wants.append_id)
    assert Counter(last.read()) == Counter([*sent, 10**6])
    before: list[int] = []
    for version in last.datasets.versions("d"):
        now = last.read(version)
        assert now[: len(before)] == before
        assert max(Counter(now).values()) == 1
        before = now


def test_first_appends_that_race_all_count(store: ObstoreStore) -> None:
    barrier = threading.Barrier(8)

    def first(value: int) -> None:
        client = Client(store)
        barrier.wait()
        client.append([value])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(first, range(8)))
    client = Client(store)
    client.publish()
    assert sorted(client.read()) == list(range(8))


def test_racing_publishers_who_want_their_rows_all_get_them(store: ObstoreStore) -> None:
    def append_and_publish(value: int) -> None:
        client = Client(store)
        result = client.append([value])
        manifest = client.publish(wants=result.append_id)
        assert value in client.read(manifest.version)

    Client(store).append([100])
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(append_and_publish, range(6)))
    assert sorted(Client(store).read()) == [0, 1, 2, 3, 4, 5, 100]
