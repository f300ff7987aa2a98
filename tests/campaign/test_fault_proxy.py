"""The proxy does to requests what its rules say, and nothing else."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.campaign.fault_proxy import FaultProxy
from tests.campaign.fault_rules import Fault, Rule, Rules
from tests.support.waiting import wait_for


class Upstream(ThreadingHTTPServer):
    """A store that keeps objects in a dict and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.server.requests.append(f"{self.command} {self.path} {self.headers['Host']}")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_PUT(self) -> None:
        self.server.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200)

    def do_GET(self) -> None:
        body = self.server.objects.get(self.path)
        self._answer(404 if body is None else 200, body or b"")

    do_HEAD = do_GET  # noqa: N815 (http.server's name)

    def log_message(self, *_: object) -> None:
        """Nothing to the terminal."""


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@contextmanager
def proxied(upstream: Upstream, *faults: Fault, matches: str = "") -> Iterator[tuple[FaultProxy, int]]:
    """A proxy before `upstream` with a rule for each fault, each striking once; and its port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    proxy = FaultProxy(f"127.0.0.1:{upstream.server_address[1]}")
    proxy.rules = Rules(1, [Rule(str(i), matches, fault, times=1) for i, fault in enumerate(faults)])
    port, _ = asyncio.run_coroutine_threadsafe(proxy.start(), loop).result()
    try:
        yield proxy, port
    finally:
        asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def ask(port: int, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_without_rules_everything_passes(upstream: Upstream) -> None:
    body = bytes(range(256)) * 20_000
    with proxied(upstream) as (proxy, port):
        assert ask(port, "PUT", "/b/k", body) == (200, b"")
        assert ask(port, "GET", "/b/k") == (200, body)
        assert ask(port, "HEAD", "/b/k") == (200, b"")
        assert ask(port, "GET", "/b/none") == (404, b"")
        assert proxy.requests == {"put": 1, "get": 2, "head": 1}
    assert upstream.requests[0] == f"PUT /b/k 127.0.0.1:{port}"  # as signed


def test_several_requests_share_a_connection(upstream: Upstream) -> None:
    with proxied(upstream) as (_, port):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for _ in range(3):
            connection.request("PUT", "/b/k", b"x")
            assert connection.getresponse().read() == b""
        connection.close()


@pytest.mark.parametrize(("when", "stored"), [("before", {}), ("after", {"/b/k": b"x"})])
def test_an_error_comes_before_or_after_the_store(upstream: Upstream, when: str, stored: object) -> None:
    with proxied(upstream, Fault("error", when, 503)) as (proxy, port):  # type: ignore[arg-type]
        status, body = ask(port, "PUT", "/b/k", b"x")
        assert (status, b"SlowDown" in body) == (503, True)
        assert proxy.injected == {f"503 {when} put": 1}
    assert upstream.objects == stored


@pytest.mark.parametrize(("when", "stored"), [("before", {}), ("after", {"/b/k": b"x"})])
def test_a_connection_drops_before_or_after_the_store(upstream: Upstream, when: str, stored: object) -> None:
    with proxied(upstream, Fault("drop", when)) as (_, port):  # type: ignore[arg-type]
        with pytest.raises(http.client.RemoteDisconnected):
            ask(port, "PUT", "/b/k", b"x")
        assert ask(port, "HEAD", "/b/other") == (404, b"")
    assert upstream.objects == stored


def test_a_late_write_is_applied_after_its_connection_is_gone(upstream: Upstream) -> None:
    with proxied(upstream, Fault("late", seconds=0.2)) as (_, port):
        with pytest.raises(http.client.RemoteDisconnected):
            ask(port, "PUT", "/b/k", b"late")
        assert ask(port, "PUT", "/b/k", b"then") == (200, b"")
        wait_for(lambda: upstream.objects["/b/k"] == b"late")


def test_a_repeated_write_is_applied_again(upstream: Upstream) -> None:
    with proxied(upstream, Fault("again", seconds=0.2)) as (_, port):
        assert ask(port, "PUT", "/b/k", b"first") == (200, b"")
        assert ask(port, "PUT", "/b/k", b"then") == (200, b"")
        wait_for(lambda: upstream.objects["/b/k"] == b"first")


def test_a_hanging_request_ends_without_an_answer(upstream: Upstream) -> None:
    hang = Fault("hang", "after", seconds=0.2)
    with proxied(upstream, hang) as (_, port), pytest.raises(http.client.RemoteDisconnected):
        ask(port, "PUT", "/b/k", b"x")
    assert upstream.objects == {"/b/k": b"x"}


def test_a_partial_body_ends_in_the_middle(upstream: Upstream) -> None:
    upstream.objects["/b/k"] = b"abcdefgh"
    with proxied(upstream, Fault("partial")) as (_, port), pytest.raises(http.client.IncompleteRead):
        ask(port, "GET", "/b/k")


def test_a_flipped_bit_and_a_short_body_look_whole(upstream: Upstream) -> None:
    upstream.objects["/b/k"] = b"abcdefgh"
    with proxied(upstream, Fault("flip"), Fault("short")) as (_, port):
        assert ask(port, "GET", "/b/k") == (200, b"abcdufgh")
        assert ask(port, "GET", "/b/k") == (200, b"abcdef")
        assert ask(port, "GET", "/b/k") == (200, b"abcdefgh")


def test_an_error_may_come_in_a_body_that_says_200(upstream: Upstream) -> None:
    with proxied(upstream, Fault("error_body", "before")) as (_, port):
        status, body = ask(port, "PUT", "/b/k", b"x")
    assert (status, b"<Error>" in body, upstream.objects) == (200, True, {})


def test_only_what_matches_fails(upstream: Upstream) -> None:
    upstream.objects["/b/k"] = b"x"
    with proxied(upstream, Fault("error"), matches="^put .*/parts/") as (_, port):
        assert ask(port, "GET", "/b/k") == (200, b"x")
        assert ask(port, "PUT", "/b/d/parts/1", b"x")[0] == 500


def test_the_control_port_changes_the_rules_and_counts(upstream: Upstream) -> None:
    with proxied(upstream) as (proxy, port):
        control = proxy._servers[1].sockets[0].getsockname()[1]
        rule = Rule("r", "^put ", Fault("error", "before", 409))
        body = json.dumps({"seed": 3, "rules": [rule.to_json()]}).encode()
        assert ask(control, "PUT", "/rules", body) == (204, b"")
        assert ask(port, "PUT", "/b/k", b"x")[0] == 409
        assert ask(control, "GET", "/counters") == (
            200,
            b'{"requests": {"put": 1}, "injected": {"409 before put": 1}, "late": 0}',
        )


def test_a_seed_decides_which_of_the_requests_fail() -> None:
    rules = [Rule("r", "", Fault("drop"), probability=0.3)]
    first, second, other = (Rules(seed, rules) for seed in (1, 1, 2))
    fates = [[each.choose("get b/k") is None for _ in range(200)] for each in (first, second, other)]
    assert fates[0] == fates[1] != fates[2]
    assert 100 < sum(fates[0]) < 180
