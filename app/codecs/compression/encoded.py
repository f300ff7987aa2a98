"""The bytes of an answer that cannot be read without a number beside them."""

from __future__ import annotations

from collections.abc import Iterator

from ...runtime.streams import Buffer


class Encoded(Iterator[Buffer]):
    """The output of an encoder of JSON and then bytes.

    Attributes:
        json_bytes: the length of the JSON; known before the first byte is drawn.
    """

    def __init__(self, chunks: Iterator[Buffer], json_bytes: int) -> None:
        self._chunks = chunks
        self.json_bytes = json_bytes

    def __next__(self) -> Buffer:
        return next(self._chunks)


def json_bytes_of(chunks: Iterator[Buffer]) -> int | None:
    """The length of the JSON in front of what an encoder returned; most formats have none."""
    return chunks.json_bytes if isinstance(chunks, Encoded) else None
