"""The content of an answer made of parts of a file: read in a thread, a piece ahead, and verified."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import partial
from hashlib import sha256
from typing import Final

from ...domain.limits import MIB
from ...errors import CorruptData
from ...runtime.segments import Segment, SegmentedFile
from .ranges import ByteRange

#: What is sent: bytes, and ranges of the file.
Content = tuple[bytes | ByteRange, ...]

#: Read and sent at a time. One is under way while another is sent.
PIECE_BYTES: Final = 2 * MIB


def content_size(content: Content) -> int:
    """Its length in bytes."""
    return sum(len(part) if isinstance(part, bytes) else part.length for part in content)


async def content_pieces(
    call: Callable[[Callable[[], bytes]], Awaitable[bytes]], file: SegmentedFile, content: Content
) -> AsyncGenerator[bytes, None]:
    """The bytes of `content`, piece by piece.

    Raises:
        CorruptData: the file is shorter than it should be; or a segment of which all was drawn has
            another SHA-256: then its last piece does not come.
    """
    reads = _reads(file, content)
    following = _start(call, next(reads, None))
    try:
        while following is not None:
            piece = await following
            following = _start(call, next(reads, None))
            yield piece
    finally:
        if following is not None and not following.cancel() and not following.cancelled():
            following.exception()  # seen, so that asyncio does not log it


def _start(
    call: Callable[[Callable[[], bytes]], Awaitable[bytes]], piece: bytes | Callable[[], bytes] | None
) -> asyncio.Future[bytes] | None:
    if piece is None:
        return None
    if isinstance(piece, bytes):
        known: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        known.set_result(piece)
        return known
    return asyncio.ensure_future(call(piece))


def _reads(file: SegmentedFile, content: Content) -> Iterator[bytes | Callable[[], bytes]]:
    """The pieces, or calls that read them, to be made one after the other."""
    verified = _VerifiedFile(file)
    offsets = [segment.offset for segment in file.segments]
    for part in content:
        if isinstance(part, bytes):
            yield part
            continue
        position = part.offset
        number = bisect_right(offsets, position) - 1
        while position < part.end:
            segment = file.segments[number]
            length = min(PIECE_BYTES, segment.end - position, part.end - position)
            if length:
                yield partial(verified.read, segment, position, length)
            position += length
            number += position == segment.end


class _VerifiedFile:
    """Compares the SHA-256 of each segment that is read from its beginning to its end."""

    def __init__(self, file: SegmentedFile) -> None:
        self._file = file
        self._hash = sha256()
        self._position = 0

    def read(self, segment: Segment, offset: int, length: int) -> bytes:
        """`length` bytes of `segment` from `offset` of the file.

        Raises:
            CorruptData: there are fewer, or they complete a segment that has another SHA-256.
        """
        data = self._file.read_at(offset, length)
        if len(data) != length:
            raise CorruptData("A stored file is shorter than its manifest says.")
        if segment.sha256 is None:
            return data
        if offset == segment.offset:
            self._hash, self._position = sha256(), offset
        if self._position == offset:
            self._hash.update(data)
            self._position += length
            if self._position == segment.end and self._hash.hexdigest() != segment.sha256:
                raise CorruptData("A stored file does not have the SHA-256 that its manifest says.")
        return data
