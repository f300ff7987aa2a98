"""A proxy between a client and a service that damages bodies and answers, as a seed says.

Each request draws a card from a shuffled deck: a fault, or none. So each fault occurs, and a client that
tries often enough gets through, since at most three faults in a row befall what is asked at one path.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from tests.campaign.http1 import Message, read_message

#: What befalls any request. The service gets all but the first three, `again` twice.
ANSWERS: Final = (
    "lose the request",
    "503 instead",
    "502 instead",
    "lose the answer",
    "cut the answer",
    "empty the answer",
    "shorten the answer",
    "double the answer",
    "answer twice",
    "answer late",
)
#: What befalls a body. All but the first two make one that is whole as HTTP sees it, so only a digest tells.
BODIES: Final = ("cut the body", "send it twice", "empty the body", "shorten the body", "double the body")
LIES: Final = frozenset(BODIES[2:])
_MOST_IN_A_ROW: Final = 3
_LIMIT: Final = 1 << 20

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Faults:
    """Which fault comes next, and which ones came."""

    seed: object
    came: Counter[str] = field(default_factory=Counter)
    #: Bodies that came without a digest, which any alteration would pass.
    without_digest: int = 0
    _decks: dict[bool, list[str]] = field(default_factory=dict)
    _in_a_row: Counter[str] = field(default_factory=Counter)

    def draw(self, request: Message, body: bytes, trailers: bytes) -> str:
        """A fault; empty for none."""
        path = request.start[1].partition("?")[0]
        has_digest = "content-digest" in request.headers or b"content-digest:" in trailers.lower()
        self.without_digest += bool(body) and not has_digest
        deck = self._decks.setdefault(bool(body), [])
        if not deck:
            kinds = [*ANSWERS, *(BODIES if body else ())]
            deck += [*kinds, *[""] * (len(kinds) // 2)]
            seed = f"{self.seed} {bool(body)} {self.came.total()}"
            random.Random(seed).shuffle(deck)  # noqa: S311  # faults, no secrets
        fault = deck.pop()
        if self._in_a_row[path] == _MOST_IN_A_ROW or (fault in LIES and not has_digest):
            deck.insert(0, fault)
            fault = ""
        self._in_a_row[path] = self._in_a_row[path] + 1 if fault else 0
        if fault:
            self.came[fault] += 1
        return fault


@contextmanager
def faulty(url: str, seed: object) -> Iterator[tuple[str, Faults]]:
    """The address of a proxy before the service at `url`, and what it does."""
    loop, faults = asyncio.new_event_loop(), Faults(seed)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    host, _, port = url.removeprefix("http://").rpartition(":")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await _serve((reader, writer), (host, int(port)), faults):
                await writer.drain()
        writer.close()

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(serve, "127.0.0.1", 0, limit=_LIMIT)

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", faults
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end(server: asyncio.Server) -> None:
    server.close()
    connections = asyncio.all_tasks() - {asyncio.current_task()}
    for task in connections:
        task.cancel()
    await asyncio.gather(*connections, return_exceptions=True)


async def _serve(client: Streams, service: tuple[str, int], faults: Faults) -> bool:
    """Take a request to the service, and its answer back; whether the connection lives on."""
    reader, writer = client
    request = await read_message(reader)
    if request is None:
        return False
    if "expect" in request.headers:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body, trailers = await _read_content(reader, request)
    fault = faults.draw(request, body, trailers)
    if fault == "lose the request":
        return False
    if fault in ("503 instead", "502 instead"):
        # A service that has no time, and a proxy that knows nothing of problem documents.
        head = b"503 Unavailable\r\nRetry-After: 1\r\n" if fault[:3] == "503" else b"502 Bad Gateway\r\n"
        page = b"<html>no</html>"
        writer.write(b"HTTP/1.1 %sContent-Length: %d\r\n\r\n%s" % (head, len(page), page))
        return True
    altered = _altered(body, fault.removesuffix(" the body") if fault in LIES else "")
    sent = _framed(request, altered, trailers)
    if fault == "cut the body":
        await _cut_off(service, sent[: len(sent) - len(body) // 2 - 1])
        return False
    if fault == "send it twice":
        (answer, content), _ = await asyncio.gather(
            _ask(service, request, sent), _ask(service, request, sent)
        )
    else:
        answer, content = await _ask(service, request, sent)
    if fault == "lose the answer":
        return False
    if fault == "answer late":
        await asyncio.sleep(0.5)
    if fault.endswith(" the answer") and content:
        how = fault.removesuffix(" the answer")
        if how == "cut":
            raw = _framed(answer, content, b"")
            writer.write(raw[: len(raw) - len(content) // 2 - 1])
            await writer.drain()
            return False
        writer.write(_without_framing(answer, _altered(content, how)))
    else:
        writer.write(_framed(answer, content, b"") * (2 if fault == "answer twice" else 1))
    return answer.keeps_alive and request.keeps_alive


def _altered(content: bytes, how: str) -> bytes:
    if how == "empty":
        return b""
    if how == "shorten":  # by whole lines, if there are some
        return content[: content.rfind(b"\n", 0, len(content) * 3 // 4) + 1 or len(content) * 3 // 4]
    return content * 2 if how == "double" else content


async def _read_content(reader: asyncio.StreamReader, message: Message) -> tuple[bytes, bytes]:
    """The content, out of its chunks, and the lines behind the last one."""
    if not message.is_chunked:
        return await reader.readexactly(message.length or 0), b""
    pieces = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    trailers = b""
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        trailers += line
    return b"".join(pieces), trailers


def _framed(message: Message, content: bytes, trailers: bytes) -> bytes:
    """The message with this content, framed as it was."""
    if not message.is_chunked:
        return _without_framing(message, content) if message.length is not None else message.raw
    chunk = b"%x\r\n%s\r\n" % (len(content), content) if content else b""
    return _head(message, "expect") + b"\r\n" + chunk + b"0\r\n" + trailers + b"\r\n"


def _without_framing(message: Message, content: bytes) -> bytes:
    head = _head(message, "expect", "content-length", "transfer-encoding")
    return head + b"Content-Length: %d\r\n\r\n%s" % (len(content), content)


def _head(message: Message, *without: str) -> bytes:
    lines = message.raw.split(b"\r\n")[:-2]
    return b"".join(
        line + b"\r\n" for line in lines if line.partition(b":")[0].decode().lower() not in without
    )


async def _cut_off(service: tuple[str, int], sent: bytes) -> None:
    _, writer = await asyncio.open_connection(*service)
    writer.write(sent)
    await writer.drain()
    writer.close()


async def _ask(service: tuple[str, int], request: Message, sent: bytes) -> tuple[Message, bytes]:
    reader, writer = await asyncio.open_connection(*service, limit=_LIMIT)
    try:
        writer.write(sent)
        answer = await read_message(reader)
        if answer is None:
            raise ConnectionError("the service closed the connection")
        content, _ = (b"", b"") if request.start[0] == "HEAD" else await _read_content(reader, answer)
        return answer, content
    finally:
        writer.close()
