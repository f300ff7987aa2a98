"""What decoders read, made of bytes that are at hand."""

from __future__ import annotations

from typing import Any

from app.codecs.forms import Codec
from app.runtime.streams import ByteStream, MemoryFile, MemoryStream


def body_of(codec: Codec[Any, Any], data: bytes) -> Any:
    """A stream, or the body as a whole, whichever the decoder of `codec` needs."""
    return MemoryFile(data) if codec.needs == "file" else MemoryStream(data)


def stream_of(data: bytes, chunk: int | None) -> ByteStream:
    """A stream that hands out at most `chunk` bytes at a time, or has all of them in memory."""
    return MemoryStream(data) if chunk is None else _ChunkedStream(data, chunk)


class _ChunkedStream:
    def __init__(self, data: bytes, chunk: int) -> None:
        self._data = data
        self._chunk = chunk
        self._position = 0

    def read(self, n: int, /) -> bytes:
        piece = self._data[self._position : self._position + min(n, self._chunk)]
        self._position += len(piece)
        return piece
