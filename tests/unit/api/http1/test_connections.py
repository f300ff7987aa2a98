"""More connections than there may be: idle ones give way, and probes get through whatever others do."""

import asyncio
import socket
import threading
from contextlib import ExitStack

import pytest
from starlette.types import Receive, Scope, Send

from app.api.http1.connections import Connections
from app.api.http1.limits import ConnectionLimits
from app.api.http1.protocol import HardenedProtocol
from tests.support.asgi_server import answer_with, echo, problem_of, read_answer, read_to_end, served
from tests.support.waiting import wait_for

GET = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"
#: Idle for so long, a connection gives way.
OLD = 5.0


class One:
    """A connection that records its end."""

    def __init__(self, idle_since: float | None) -> None:
        self.idle_since = idle_since
        self.evicted = False

    def evict(self) -> None:
        self.evicted = True


def test_the_one_that_has_been_idle_longest_gives_way() -> None:
    connections = Connections(3)
    open_ = [One(1.0), One(0.0), One(None)]
    assert all(connections.admit(one, 0.0) for one in open_)
    assert connections.admit(One(None), OLD)
    assert [one.evicted for one in open_] == [False, True, False]
    assert connections.admit(One(None), OLD + 1)
    assert [one.evicted for one in open_] == [True, True, False]


def test_one_that_may_be_about_to_be_used_does_not() -> None:
    connections = Connections(1)
    assert connections.admit(fresh := One(1.0), 1.0)
    assert not connections.admit(One(2.0), 2.0)
    assert not fresh.evicted


def test_next_to_the_cap_the_oldest_gives_way() -> None:
    connections = Connections(1)
    connections.admit(One(None), 0.0)
    beside = [One(0.0) for _ in range(65)]
    assert not any(connections.admit(one, 0.0) for one in beside)
    assert [one.evicted for one in beside] == [True] + [False] * 64


def test_one_that_has_closed_makes_room() -> None:
    connections = Connections(1)
    connections.admit(first := One(None), 0.0)
    connections.forget(first)
    connections.forget(first)
    assert connections.admit(One(None), 0.0)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_idle_connections_keep_nobody_out(loop: str) -> None:
    with served(echo, ConnectionLimits(max_connections=2), loop=loop) as server, ExitStack() as stack:
        idle = [stack.enter_context(server.connect()) for _ in range(2)]
        wait_for(lambda: server.num_connections == 2)
        # As if they had been idle for long.
        for protocol in server.server.server_state.connections:
            assert isinstance(protocol, HardenedProtocol)
            protocol.idle_since = -1e9
        with server.connect() as connection:
            connection.sendall(GET % b"")
            assert read_answer(connection)[1] == b"GET / x|"
        assert sorted(has_ended(one) for one in idle) == [False, True]


def test_leaving_process_closes_a_connection_after_its_next_response() -> None:
    with served(echo) as server, server.connect() as connection:
        connection.sendall(GET % b"first")
        assert read_answer(connection)[1] == b"GET /first x|"
        server.protocol.others.leaving = True
        connection.sendall(GET % b"second")
        head, content = read_answer(connection)
        assert b"\r\nconnection: close" in head
        assert content == b"GET /second x|"
        assert read_to_end(connection) == b""


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_probes_get_through_where_all_others_are_at_work(loop: str) -> None:
    go = threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/work":
            await asyncio.to_thread(go.wait)
        for message in answer_with(scope["path"].encode()):
            await send(message)

    limits = ConnectionLimits(max_connections=2)
    with served(app, limits, loop=loop) as server, ExitStack() as stack:
        working = [stack.enter_context(server.connect()) for _ in range(2)]
        for connection in working:
            connection.sendall(GET % b"work")
        wait_for(lambda: server.num_tasks == 2)
        silent = [stack.enter_context(server.connect()) for _ in range(100)]
        for probe in (b"livez", b"readyz", b"startupz", b"v2/health/live", b"v2/health/ready"):
            answer = server.exchange(GET % probe)
            assert answer.startswith(b"HTTP/1.1 200")
            assert b"connection: close" in answer
        answer = server.exchange(GET % b"work")
        problem = problem_of(answer)
        assert (problem["status"], problem["code"]) == (503, "too_many_connections")
        assert b"\r\nretry-after: " in answer
        go.set()
        for connection in working:
            assert read_answer(connection)[1] == b"/work"
        for connection in [*silent, *working]:
            connection.close()
        wait_for(lambda: server.num_connections == 0)
        assert server.exchange(GET % b"work" + b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 200")


def has_ended(connection: socket.socket) -> bool:
    connection.settimeout(0.2)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True
