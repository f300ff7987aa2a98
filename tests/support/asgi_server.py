"""An ASGI application behind the hardened protocol, on loopback, in a thread of this process."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.http1.limits import ConnectionLimits
from app.api.http1.protocol import HardenedProtocol, hardened_protocol
from tests.support.virtual_time import VirtualTime
from tests.support.waiting import wait_for


class Served:
    """A running server, and connections to it."""

    def __init__(self, server: uvicorn.Server, port: int, protocol: type[HardenedProtocol]) -> None:
        self.server = server
        self.protocol = protocol
        self._port = port

    def connect(self, *, receive_buffer: int | None = None) -> socket.socket:
        connection = socket.socket()
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(60)
        connection.connect(("127.0.0.1", self._port))
        return connection

    def exchange(self, sent: bytes, *, half_close: bool = False) -> bytes:
        """All that comes back until the server closes."""
        with self.connect() as connection:
            connection.sendall(sent)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            return read_to_end(connection)

    def wait_received(self, num_bytes: int) -> None:
        """Return once all connections together have received so much."""
        wait_for(lambda: self.num_received >= num_bytes)

    @property
    def connection(self) -> HardenedProtocol:
        """The only one there is."""
        [protocol] = self.server.server_state.connections
        assert isinstance(protocol, HardenedProtocol)
        return protocol

    @property
    def num_received(self) -> int:
        received: int = self.protocol.num_received  # type: ignore[attr-defined]  # of `observed`
        return received

    @property
    def num_connections(self) -> int:
        return len(self.server.server_state.connections)

    @property
    def num_tasks(self) -> int:
        return len(self.server.server_state.tasks)


def observed(protocol: type[HardenedProtocol], clock: VirtualTime | None) -> type[HardenedProtocol]:
    """The protocol, which counts what it receives, and under a clock lives in its time."""

    class Observed(protocol):  # type: ignore[misc, valid-type]  # the base is made for these limits
        num_received: ClassVar[int] = 0

        def __init__(
            self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None
        ) -> None:
            loop = _loop or asyncio.get_running_loop()
            super().__init__(config, server_state, app_state, clock.govern(loop) if clock else loop)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            Observed.num_received += len(data)

    return Observed


@contextmanager
def served(
    app: ASGIApp,
    limits: ConnectionLimits | None = None,
    *,
    loop: str = "auto",
    clock: VirtualTime | None = None,
) -> Iterator[Served]:
    """A server; with a `clock`, its connections live in virtual time."""
    protocol = observed(hardened_protocol(limits or ConnectionLimits()), clock)
    config = uvicorn.Config(
        app, port=0, http=protocol, ws="none", lifespan="off", log_config=None, loop=loop,
        timeout_graceful_shutdown=1, access_log=False,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started)
        yield Served(server, server.servers[0].sockets[0].getsockname()[1], protocol)
    finally:
        server.should_exit = True
        thread.join()


def read_to_end(connection: socket.socket) -> bytes:
    pieces = []
    while piece := connection.recv(1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


def read_answer(connection: socket.socket) -> tuple[bytes, bytes]:
    """Head and content of one answer that has a Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(1)
        assert piece, data
        data += piece
    head = data.partition(b"\r\n\r\n")[0].lower()
    length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
    content = b""
    while len(content) < length:
        piece = connection.recv(length - len(content))
        assert piece, content
        content += piece
    return head, content


def problem_of(answer: bytes) -> dict[str, Any]:
    """The problem document that is the last answer of a closed connection."""
    head, _, content = answer.rpartition(b"\r\n\r\n")
    head = head.lower()
    assert b"content-type: application/problem+json\r\n" in head, answer
    assert b"connection: close" in head
    assert b"content-length: %d\r\n" % len(content) in head + b"\r\n"
    document: dict[str, Any] = json.loads(content)
    assert document.keys() == {"type", "title", "status", "code", "detail", "error"}
    assert head.rpartition(b"http/1.1 ")[2].startswith(b"%d " % document["status"])
    return document


async def read_body(receive: Receive) -> bytes | None:
    """The whole body; None where the client left before its end."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += bytes(message["body"])
        if not message["more_body"]:
            return body


def answer_with(content: bytes, status: int = 200, *headers: tuple[bytes, bytes]) -> list[Message]:
    length = (b"content-length", b"%d" % len(content))
    return [
        {"type": "http.response.start", "status": status, "headers": [length, *headers]},
        {"type": "http.response.body", "body": content},
    ]


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with method, path, Host and body."""
    body = await read_body(receive)
    if body is not None:
        headers = dict(scope["headers"])
        target = f"{scope['method']} {scope['path']} ".encode() + headers.get(b"host", b"-")
        for message in answer_with(b"%b|%b" % (target, body)):
            await send(message)


class Recorded:
    """An application that waits until it is let go, and keeps what it saw."""

    def __init__(self, handle: Callable[..., Any]) -> None:
        self.handle = handle
        self.seen: list[Any] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append(await self.handle(scope, receive, send))
