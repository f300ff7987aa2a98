"""The good records of a damaged TFRecord stream, and what lies between them.

Behind damage, reading goes on at the next position where a length and its payload both match their
checksums. A record whose length is good is passed over whole where another one, or the end, follows
it: so TFRecord bytes inside its payload are not taken for records.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from ...domain import losses as bounds
from ...domain.compression import Compression
from ...domain.limits import KIB, MIB
from ...domain.losses import Losses, LostRange
from ...errors import UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import ByteStream, peek
from .. import kernels
from ..compression.inflate import WBITS
from ..compression.tfrecord import RescuedStream, detect_compression
from ..kernels.messages.framing import BAD_DATA, BAD_LENGTH, HEADER_BYTES, INCOMPLETE, TOO_LARGE
from .framing import BLOCK_BYTES, FrameBlock, FrameWindow, Stop, frame_header

_REASONS: Final = {
    BAD_LENGTH: "bad_length",
    BAD_DATA: "bad_payload",
    TOO_LARGE: "record_too_large",
    INCOMPLETE: "truncated",
}

#: Bytes checksummed or moved in vain, for each byte read and on top: lengths with good checksums that
#: promise long payloads could otherwise have every one of them checked, again and again.
_WORK_PER_BYTE: Final = 8
_WORK: Final = 64 * MIB
#: What a look at a good length behind damage counts as: some 12 microseconds, whatever it promises.
_LOOK_BYTES: Final = 16 * KIB

_HEAD_BYTES: Final = 64 * KIB


def good_frames(
    source: ByteStream, budget: Budget, losses: Losses, *, compression: Compression | None = None
) -> Iterator[FrameBlock]:
    """The good records of a damaged stream; what is lost is added to `losses` as they are drawn.

    Raises:
        As `salvage_frames`.
    """
    for item in salvage_frames(source, budget, compression=compression):
        if isinstance(item, LostRange):
            losses.add(item)
        else:
            yield item


def salvage_frames(
    source: ByteStream, budget: Budget, *, compression: Compression | None = None
) -> Iterator[FrameBlock | LostRange]:
    """Every byte of a TFRecord stream, in order: in blocks of good records, and in lost ranges.

    Records are numbered as they are found. Blocks and ranges do not depend on how `source` hands out
    its bytes. Of a compressed stream there is no more than what comes before the first damage.

    Args:
        compression: None looks at the first bytes.

    Raises:
        UnprocessableInput: telling good records from bad would take too long (`too_damaged`).
        LimitExceeded: the budget, the compression ratio.
    """
    if compression is None:
        head, source = peek(source, _HEAD_BYTES)
        compression = _detect(head)
    if compression == "none":
        yield from _Salvage(source, budget).items()
        return
    stream = RescuedStream(source, compression, budget)
    salvage = _Salvage(stream, budget)
    yield from salvage.items()
    if stream.broken is not None:
        yield LostRange(salvage.size, 0, stream.broken.code)


def _detect(head: bytes) -> Compression:
    """The compression of what begins with `head`: a damaged record may look like a header of one."""
    begins_with_frame = head[:HEADER_BYTES] == frame_header(int.from_bytes(head[:8], "little"))
    detected = None if begins_with_frame else detect_compression(head)
    if detected is None:
        return "none"
    try:
        zlib.decompressobj(WBITS[detected]).decompress(head, 1)
    except zlib.error:
        return "none"
    return detected


class _Salvage:
    """Finds good frames in a window over the stream, and the next one behind each fault."""

    def __init__(self, stream: ByteStream, budget: Budget) -> None:
        self._window = FrameWindow(stream, budget)
        self._max_payload = budget.limits.max_record_bytes
        self._find_header = kernels.load().find_header
        self._work = 0

    def items(self) -> Iterator[FrameBlock | LostRange]:
        window = self._window
        records, ranges, position = 0, 0, 0
        try:
            window.advance(0, BLOCK_BYTES)
            while position < window.filled or not window.ended:
                found, stop = window.scan(position, records)
                position = stop.position
                if found is not None:
                    records += found.num_records
                    yield found
                if stop.is_fault(window):
                    begin = window.offset + position
                    ranges += 1
                    if ranges > bounds.MAX_RANGES:
                        raise self._too_damaged()
                    position, is_record = self._behind(stop)
                    end = window.offset + position
                    yield LostRange(begin, end - begin, _REASONS[stop.reason], is_record)
                elif stop.reason == INCOMPLETE and not window.ended:
                    window.advance(position, stop.needed)
                    position = 0
        finally:
            window.close()

    @property
    def size(self) -> int:
        """Bytes of the stream that have been read."""
        return self._window.offset + self._window.filled

    def _behind(self, stop: Stop) -> tuple[int, bool]:
        """Where the window has the next good frame, or ends; and whether one record lies between."""
        position = stop.position
        if stop.reason == BAD_DATA:
            self._spend(stop.needed)
            position = self._with_next_header(position, stop.needed)
            end = position + stop.needed
            if end == self._window.filled or self._header_at(end):
                return end, True
        return self._next_good(position + 1), False

    def _with_next_header(self, position: int, frame_bytes: int) -> int:
        """Read on for the header behind the frame at `position`; where that frame is then."""
        window = self._window
        while window.filled < position + frame_bytes + HEADER_BYTES and not window.ended:
            window.advance(position, frame_bytes + HEADER_BYTES)
            position = 0
        return position

    def _header_at(self, position: int) -> bool:
        end = position + HEADER_BYTES
        if end > self._window.filled:
            return False
        return self._find_header(self._window.data, position, end, self._max_payload) == position

    def _next_good(self, position: int) -> int:
        window = self._window
        while True:
            found = self._find_header(window.data, position, window.filled, self._max_payload)
            if found < 0:
                if window.ended:
                    return window.filled
                window.advance(max(position, window.filled - HEADER_BYTES + 1), BLOCK_BYTES)
                position = 0
                continue
            good, stop = window.scan(found, 0, most=1)
            if good is not None:
                return found
            if stop.reason == INCOMPLETE and not window.ended:
                self._spend(window.filled - found)
                window.advance(found, stop.needed)
                position = 0
            else:
                self._spend(_LOOK_BYTES + (stop.needed if stop.reason == BAD_DATA else 0))
                position = found + 1

    def _spend(self, num_bytes: int) -> None:
        """Count work done in vain.

        Raises:
            UnprocessableInput: too much of it.
        """
        self._work += num_bytes
        if self._work > _WORK_PER_BYTE * self.size + _WORK:
            raise self._too_damaged()

    def _too_damaged(self) -> UnprocessableInput:
        return UnprocessableInput(
            "The file is damaged in too many places to tell good records from bad in time. Cut it up, and "
            "send the good parts.",
            code="too_damaged",
            offset=self._window.offset,
        )
