"""TFRecord framing: u64 length, u32 masked CRC32C of it, payload, u32 masked CRC32C of the payload.

Source: `tensorflow/core/lib/io/record_writer.h`; all numbers are little-endian. TFRecord has no footer,
so a file that is cut between two records looks whole; any other cut is refused here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from ...domain.compression import Compression
from ...domain.limits import KIB
from ...errors import InputError, LimitExceeded, MalformedInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream, ViewStream, peek
from .. import kernels
from ..columns import MAX_BATCH_ROWS
from ..compression.inflate import InflatedStream
from ..compression.tfrecord import detect_compression
from ..kernels.messages import framing as frames
from ..kernels.messages.framing import BAD_DATA, FOOTER_BYTES, INCOMPLETE, TOO_LARGE

#: The bytes of a frame before the payload, and around it.
HEADER_BYTES: Final = frames.HEADER_BYTES
OVERHEAD_BYTES: Final = frames.OVERHEAD_BYTES
#: Frames are read and written in blocks of this size; a larger record gets its own.
BLOCK_BYTES: Final = 512 * KIB

_MASK_DELTA: Final = 0xA282EAD8


@dataclass(frozen=True, slots=True, eq=False)
class FrameBlock:
    """Some whole records that follow one another, with all checksums verified.

    Attributes:
        data: their frames; nothing else writes to this memory.
        starts: int64, where each payload begins in `data`.
        sizes: int64, bytes of each payload.
        first_record: number of the first record in the whole input.
        offset: of `data` in the uncompressed input.
    """

    data: memoryview
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    first_record: int
    offset: int

    @property
    def num_records(self) -> int:
        return len(self.starts)

    @property
    def ends(self) -> NDArray[np.int64]:
        """Where each frame ends in `data`, and the next one begins."""
        return self.starts + self.sizes + FOOTER_BYTES

    def part(self, first: int, last: int) -> FrameBlock:
        """The records `first` up to `last` of this block, of which there is one at least."""
        if last - first == self.num_records:
            return self
        begin = int(self.starts[first]) - HEADER_BYTES
        end = int(self.starts[last - 1] + self.sizes[last - 1]) + FOOTER_BYTES
        return FrameBlock(
            self.data[begin:end],
            self.starts[first:last] - begin,
            self.sizes[first:last],
            self.first_record + first,
            self.offset + begin,
        )


@dataclass(frozen=True, slots=True)
class Stop:
    """Why and where a scan ended.

    Attributes:
        reason: as `kernels.framing` names them; 0 where the window may hold more frames.
        position: of the next frame, in the window.
        needed: how many bytes of that frame must be there to go on.
    """

    reason: int
    position: int
    needed: int

    def is_fault(self, window: FrameWindow) -> bool:
        """Whether the stream goes on with something else than a good frame."""
        if self.reason == INCOMPLETE:
            return window.ended and self.position < window.filled
        return self.reason != 0


class FrameWindow:
    """A stretch of a stream in memory: `data[:filled]` holds its bytes from `offset` on.

    What it holds does not depend on how the stream hands out its bytes, unless it is a `ViewStream`, which is
    read without a copy. `data` is charged to `budget`, and is not written to once frames of it have been
    returned.
    """

    def __init__(self, stream: ByteStream, budget: Budget) -> None:
        self.data = np.empty(0, np.uint8)
        self.filled = 0
        self.offset = 0
        self.ended = False
        self._stream = stream
        self._budget = budget
        self._charged = 0
        self._is_view = False
        self._scan_frames = kernels.load().scan_frames

    def close(self) -> None:
        """Give back the memory."""
        self._replace(np.empty(0, np.uint8), 0)

    def advance(self, position: int, needed: int) -> None:
        """Drop what lies before `position`, and read on, for `needed` bytes in all at most.

        Raises:
            LimitExceeded: more memory than the budget has.
            InputError: whatever the stream raises.
        """
        carried = self.filled - position
        self.offset += position
        if not carried and isinstance(self._stream, ViewStream):
            self._adopt(self._stream.read_view())
            self.ended = not self.filled or self._stream.ended
            return
        # Not more than twice what has come: the length of a frame is only a claim.
        size = min(max(needed, BLOCK_BYTES), max(BLOCK_BYTES, 2 * carried))
        if self._is_view:  # which takes no memory here
            self._replace(self.data, 0)
        self._budget.charge(size, "A block of records")
        data = np.empty(size, np.uint8)
        data[:carried] = self.data[position : self.filled]
        self._replace(data, size)
        self._is_view = False
        self.filled = carried
        self._fill()

    def _replace(self, data: NDArray[np.uint8], charged: int) -> None:
        """Go on with `data`, for which `charged` bytes were charged."""
        self._budget.release(self._charged)
        self.data, self._charged = data, charged

    def _adopt(self, view: memoryview) -> None:
        """Look for frames where the bytes lie."""
        # Charged as a block that is copied: what a request may hold does not depend on how it arrives.
        self._budget.charge(BLOCK_BYTES, "A block of records")
        self._replace(np.frombuffer(view, np.uint8), BLOCK_BYTES)
        self._is_view = True
        self.filled = len(view)

    def _fill(self) -> None:
        while self.filled < len(self.data):
            piece = self._stream.read(len(self.data) - self.filled)
            if not piece:
                self.ended = True
                return
            end = self.filled + len(piece)
            self.data[self.filled : end] = np.frombuffer(piece, np.uint8)
            self.filled = end

    def scan(
        self, position: int, first_record: int, *, most: int = MAX_BATCH_ROWS
    ) -> tuple[FrameBlock | None, Stop]:
        """The whole frames of about a block from `position`, `most` at most, and why there are no more."""
        starts, sizes = np.empty((2, most), np.int64)
        stop = np.zeros(3, np.int64)
        limit = self._budget.limits.max_record_bytes
        end = min(self.filled, position + BLOCK_BYTES)
        count = self._scan_frames(self.data, position, end, limit, starts, sizes, stop)
        if not count and stop[0] == INCOMPLETE and end < self.filled:
            end = min(self.filled, position + int(stop[2]))
            count = self._scan_frames(self.data, position, end, limit, starts, sizes, stop)
        reason, after, needed = stop.tolist()
        if reason == INCOMPLETE and end < self.filled:
            reason = 0  # as far as it was looked
        if not count:
            return None, Stop(reason, after, needed)
        found = FrameBlock(
            self.data.data[position:after].toreadonly(),
            starts[:count] - position,
            sizes[:count].copy(),
            first_record,
            self.offset + position,
        )
        return found, Stop(reason, after, needed)


def masked_crc32c(*buffers: Buffer) -> int:
    """The masked CRC32C of the bytes of all `buffers`, one after the other."""
    return _crc_of(buffers).mask()


class RunningCrc:
    """The CRC32C of bytes that come one after the other."""

    def __init__(self) -> None:
        self._extend = kernels.load().extend_crc
        self._crc = np.uint64(0)

    def extend(self, buffer: Buffer) -> None:
        """Take `buffer` into it."""
        data = np.frombuffer(buffer, np.uint8)
        self._crc = np.uint64(self._extend(self._crc, data, 0, len(data)))

    @property
    def value(self) -> int:
        """The CRC32C of what was taken so far."""
        return int(self._crc)

    def mask(self) -> int:
        """The same, masked."""
        value = self.value
        return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF

    def footer(self) -> bytes:
        """The 4 bytes behind the payload that was taken."""
        return struct.pack("<I", self.mask())


@lru_cache(maxsize=1024)  # of 12 bytes each: many tensors of a file have the same shape
def frame_header(length: int) -> bytes:
    """The 12 bytes before a payload of `length` bytes."""
    encoded = struct.pack("<Q", length)
    return encoded + struct.pack("<I", masked_crc32c(encoded))


def frame_footer(*buffers: Buffer) -> bytes:
    """The 4 bytes behind the payload that `buffers` make up."""
    return _crc_of(buffers).footer()


def _crc_of(buffers: Iterable[Buffer]) -> RunningCrc:
    crc = RunningCrc()
    for buffer in buffers:
        crc.extend(buffer)
    return crc


def iter_frames(
    source: ByteStream, budget: Budget, *, compression: Compression | None = None
) -> Iterator[FrameBlock]:
    """The records of a TFRecord stream, in blocks of about 512 KiB and at most `MAX_BATCH_ROWS` records.

    Blocks do not depend on how `source` hands out its bytes, unless it is a `ViewStream`: then they end where
    its stretches end, and are not copied. The memory of a block is charged to `budget` until the next block
    is drawn. The offset of an error is where the frame of the faulty record begins; the bytes before it are
    whole records.

    Args:
        compression: None looks at the first bytes.

    Raises:
        MalformedInput: a checksum does not match (`corrupt_record`), the stream ends inside a record
            (`truncated`), or the compression is broken (see `InflatedStream`).
        LimitExceeded: a record above `limits.max_record_bytes` (`record_too_large`), the budget, the
            compression ratio.
    """
    return _FrameReader(decompress(source, compression, budget), budget).blocks()


def decompress(source: ByteStream, compression: Compression | None, budget: Budget) -> ByteStream:
    """The stream of frames in `source`, which is inflated if it is compressed.

    Args:
        compression: None looks at the first bytes.
    """
    if compression == "none":
        return source
    if compression is not None:
        return _inflate_unless_empty(source, compression, budget)
    head, rest = peek(source, HEADER_BYTES)
    if len(head) == HEADER_BYTES and head == frame_header(int.from_bytes(head[:8], "little")):
        return rest
    detected = detect_compression(head)
    return rest if detected is None else InflatedStream(rest, detected, budget)


def _inflate_unless_empty(source: ByteStream, compression: Compression, budget: Budget) -> ByteStream:
    head, rest = peek(source, 1)
    if not head:
        return rest  # As in TensorFlow, an empty file has no records, whatever its compression.
    return InflatedStream(rest, compression, budget)


class _FrameReader:
    """Reads whole frames from a window that it moves along the stream, up to the first fault."""

    def __init__(self, stream: ByteStream, budget: Budget) -> None:
        self._budget = budget
        self._window = FrameWindow(stream, budget)
        self._records = 0

    def blocks(self) -> Iterator[FrameBlock]:
        window = self._window
        try:
            position, needed = 0, BLOCK_BYTES
            while not window.ended:
                window.advance(position, needed)
                position, needed = 0, 0
                while not needed:
                    found, stop = window.scan(position, self._records)
                    position = stop.position
                    self._records += 0 if found is None else found.num_records
                    if stop.is_fault(window):
                        raise self._fault(stop)
                    if found is not None:
                        yield found
                    needed = stop.needed if stop.reason else 0
        finally:
            window.close()

    def _fault(self, stop: Stop) -> InputError:
        record, offset = self._records, self._window.offset + stop.position
        if stop.reason == INCOMPLETE:
            missing = stop.needed - (self._window.filled - stop.position)
            return cut_record(record, offset, missing, in_header=stop.needed == HEADER_BYTES)
        if stop.reason == TOO_LARGE:
            return large_record(record, offset, self._budget.limits.max_record_bytes)
        return corrupt_record(record, offset, "payload" if stop.reason == BAD_DATA else "length")


def cut_record(record: int, offset: int, missing: int, *, in_header: bool = False) -> MalformedInput:
    """The error of a record, whose frame begins at `offset`, that ends too early."""
    what = f"Record {record}, at byte {offset}, is cut short: {missing} more bytes expected."
    help_ = "Send the whole file."
    if in_header and offset == 0:
        what = f"This is no TFRecord file, or one that is cut short: {missing} more bytes expected."
        help_ = "Send the whole file, or name another format with its media type or from=."
    return MalformedInput(
        f"{what} {help_}",
        code="truncated",
        row=record,
        offset=offset,
    )


def large_record(record: int, offset: int, most: int) -> LimitExceeded:
    """The error of a record whose payload takes more than `most` bytes."""
    return LimitExceeded(
        f"Record {record}, at byte {offset}, is longer than {most} bytes, the most allowed.",
        code="record_too_large",
        row=record,
        offset=offset,
    )


def corrupt_record(record: int, offset: int, part: Literal["length", "payload"]) -> MalformedInput:
    """The error of a record of which a part is not what its checksum says."""
    what = f"Record {record}, at byte {offset}, has a {part} that does not match its checksum."
    if part == "length" and offset == 0:
        what = (
            "This is no TFRecord file, or its beginning is damaged: the first 12 bytes are not a length and "
            "its checksum. Name another format with its media type or from=."
        )
    return MalformedInput(
        what,
        code="corrupt_record",
        row=record,
        offset=offset,
    )
