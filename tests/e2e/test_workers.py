"""Several processes serve from one port: started, watched, replaced, and ended together."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.service import RUN, Service, ready
from tests.support.waiting import wait_for

pytestmark = pytest.mark.waits

#: The service, where a worker that does not answer for five seconds has hung.
IMPATIENT = (sys.executable, "-c", f"from app import workers; workers._HUNG_S = 5.0; {RUN[-1]}")
#: To start a worker takes seconds where others are busy.
PATIENCE_S = 120.0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with ready(tmp_path, SHARDSMITH_WORKERS="2") as started:
        yield started


def worker_ids(service: Service) -> set[int]:
    """Processes of the workers."""
    pgrep = ["pgrep", "-P", str(service.process.pid)]
    return set(map(int, subprocess.run(pgrep, capture_output=True, text=True, check=False).stdout.split()))


def is_there(process_id: int) -> bool:
    """Whether the process runs; one that has ended and waits for its parent does not."""
    try:
        return ") Z " not in Path(f"/proc/{process_id}/stat").read_text("utf-8")
    except FileNotFoundError:
        return False


def append(service: Service, index: int) -> int:
    """The status of an append, on a connection of its own."""
    url = f"{service.url}/v1/datasets/shared/records"
    return httpx.post(url, json=[{"id": index}], timeout=60).status_code


def stored(service: Service) -> list[int]:
    url = f"{service.url}/v1/datasets/shared/versions"
    assert httpx.post(url, timeout=60).status_code == 201
    rows = httpx.get(f"{url}/latest/records", params={"split": "train", "to": "json"}, timeout=60).json()
    return sorted(row["id"] for row in rows)


def test_all_are_ready_and_all_end_at_a_signal(service: Service) -> None:
    workers = worker_ids(service)
    assert len(workers) == 2
    checks = httpx.get(f"{service.url}/readyz").json()["checks"]
    assert checks["workers"] == {"ok": True, "detail": "2 of 2 workers are ready"}
    assert service.log().count("Shardsmith is listening.") == 1
    assert service.stop() == 0, service.log()
    assert not [worker for worker in workers if is_there(worker)]
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{service.url}/livez")


def test_each_serves_while_the_other_does_not(service: Service) -> None:
    for worker in worker_ids(service):
        os.kill(worker, signal.SIGSTOP)
        try:
            assert [append(service, index) for index in range(10)] == [201] * 10
        finally:
            os.kill(worker, signal.SIGCONT)
    assert stored(service) == sorted([*range(10), *range(10)])


def test_one_that_is_killed_is_replaced_and_nothing_acknowledged_is_lost(service: Service) -> None:
    before = worker_ids(service)
    acknowledged = [index for index in range(10) if append(service, index) == 201]
    assert len(acknowledged) == 10
    gone = min(before)
    os.kill(gone, signal.SIGKILL)
    wait_for(lambda: gone not in worker_ids(service))
    # Every request goes to the one that is left: none waits for the other, and none is refused.
    assert [append(service, index) for index in range(10, 20)] == [201] * 10
    wait_for(lambda: len(worker_ids(service)) == 2, PATIENCE_S)
    wait_for(lambda: service.answers("/readyz"), PATIENCE_S)
    assert worker_ids(service) & before == before - {gone}
    assert "ended with status -9; another is started" in service.log()
    assert stored(service) == list(range(20))
    assert service.stop() == 0, service.log()


def test_one_that_hangs_is_replaced(tmp_path: Path) -> None:
    with ready(tmp_path, run=IMPATIENT, SHARDSMITH_WORKERS="2") as service:
        hung = min(worker_ids(service))
        os.kill(hung, signal.SIGSTOP)
        wait_for(lambda: hung not in worker_ids(service), PATIENCE_S)
        wait_for(lambda: len(worker_ids(service)) == 2, PATIENCE_S)
        assert f"(process {hung}) has not answered for 5 s and is killed" in service.log()


def test_the_service_is_unready_while_one_hangs(service: Service) -> None:
    hung = min(worker_ids(service))
    os.kill(hung, signal.SIGSTOP)
    try:
        wait_for(lambda: not service.answers("/readyz"), PATIENCE_S)
        checks = httpx.get(f"{service.url}/readyz").json()["checks"]
        assert checks["workers"] == {"ok": False, "detail": "1 of 2 workers are ready"}
        assert hung in worker_ids(service), "unready before it is killed"
    finally:
        os.kill(hung, signal.SIGCONT)
    wait_for(lambda: service.answers("/readyz"), PATIENCE_S)


def test_workers_end_with_their_supervisor(service: Service) -> None:
    workers = worker_ids(service)
    service.kill()
    wait_for(lambda: not any(map(is_there, workers)))


def test_one_that_does_not_end_at_a_signal_is_killed(tmp_path: Path) -> None:
    with ready(tmp_path, SHARDSMITH_WORKERS="2", SHARDSMITH_SHUTDOWN_GRACE_S="0") as service:
        hung = min(worker_ids(service))
        os.kill(hung, signal.SIGSTOP)
        service.process.terminate()
        assert service.process.wait(60) == 1
        assert not is_there(hung)
