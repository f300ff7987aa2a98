"""What clients are told whose requests are still coming when the service has to end."""

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.service import Service, ready
from tests.support.waiting import wait_for

pytestmark = pytest.mark.waits

LINE = b'{"x": "%s"}\n' % (b"a" * 1000)
#: By name: where it goes, its type, and what the client goes on sending.
UPLOADS = {
    "append": ("/v1/datasets/late/records", "application/x-ndjson", LINE),
    "tensor": ("/v1/tensors/describe?dtype=uint8&shape=1000000000", "application/octet-stream", LINE),
    "whole": ("/v1/tensors/serialize", "application/json", b'["%s"],' % (b"a" * 1000)),
}


class Upload:
    """One that never ends; the client reads while it sends."""

    def __init__(self, service: Service, path: str, media_type: str, piece: bytes, pause_s: float) -> None:
        url = httpx.URL(service.url)
        self.connection = socket.create_connection((url.host, url.port or 80), timeout=60)
        self.connection.sendall(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {media_type}\r\n"
            "Content-Length: 1000000000\r\n\r\n".encode()
        )
        self._piece, self._pause_s = piece, pause_s
        self._stop = threading.Event()
        self.num_sent = 0

    def _send(self) -> None:
        with contextlib.suppress(ConnectionError):
            while not self._stop.wait(self._pause_s):
                self.connection.sendall(self._piece)
                self.num_sent += 1

    def answered(self) -> bytes:
        """The answer, read while the rest is sent."""
        with ThreadPoolExecutor(1) as sender:
            sender.submit(self._send)
            answer = b""
            with self.connection, contextlib.suppress(ConnectionError):
                while piece := self.connection.recv(65536):
                    answer += piece
                self._stop.set()
        return answer


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with ready(tmp_path, SHARDSMITH_SHUTDOWN_GRACE_S="2") as started:
        yield started


@pytest.mark.parametrize("pause_s", [0.0, 0.05], ids=["fast", "slow"])
@pytest.mark.parametrize("kind", UPLOADS)
def test_upload_that_outlives_the_grace_is_refused(
    service: Service, tmp_path: Path, kind: str, pause_s: float
) -> None:
    uploads = [Upload(service, *UPLOADS[kind], pause_s) for _ in range(4)]
    with ThreadPoolExecutor(len(uploads)) as clients:
        answers = [clients.submit(upload.answered) for upload in uploads]
        wait_for(lambda: all(upload.num_sent for upload in uploads))
        assert service.stop() == 0, service.log()
    for answer in answers:
        head, _, content = answer.result().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 "), answer.result()[:200]
        assert b"connection: close" in head.lower()
        assert b'"code": "shutting_down"' in content
    assert "Traceback" not in service.log()
    with ready(tmp_path) as again:
        assert httpx.get(f"{again.url}/v1/datasets/late").status_code == 404, "nothing was stored"


def test_listeners_do_not_hold_a_shutdown_up(tmp_path: Path) -> None:
    source = tmp_path / "in.ndjson"
    source.write_text('{"id": 1}\n{"id": "a"}\n', encoding="utf-8")
    settings = {"SHARDSMITH_IMPORT_SOURCES": source.as_uri(), "SHARDSMITH_SHUTDOWN_GRACE_S": "600"}
    with ready(tmp_path, **settings) as service, httpx.Client(base_url=service.url, timeout=60) as client:
        client.put("/v1/datasets/a", json={"schema": {"features": {"id": {"dtype": "int64"}}}})
        begun = client.post("/v1/datasets/a/imports", json={"source": source.as_uri()})
        place = begun.headers["Location"]
        wait_for(lambda: client.get(place).json()["state"] == "stopped")
        accept = {"Accept": "text/event-stream"}
        with (
            client.stream("GET", place, headers=accept) as answer,
            client.stream("GET", "/ui/live", headers=accept) as page,
        ):
            listening = [answer.iter_lines(), page.iter_lines()]
            assert all(next(lines).startswith("retry: ") for lines in listening)
            service.process.terminate()
            assert all("id: end" not in list(lines) for lines in listening), "the client is to come again"
        assert service.process.wait(60) == 0, service.log()


#: The service with a store that takes its time for some keys, which the arguments name: for what makes an
#: append count, and for what is read first of a version.
SLOW_STORE = """
import sys, time
from app.launch import run
from app.storage.obstore_store import ObstoreStore

_, part, *names = sys.argv
sys.argv = sys.argv[:1]

def slowed(function):
    def slow(self, key, *rest):
        if part in key:
            print("the store is asked", flush=True)
            time.sleep(3)
        return function(self, key, *rest)
    return slow

for name in names:
    setattr(ObstoreStore, name, slowed(getattr(ObstoreStore, name)))
run()
"""


def slow_store(part: str, *names: str) -> tuple[str, ...]:
    """What to run."""
    return (sys.executable, "-c", SLOW_STORE, part, *names)


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "k"}], ids=["small", "with a key"])
def test_append_with_unknown_outcome_at_the_end_of_the_grace_is_not_refused(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    with ready(tmp_path, run=slow_store("/slots/", "create"), SHARDSMITH_SHUTDOWN_GRACE_S="1") as slow:
        known = {"schema": {"features": {"x": {"dtype": "int64"}}}}
        assert httpx.put(f"{slow.url}/v1/datasets/late", json=known).status_code == 201
        with ThreadPoolExecutor(1) as client:
            answer = client.submit(
                httpx.post,
                f"{slow.url}/v1/datasets/late/records",
                json=[{"x": 1}],
                headers=headers,
                timeout=60,
            )
            wait_for(lambda: "the store is asked" in slow.log())
            slow.stop()
        assert (answer.result().status_code, answer.result().json()["code"]) == (503, "outcome_unknown")
    with ready(tmp_path) as again:
        published = httpx.post(f"{again.url}/v1/datasets/late/versions", timeout=60)
        assert published.status_code == 201, "it was stored"


def test_waiting_download_at_the_end_of_the_grace_is_503(tmp_path: Path) -> None:
    with ready(tmp_path) as first:
        answer = httpx.post(f"{first.url}/v1/datasets/d/records?publish=true", json=[{"x": 1}], timeout=60)
        assert answer.status_code == 201, answer.text
    with ready(tmp_path, run=slow_store("_deleted", "head", "get"), SHARDSMITH_SHUTDOWN_GRACE_S="1") as slow:
        with ThreadPoolExecutor(1) as client:
            asked = client.submit(httpx.get, f"{slow.url}/v1/datasets/d/versions/1.0.0/tar", timeout=60)
            wait_for(lambda: "the store is asked" in slow.log())
            slow.process.terminate()
        assert (asked.result().status_code, asked.result().json()["code"]) == (503, "shutting_down")
        assert "Traceback" not in slow.log()
