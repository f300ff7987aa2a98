"""Clients that are slow, silent or gone: each has a deadline, and what they held is free after it.

The deadlines are short here; a test waits for what follows them, and never for less than they are.
"""

import asyncio
import socket
import threading
import time

import pytest
from starlette.types import Receive, Scope, Send

from app.api.http1.limits import ConnectionLimits
from tests.served import answer_with, echo, problem_of, read_answer, read_body, read_to_end, served
from tests.waiting import wait_for

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
LOOPS = ["uvloop", "asyncio"]


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("sent", [b"", b"\r\n"])
def test_a_connection_on_which_nothing_begins_is_closed(loop: str, sent: bytes) -> None:
    with served(echo, ConnectionLimits(header_timeout_s=0.2), loop=loop) as server:
        assert server.exchange(sent) == b""
        wait_for(lambda: server.num_connections == 0)


@pytest.mark.parametrize("sent", [b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nA: b"])
def test_a_head_that_does_not_end_is_408(loop: str, sent: bytes) -> None:
    with served(echo, ConnectionLimits(header_timeout_s=0.2), loop=loop) as server:
        problem = problem_of(server.exchange(sent))
        assert (problem["status"], problem["code"]) == (408, "request_timeout")


def test_a_head_that_trickles_is_408(loop: str) -> None:
    sent = b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 9999
    limits = ConnectionLimits(header_timeout_s=0.3)
    with (
        served(echo, limits, loop=loop) as server,
        server.connect() as connection,
        trickling(connection, sent),
    ):
        assert problem_of(read_to_end(connection))["status"] == 408


def test_a_second_head_has_the_same_deadline(loop: str) -> None:
    with served(echo, ConnectionLimits(header_timeout_s=0.2, keep_alive_s=60), loop=loop) as server:
        answer = server.exchange(GET + GET[:-2])
        assert answer.startswith(b"HTTP/1.1 200")
        assert problem_of(answer)["status"] == 408


def test_an_idle_connection_is_closed_without_a_word(loop: str) -> None:
    with served(echo, ConnectionLimits(keep_alive_s=0.2), loop=loop) as server:
        answer = server.exchange(GET)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert answer.endswith(b"GET / x|")


def test_a_body_that_does_not_come_is_408_and_the_application_is_told(loop: str) -> None:
    bodies: list[bytes | None] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        bodies.append(await read_body(receive))

    with served(app, ConnectionLimits(body_grace_s=0.2), loop=loop) as server:
        problem = problem_of(server.exchange(POST % 100 + b"abc"))
        assert (problem["status"], problem["code"]) == (408, "request_timeout")
        wait_for(lambda: bodies == [None])
        wait_for(lambda: server.num_tasks == 0)


def test_a_body_that_trickles_is_408(loop: str) -> None:
    limits = ConnectionLimits(body_grace_s=0.3)
    with served(echo, limits, loop=loop) as server, server.connect() as connection:
        connection.sendall(POST % 1_000_000)
        with trickling(connection, bytes(1_000_000)):
            problem = problem_of(read_to_end(connection))
    assert problem["status"] == 408
    assert "240 bytes/s (SHARDSMITH_MIN_RATE). Send whole batches" in problem["detail"]


def test_a_body_of_tiny_chunks_earns_no_more_than_its_bytes() -> None:
    with served(echo, ConnectionLimits(body_grace_s=0.3)) as server, server.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        with trickling(connection, b"1\r\na\r\n" * 100_000):
            assert problem_of(read_to_end(connection))["status"] == 408


def test_a_body_that_was_fast_and_stops_is_408_all_the_same(loop: str) -> None:
    with served(echo, ConnectionLimits(body_grace_s=0.1, stall_s=0.5), loop=loop) as server:
        assert problem_of(server.exchange(POST % 20_000_000 + bytes(10_000_000)))["status"] == 408


def test_a_client_waits_as_long_as_we_do_not_read(loop: str) -> None:
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

    limits = ConnectionLimits(body_grace_s=0.1, stall_s=0.3)
    with served(app, limits, loop=loop) as server, server.connect() as connection:
        size = 64 << 20
        connection.sendall(POST % size)
        writer = threading.Thread(target=connection.sendall, args=(bytes(size),))
        writer.start()
        time.sleep(1)  # three times what it has where it is to blame
        go.set()
        assert read_answer(connection)[1] == b"%d" % size
        writer.join()


def test_no_rate_is_asked_where_it_is_switched_off(loop: str) -> None:
    limits = ConnectionLimits(min_rate=0, body_grace_s=0.01, stall_s=30)
    with served(echo, limits, loop=loop) as server, server.connect() as connection:
        connection.sendall(POST % 20)
        for _ in range(20):
            time.sleep(0.02)
            connection.send(b"a")
        assert read_answer(connection)[1] == b"POST / x|" + b"a" * 20


async def flood(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(10_000):
        await send({"type": "http.response.body", "body": bytes(100_000), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("rate", [0, 240])
def test_a_client_that_takes_nothing_is_cut(loop: str, rate: int) -> None:
    left: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()

        async def watch() -> None:
            left.append((await receive())["type"])

        watching = asyncio.create_task(watch())
        await flood(scope, receive, send)
        await watching

    limits = ConnectionLimits(stall_s=0.3, min_rate=rate)
    with served(app, limits, loop=loop) as server, server.connect(receive_buffer=4096) as connection:
        connection.sendall(GET)
        wait_for(lambda: left == ["http.disconnect"])
        wait_for(lambda: server.num_connections == server.num_tasks == 0)
        with pytest.raises(ConnectionError):
            read_to_end(connection)


def test_a_client_that_takes_an_answer_too_slowly_is_cut(loop: str) -> None:
    limits = ConnectionLimits(stall_s=0.5, min_rate=100_000_000)
    with served(flood, limits, loop=loop) as server, server.connect(receive_buffer=4096) as connection:
        connection.sendall(GET)
        with pytest.raises(ConnectionError):
            take_slowly(connection)
        wait_for(lambda: server.num_connections == server.num_tasks == 0)


def test_a_client_that_takes_its_time_is_not(loop: str) -> None:
    """It takes some of the answer in each second, less than the kernel holds of it."""
    size = 8 << 20

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in answer_with(bytes(size)):
            await send(message)

    limits = ConnectionLimits(stall_s=3)
    with served(app, limits, loop=loop) as server, server.connect(receive_buffer=65536) as connection:
        connection.sendall(GET)
        taken = 0
        while taken < size:
            piece = connection.recv(64 << 10)
            assert piece, taken
            taken += len(piece)
            time.sleep(0.04)


def test_an_answer_that_is_complete_and_not_taken_holds_nothing_for_long(loop: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in answer_with(bytes(32 << 20), 200, (b"connection", b"close")):
            await send(message)

    limits = ConnectionLimits(stall_s=0.3)
    with served(app, limits, loop=loop) as server, server.connect(receive_buffer=4096) as connection:
        connection.sendall(GET)
        wait_for(lambda: server.server.server_state.total_requests == 1)
        wait_for(lambda: server.num_connections == 0)


def test_who_writes_on_need_not_read(loop: str) -> None:
    """As most clients do: the answer has to be taken once the body has been sent, and not before."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(16 << 20), "more_body": True})
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.body", "body": b"end"})

    limits = ConnectionLimits(min_rate=0, stall_s=2)
    with served(app, limits, loop=loop) as server, server.connect(receive_buffer=65536) as connection:
        connection.sendall(POST % 200)
        for _ in range(20):
            connection.sendall(bytes(10))
            time.sleep(0.2)  # in all, twice what it has to take something
        size, tail = 0, b""
        while not tail.endswith(b"3\r\nend\r\n0\r\n\r\n"):
            piece = connection.recv(1 << 20)
            assert piece, size
            size, tail = size + len(piece), tail[-20:] + piece
        assert size > 16 << 20


@pytest.mark.parametrize("sent", [POST % 100 + b"abc", GET])
def test_an_answer_that_breaks_off_and_is_not_taken_holds_nothing_for_long(loop: str, sent: bytes) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(32 << 20), "more_body": True})

    limits = ConnectionLimits(stall_s=0.3, body_grace_s=60)
    with served(app, limits, loop=loop) as server, server.connect(receive_buffer=4096) as connection:
        connection.sendall(sent)
        wait_for(lambda: server.num_tasks == 0)
        wait_for(lambda: server.num_connections == 0)


def test_who_leaves_in_mid_body_with_an_answer_not_taken_holds_nothing(loop: str) -> None:
    left: list[bytes | None] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(32 << 20), "more_body": True})
        left.append(await read_body(receive))

    limits = ConnectionLimits(stall_s=0.3)
    with served(app, limits, loop=loop) as server, server.connect(receive_buffer=4096) as connection:
        connection.sendall(POST % 100 + b"abc")
        assert connection.recv(4) == b"HTTP"
        connection.shutdown(socket.SHUT_WR)
        wait_for(lambda: left == [None])
        wait_for(lambda: server.num_connections == server.num_tasks == 0)


def test_the_rest_of_a_refused_body_is_let_in_only_so_long(loop: str) -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        for message in answer_with(b"no", 415):
            await send(message)

    with served(refuse, ConnectionLimits(linger_s=0.5, linger_stall_s=0.5), loop=loop) as server:
        with server.connect() as connection:
            connection.sendall(POST % (1 << 40))
            assert read_answer(connection)[1] == b"no"
            with pytest.raises(ConnectionError):
                send_on(connection)
        wait_for(lambda: server.num_connections == 0)


def test_after_a_refused_body_that_ends_the_connection_goes_on(loop: str) -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        for message in answer_with(b"no", 415):
            await send(message)

    with served(refuse, loop=loop) as server, server.connect() as connection:
        for _ in range(3):
            connection.sendall(POST % 1_000_000 + bytes(1_000_000))
            assert read_answer(connection)[1] == b"no"


def take_slowly(connection: socket.socket) -> None:
    while connection.recv(1000):
        time.sleep(0.01)


def send_on(connection: socket.socket) -> None:
    while True:
        connection.sendall(bytes(100_000))


class trickling:  # noqa: N801  # a context manager
    """Sends a byte now and then, from another thread, until the other side has closed."""

    def __init__(self, connection: socket.socket, data: bytes) -> None:
        self._connection = connection
        self._data = data
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def _send(self) -> None:
        for byte in self._data:
            if self._over.wait(0.01):
                return
            try:
                self._connection.send(bytes([byte]))
            except OSError:
                return

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
