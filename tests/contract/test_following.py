"""A publication is followed at the place of its version, from any replica; waiting appends are listed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest

from app.main import create_app_with
from app.settings import Settings
from app.storage.object_store import ObjectStore
from app.storage.obstore_store import ObstoreStore, open_store
from openapi.recorded import serving
from tests.support.faulty_store import FaultStore, Killed, Operation, When, keys
from tests.support.waiting import wait_for

URL = "/v1/datasets/d"
VERSION = f"{URL}/versions/1.0.0"
ROWS = [{"x": number} for number in range(10)]


class SteppedStore(FaultStore):
    """A store that writes as many shards as it was told to, then waits; or kills who writes the next one."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, self._step)
        self._may_write = threading.Semaphore(0)
        self.kills_at = ""
        self._dead = False

    def let(self, shards: int) -> None:
        self._may_write.release(shards)

    def _step(self, when: When, operation: Operation, key: str) -> None:
        if self._dead or (when == "before" and self.kills_at and self.kills_at in key):
            self._dead = True
            raise Killed
        if when == "before" and operation == "put_stream" and ".tfrecord-" in key:
            self._may_write.acquire()


@contextmanager
def replica(store: ObjectStore) -> Iterator[httpx.Client]:
    """A service that answers 202 at once to what goes on."""
    app = create_app_with(Settings(storage_url="memory://"), store=store, publish_wait_s=0.01)
    with serving(app) as client:
        yield client


@pytest.fixture
def inner() -> ObstoreStore:
    return open_store("memory://")


@pytest.fixture
def store(inner: ObstoreStore) -> SteppedStore:
    return SteppedStore(inner)


@pytest.fixture
def one(store: SteppedStore) -> Iterator[httpx.Client]:
    """The replica that publishes, as fast as the store lets it."""
    with replica(store) as client:
        yield client
        store.let(1000)


@pytest.fixture
def other(inner: ObstoreStore) -> Iterator[httpx.Client]:
    """Another replica over the same store."""
    with replica(inner) as client:
        yield client


def planned(client: httpx.Client, url: str, **request: Any) -> httpx.Response:
    """The 202 of a publication that goes on, once its version is fixed."""
    while True:
        answer = client.post(url, **request)
        assert answer.status_code == 202, answer.text
        if "version" in answer.json():
            return answer


def progress(client: httpx.Client, location: str = VERSION) -> dict[str, Any]:
    answer = client.get(location)
    assert answer.status_code == 202, answer.text
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["location"] == location
    found: dict[str, Any] = answer.json()
    return found


def has_done(client: httpx.Client, shards: int) -> bool:
    return bool(progress(client)["shards_done"] == shards)


@pytest.mark.parametrize("publishing", ["versions", "append"])
def test_a_202_is_followed_to_the_manifest_from_any_replica(
    one: httpx.Client, other: httpx.Client, store: SteppedStore, publishing: str
) -> None:
    if publishing == "versions":
        one.post(f"{URL}/records", json=ROWS).raise_for_status()
        begun = planned(one, f"{URL}/versions?num_shards=5")
    else:
        begun = planned(
            one,
            f"{URL}/records?publish=true&num_shards=5",
            json=ROWS,
            headers={"Idempotency-Key": "k"},
        )
    assert begun.headers["location"] == VERSION
    for done in range(5):
        wait_for(partial(has_done, other, done))
        for client in (one, other):
            found = progress(client)
            assert found.pop("updated_at") >= "2020"
            assert found == {
                "dataset": "d",
                "state": "publishing",
                "version": "1.0.0",
                "shards_done": done,
                "shards_total": 5,
                "percent": 20 * done,
            }
            assert client.head(VERSION).status_code == 202
            shard = "d-train.tfrecord-00000-of-00005"
            for part in ("/tar", "/records", f"/shards/{shard}", f"/files/{shard}"):
                unfinished = client.get(f"{VERSION}{part}")
                assert (unfinished.status_code, unfinished.json()["code"]) == (404, "version_not_found")
            assert client.get(f"{URL}/versions").json()["versions"] == []
            assert client.get(f"{URL}/versions/latest").status_code == 404
        store.let(1)
    wait_for(lambda: other.get(VERSION).status_code == 200)
    manifest = one.get(VERSION).json()
    assert manifest["splits"]["train"]["num_records"] == 10
    assert {**other.get(VERSION).json(), "load": None} == {**manifest, "load": None}


def test_publication_of_a_dead_replica_is_reported_until_finished(
    one: httpx.Client, other: httpx.Client, store: SteppedStore
) -> None:
    one.post(f"{URL}/records", json=ROWS).raise_for_status()
    headers = {"Idempotency-Key": "release"}
    planned(one, f"{URL}/versions?num_shards=2", headers=headers)
    store.kills_at = "_manifest.json"
    store.let(2)
    wait_for(lambda: progress(other)["shards_done"] == 2)
    assert progress(other)["percent"] == 99, "only the manifest makes it whole"
    while (done := other.post(f"{URL}/versions?num_shards=2", headers=headers)).status_code == 202:
        pass
    assert done.status_code == 201
    assert other.get(VERSION).status_code == 200


def test_a_publication_that_was_given_up_says_so(
    one: httpx.Client, other: httpx.Client, store: SteppedStore
) -> None:
    one.post(f"{URL}/records", json=ROWS).raise_for_status()
    planned(one, f"{URL}/versions")
    other.post(f"{VERSION}/abort").raise_for_status()
    for client in (one, other):
        answer = client.get(VERSION)
        assert (answer.status_code, answer.json()["code"]) == (409, "publish_aborted")
        assert "operator" in answer.json()["detail"]
        assert answer.json()["version"] == "1.0.0"
    store.let(1000)


def test_a_version_that_was_never_begun_or_is_deleted_is_not_found(
    one: httpx.Client, store: SteppedStore
) -> None:
    store.let(1000)
    for number in range(2):
        one.post(f"{URL}/records", json=[{"x": number}]).raise_for_status()
        while one.post(f"{URL}/versions", headers={"Idempotency-Key": str(number)}).status_code == 202:
            pass
    one.delete(VERSION).raise_for_status()
    for version in ("1.0.0", "1.2.0", "2.0.0", "1.0.7"):
        answer = one.get(f"{URL}/versions/{version}")
        assert (answer.status_code, answer.json()["code"]) == (404, "version_not_found"), version


def test_waiting_appends_are_listed_and_counted(
    one: httpx.Client, other: httpx.Client, store: SteppedStore
) -> None:
    assert one.put(URL).json()["waiting"]["num_appends"] == 0
    stored = {}
    for number in range(5):
        answer = one.post(
            f"{URL}/records?split=test&sequence={number}",
            json=[{"x": number}] * (number + 1),
            headers={"Idempotency-Key": f"k{number}"},
        )
        stored[answer.json()["append_id"]] = answer.json()
    listed: list[dict[str, Any]] = []
    after = ""
    while True:
        page = other.get(f"{URL}/appends", params={"limit": 2, "after": after}).json()
        assert page["dataset"] == "d"
        assert len(page["appends"]) <= 2
        listed += page["appends"]
        if "next" not in page:
            break
        after = page["next"]
    assert [append["append_id"] for append in listed] == sorted(stored)
    for append in listed:
        known = stored[append["append_id"]]
        assert append["time"] >= "2020"
        assert append["sequence"] == known["num_records"] - 1
        named = ("split", "num_records", "num_bytes")
        assert {name: append[name] for name in named} == {name: known[name] for name in named}
        assert append["state"] == "acknowledged"
    num_bytes = sum(append["num_bytes"] for append in listed)
    counts = {"num_appends": 5, "num_records": 15, "num_bytes": num_bytes, "truncated": False}
    assert other.get(URL).json()["waiting"] == counts
    planned(one, f"{URL}/versions")
    assert other.get(URL).json()["waiting"] == counts, "no version holds them yet"
    store.let(1000)
    wait_for(lambda: other.get(VERSION).status_code == 200)
    assert other.get(f"{URL}/appends").json() == {"dataset": "d", "appends": []}
    assert other.get(URL).json()["waiting"]["num_appends"] == 0


def test_an_append_that_cannot_be_read_is_listed_by_its_id(
    one: httpx.Client, inner: ObstoreStore, store: SteppedStore
) -> None:
    good = one.post(f"{URL}/records", json=ROWS, headers={"Idempotency-Key": "good"}).json()["append_id"]
    bad = one.post(f"{URL}/records", json=ROWS, headers={"Idempotency-Key": "bad"}).json()["append_id"]
    [slot] = keys(inner, bad)
    inner.put(slot, b"damaged" + inner.get(slot)[7:])
    listed = one.get(f"{URL}/appends").json()["appends"]
    assert {append["append_id"]: append["state"] for append in listed} == {
        good: "acknowledged",
        bad: "unreadable",
    }
    assert one.get(URL).json()["waiting"]["num_appends"] == 2
    store.let(1000)
    while (done := one.post(f"{URL}/versions?exclude={bad}")).status_code == 202:
        pass
    assert done.status_code == 201
    assert one.get(f"{URL}/appends").json()["appends"] == []


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("limit=0", 400, "invalid_parameter"),
        ("limit=1001", 400, "invalid_parameter"),
        ("after=x", 400, "invalid_append_id"),
        ("after=../../_gen/1.json", 400, "invalid_append_id"),
        ("before=x", 400, "unknown_parameter"),
    ],
)
def test_list_of_appends_refuses_other_parameters(
    one: httpx.Client, query: str, status: int, code: str
) -> None:
    one.put(URL).raise_for_status()
    answer = one.get(f"{URL}/appends?{query}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    missing = one.get("/v1/datasets/none/appends")
    assert (missing.status_code, missing.json()["code"]) == (404, "dataset_not_found")
