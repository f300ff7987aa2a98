"""The port of metrics: what clients of it may do without keeping a scrape out."""

import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from app.telemetry import server
from app.telemetry.server import MetricsServer
from tests.support.service import SSL_CONTEXT
from tests.support.waiting import wait_for


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetricsServer]:
    monkeypatch.setattr(server, "_TIMEOUT_S", 1.0)
    registry = CollectorRegistry()
    Counter("counted", "Counted.", registry=registry)
    started = MetricsServer("127.0.0.1", 0, registry)
    try:
        yield started
    finally:
        started.close()


def scrape(running: MetricsServer, query: str = "") -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{running.port}/metrics{query}", verify=SSL_CONTEXT, timeout=10)


def test_clients_that_send_a_byte_at_a_time_keep_no_scrape_out(running: MetricsServer) -> None:
    stop = threading.Event()
    connections = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(server._CONNECTIONS)]

    def drip() -> None:
        while not stop.wait(0.2):
            for connection in connections:
                with suppress(OSError):
                    connection.send(b"G")

    thread = threading.Thread(target=drip)
    thread.start()

    def is_answered() -> bool:
        with suppress(httpx.TransportError):
            return scrape(running).status_code == 200
        return False

    try:
        wait_for(is_answered)
    finally:
        stop.set()
        thread.join()
        for connection in connections:
            connection.close()


@pytest.mark.parametrize(
    ("host", "names", "status"),
    [
        ("localhost:8191", [], 200),
        ("10.1.2.3:8191", [], 200),
        ("[fd00::7]:8191", [], 200),
        ("evil.example", [], 421),
        ("evil.example", ["shardsmith"], 421),
        ("Shardsmith:8191", ["shardsmith:8191"], 200),
        ("a.svc.example", ["*.svc.example"], 200),
        ("prometheus-target", ["*"], 200),
    ],
)
def test_a_page_whose_name_was_rebound_reads_nothing(host: str, names: list[str], status: int) -> None:
    started = MetricsServer("127.0.0.1", 0, CollectorRegistry(), names)
    try:
        url = f"http://127.0.0.1:{started.port}"
        answers = [
            httpx.get(f"{url}/{path}", headers={"Host": host}, verify=SSL_CONTEXT, timeout=10)
            for path in ("metrics", "other")
        ]
    finally:
        started.close()
    assert [answer.status_code for answer in answers] == ([200, 404] if status == 200 else [421, 421])
    for answer in answers:
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Type"].startswith("text/plain")


def test_a_query_asks_for_nothing_else(running: MetricsServer) -> None:
    assert "counted_total 0.0" in scrape(running, "?name[]=other").text


def test_metrics_server_survives_emfile(running: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    waiting = socket.socket()
    first_free = os.dup(waiting.fileno())
    os.close(first_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, before[1]))
    try:
        waiting.connect(("127.0.0.1", running.port))
        wait_for(lambda: bool(pauses))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    waiting.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert waiting.recv(12) == b"HTTP/1.0 200"
    waiting.close()
