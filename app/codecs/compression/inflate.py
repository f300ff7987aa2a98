"""Compressed streams, inflated as they arrive and within bounds: gzip, zlib, zstd.

Sources: RFC 1950 (zlib), RFC 1952 (gzip), RFC 8878 (zstd).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Final, Literal, Protocol

from ...domain.compression import Compression
from ...domain.limits import KIB, MIB
from ...errors import InputError, LimitExceeded, MalformedInput
from ...runtime.amplification import Amplification
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream, read_up_to
from . import zstd

Container = Compression | Literal["zstd"]

#: zlib's `wbits`: a window of 32 KiB, in the container of that name.
WBITS: Final[dict[Compression, int]] = {"zlib": 15, "gzip": 31}

#: Bytes collected before they are inflated, so that results and errors do not depend on how the body arrives.
_READ_BYTES: Final = 64 * KIB
#: What a decompressor is given at one time. It copies what it leaves: more would make small members slow.
_FED_BYTES: Final = 16 * KIB
#: What it gives at one time, however much is asked for.
_MOST_BYTES: Final = 1 * MIB
#: Small bodies may be very compressible.
_RATIO_COUNTS_FROM: Final = 1 * MIB

#: The least average size of members or frames where there are many: beginning one takes up to 16 us.
_LEAST_MEMBER_BYTES: Final = 64

#: Texts in the errors of the libraries: a bad header, and a window that is too large.
_NO_BEGINNING: Final = ("header", "Unknown frame descriptor")
_LARGE_WINDOW: Final = "too much memory"


class Decompressor(Protocol):
    """One member, stream or frame; as `bz2`, `lzma` and `zstd` of the standard library have it."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: Buffer, max_length: int) -> bytes: ...


class ZlibDecompressor:
    """A member of gzip, or a stream of zlib."""

    def __init__(self, inflater: zlib._Decompress) -> None:
        self._inflater = inflater

    @property
    def eof(self) -> bool:
        return self._inflater.eof

    @property
    def needs_input(self) -> bool:
        return not self._inflater.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inflater.unused_data

    @property
    def held(self) -> bytes:
        """Input that it was given and has not used."""
        return self._inflater.unconsumed_tail

    def decompress(self, data: Buffer, max_length: int) -> bytes:
        return self._inflater.decompress(data or self._inflater.unconsumed_tail, max_length)

    def copy(self) -> ZlibDecompressor:
        """Another one that goes on from here."""
        return ZlibDecompressor(self._inflater.copy())


_DECOMPRESSORS: Final[Mapping[Container, Callable[[], Decompressor]]] = {
    "gzip": lambda: ZlibDecompressor(zlib.decompressobj(WBITS["gzip"])),
    "zlib": lambda: ZlibDecompressor(zlib.decompressobj(WBITS["zlib"])),
    "zstd": zstd.decompressor,
}


class InflatedStream:
    """What a compressed stream holds. Members of gzip, or frames of zstd, in a row are joined.

    `read` raises:
        MalformedInput: not of that format (`invalid_compression`), cut short (`truncated`), or followed
            by something else (`trailing_bytes`).
        LimitExceeded: inflates to more than `limits.max_amplification` times what has been read, or has
            arrived of the request's body (`compression_ratio_exceeded`), needs a window of more than 8 MiB
            (`compression_window_exceeded`), or has more than `limits.max_members` members or frames of less
            than 64 bytes on average (`too_many_members`).
    """

    def __init__(self, source: ByteStream, container: Container, budget: Budget) -> None:
        self._source = source
        self._container = container
        self._budget = budget
        self._amplification = Amplification(
            budget.limits.max_amplification, lambda: self._bytes_in, allowance=_RATIO_COUNTS_FROM
        )
        self._max_members = budget.limits.max_members
        self._inflater = _DECOMPRESSORS[container]()
        self._buffer = memoryview(b"")
        self._position = 0
        self._num_members = 0
        self._bytes_in = 0
        self._bytes_out = 0

    @property
    def num_members(self) -> int:
        """How many members of gzip, streams of zlib or frames of zstd were begun."""
        return self._num_members + 1

    def read(self, n: int, /) -> bytes:
        while True:
            if self._inflater.eof and not self._next_member():
                return b""
            piece = self._inflate(min(n, _MOST_BYTES))
            if piece:
                return piece
            if not self._inflater.eof and self._inflater.needs_input and not self._fill():
                raise MalformedInput(
                    f"The {self._container} body ends before its end marker. Send all of it.",
                    code="truncated",
                    offset=self._bytes_out,
                )

    def _fill(self) -> bool:
        """Read more input if necessary; whether there is any."""
        if self._position == len(self._buffer):
            self._buffer, self._position = memoryview(read_up_to(self._source, _READ_BYTES)), 0
            self._bytes_in += len(self._buffer)
        return bool(self._buffer)

    def _next_member(self) -> bool:
        if not self._fill():
            return False
        if self._container == "zlib":
            raise self._trailing_error()
        self._inflater = _DECOMPRESSORS[self._container]()
        self._num_members += 1
        if self._num_members > self._max_members + self._bytes_in // _LEAST_MEMBER_BYTES:
            raise LimitExceeded(
                f"The {self._container} body is made of very many small parts; compress it as one.",
                code="too_many_members",
                offset=self._bytes_out,
            )
        return True

    def _inflate(self, n: int) -> bytes:
        fed = _FED_BYTES if self._inflater.needs_input else 0
        data = self._buffer[self._position : self._position + fed]
        self._position += len(data)
        try:
            piece = self._decompress(data, n)
        except (zlib.error, zstd.ZstdError) as error:
            raise self._refusal(str(error)) from None
        if self._inflater.eof:
            self._position -= len(self._inflater.unused_data)
        self._bytes_out += len(piece)
        self._amplification.add("inflated", len(piece), offset=self._bytes_out)
        self._budget.amplify("inflated", len(piece), offset=self._bytes_out)
        return piece

    def _decompress(self, data: memoryview, n: int) -> bytes:
        return self._inflater.decompress(data, n)

    def _refusal(self, error: str) -> InputError:
        """The error to raise for an error of the library."""
        if _LARGE_WINDOW in error:
            return LimitExceeded(
                f"The {self._container} body needs a window of more than {zstd.WINDOW_BYTES} bytes. "
                "Compress it with a smaller one.",
                code="compression_window_exceeded",
                offset=self._bytes_out,
            )
        if self._num_members and any(text in error for text in _NO_BEGINNING):
            return self._trailing_error()
        return MalformedInput(
            f"The body is not valid {self._container}: {error}.",
            code="invalid_compression",
            offset=self._bytes_out,
        )

    def _trailing_error(self) -> MalformedInput:
        return MalformedInput(
            f"Something that is not {self._container} follows the end of the compressed body. "
            "Send the compressed bytes alone.",
            code="trailing_bytes",
            offset=self._bytes_out,
        )
