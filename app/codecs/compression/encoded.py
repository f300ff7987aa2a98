"""The bytes of an answer that cannot be read without a header beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...runtime.streams import Buffer


class Encoded(Iterator[Buffer]):
    """What an encoder gives where its form needs HTTP headers of its own.

    Attributes:
        headers: known before the first byte is drawn.
    """

    def __init__(self, chunks: Iterator[Buffer], headers: Mapping[str, str]) -> None:
        self._chunks = chunks
        self.headers = headers

    def __next__(self) -> Buffer:
        return next(self._chunks)


def headers_of(chunks: Iterator[Buffer]) -> Mapping[str, str]:
    """The headers that have to go with what an encoder gave; most forms have none."""
    return chunks.headers if isinstance(chunks, Encoded) else {}
