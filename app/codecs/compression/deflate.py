"""Compress streams so that what goes in comes out soon: gzip, zstd.

Sources: RFC 1952 (gzip), RFC 8878 (zstd).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, Protocol

from ...domain.limits import KIB
from ...runtime.streams import Buffer
from . import zstd
from .inflate import WBITS

Coding = Literal["gzip", "zstd"]

#: As nginx (`gzip_comp_level`): the higher levels take several times as long for a few per cent.
_GZIP_LEVEL: Final = 1
#: Bytes between two flushes: zstd's largest block (RFC 8878, section 3.1.1.2.4).
_BLOCK_BYTES: Final = 128 * KIB


class _Compressor(Protocol):
    def compress(self, data: Buffer, /) -> bytes: ...

    def flush(self) -> bytes:
        """The compressed bytes that were held back so far."""
        ...

    def end(self) -> bytes: ...


class _Gzip:
    def __init__(self) -> None:
        self._deflater = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, WBITS["gzip"])

    def compress(self, data: Buffer, /) -> bytes:
        return self._deflater.compress(data)

    def flush(self) -> bytes:
        return self._deflater.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._deflater.flush()


class _Zstd:
    def __init__(self) -> None:
        self._compressor = zstd.compressor()

    def compress(self, data: Buffer, /) -> bytes:
        return self._compressor.compress(data)

    def flush(self) -> bytes:
        return self._compressor.flush(zstd.FLUSH_BLOCK)

    def end(self) -> bytes:
        return self._compressor.flush()


_COMPRESSORS: Final[dict[Coding, Callable[[], _Compressor]]] = {"gzip": _Gzip, "zstd": _Zstd}


def compress_as_it_comes(chunks: Iterable[Buffer], coding: Coding) -> Iterator[bytes]:
    """The bytes of `chunks`, as one member of gzip or one frame of zstd.

    While the next chunk is drawn, less than 128 KiB of the earlier ones are held back.
    """
    compressor = _COMPRESSORS[coding]()
    held = 0
    for chunk in chunks:
        for block in _blocks(chunk):
            piece = compressor.compress(block)
            held += len(block)
            if held >= _BLOCK_BYTES:
                piece += compressor.flush()
                held = 0
            if piece:
                yield piece
    yield compressor.end()


def _blocks(chunk: Buffer) -> Iterator[memoryview]:
    view = memoryview(chunk).cast("B")
    for start in range(0, len(view), _BLOCK_BYTES):
        yield view[start : start + _BLOCK_BYTES]
