"""Statistics of a published version: found once, kept beside it, compared with those of another."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from app.errors import StorageError
from app.main import create_app_with
from app.services.datasets import version_statistics
from app.settings import Settings
from app.storage.obstore_store import open_store
from openapi.recorded import serving
from tests.support.faulty_store import FaultStore, Operation, When
from tests.support.waiting import wait_for

URL = "/v1/datasets/d"
STATISTICS = f"{URL}/versions/1.0.0/statistics"
STORED = "d/1.0.0/_statistics-train.1.json"


class WatchedStore(FaultStore):
    """A store that counts how often the rows are read, and may keep them back."""

    def __init__(self) -> None:
        self.inner = open_store("memory://")
        self.num_reads = 0
        self.may_read = threading.Event()
        self.may_read.set()
        self.fails = False
        super().__init__(self.inner, self._watch)

    def _watch(self, when: When, operation: Operation, key: str) -> None:
        if when == "before" and ".tfrecord-" in key and operation.startswith(("get", "read")):
            self.num_reads += 1
            self.may_read.wait()


@pytest.fixture
def store() -> WatchedStore:
    return WatchedStore()


@pytest.fixture
def client(store: WatchedStore) -> Iterator[httpx.Client]:
    app = create_app_with(Settings(storage_url="memory://"), store=store)
    with serving(app) as client:
        yield client
        store.may_read.set()


@pytest.fixture
def impatient(store: WatchedStore) -> Iterator[httpx.Client]:
    app = create_app_with(Settings(storage_url="memory://"), store=store, publish_wait_s=0.01)
    with serving(app) as client:
        yield client
        store.may_read.set()


def publish(client: httpx.Client, rows: list[dict[str, Any]], split: str = "train") -> None:
    assert client.post(f"{URL}/records?split={split}", json=rows).status_code == 201
    assert client.post(f"{URL}/versions?num_shards=3").status_code == 201


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [
        {"n": n, "x": n / 4, "name": f"name {n % 3}", "tags": list(range(n % 4))} for n in range(start, stop)
    ]


def test_all_shards_count(client: httpx.Client) -> None:
    publish(client, rows(0, 100))
    answer = client.get(STATISTICS)
    assert answer.status_code == 200
    found = answer.json()
    assert (found["dataset"], found["version"], found["split"], found["num_records"]) == (
        "d",
        "1.0.0",
        "train",
        100,
    )
    n, x, name, tags = (found["features"][feature] for feature in ("n", "x", "name", "tags"))
    assert (n["min"], n["max"], n["mean"], n["num_values"]) == (0, 99, 49.5, 100)
    assert x["std"] == pytest.approx(np.std(np.arange(100) / 4))
    assert x["distribution"]["quantiles"][::50] == [0, 12.25, 24.75]
    assert name["values"]["top"] == [
        {"value": "name 0", "count": 34},
        {"value": "name 1", "count": 33},
        {"value": "name 2", "count": 33},
    ]
    assert (tags["min_num_values"], tags["max_num_values"]) == (0, 3)
    assert tags["num_values_distribution"]["counts"] == [25, 25, 25, 25]


def test_statistics_equal_describe(client: httpx.Client) -> None:
    publish(client, rows(0, 50))
    described = client.get(f"{URL}/versions/1.0.0/describe").json()["features"]
    for name, found in client.get(STATISTICS).json()["features"].items():
        assert {key: found[key] for key in described[name]} == {
            key: pytest.approx(value) if key in ("mean", "std", "mean_length") else value
            for key, value in described[name].items()
        }


def test_rows_are_read_once_whoever_asks(client: httpx.Client, store: WatchedStore) -> None:
    publish(client, rows(0, 10))
    first = client.get(STATISTICS)
    num_reads = store.num_reads
    assert num_reads
    assert client.get(STATISTICS).content == first.content
    with serving(create_app_with(Settings(storage_url="memory://"), store=store)) as replica:
        assert replica.get(f"{URL}/versions/latest/statistics").content == first.content
    assert store.num_reads == num_reads


def test_who_asks_at_the_same_time_follows_one_run(client: httpx.Client, store: WatchedStore) -> None:
    publish(client, rows(0, 10))
    before = store.num_reads
    client.get(STATISTICS)
    once = store.num_reads - before
    store.inner.delete(STORED)
    store.may_read.clear()
    before = store.num_reads
    with (
        serving(create_app_with(Settings(storage_url="memory://"), store=store)) as replica,
        ThreadPoolExecutor(10) as pool,
    ):
        asking = [pool.submit(replica.get, STATISTICS) for _ in range(10)]
        wait_for(lambda: store.num_reads > before)
        store.may_read.set()
        answers = {each.result().content for each in asking}
    assert len(answers) == 1
    assert store.num_reads - before == once


@pytest.mark.parametrize(
    ("limit", "most"),
    [("_BLOCK_ROWS", 1), ("_BLOCK_ROWS", 12), ("_BLOCK_BYTES", 1)],
    ids=["a-batch", "some-batches", "bytes"],
)
def test_how_many_rows_are_looked_at_together_changes_nothing(
    client: httpx.Client, store: WatchedStore, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    publish(client, [{**row, "long": "x" * 60_000} for row in rows(0, 100)])  # some batches in each shard
    together = client.get(STATISTICS).json()
    store.inner.delete(STORED)
    monkeypatch.setattr(version_statistics, limit, most)
    with serving(create_app_with(Settings(storage_url="memory://"), store=store)) as replica:
        apart = replica.get(STATISTICS).json()
    for found in (together, apart):
        for feature in found["features"].values():
            for member in ("mean", "std", "mean_length"):
                feature.pop(member, None)
    assert apart == together


def test_statistics_of_another_replica_are_returned(client: httpx.Client, store: WatchedStore) -> None:
    publish(client, rows(0, 10))
    client.get(STATISTICS)
    stored = store.inner.get(STORED)
    store.inner.delete(STORED)
    store.may_read.clear()
    before = store.num_reads
    with serving(create_app_with(Settings(storage_url="memory://"), store=store)) as replica:
        answers: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: answers.append(replica.get(STATISTICS)))
        asking.start()
        wait_for(lambda: store.num_reads > before)
        store.inner.create(STORED, stored)
        store.may_read.set()
        asking.join()
    assert answers[0].status_code == 200
    assert store.inner.get(STORED) == stored


def test_progress_is_202_without_waiting(impatient: httpx.Client, store: WatchedStore) -> None:
    while (
        impatient.post(
            f"{URL}/records?split=train&publish=true", json=rows(0, 10), headers={"Idempotency-Key": "k"}
        ).status_code
        == 202
    ):
        pass
    store.may_read.clear()
    answer = impatient.get(STATISTICS)
    assert (answer.status_code, answer.headers["retry-after"]) == (202, "1")
    assert answer.json() == {
        "dataset": "d",
        "version": "1.0.0",
        "split": "train",
        "state": "computing",
        "percent": 0,
    }
    store.may_read.set()
    while (answer := impatient.get(STATISTICS)).status_code == 202:
        pass
    assert answer.json()["num_records"] == 10


def test_the_page_tells_how_far_it_is_and_asks_again(client: httpx.Client, store: WatchedStore) -> None:
    publish(client, rows(0, 10), "test")
    publish(client, rows(0, 10))
    page, accept = "/ui/datasets/d/latest/statistics?split=train&against_split=test", {"Accept": "text/html"}
    store.may_read.clear()
    shown = client.get(page, headers=accept)
    assert shown.text.count('<progress id="progress-') == 2
    assert 'hx-trigger="load delay:1s"' in shown.text
    assert ">Look again</a>" in shown.text
    store.may_read.set()
    while "<progress id=" in (shown := client.get(page, headers=accept)).text:
        pass
    assert shown.text.count('class="panel feature"') == 4


def test_statistics_are_not_part_of_the_version(client: httpx.Client, store: WatchedStore) -> None:
    publish(client, rows(0, 10))
    before = client.get(f"{URL}/versions/1.0.0/tar").content
    client.get(STATISTICS)
    assert STORED in {info.key for info in store.inner.list("d")}
    assert client.get(f"{URL}/versions/1.0.0/tar").content == before
    assert client.post(f"{URL}/versions/1.0.0/validate").json()["problems"] == []
    assert client.get(f"{URL}/versions/1.0.0/files/_statistics-train.1.json").status_code == 404


def test_damaged_statistics_are_corrupt_data(client: httpx.Client, store: WatchedStore) -> None:
    publish(client, rows(0, 10))
    client.get(STATISTICS)
    data = store.inner.get(STORED)
    store.inner.delete(STORED)
    store.inner.create(STORED, data.replace(b'"num_records":10', b'"num_records":11'))
    with serving(create_app_with(Settings(storage_url="memory://"), store=store)) as replica:
        answer = replica.get(STATISTICS)
    assert (answer.status_code, answer.json()["code"]) == (500, "corrupt_data")


def test_a_store_that_can_only_be_read_has_statistics(client: httpx.Client, store: WatchedStore) -> None:
    publish(client, rows(0, 10))

    def refuse(when: When, operation: Operation, key: str) -> None:
        if operation == "create" and key == STORED:
            raise StorageError("The store refuses access.", code="storage_denied")

    denied = FaultStore(store, refuse)
    with serving(create_app_with(Settings(storage_url="memory://"), store=denied)) as replica:
        found = replica.get(STATISTICS)
        num_reads = store.num_reads
        again = replica.get(STATISTICS)
    assert (found.status_code, found.json()["features"]["n"]["max"]) == (200, 9)
    assert (again.json(), store.num_reads) == (found.json(), num_reads)
    assert STORED not in {info.key for info in store.inner.list("d")}


def test_splits_and_versions_are_compared(client: httpx.Client) -> None:
    client.post(f"{URL}/records?split=test", json=rows(0, 40))
    publish(client, rows(0, 40))
    same = client.get(f"{STATISTICS}?against_split=test").json()
    assert same["against"]["split"] == "test"
    assert same["drift"] == {"n": 0, "x": 0, "name": 0, "tags": 0}
    publish(client, rows(1000, 1120))
    later = client.get(f"{URL}/versions/latest/statistics?against_version=1.0.0").json()
    assert (later["version"], later["against"]["version"]) == ("1.1.0", "1.0.0")
    assert later["drift"]["n"] > 0.3
    assert later["drift"]["name"] < 0.01


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("?split=other", "split_not_found"),
        ("?against_split=other", "split_not_found"),
        ("?against_version=9.9.9", "version_not_found"),
        ("?against=test", "unknown_parameter"),
    ],
    ids=["split", "against-split", "against-version", "unknown"],
)
def test_unknown_version_or_split_is_404(client: httpx.Client, query: str, code: str) -> None:
    publish(client, rows(0, 3))
    assert client.get(STATISTICS + query).json()["code"] == code


def test_hostile_names_and_values_are_returned_unchanged(client: httpx.Client) -> None:
    name = "<script>alert(1)</script>"
    publish(client, [{name: "</svg><script>"}, {name: "\u0000\u202e"}])
    found = client.get(STATISTICS).json()["features"][name]
    assert {each["value"] for each in found["values"]["top"]} == {"</svg><script>", "\u0000\u202e"}
    assert json.dumps(found)
