"""A small body is read as a whole; of a larger one nothing is lost."""

import asyncio
from collections.abc import Sequence

import pytest
from starlette.datastructures import Headers
from starlette.types import Message

from app.api.small_bodies import SMALL_BODY, may_be_small, read_small, replayed
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


@pytest.mark.parametrize("pieces", [[b""], [b"abc"], [b"a", b"", b"bc"], [b"x" * SMALL_BODY], [b"abc", b""]])
def test_a_small_body_is_whole(pieces: list[bytes]) -> None:
    found, _ = asyncio.run(read_small(Connection(pieces).receive, 5))
    assert found == b"".join(pieces)


@pytest.mark.parametrize("pieces", [[b"x" * (SMALL_BODY + 1)], [b"x" * SMALL_BODY, b"y", b"z"]])
def test_a_larger_body_is_replayed(pieces: list[bytes]) -> None:
    async def read() -> bytes:
        connection = Connection(pieces)
        found, taken = await read_small(connection.receive, 5)
        assert found is None
        receive, content = replayed(taken, connection.receive), b""
        while (message := await receive())["type"] == "http.request":
            content += message["body"]
        return content

    assert asyncio.run(read()) == b"".join(pieces)


def test_a_client_that_leaves_is_no_end_of_the_body() -> None:
    with pytest.raises(StreamInterrupted):
        asyncio.run(read_small(Connection([b"abc"], ends=False).receive, 5))


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(StreamTimeout):
        asyncio.run(read_small(never, 0.01))


@pytest.mark.parametrize(
    ("length", "small"), [(None, True), ("0", True), ("65536", True), ("65537", False), ("x", False)]
)
def test_the_length_says_what_is_too_large(length: str | None, small: bool) -> None:
    assert may_be_small(Headers({} if length is None else {"content-length": length})) is small


def test_what_is_encoded_may_be_large() -> None:
    assert not may_be_small(Headers({"content-length": "10", "content-encoding": "gzip"}))
