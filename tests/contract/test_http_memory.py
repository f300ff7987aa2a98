"""Whatever holds much of the memory of all requests draws on one pool, and is refused where that is taken."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.domain.limits import MIB
from app.main import create_app_with
from app.runtime.memory import MemoryPool
from app.settings import Settings
from openapi.recorded import serving
from tests.support.waiting import wait_for

URL = "/v1/datasets/d"
#: A pool in which one publication has room.
POOL = 400 * MIB
#: Of it, what a request has for its windows, and nothing that would take more.
WINDOWS = 8 * MIB
ROW = {"x": 1, "pad": "a" * MIB}


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return create_app_with(Settings(storage_url="memory://", memory_bytes=POOL))


@pytest.fixture(scope="module")
def client(app: FastAPI) -> Iterator[httpx.Client]:
    """Dataset `d` has a version of 8 MiB, and an append that is not published."""
    with serving(app) as client:
        assert client.post(f"{URL}/records?publish=true", json=[ROW] * 8).status_code == 201
        assert client.post(f"{URL}/records", json=[ROW]).status_code == 201
        yield client


@pytest.fixture
def pool(app: FastAPI) -> MemoryPool:
    pool: MemoryPool = app.state.runner._memory
    wait_for(lambda: pool.used == 0)
    return pool


@contextmanager
def taken_but_for(left: int, pool: MemoryPool) -> Iterator[None]:
    share = pool.share()
    share.charge(POOL - left)
    try:
        yield
    finally:
        share.end()


@pytest.mark.parametrize(
    ("method", "path", "body", "left"),
    [
        ("POST", "/versions", None, WINDOWS),
        ("POST", "/records?publish=true", [ROW], WINDOWS + 2 * MIB),
        ("POST", "/versions/1.0.0/validate", None, WINDOWS),
        ("GET", "/versions/1.0.0/records", None, WINDOWS),
        ("GET", "/versions/1.0.0/tar", None, MIB),
        ("GET", "/versions/1.0.0/shards/d-train.tfrecord-00000-of-00001", None, MIB),
    ],
)
def test_where_the_memory_is_taken_the_answer_is_503_at_once(
    client: httpx.Client, pool: MemoryPool, method: str, path: str, body: Any, left: int
) -> None:
    with taken_but_for(left, pool):
        answer = client.request(method, URL + path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
        assert answer.headers["retry-after"]
    wait_for(lambda: pool.used == 0)


def test_refused_requests_do_nothing_and_ended_ones_hold_nothing(
    client: httpx.Client, pool: MemoryPool
) -> None:
    for path in ("/versions/1.0.0/records", "/versions/1.0.0/tar", "/versions/1.0.0"):
        assert client.get(URL + path).status_code == 200
    assert client.post(f"{URL}/versions/1.0.0/validate").json()["valid"] is True
    version = client.post(f"{URL}/versions").json()
    assert (version["version"], version["splits"]["train"]["num_records"]) == ("1.1.0", 9)
    wait_for(lambda: pool.used == 0)
