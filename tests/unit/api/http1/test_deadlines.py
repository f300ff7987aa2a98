"""Clients that are slow, silent or gone: each has a deadline, and what they held is free after it.

The connections live in virtual time: it passes when a test says so, and not while a client, the kernel or a
busy machine takes its time. So each deadline is looked at from both sides.
"""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.http1.deadlines import bytes_not_taken
from app.api.http1.limits import ConnectionLimits
from tests.support.asgi_server import (
    Served,
    answer_with,
    echo,
    problem_of,
    read_answer,
    read_body,
    read_to_end,
    served,
)
from tests.support.virtual_time import VirtualTime
from tests.support.waiting import wait_for

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
LOOPS = ["uvloop", "asyncio"]
LIMITS = ConnectionLimits()
#: A client that is overdue is looked at once more; and a clock has its grain.
LATER_S = 0.1
#: No head of an answer is longer.
HEAD = 1000
#: What nobody takes: more than the kernel holds.
MUCH = 32 << 20


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def clock() -> VirtualTime:
    return VirtualTime()


@contextmanager
def connected(
    app: ASGIApp,
    clock: VirtualTime,
    loop: str = "auto",
    limits: ConnectionLimits = LIMITS,
    receive_buffer: int | None = None,
) -> Iterator[tuple[Served, socket.socket]]:
    """A server, and a connection to it."""
    with (
        served(app, limits, loop=loop, clock=clock) as server,
        server.connect(receive_buffer=receive_buffer) as connection,
    ):
        wait_for(lambda: server.num_connections == 1)
        yield server, connection


def send(server: Served, connection: socket.socket, data: bytes) -> None:
    """Return once the server has received it, and reads on."""
    protocol = server.connection
    before = server.num_received
    connection.sendall(data)
    server.wait_received(before + len(data))
    wait_for(lambda: not protocol.flow.read_paused)


def assert_open_until(server: Served, clock: VirtualTime, seconds: float) -> None:
    """The connection stays until then, and a little later it does not wait any more."""
    clock.advance(seconds - LATER_S)
    assert server.num_connections == 1
    clock.advance(2 * LATER_S)


@pytest.mark.parametrize("sent", [b"", b"\r\n"])
def test_a_connection_on_which_nothing_begins_is_closed(clock: VirtualTime, loop: str, sent: bytes) -> None:
    with connected(echo, clock, loop) as (server, connection):
        send(server, connection, sent)
        assert_open_until(server, clock, LIMITS.header_timeout_s)
        assert read_to_end(connection) == b""
        wait_for(lambda: server.num_connections == 0)


@pytest.mark.parametrize("sent", [b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nA: b"])
def test_a_head_that_does_not_end_is_408(clock: VirtualTime, loop: str, sent: bytes) -> None:
    with connected(echo, clock, loop) as (server, connection):
        send(server, connection, sent)
        assert_open_until(server, clock, LIMITS.header_timeout_s)
        problem = problem_of(read_to_end(connection))
        assert (problem["status"], problem["code"]) == (408, "request_timeout")


def test_a_head_that_trickles_is_408(clock: VirtualTime, loop: str) -> None:
    with connected(echo, clock, loop) as (server, connection):
        send(server, connection, b"GET / HTTP/1.1\r\n")
        while clock.now < LIMITS.header_timeout_s - 1:
            send(server, connection, b"A: b\r\n")
            clock.advance(1)
        send(server, connection, b"A: b\r\n")
        assert_open_until(server, clock, 1)
        assert problem_of(read_to_end(connection))["status"] == 408


def test_a_second_head_has_the_same_deadline(clock: VirtualTime, loop: str) -> None:
    with connected(echo, clock, loop) as (server, connection):
        send(server, connection, GET + GET[:-2])
        assert read_answer(connection)[0].startswith(b"http/1.1 200")
        assert_open_until(server, clock, LIMITS.header_timeout_s)
        assert problem_of(read_to_end(connection))["status"] == 408


def test_an_idle_connection_is_closed_without_a_word(clock: VirtualTime, loop: str) -> None:
    with connected(echo, clock, loop) as (server, connection):
        send(server, connection, GET)
        assert read_answer(connection)[1] == b"GET / x|"
        assert_open_until(server, clock, LIMITS.keep_alive_s)
        assert read_to_end(connection) == b""


def test_stalled_body_is_408_and_disconnects_the_application(clock: VirtualTime, loop: str) -> None:
    bodies: list[bytes | None] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        bodies.append(await read_body(receive))

    with connected(app, clock, loop) as (server, connection):
        send(server, connection, POST % 100 + b"abc")
        assert_open_until(server, clock, LIMITS.body_grace_s)
        problem = problem_of(read_to_end(connection))
        assert (problem["status"], problem["code"]) == (408, "request_timeout")
        wait_for(lambda: bodies == [None])
        wait_for(lambda: server.num_tasks == 0)


def test_a_body_that_trickles_is_408(clock: VirtualTime, loop: str) -> None:
    with connected(echo, clock, loop) as (server, connection):
        send(server, connection, POST % 1_000_000)
        # The grace of 5 s, and a second earned in every two: to the end of the ninth.
        for _ in range(9):
            send(server, connection, bytes(LIMITS.min_rate // 2))
            assert_open_until(server, clock, 1 - LATER_S)
        clock.advance(1)
        problem = problem_of(read_to_end(connection))
    assert problem["status"] == 408
    assert "240 bytes/s (SHARDSMITH_MIN_RATE). Send whole batches" in problem["detail"]


def test_a_body_that_keeps_the_rate_is_taken(clock: VirtualTime, loop: str) -> None:
    with connected(echo, clock, loop) as (server, connection):
        send(server, connection, POST % (LIMITS.min_rate * 100))
        for _ in range(100):
            clock.advance(1)
            send(server, connection, bytes(LIMITS.min_rate))
        assert read_answer(connection)[0].startswith(b"http/1.1 200")


def test_a_body_of_tiny_chunks_earns_no_more_than_its_bytes(clock: VirtualTime) -> None:
    with connected(echo, clock) as (server, connection):
        send(server, connection, b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(9):
            send(server, connection, b"1\r\na\r\n" * (LIMITS.min_rate // 12))
            assert_open_until(server, clock, 1 - LATER_S)
        clock.advance(1)
        assert problem_of(read_to_end(connection))["status"] == 408


def test_a_body_that_was_fast_and_stops_is_408_all_the_same(clock: VirtualTime, loop: str) -> None:
    with connected(echo, clock, loop) as (server, connection):
        send(server, connection, POST % 20_000_000 + bytes(10_000_000))
        assert_open_until(server, clock, LIMITS.stall_s)
        assert problem_of(read_to_end(connection))["status"] == 408


def test_a_client_waits_as_long_as_we_do_not_read(clock: VirtualTime, loop: str) -> None:
    """Backpressure is no fault of the client: its time stands still."""
    go = threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        size = len(message["body"])
        await asyncio.to_thread(go.wait)
        while message.get("more_body"):
            message = await receive()
            size += len(message.get("body", b""))
        for part in answer_with(b"%d" % size):
            await send(part)

    with connected(app, clock, loop) as (server, connection):
        size = 64 << 20
        connection.sendall(POST % size)
        writer = threading.Thread(target=connection.sendall, args=(bytes(size),))
        writer.start()
        protocol = server.connection
        wait_for(lambda: protocol.flow.read_paused)
        clock.advance(10 * LIMITS.stall_s)
        go.set()
        assert read_answer(connection)[1] == b"%d" % size
        writer.join()


def test_no_rate_is_asked_where_it_is_switched_off(clock: VirtualTime, loop: str) -> None:
    limits = ConnectionLimits(min_rate=0)
    with connected(echo, clock, loop, limits) as (server, connection):
        send(server, connection, POST % 20)
        for _ in range(20):
            clock.advance(limits.stall_s - 1)
            send(server, connection, b"a")
        assert read_answer(connection)[1] == b"POST / x|" + b"a" * 20


async def flood(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(10_000):
        await send({"type": "http.response.body", "body": bytes(100_000), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def assert_cut(server: Served, clock: VirtualTime, since: float = 0.0) -> None:
    """In time, not before it, and nothing is held any more."""
    clock.advance_until(lambda: server.num_connections == 0, within_s=2 * LIMITS.stall_s)
    assert clock.now >= since + LIMITS.stall_s
    wait_for(lambda: server.num_tasks == 0)


def wait_until_written(server: Served) -> None:
    """Return once there is more to write than the kernel takes."""
    protocol = server.connection
    wait_for(lambda: protocol.transport.get_write_buffer_size() > 0)


@pytest.mark.parametrize("rate", [0, LIMITS.min_rate])
def test_a_client_that_takes_nothing_is_cut(clock: VirtualTime, loop: str, rate: int) -> None:
    left: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()

        async def watch() -> None:
            left.append((await receive())["type"])

        watching = asyncio.create_task(watch())
        await flood(scope, receive, send)
        await watching

    limits = ConnectionLimits(min_rate=rate)
    with connected(app, clock, loop, limits, receive_buffer=4096) as (server, connection):
        connection.sendall(GET)
        wait_until_written(server)
        assert_cut(server, clock)
        assert left == ["http.disconnect"]
        with pytest.raises(ConnectionError):
            read_to_end(connection)


def test_a_client_that_takes_an_answer_too_slowly_is_cut(clock: VirtualTime, loop: str) -> None:
    limits = ConnectionLimits(min_rate=100_000_000)
    with connected(flood, clock, loop, limits, receive_buffer=4096) as (server, connection):
        connection.sendall(GET)
        wait_until_written(server)
        with pytest.raises(ConnectionError):
            take_slowly(connection, clock)
        assert clock.now >= limits.stall_s
        wait_for(lambda: server.num_connections == server.num_tasks == 0)


def test_a_client_that_takes_its_time_is_not(clock: VirtualTime, loop: str) -> None:
    """It takes some of the answer in each second, less than the kernel holds of it."""
    size = 8 << 20

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in answer_with(bytes(size)):
            await send(message)

    limits = ConnectionLimits(stall_s=5, keep_alive_s=1000)
    with connected(app, clock, loop, limits, receive_buffer=65536) as (server, connection):
        connection.sendall(GET)
        wait_until_written(server)
        protocol = server.connection
        taken = 0
        while taken < size:
            piece = connection.recv(64 << 10, socket.MSG_WAITALL)
            assert piece, taken
            taken += len(piece)
            # What it has taken, and the kernel acknowledges a little later, the server sees.
            left = size + HEAD - taken
            wait_for(lambda: bytes_not_taken(protocol.transport) <= left)  # noqa: B023 - called at once
            clock.advance(1)


def test_an_answer_that_is_complete_and_not_taken_holds_nothing_for_long(
    clock: VirtualTime, loop: str
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in answer_with(bytes(MUCH), 200, (b"connection", b"close")):
            await send(message)

    with connected(app, clock, loop, receive_buffer=4096) as (server, connection):
        connection.sendall(GET)
        wait_for(lambda: server.server.server_state.total_requests == 1)
        assert_cut(server, clock)


def test_who_writes_on_need_not_read(clock: VirtualTime, loop: str) -> None:
    """As most clients do: the answer has to be taken once the body has been sent, and not before."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(MUCH), "more_body": True})
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.body", "body": b"end"})

    limits = ConnectionLimits(min_rate=0)
    with connected(app, clock, loop, limits, receive_buffer=65536) as (server, connection):
        send(server, connection, POST % 200)
        wait_until_written(server)
        for _ in range(20):
            clock.advance(limits.stall_s / 10)  # in all, twice what it has to take something
            send(server, connection, bytes(10))
        size, tail = 0, b""
        while not tail.endswith(b"3\r\nend\r\n0\r\n\r\n"):
            piece = connection.recv(1 << 20)
            assert piece, size
            size, tail = size + len(piece), tail[-20:] + piece
        assert size > MUCH


@pytest.mark.parametrize("sent", [POST % 100 + b"abc", GET])
def test_an_answer_that_breaks_off_and_is_not_taken_holds_nothing_for_long(
    clock: VirtualTime, loop: str, sent: bytes
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(MUCH), "more_body": True})

    limits = ConnectionLimits(body_grace_s=1000)
    with connected(app, clock, loop, limits, receive_buffer=4096) as (server, connection):
        connection.sendall(sent)
        wait_until_written(server)
        assert_cut(server, clock)


def test_who_leaves_in_mid_body_with_an_answer_not_taken_holds_nothing(clock: VirtualTime, loop: str) -> None:
    left: list[bytes | None] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(MUCH), "more_body": True})
        left.append(await read_body(receive))

    with connected(app, clock, loop, receive_buffer=4096) as (server, connection):
        connection.sendall(POST % 100 + b"abc")
        assert connection.recv(4) == b"HTTP"
        connection.shutdown(socket.SHUT_WR)
        wait_for(lambda: left == [None])
        assert_cut(server, clock)


def test_the_rest_of_a_refused_body_is_let_in_only_so_long(clock: VirtualTime, loop: str) -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        for message in answer_with(b"no", 415):
            await send(message)

    with connected(refuse, clock, loop) as (server, connection):
        connection.sendall(POST % (1 << 40))
        assert read_answer(connection)[1] == b"no"
        while clock.now < LIMITS.linger_s - 1:
            send(server, connection, bytes(100_000))
            clock.advance(1)
        assert_open_until(server, clock, 1)
        with pytest.raises(ConnectionError):
            send_on(connection)
        wait_for(lambda: server.num_connections == 0)


def test_the_rest_of_a_refused_body_has_to_come(clock: VirtualTime, loop: str) -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        for message in answer_with(b"no", 415):
            await send(message)

    with connected(refuse, clock, loop) as (server, connection):
        connection.sendall(POST % (1 << 40))
        assert read_answer(connection)[1] == b"no"
        send(server, connection, bytes(100_000))
        assert_open_until(server, clock, LIMITS.linger_stall_s)
        wait_for(lambda: server.num_connections == 0)


def test_after_a_refused_body_that_ends_the_connection_goes_on(clock: VirtualTime, loop: str) -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        for message in answer_with(b"no", 415):
            await send(message)

    with connected(refuse, clock, loop) as (_, connection):
        for _ in range(3):
            connection.sendall(POST % 1_000_000 + bytes(1_000_000))
            assert read_answer(connection)[1] == b"no"


def take_slowly(connection: socket.socket, clock: VirtualTime) -> None:
    while connection.recv(1000):
        clock.advance(1)


def send_on(connection: socket.socket) -> None:
    while True:
        connection.sendall(bytes(100_000))
