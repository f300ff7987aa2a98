"""Answers: in the order of the requests, whole, and readable by who still writes or has stopped to."""

import asyncio
import threading

import pytest
from starlette.types import Receive, Scope, Send

from app.api.http1.limits import ConnectionLimits
from app.api.http1.protocol import HardenedProtocol
from tests.support.asgi_server import (
    answer_with,
    echo,
    problem_of,
    read_answer,
    read_body,
    read_to_end,
    served,
)
from tests.support.waiting import wait_for

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
EXPECT = b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
QUICK = ConnectionLimits(keep_alive_s=0.1)


@pytest.fixture(params=["uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    for message in answer_with(b"no", 413, (b"connection", b"close")):
        await send(message)


# Pipelined requests.


def test_pipelined_requests_are_answered_in_their_order(loop: str) -> None:
    sent = b"".join(
        b"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (i, i, b"a" * i) for i in range(500)
    )
    expected = [b"POST /%d x|%b" % (i, b"a" * i) for i in range(500)]
    with served(echo, QUICK, loop=loop) as server:
        answers = server.exchange(sent).split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert [answer.partition(b"\r\n\r\n")[2] for answer in answers] == expected


def test_chunked_requests_that_are_pipelined_are_too(loop: str) -> None:
    one = b"POST /%d HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    with served(echo, QUICK, loop=loop) as server:
        answers = server.exchange(b"".join(one % i for i in range(50))).split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert [answer.partition(b"\r\n\r\n")[2] for answer in answers] == [
        b"POST /%d x|abc" % i for i in range(50)
    ]


def test_pipelined_requests_wait_unread(loop: str) -> None:
    """uvicorn makes a request of each at once, and reads on with every answer."""
    go = threading.Event()
    begun: list[str] = []
    count = 1000
    # 700 kB, past what one read takes.
    requests = GET.replace(b"\r\n\r\n", b"\r\nX-Beside: " + b"x" * 700 + b"\r\n\r\n") * count

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(scope["path"])
        await asyncio.to_thread(go.wait)
        await echo(scope, receive, send)

    with served(app, QUICK, loop=loop) as server, server.connect() as connection:
        writer = threading.Thread(target=connection.sendall, args=(requests,))
        writer.start()
        wait_for(lambda: begun == ["/"])
        (protocol,) = server.server.server_state.connections
        assert isinstance(protocol, HardenedProtocol)
        assert protocol.flow.read_paused
        assert not protocol.pipeline
        go.set()
        answered = 0
        while answered < count:
            answered += connection.recv(1 << 20).count(b"|")
        writer.join()
        assert len(begun) == count


def test_too_many_pipelined_requests_close_after_the_earlier_responses() -> None:
    chunked = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with served(echo, QUICK) as server:
        answer = server.exchange(chunked + GET * 100)
    assert answer.count(b"HTTP/1.1 200 OK") == 65
    assert problem_of(answer)["code"] == "too_many_requests"


def test_malformed_request_is_refused_after_earlier_responses(loop: str) -> None:
    go = threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.to_thread(go.wait)
        await echo(scope, receive, send)

    with served(app, QUICK, loop=loop) as server, server.connect() as connection:
        connection.sendall(GET + GET + b"nonsense\r\n\r\n" + GET)
        go.set()
        answer = read_to_end(connection)
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"400"]


def test_a_body_that_breaks_after_the_answer_began_leaves_the_last_chunk_out(loop: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        assert await read_body(receive) is None
        await send({"type": "http.response.body", "body": b"never sent"})

    with served(app, QUICK, loop=loop) as server, server.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        assert connection.recv(1)
        connection.sendall(b"nonsense\r\n")
        assert read_to_end(connection).endswith(b"5\r\nbegun\r\n")
        wait_for(lambda: server.num_tasks == 0)


# Expect: 100-continue.


def test_the_body_is_asked_for_when_it_is_first_read(loop: str) -> None:
    go = threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.to_thread(go.wait)
        await echo(scope, receive, send)

    limits = ConnectionLimits(body_grace_s=0.1, stall_s=0.2)
    with served(app, limits, loop=loop) as server, server.connect() as connection:
        for _ in range(2):
            connection.sendall(EXPECT % 3)
            connection.settimeout(0.5)  # longer than it would have, were it to blame
            with pytest.raises(TimeoutError):
                connection.recv(1)
            connection.settimeout(60)
            go.set()
            assert connection.recv(len(CONTINUE)) == CONTINUE
            connection.sendall(b"abc")
            assert read_answer(connection)[1] == b"POST / x|abc"
            go.clear()


def test_a_body_that_comes_unasked_is_not_asked_for(loop: str) -> None:
    with served(echo, QUICK, loop=loop) as server:
        assert server.exchange(EXPECT % 3 + b"abc").startswith(b"HTTP/1.1 200")


def test_no_body_is_not_asked_for(loop: str) -> None:
    with served(echo, QUICK, loop=loop) as server:
        assert server.exchange(EXPECT % 0).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("status", [200, 413, 415])
def test_who_is_answered_without_being_asked_for_the_body_is_not_listened_to(loop: str, status: int) -> None:
    """Whether the body follows cannot be known: it would be taken for the next request."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in answer_with(b"done", status):
            await send(message)

    with served(app, loop=loop) as server, server.connect() as connection:
        connection.sendall(EXPECT % len(GET))
        head, content = read_answer(connection)
        assert content == b"done"
        assert b"connection: close" in head
        connection.sendall(GET)
        assert connection.recv(1) == b""


# Closing.


def test_who_writes_on_can_read_why_it_was_refused(loop: str) -> None:
    """The whole body is sent before the answer is read: a connection closed at once would be reset."""
    with served(refuse, loop=loop) as server, server.connect() as connection:
        connection.sendall(POST % (32 << 20) + bytes(32 << 20))
        assert read_to_end(connection).endswith(b"\r\n\r\nno")


def test_early_refusal_is_sent_at_once(loop: str) -> None:
    with served(refuse, loop=loop) as server, server.connect() as connection:
        connection.sendall(POST % (1 << 40))
        answer = read_to_end(connection)
    assert b"connection: close\r\n" in answer
    assert answer.endswith(b"\r\n\r\nno")


def test_who_has_closed_its_side_is_answered(loop: str) -> None:
    with served(echo, loop=loop) as server:
        assert server.exchange(POST % 3 + b"abc", half_close=True).endswith(b"POST / x|abc")
        answer = server.exchange((POST % 3 + b"abc") * 3, half_close=True)
    assert answer.count(b"POST / x|abc") == 3


def test_who_closes_in_mid_body_is_gone(loop: str) -> None:
    bodies: list[bytes | None] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        bodies.append(await read_body(receive))

    with served(app, loop=loop) as server:
        assert server.exchange(POST % 100 + b"abc", half_close=True) == b""
        wait_for(lambda: bodies == [None])


def test_http_1_0_is_closed_after_its_answer(loop: str) -> None:
    with served(echo, loop=loop) as server:
        answer = server.exchange(b"POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc" + GET)
    assert answer.endswith(b"\r\n\r\nPOST / -|abc")
    assert b"connection: close" in answer


# The application.


async def fail(scope: Scope, receive: Receive, send: Send) -> None:
    raise ZeroDivisionError


async def fail_after_the_head(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
    raise ZeroDivisionError


async def give_a_header_with_a_line_end(scope: Scope, receive: Receive, send: Send) -> None:
    headers = [(b"content-length", b"0"), (b"a", b"b\r\nc: d")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def give_nothing(scope: Scope, receive: Receive, send: Send) -> None:
    return


@pytest.mark.parametrize("app", [fail, fail_after_the_head, give_a_header_with_a_line_end, give_nothing])
@pytest.mark.parametrize("sent", [GET, POST % 100_000_000], ids=["GET", "POST"])
def test_a_defect_is_a_problem_document(app: object, sent: bytes, loop: str) -> None:
    with served(app, loop=loop) as server:  # type: ignore[arg-type]
        answer = server.exchange(sent)
    assert b"Traceback" not in answer
    assert problem_of(answer)["code"] == "internal_error"


@pytest.mark.parametrize("size", [1, 16 * 1024, 16 * 1024 + 1, 300_000])
def test_body_of_known_length_is_followed_by_the_next_request(loop: str, size: int) -> None:
    body = bytes(i % 251 for i in range(size))

    async def repeat(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        content = await read_body(receive) or b""
        await send({"type": "http.response.body", "body": content, "more_body": True})
        await send({"type": "http.response.body", "body": memoryview(content)[:7], "more_body": False})

    sent = [POST % size, body[: size // 3], body[size // 3 :] + POST % 3 + b"a", b"bc"]
    with served(repeat, QUICK, loop=loop) as server, server.connect() as connection:
        for count, piece in enumerate(sent, 1):
            connection.sendall(piece)
            received = sum(map(len, sent[:count]))
            server.wait_received(received)
        answers = read_to_end(connection).split(b"HTTP/1.1 200 OK\r\n")[1:]
    contents = [answer.partition(b"\r\n\r\n")[2] for answer in answers]
    assert contents == [
        b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(content), content, min(7, len(content)), content[:7])
        for content in (body, b"abc")
    ]


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
def test_an_answer_that_says_nothing_of_its_length_is_chunked_or_has_no_body(method: bytes) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"abc", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        await send({"type": "http.response.body", "body": b"de"})

    with served(app, QUICK) as server:
        answer = server.exchange(method + b" / HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, content = answer.partition(b"\r\n\r\n")
    assert (b"transfer-encoding: chunked" in head) == (method == b"GET")
    assert content == (b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n" if method == b"GET" else b"")


@pytest.mark.parametrize("length", [b"2", b"4"])
def test_an_answer_of_another_length_than_it_says_is_broken_off(length: bytes) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ab", "more_body": True})
        await send({"type": "http.response.body", "body": b"c"})

    with served(app) as server:
        content = server.exchange(GET).partition(b"\r\n\r\n")[2]
    assert len(content) <= 3


def test_response_during_shutdown_closes_the_connection(loop: str) -> None:
    with served(echo, loop=loop) as server, server.connect() as connection:
        connection.sendall(POST % 3)
        wait_for(lambda: server.num_tasks == 1)
        server.server.should_exit = True
        wait_for(lambda: not server.server.servers[0].is_serving())
        connection.sendall(b"abc")
        answer = read_to_end(connection)
    assert answer.endswith(b"POST / x|abc")
    assert b"connection: close" in answer


@pytest.mark.parametrize("fails", ["before the answer", "after its head", "never"])
def test_an_answer_carries_an_id_also_where_the_application_fails(fails: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if fails == "before the answer":
            raise ValueError(fails)
        start, body = answer_with(b"well")
        await send(start)
        if fails == "after its head":
            raise ValueError(fails)
        await send(body)

    with served(app) as server, server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Request-Id: r-1\r\n\r\n")
        head, _ = read_answer(connection)
    assert head.startswith(b"http/1.1 200 " if fails == "never" else b"http/1.1 500 ")
    assert head.count(b"\r\nx-request-id: r-1") == 1
