"""Probes as the kubelet sends them: they never end a healthy replica, and end one that hangs."""

import itertools
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.deploy.kubelet import Kubelet, Probe, Result
from tests.deploy.manifests import base_pod
from tests.support.service import Service, ready
from tests.support.waiting import wait_for

#: Liveness is asked so many times while the largest conversions run: three times what ends a container.
PROBES = 18
ROW = b'{"x": [0.25, -1.5, 3.125, 0.0625], "n": 12345, "text": "some words of a row"}\n'


def probe(*, failures: int = 1, successes: int = 1) -> Probe:
    return Probe("/livez", 10, 1, failures, successes)


@pytest.mark.parametrize(
    ("answers", "passed"),
    [
        ("", True),
        ("--", True),
        ("---", False),
        ("--+--", True),
        ("+++---", False),
        ("---+", False),
        ("---++", True),
    ],
)
def test_as_many_answers_in_a_row_as_the_threshold_change_a_result(answers: str, passed: bool) -> None:
    result = Result(probe(failures=3, successes=2), passed=True)
    for answer in answers:
        result.add(answer == "+")
    assert result.passed is passed


def test_a_probe_has_the_defaults_of_kubernetes() -> None:
    given = {"httpGet": {"path": "/livez", "port": "http"}}
    assert Probe.read(given) == Probe("/livez", period_s=10, timeout_s=1, failures=3, successes=1)


class Scripted(BaseHTTPRequestHandler):
    """Answers with the next status for its path; with the last one for ever."""

    statuses: dict[str, list[int]]
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        left = self.statuses[self.path]
        self.send_response(left.pop(0) if len(left) > 1 else left[0])
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@dataclass
class Container:
    """A server that answers as it is told, and a process that stands for it."""

    service: Service
    asked: list[str]
    became_ready: list[bool]
    kubelet: Kubelet


@contextmanager
def container(startup: list[int], liveness: list[int], readiness: list[int]) -> Iterator[Container]:
    """One that is probed in a hundredth of the time, each probe at a path of its own."""
    pod = base_pod()
    for kind in ("startup", "liveness", "readiness"):
        pod["containers"][0][f"{kind}Probe"]["httpGet"]["path"] = f"/{kind}"
    asked: list[str] = []
    became_ready: list[bool] = []
    statuses = {"/startup": startup, "/liveness": liveness, "/readiness": readiness}
    handler = type("Handler", (Scripted,), {"statuses": statuses, "asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        process = subprocess.Popen(["sleep", "600"])
        service = Service(
            process, f"http://127.0.0.1:{server.server_port}", Path(os.devnull), Path(os.devnull)
        )
        kubelet = Kubelet(service, pod, on_ready=became_ready.append, pace=100)
        try:
            yield Container(service, asked, became_ready, kubelet)
        finally:
            kubelet.stop()
            process.kill()
            process.wait()
            server.shutdown()
            thread.join()


def test_nothing_else_is_asked_until_startup_has_passed() -> None:
    with container([503, 503, 200], [200], [200]) as started:
        wait_for(started.kubelet.ready.is_set)
        wait_for(lambda: "/liveness" in started.asked)
    assert started.asked[:3] == ["/startup"] * 3
    assert "/startup" not in started.asked[3:]
    assert started.kubelet.killed is None


def test_a_container_that_never_starts_is_ended() -> None:
    with container([503], [200], [200]) as started:
        wait_for(lambda: started.service.process.poll() is not None)
        assert (started.kubelet.killed, started.asked) == ("startup", ["/startup"] * 120)


def test_liveness_ends_a_container_after_six_failures_in_a_row() -> None:
    with container([200], [200, *[503] * 5, 200, 503], [200]) as started:
        wait_for(lambda: started.service.process.poll() is not None)
        assert (started.kubelet.killed, started.kubelet.num_failed) == ("liveness", 11)
        assert started.service.process.returncode == -signal.SIGTERM


def test_two_failures_in_a_row_make_a_container_unready_and_one_success_ready() -> None:
    with container([200], [200], [503, 200, 503, 200, 503, 503, 200]) as started:
        wait_for(lambda: len(started.became_ready) == 3)
        assert started.became_ready == [True, False, True]
        assert started.kubelet.killed is None


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with ready(tmp_path) as started:
        yield started


def lines(count: int) -> Iterator[bytes]:
    yield from (ROW * 1000 for _ in range(count // 1000))


def largest() -> list[tuple[str, str, Callable[[], Any]]]:
    """Conversions that compute for seconds, one of each kind: path, type, body."""
    floats = BytesIO()
    np.save(floats, np.random.default_rng(0).random((1000, 4000), np.float32))
    array = b"[" + b",".join([ROW.strip()] * 300_000) + b"]"
    numbers = b"[" + b",".join([b"0.123456789"] * 3_000_000) + b"]"
    return [
        ("tensors/serialize?to=json", "application/x-npy", floats.getvalue),
        ("tensors/serialize", "application/json", lambda: numbers),
        ("records/serialize", "application/json", lambda: array),
        ("records/serialize", "application/x-ndjson", lambda: lines(1_000_000)),
    ]


@pytest.mark.waits
def test_a_healthy_replica_is_not_ended_while_the_largest_conversions_run(service: Service) -> None:
    over = threading.Event()

    def convert(path: str, media_type: str, body: Callable[[], Any]) -> int:
        for count in itertools.count():
            if over.is_set():
                return count
            url, headers = f"{service.url}/v1/{path}", {"Content-Type": media_type}
            with httpx.stream("POST", url, content=body(), headers=headers, timeout=300) as answer:
                assert answer.status_code == 200, answer.read()
                for _ in answer.iter_raw():
                    pass
        raise AssertionError

    kubelet = Kubelet(service, base_pod(), pace=10)
    with ThreadPoolExecutor() as clients:
        running = [clients.submit(convert, *conversion) for conversion in largest()]
        try:
            wait_for(lambda: kubelet.num_asked >= PROBES or kubelet.killed is not None, 300)
        finally:
            over.set()
        assert all(done.result() for done in running)
    kubelet.stop()
    assert (kubelet.killed, service.process.poll()) == (None, None), service.log()


@pytest.mark.waits
def test_a_replica_that_hangs_is_ended(service: Service) -> None:
    kubelet = Kubelet(service, base_pod(), pace=10)
    assert kubelet.ready.wait(60)
    service.process.send_signal(signal.SIGSTOP)
    # Six times the timeout of 5 s, and the grace: what is stopped does not hear SIGTERM.
    wait_for(lambda: kubelet.killed is not None and service.process.poll() is not None, 120)
    kubelet.stop()
    assert kubelet.killed == "liveness"
    assert service.process.returncode == -signal.SIGKILL
