"""A small body is read whole, and its messages can be given once more."""

import asyncio
from collections.abc import Sequence

import pytest
from starlette.types import Message

from app.api.execution.small import is_small, read_small, replay
from app.errors import StreamInterrupted, StreamTimeout


class Connection:
    """Gives these pieces of a body, then nothing more, or that the client has left."""

    def __init__(self, pieces: Sequence[bytes], *, ends: bool = True) -> None:
        self._messages = [
            {"type": "http.request", "body": piece, "more_body": not ends or i + 1 < len(pieces)}
            for i, piece in enumerate(pieces)
        ]

    async def receive(self) -> Message:
        return self._messages.pop(0) if self._messages else {"type": "http.disconnect"}


@pytest.mark.parametrize("pieces", [[b""], [b"abc"], [b"a", b"", b"bc"], [b"abc", b""]])
def test_a_small_body_is_read_whole_and_replayed(pieces: list[bytes]) -> None:
    async def read() -> bytes:
        connection = Connection(pieces)
        found, taken = await read_small(connection.receive, 5)
        assert found == b"".join(pieces)
        receive, content = replay(taken, connection.receive), b""
        while (message := await receive())["type"] == "http.request":
            content += message["body"]
        return content

    assert asyncio.run(read()) == b"".join(pieces)


def test_disconnect_is_not_the_end_of_the_body() -> None:
    with pytest.raises(StreamInterrupted):
        asyncio.run(read_small(Connection([b"abc"], ends=False).receive, 5))


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(StreamTimeout):
        asyncio.run(read_small(never, 0.01))


@pytest.mark.parametrize(
    ("headers", "small"),
    [
        ([(b"content-length", b"0")], True),
        ([(b"content-length", b"100"), (b"accept", b"*/*")], True),
        ([(b"content-length", b"101")], False),
        ([(b"content-length", b"9" * 5000)], False),
        ([(b"content-length", b"x")], False),
        ([(b"content-length", b"-1")], False),
        ([], False),
        ([(b"transfer-encoding", b"chunked")], False),
        ([(b"content-length", b"10"), (b"content-encoding", b"gzip")], False),
        ([(b"content-length", b"10"), (b"expect", b"100-continue")], False),
        ([(b"content-transfer-encoding", b"binary"), (b"content-length", b"10")], False),
    ],
)
def test_the_headers_say_what_is_small(headers: list[tuple[bytes, bytes]], small: bool) -> None:
    assert is_small(headers, 100) is small
