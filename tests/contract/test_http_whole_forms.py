"""Forms that must be whole are spooled: the service grows by what it decodes of them, not by the body."""

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.asgi_server import read_to_end
from tests.support.service import Service, ready
from tests.support.waiting import wait_for

MIB = 1 << 20
BODY_MIB = 192
#: Windows of body and answer, a block of text and the batch of rows that it becomes.
GROWTH_MIB = 96


@pytest.fixture(scope="module")
def spooling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("spooling")
    with ready(folder, SHARDSMITH_SPOOL_DIR=str(folder / "spool")) as started:
        if not Path(f"/proc/{started.process.pid}/status").exists():
            pytest.skip("reads /proc")
        yield started


@dataclass
class Memory:
    """The most memory of its own that a process has had, beyond what it had at first."""

    growth_mib: float = 0


@contextmanager
def watched(service: Service) -> Iterator[Memory]:
    before, found, ended = service.anonymous_mib(), Memory(), threading.Event()

    def look() -> None:
        while not ended.wait(0.01):
            found.growth_mib = max(found.growth_mib, service.anonymous_mib() - before)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield found
    finally:
        ended.set()
        watcher.join()


def num_spooled(service: Service) -> int:
    """Files of the spool that are open or mapped; they have no names."""
    process = Path(f"/proc/{service.process.pid}")
    found = (process / "maps").read_text().count("/spool/")
    for one in (process / "fd").iterdir():
        try:
            found += "/spool/" in str(one.readlink())
        except FileNotFoundError:
            continue
    return found


def converted(service: Service, path: str, body: bytes, media_type: str) -> int:
    """The length of the answer, of which nothing is kept."""
    headers = {"Content-Type": media_type, "Accept-Encoding": "identity"}
    url = f"{service.url}{path}"
    with httpx.stream("POST", url, content=body, headers=headers, timeout=120) as answer:
        assert answer.status_code == 200, answer.read()
        return sum(map(len, answer.iter_bytes()))


def saved(**arrays: Any) -> bytes:
    sink = io.BytesIO()
    np.savez(sink, **arrays)
    return sink.getvalue()


def tensor_npz(mib: int) -> bytes:
    return saved(x=np.zeros(mib * MIB // 4, "<f4"))


def records_npz(mib: int) -> bytes:
    rows = mib * MIB // 1024
    return saved(x=np.zeros((rows, 255), "<f4"), n=np.zeros(rows, "<i4"))


def blank_rows(mib: int) -> bytes:
    row = b'{"n": 1, "x": [0.5, 2' + b" " * 10_000 + b"]}"
    return b'{"instances": [' + b", \n".join([row] * (mib * MIB // len(row))) + b"]}"


def long_rows(mib: int) -> bytes:
    row = b'{"n": 1, "text": "' + b"a" * 10_000 + b'"}'
    return b"[" + b",".join([row] * (mib * MIB // len(row))) + b"]"


BODIES = {
    "tensors, npz": ("/v1/tensors/serialize", "application/x-npz", tensor_npz),
    "records, npz": ("/v1/records/serialize", "application/x-npz", records_npz),
    "records, rows that are mostly blank": ("/v1/records/serialize", "application/json", blank_rows),
    "records, rows of long texts": ("/v1/records/parse?to=ndjson", "application/json", long_rows),
}


@pytest.mark.parametrize("case", BODIES)
@pytest.mark.soak
def test_memory_does_not_grow_with_the_body(spooling: Service, case: str) -> None:
    path, media_type, written = BODIES[case]
    converted(spooling, path, written(4), media_type)
    with watched(spooling) as memory:
        assert converted(spooling, path, written(BODY_MIB), media_type)
    assert memory.growth_mib < GROWTH_MIB
    wait_for(lambda: num_spooled(spooling) == 0)


@pytest.fixture(scope="module")
def little_room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose spool has no room for much."""
    folder = tmp_path_factory.mktemp("little_room")
    settings = {"SHARDSMITH_SPOOL_DIR": str(folder / "spool"), "SHARDSMITH_SPOOL_MAX_BYTES": str(96 * MIB)}
    with ready(folder, **settings) as started:
        yield started


ROWS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}


@pytest.mark.processes
@pytest.mark.parametrize("delivery", ["streamed", "checked"])
@pytest.mark.parametrize("mib", [8, 16, 32])
def test_body_and_answer_have_a_quarter_of_the_spool_together_and_neither_waits_for_it(
    little_room: Service, delivery: str, mib: int
) -> None:
    """The answer is as large as the body: where it has to be complete first, both lie on the spool."""
    params = {"to": "ndjson"} | ({"delivery": "checked"} if delivery == "checked" else {})
    answer = httpx.post(
        f"{little_room.url}/v1/records/parse", params=params, content=long_rows(mib), headers=ROWS, timeout=60
    )
    if 2 * mib <= 24 or (mib <= 24 and delivery == "streamed"):
        assert (answer.status_code, answer.content.count(b"\n")) == (200, long_rows(mib).count(b"{"))
    else:
        assert (answer.status_code, answer.json()["code"]) == (507, "spool_full")
    wait_for(lambda: num_spooled(little_room) == 0)
    assert converted(little_room, "/v1/records/serialize", blank_rows(2), "application/json")


def test_a_client_of_http_1_0_is_answered_from_the_spool(spooling: Service) -> None:
    url, body = httpx.URL(spooling.url), long_rows(16)
    head = b"POST /v1/records/parse?to=ndjson HTTP/1.0\r\nContent-Type: application/json\r\n"
    with socket.create_connection((url.host, url.port or 80), timeout=60) as connection:
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        answer = read_to_end(connection)
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"content-length: %d" % len(content) in head.lower()
    wait_for(lambda: num_spooled(spooling) == 0)
