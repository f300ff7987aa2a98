"""The service as a process: what it prints, how it ends, what it weighs."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.domain.limits import MIB
from tests.support.service import STOPS_WITHIN_S, Service, free_port, needs_curl, ready, served_alone
from tests.support.waiting import wait_for

IDLE_MB = 250


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A ready service that no test ends."""
    with ready(tmp_path_factory.mktemp("running")) as started:
        yield started


def test_probes_answer(running: Service) -> None:
    assert httpx.get(f"{running.url}/livez").status_code == 200
    ready = httpx.get(f"{running.url}/readyz")
    assert ready.status_code == 200
    assert ready.json()["ready"] is True


@needs_curl
def test_prints_a_request_that_works(running: Service, tmp_path: Path) -> None:
    lines = [line.strip() for line in running.log().splitlines() if line.strip().startswith("curl ")]
    assert len(lines) == 1, running.log()
    assert running.url in lines[0]

    answer = subprocess.run(
        ["sh", "-c", lines[0]], cwd=tmp_path, capture_output=True, check=False, timeout=30
    )

    assert answer.returncode == 0, answer.stderr
    assert answer.stdout


@pytest.mark.parametrize(
    "how", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.processes)], ids=["term", "int"]
)
def test_ends_cleanly_when_asked(service: Service, how: signal.Signals) -> None:
    assert service.stop(how) == 0, service.log()
    assert "Traceback" not in service.log()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{service.url}/livez")


def test_is_small_when_idle(tmp_path: Path) -> None:
    with ready(tmp_path, run=served_alone()) as service:
        assert service.resident_mib() * MIB < IDLE_MB * 1_000_000


@pytest.mark.waits
def test_an_unfinished_upload_does_not_keep_it_from_ending(tmp_path: Path) -> None:
    with ready(tmp_path, SHARDSMITH_SHUTDOWN_GRACE_S="1") as service:
        url = httpx.URL(service.url)
        with socket.create_connection((url.host, url.port or 80)) as connection:
            connection.sendall(
                b"POST /v1/records/serialize HTTP/1.1\r\n"
                b"Host: localhost\r\nContent-Type: application/x-ndjson\r\n"
                b'Content-Length: 1000\r\n\r\n{"x": 1}\n'
            )
            assert httpx.get(f"{service.url}/livez").status_code == 200
            assert service.stop() == 0, service.log()
            answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b'"code": "shutting_down"' in answer
        assert "Traceback" not in service.log()


@pytest.mark.waits
def test_draining_service_is_unready_and_still_accepts(tmp_path: Path) -> None:
    with ready(tmp_path, SHARDSMITH_SHUTDOWN_DELAY_S="3", SHARDSMITH_SHUTDOWN_GRACE_S="5") as service:
        service.process.send_signal(signal.SIGTERM)
        wait_for(lambda: httpx.get(f"{service.url}/readyz").status_code == 503)
        checks = httpx.get(f"{service.url}/readyz").json()["checks"]
        assert checks["shutdown"]["code"] == "shutting_down"
        assert httpx.get(f"{service.url}/livez").status_code == 200
        answer = httpx.post(f"{service.url}/v1/datasets/late/records", json=[{"x": 1}])
        assert answer.status_code == 201
        assert answer.headers["connection"] == "close", "the next request is to go elsewhere"
        assert service.process.wait(STOPS_WITHIN_S) == 0, service.log()


@pytest.mark.waits
def test_no_upload_survives_the_end_of_the_process(tmp_path: Path) -> None:
    line = b'{"x": "%s"}\n' % (b"a" * 1000)
    with ready(tmp_path, SHARDSMITH_SHUTDOWN_GRACE_S="1") as service:
        url = httpx.URL(service.url)
        with socket.create_connection((url.host, url.port or 80)) as connection:
            connection.sendall(
                b"POST /v1/datasets/large/records HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/x-ndjson\r\nContent-Length: 1000000000\r\n\r\n" + line * 60_000
            )
            parts = tmp_path / "data" / "large"
            wait_for(lambda: any("parts" in str(path) for path in parts.rglob("*")))
            assert service.stop() == 0, service.log()
        assert not [path for path in parts.rglob("*") if path.is_file() and "parts" in str(path)]


@pytest.mark.processes
def test_service_links_of_kubernetes_are_ignored(tmp_path: Path) -> None:
    port = str(free_port())
    with ready(
        tmp_path,
        run=(str(Path(sys.executable).with_name("shardsmith")), "serve", "--port", port),
        SHARDSMITH_PORT="tcp://10.96.12.7:8000",
        SHARDSMITH_SERVICE_HOST="10.96.12.7",
        port=port,
    ) as service:
        warnings = [line for line in service.log().splitlines() if " WARNING " in line]
        assert len(warnings) == 1, service.log()
        assert "SHARDSMITH_PORT holds an address that Kubernetes sets" in warnings[0]
