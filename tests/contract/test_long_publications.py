"""A publication that takes long is answered 202, and followed by the same request; one is aborted."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.main import create_app_with
from app.settings import Settings
from app.storage.obstore_store import open_store
from openapi.recorded import serving
from tests.support.dataset_rows import Client
from tests.support.faulty_store import FaultStore, Operation, When
from tests.support.waiting import wait_for

ROWS = [{"x": 1}, {"x": 2}]
URL = "/v1/datasets/d"


class SlowStore(FaultStore):
    """A store that writes no shard until it may."""

    def __init__(self) -> None:
        super().__init__(open_store("memory://"), self._wait)
        self.planned = threading.Event()
        self.may_write = threading.Event()

    def _wait(self, when: When, operation: Operation, key: str) -> None:
        if operation == "put_stream" and when == "before":
            self.planned.set()
            self.may_write.wait()


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
def app(store: SlowStore) -> FastAPI:
    return create_app_with(Settings(storage_url="memory://"), store=store)


@pytest.fixture
def patient(app: FastAPI, store: SlowStore) -> Iterator[httpx.Client]:
    """A service that is as patient as any."""
    with serving(app) as client:
        yield client
        store.may_write.set()


@pytest.fixture
def client(store: SlowStore) -> Iterator[httpx.Client]:
    """A service that is patient for a hundredth of a second."""
    app = create_app_with(Settings(storage_url="memory://"), store=store, publish_wait_s=0.01)
    with serving(app) as client:
        yield client
        store.may_write.set()


def follow(client: httpx.Client, url: str, headers: dict[str, str], body: Any = None) -> Any:
    while (answer := client.post(url, json=body, headers=headers)).status_code == 202:
        pass
    return answer


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "k"}], ids=["keyless", "keyed"])
def test_the_same_request_follows_a_publication(
    client: httpx.Client, store: SlowStore, headers: dict[str, str]
) -> None:
    client.post(f"{URL}/records", json=ROWS)
    first = client.post(f"{URL}/versions", headers=headers)
    assert first.status_code == 202
    assert first.json()["state"] == "publishing"
    store.planned.wait()
    second = client.post(f"{URL}/versions", headers=headers)
    assert (second.status_code, second.headers["location"]) == (202, f"{URL}/versions/1.0.0")
    assert second.json() == {"dataset": "d", "state": "publishing", "version": "1.0.0"}
    assert second.headers["retry-after"] == "1"
    store.may_write.set()
    done = follow(client, f"{URL}/versions", headers)
    assert (done.status_code, done.json()["version"]) == (201, "1.0.0")
    assert client.get(f"{URL}/versions").json()["versions"] == ["1.0.0"]


def test_another_request_hears_which_version_is_under_way(client: httpx.Client, store: SlowStore) -> None:
    client.post(f"{URL}/records", json=ROWS)
    assert client.post(f"{URL}/versions").status_code == 202
    store.planned.wait()
    other = follow(client, f"{URL}/versions?num_shards=2", {})
    assert (other.status_code, other.json()["code"]) == (409, "publish_in_progress")
    assert other.json()["version"] == "1.0.0"


def test_an_append_that_publishes_is_stored_and_followed(client: httpx.Client, store: SlowStore) -> None:
    headers = {"Idempotency-Key": "k"}
    first = client.post(f"{URL}/records?publish=true", json=ROWS, headers=headers)
    assert first.status_code == 202
    assert first.json()["append"]["num_records"] == 2
    store.planned.wait()
    store.may_write.set()
    done = follow(client, f"{URL}/records?publish=true", headers, ROWS)
    assert (done.status_code, done.json()["version"]) == (201, "1.0.0")
    assert done.json()["append"] == first.json()["append"]
    assert done.json()["splits"]["train"]["num_records"] == 2


def test_operator_aborts_a_stalled_version(client: httpx.Client, store: SlowStore) -> None:
    client.post(f"{URL}/records", json=ROWS)
    assert client.post(f"{URL}/versions").status_code == 202
    store.planned.wait()
    answer = client.post(f"{URL}/versions/1.0.0/abort")
    assert (answer.status_code, answer.json()["version"]) == (200, "1.0.0")
    assert client.post(f"{URL}/versions/1.0.0/abort").json() == answer.json()
    store.may_write.set()
    gone = follow(client, f"{URL}/versions", {})
    assert (gone.status_code, gone.json()["code"]) == (409, "publish_aborted")
    assert follow(client, f"{URL}/versions", {}).json()["version"] == "1.1.0"
    assert Client(store).read() == [1, 2]


@pytest.mark.parametrize("headers", ["", "Idempotency-Key: k\r\n"], ids=["keyless", "keyed"])
@pytest.mark.parametrize("path", ["/versions", "/records?publish=true"])
def test_publication_outlives_its_client_and_frees_its_memory(
    app: FastAPI, patient: httpx.Client, store: SlowStore, path: str, headers: str
) -> None:
    runner = app.state.runner
    pool, lane = runner._memory, runner._conversions
    body = json.dumps(ROWS) if "publish" in path else ""
    if not body:
        patient.post(f"{URL}/records", json=ROWS)
    wait_for(lambda: pool.used == 0)
    idle = lane._free
    with socket.create_connection((patient.base_url.host, patient.base_url.port or 0)) as gone:
        head = f"POST {URL}{path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Type: application/json\r\n"
        gone.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        store.planned.wait()
    assert patient.get(f"{URL}/versions").json()["versions"] == []
    store.may_write.set()
    wait_for(lambda: patient.get(f"{URL}/versions").json()["versions"] == ["1.0.0"])
    wait_for(lambda: pool.used == 0 and lane._free == idle)
    assert not any(thread.name == "publish-d" for thread in threading.enumerate())
    if headers:
        sent = {"Idempotency-Key": "k", "Content-Type": "application/json"}
        again = patient.post(f"{URL}{path}", content=body, headers=sent)
        assert (again.status_code, again.json()["version"]) == (201, "1.0.0")
