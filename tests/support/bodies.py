"""What decoders read, made of bytes that are at hand."""

from __future__ import annotations

from typing import Any

from app.codecs.forms import Codec
from app.runtime.streams import ByteStream, MemoryFile, MemoryStream


def body_of(codec: Codec[Any, Any], data: bytes) -> Any:
    """A stream, or the body as a whole, whichever the decoder of `codec` needs."""
    return MemoryFile(data) if codec.needs == "file" else MemoryStream(data)


def stream_of(data: bytes, chunk: int | None, *, whole: int = 0) -> ByteStream:
    """A stream that hands out at most `chunk` bytes at a time, or has all of them in memory.

    Args:
        whole: so many bytes at its beginning are handed out as they are asked for.
    """
    return MemoryStream(data) if chunk is None else _ChunkedStream(data, chunk, whole)


class _ChunkedStream:
    def __init__(self, data: bytes, chunk: int, whole: int) -> None:
        self._data = data
        self._chunk = chunk
        self._whole = whole
        self._position = 0

    def read(self, n: int, /) -> bytes:
        most = max(self._chunk, self._whole - self._position)
        piece = self._data[self._position : self._position + min(n, most)]
        self._position += len(piece)
        return piece
