"""gzip and zlib around TFRecords: detect them, rescue what is undamaged, and compress deterministically.

A gzip body is written as one member: TensorFlow loses data, without an error, behind some ends of
members; and a zlib body as one stream: it reads only the first.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from ...domain.compression import Compression
from ...domain.limits import KIB
from ...errors import MalformedInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream
from .inflate import WBITS, InflatedStream, ZlibDecompressor

#: zlib's own default; no time stamp stands in the header, so that equal rows give equal bytes.
_LEVEL: Final = 6

_GZIP_MAGIC: Final = b"\x1f\x8b"
_READ_BYTES: Final = 64 * KIB


def compress(chunks: Iterable[Buffer], compression: Compression) -> Iterator[Buffer]:
    """The bytes of `chunks`, compressed as one gzip member or one zlib stream, or as they are."""
    return iter(chunks) if compression == "none" else _deflate(chunks, WBITS[compression])


def _deflate(chunks: Iterable[Buffer], wbits: int) -> Iterator[Buffer]:
    deflater = zlib.compressobj(_LEVEL, zlib.DEFLATED, wbits)
    for chunk in chunks:
        if piece := deflater.compress(chunk):
            yield piece
    yield deflater.flush()


def detect_compression(head: bytes) -> Compression | None:
    """The container whose header `head` begins with, or None."""
    if head.startswith(_GZIP_MAGIC):
        return "gzip"
    if len(head) < 2:
        return None
    method, flags = head[0], head[1]
    is_zlib = method & 0x0F == 8 and method >> 4 <= 7 and (method << 8 | flags) % 31 == 0
    return "zlib" if is_zlib and not flags & 0x20 else None


class RescuedStream(InflatedStream):
    """What a damaged compressed stream holds before the damage, to the last byte; then it ends.

    Attributes:
        broken: what was wrong, once the end is reached. The rest of the source was read and dropped.
    """

    def __init__(self, source: ByteStream, compression: Compression, budget: Budget) -> None:
        super().__init__(source, compression, budget)
        self.broken: MalformedInput | None = None
        self._rescued = b""

    def read(self, n: int, /) -> bytes:
        if self.broken is None:
            try:
                return super().read(n)
            except MalformedInput as error:
                self.broken = error
                while self._source.read(_READ_BYTES):
                    pass
        piece, self._rescued = self._rescued[:n], self._rescued[n:]
        return piece

    def _decompress(self, data: memoryview, n: int) -> bytes:
        inflater = self._inflater
        assert isinstance(inflater, ZlibDecompressor)  # noqa: S101  # it is one of a `Compression`; this is for the type
        before, fed = inflater.copy(), data or inflater.held
        try:
            return super()._decompress(data, n)
        except zlib.error:
            # What that call had inflated is gone with its exception.
            self._rescued = _inflate_bytewise(before, bytes(fed))
            raise


def _inflate_bytewise(inflater: ZlibDecompressor, data: bytes) -> bytes:
    """All that comes out before the byte that is wrong."""
    inflated = bytearray()
    with contextlib.suppress(zlib.error):
        for index in range(len(data)):
            inflated += inflater.decompress(data[index : index + 1], _READ_BYTES)
    return bytes(inflated)
