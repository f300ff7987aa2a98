"""gzip and zlib around a stream: detected, inflated within bounds, deflated deterministically.

Sources: RFC 1950 (zlib), RFC 1952 (gzip). A gzip body is written as one member: TensorFlow loses data,
without an error, behind some ends of members; and a zlib body as one stream: it reads only the first.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from ...domain.compression import Compression
from ...domain.limits import KIB, MIB, Limits
from ...domain.streams import Buffer, ByteStream
from ...errors import LimitExceeded, MalformedInput

__all__ = ["WBITS", "InflatedStream", "RescuedStream", "compress", "detect_compression"]

#: zlib's `wbits`: a window of 32 KiB, in the container of that name.
WBITS: Final[dict[Compression, int]] = {"zlib": 15, "gzip": 31}
#: zlib's own default; no time stamp stands in the header, so that equal rows give equal bytes.
_LEVEL: Final = 6

_GZIP_MAGIC: Final = b"\x1f\x8b"
_READ_BYTES: Final = 64 * KIB
#: Small bodies may be very compressible.
_RATIO_COUNTS_FROM: Final = 1 * MIB


def compress(chunks: Iterable[Buffer], compression: Compression) -> Iterator[Buffer]:
    """The bytes of `chunks`, compressed as one gzip member or one zlib stream, or as they are."""
    if compression == "none":
        yield from chunks
        return
    deflater = zlib.compressobj(_LEVEL, zlib.DEFLATED, WBITS[compression])
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


class InflatedStream:
    """What a compressed stream holds. Members of gzip that follow one another are joined.

    `read` raises:
        MalformedInput: not of that format (`invalid_compression`), cut short (`truncated`), or followed
            by something else (`trailing_bytes`).
        LimitExceeded: inflates to more than `limits.max_compression_ratio` times its size
            (`compression_ratio_exceeded`).
    """

    def __init__(self, source: ByteStream, compression: Compression, limits: Limits) -> None:
        self._source = source
        self._compression = compression
        self._max_ratio = limits.max_compression_ratio
        self._inflater = zlib.decompressobj(WBITS[compression])
        self._pending = b""
        self._num_members = 0
        self._bytes_in = 0
        self._bytes_out = 0

    @property
    def num_members(self) -> int:
        """How many members of gzip, or streams of zlib, were begun."""
        return self._num_members + 1

    def read(self, n: int, /) -> bytes:
        while True:
            if self._inflater.eof and not self._next_member():
                return b""
            piece = self._inflate(n)
            if piece:
                return piece
            if not self._inflater.eof and not self._pending and not self._fill():
                raise MalformedInput(
                    f"The {self._compression} body ends before its end marker.",
                    code="truncated",
                    offset=self._bytes_out,
                )

    def _fill(self) -> bool:
        self._pending = self._source.read(_READ_BYTES)
        self._bytes_in += len(self._pending)
        return bool(self._pending)

    def _next_member(self) -> bool:
        if not self._pending and not self._fill():
            return False
        if self._compression == "zlib":
            raise self._trailing()
        self._inflater = zlib.decompressobj(WBITS["gzip"])
        self._num_members += 1
        return True

    def _inflate(self, n: int) -> bytes:
        try:
            piece = self._inflater.decompress(self._pending, n)
        except zlib.error as error:
            if self._num_members and "header" in str(error):
                raise self._trailing() from None
            raise MalformedInput(
                f"The body is not valid {self._compression}: {error}.",
                code="invalid_compression",
                offset=self._bytes_out,
            ) from None
        self._pending = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail
        self._bytes_out += len(piece)
        self._check_ratio()
        return piece

    def _check_ratio(self) -> None:
        consumed = self._bytes_in - len(self._pending)
        if self._bytes_out > max(_RATIO_COUNTS_FROM, self._max_ratio * consumed):
            raise LimitExceeded(
                f"The body inflates to more than {self._max_ratio} times its size; send it uncompressed.",
                code="compression_ratio_exceeded",
                offset=self._bytes_out,
            )

    def _trailing(self) -> MalformedInput:
        return MalformedInput(
            f"Something that is not {self._compression} follows the end of the compressed body.",
            code="trailing_bytes",
            offset=self._bytes_out,
        )


class RescuedStream(InflatedStream):
    """What a damaged compressed stream holds before the damage, to the last byte; then it ends.

    Attributes:
        broken: what was wrong, once the end is reached. The rest of the source was read and dropped.
    """

    def __init__(self, source: ByteStream, compression: Compression, limits: Limits) -> None:
        super().__init__(source, compression, limits)
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

    def _inflate(self, n: int) -> bytes:
        before, pending = self._inflater.copy(), self._pending
        try:
            return super()._inflate(n)
        except MalformedInput:
            # What that call had inflated is gone with its exception.
            self._rescued = _inflate_bytewise(before, pending)
            raise


def _inflate_bytewise(inflater: zlib._Decompress, data: bytes) -> bytes:
    """All that comes out before the byte that is wrong."""
    inflated = bytearray()
    with contextlib.suppress(zlib.error):
        for index in range(len(data)):
            inflated += inflater.decompress(data[index : index + 1])
    return bytes(inflated)
