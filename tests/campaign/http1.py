"""HTTP/1.1 messages as they come over a connection, no more than a proxy has to know of them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

__all__ = ["Message", "read_body", "read_message", "respond"]

_CHUNK = 1 << 18


@dataclass(frozen=True)
class Message:
    """The head of a request or an answer. Names of headers are in lower case, `raw` is as it came."""

    start: tuple[str, str, str]
    headers: dict[str, str]
    raw: bytes

    @property
    def status(self) -> int:
        return int(self.start[1])

    @property
    def length(self) -> int | None:
        """What Content-Length says; None where there is none."""
        value = self.headers.get("content-length")
        return None if value is None else int(value)

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def keeps_alive(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"

    def with_length(self, length: int) -> bytes:
        """The head, with another Content-Length."""
        lines = self.raw.split(b"\r\n")[:-2]
        kept = [line for line in lines if not line.lower().startswith(b"content-length:")]
        return b"\r\n".join([*kept, f"Content-Length: {length}".encode(), b"", b""])


async def read_message(reader: asyncio.StreamReader) -> Message | None:
    """The next head; None where the peer has closed the connection."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    a, b, *c = first.split(" ", 2)
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Message((a, b, c[0] if c else ""), headers, raw)


async def read_body(
    reader: asyncio.StreamReader, message: Message, *, answers: str | None = None
) -> AsyncIterator[bytes]:
    """The body as it comes; a chunked one with its framing.

    Args:
        answers: the method of the request, where `message` is the answer to one.
    """
    if answers is not None and (answers == "HEAD" or message.status in (204, 304) or message.status < 200):
        return
    if message.is_chunked:
        async for piece in _chunked(reader):
            yield piece
        return
    left = message.length or 0
    while left:
        piece = await reader.read(min(left, _CHUNK))
        if not piece:
            raise ConnectionError("the body is cut short")
        left -= len(piece)
        yield piece


async def _chunked(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        if size == 0:
            while line != b"\r\n":
                yield line
                line = await reader.readuntil(b"\r\n")
            yield line
            return
        yield line + await reader.readexactly(size + 2)


def respond(
    status: int, body: bytes = b"", *, media_type: str = "application/xml", head: bool = False
) -> bytes:
    """An answer; to a HEAD without its body."""
    lines = [
        f"HTTP/1.1 {status} Status",
        f"Content-Type: {media_type}",
        f"Content-Length: {len(body)}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + (b"" if head else body)
