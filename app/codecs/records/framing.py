"""TFRecord framing: u64 length, u32 masked CRC32C of it, payload, u32 masked CRC32C of the payload.

Source: `tensorflow/core/lib/io/record_writer.h`; all numbers are little-endian. TFRecord has no footer,
so a file that is cut between two records looks whole; any other cut is refused here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...domain.compression import Compression
from ...domain.limits import KIB, Budget
from ...domain.streams import Buffer, ByteStream, PrefixedStream
from ...errors import InputError, LimitExceeded, MalformedInput
from .. import kernels
from ..kernels.framing import BAD_DATA, HEADER_BYTES, INCOMPLETE, OVERHEAD_BYTES, TOO_LARGE
from .columns import MAX_BATCH_ROWS
from .compression import InflatedStream, compress, detect_compression

__all__ = [
    "BLOCK_BYTES",
    "HEADER_BYTES",
    "OVERHEAD_BYTES",
    "FrameBlock",
    "compress",
    "frame_footer",
    "frame_header",
    "iter_frames",
    "masked_crc32c",
]

#: Frames are read and written in blocks of this size; a larger record gets its own. Blocks of 1 MiB go
#: back to the system as they are freed, and touching new pages took a third of the time of decoding.
BLOCK_BYTES: Final = 512 * KIB

_MASK_DELTA: Final = 0xA282EAD8


def masked_crc32c(*buffers: Buffer) -> int:
    """The masked CRC32C of the bytes of all `buffers`, one after the other."""
    extend_crc = kernels.load().extend_crc
    crc = np.uint64(0)
    for buffer in buffers:
        data = np.frombuffer(buffer, np.uint8)
        crc = np.uint64(extend_crc(crc, data, 0, len(data)))
    value = int(crc)
    return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF


def frame_header(length: int) -> bytes:
    """The 12 bytes before a payload of `length` bytes."""
    encoded = struct.pack("<Q", length)
    return encoded + struct.pack("<I", masked_crc32c(encoded))


def frame_footer(*buffers: Buffer) -> bytes:
    """The 4 bytes behind the payload that `buffers` make up."""
    return struct.pack("<I", masked_crc32c(*buffers))


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

    def part(self, first: int, last: int) -> FrameBlock:
        """The records `first` up to `last` of this block, of which there is one at least."""
        if last - first == self.num_records:
            return self
        begin = int(self.starts[first]) - HEADER_BYTES
        end = int(self.starts[last - 1] + self.sizes[last - 1]) + OVERHEAD_BYTES - HEADER_BYTES
        return FrameBlock(
            self.data[begin:end],
            self.starts[first:last] - begin,
            self.sizes[first:last],
            self.first_record + first,
            self.offset + begin,
        )


def iter_frames(
    source: ByteStream, budget: Budget, *, compression: Compression | None = None
) -> Iterator[FrameBlock]:
    """The records of a TFRecord stream, in blocks of about 512 KiB and at most `MAX_BATCH_ROWS` records.

    Blocks do not depend on how `source` hands out its bytes. A block's memory is charged to `budget` until
    the next one is drawn. The offset of an error is where the frame of the faulty record begins: the
    bytes before it are a whole file.

    Args:
        compression: None looks at the first bytes.

    Raises:
        MalformedInput: a checksum does not match (`corrupt_record`), the stream ends inside a record
            (`truncated`), or the compression is broken (see `InflatedStream`).
        LimitExceeded: a record above `limits.max_record_bytes` (`record_too_large`), the budget, the
            compression ratio.
    """
    return _FrameReader(_uncompressed(source, compression, budget), budget).blocks()


def _uncompressed(source: ByteStream, compression: Compression | None, budget: Budget) -> ByteStream:
    if compression == "none":
        return source
    if compression is not None:
        return _inflated_unless_empty(source, compression, budget)
    head = _read_head(source)
    rest = PrefixedStream(head, source)
    if len(head) == HEADER_BYTES and head == frame_header(int.from_bytes(head[:8], "little")):
        return rest
    detected = detect_compression(head)
    return rest if detected is None else InflatedStream(rest, detected, budget.limits)


def _inflated_unless_empty(source: ByteStream, compression: Compression, budget: Budget) -> ByteStream:
    head = source.read(1)
    if not head:
        return source  # TensorFlow, too, reads an empty file as no records, whatever the compression.
    return InflatedStream(PrefixedStream(head, source), compression, budget.limits)


def _read_head(source: ByteStream) -> bytes:
    head = b""
    while len(head) < HEADER_BYTES and (piece := source.read(HEADER_BYTES - len(head))):
        head += piece
    return head


class _FrameReader:
    """Fills a block, finds the whole frames in it, and carries the rest over to the next one."""

    def __init__(self, stream: ByteStream, budget: Budget) -> None:
        self._stream = stream
        self._budget = budget
        self._scan = kernels.load().scan_frames
        self._block = np.empty(0, np.uint8)
        self._filled = 0
        self._ended = False
        self._records = 0
        self._offset = 0  # of the block in the stream

    def blocks(self) -> Iterator[FrameBlock]:
        try:
            needed = BLOCK_BYTES
            position = 0
            while not self._ended:
                self._replace_block(position, needed)
                self._fill()
                position, needed = 0, 0
                while not needed:
                    found, after, needed = self._scan_from(position)
                    if found is not None:
                        yield found
                    position = after
        finally:
            self._budget.release(len(self._block))

    def _replace_block(self, position: int, needed: int) -> None:
        """Make room for `needed` bytes in a fresh block that begins with what lies from `position`."""
        carried = self._filled - position
        # Not more than twice what has come: the length of a frame is only a claim.
        size = min(max(needed, BLOCK_BYTES), max(BLOCK_BYTES, 2 * carried))
        self._budget.charge(size, "A block of records")
        block = np.empty(size, np.uint8)
        block[:carried] = self._block[position : self._filled]
        self._budget.release(len(self._block))
        self._block = block
        self._filled = carried
        self._offset += position

    def _fill(self) -> None:
        while self._filled < len(self._block):
            piece = self._stream.read(len(self._block) - self._filled)
            if not piece:
                self._ended = True
                return
            end = self._filled + len(piece)
            self._block[self._filled : end] = np.frombuffer(piece, np.uint8)
            self._filled = end

    def _scan_from(self, position: int) -> tuple[FrameBlock | None, int, int]:
        """The whole frames from `position`; where the next one begins; how many bytes that one needs.

        The last is 0 where the block may hold more of them.
        """
        starts = np.empty(MAX_BATCH_ROWS, np.int64)
        sizes = np.empty(MAX_BATCH_ROWS, np.int64)
        stop = np.zeros(3, np.int64)
        limit = self._budget.limits.max_record_bytes
        count = self._scan(self._block, position, self._filled, limit, starts, sizes, stop)
        reason, after, needed = (int(value) for value in stop)
        at_end = self._ended and after == self._filled
        if reason not in (0, INCOMPLETE) or (reason == INCOMPLETE and self._ended and not at_end):
            raise self._fault(reason, self._records + count, after, needed)
        if not count:
            return None, after, needed
        found = FrameBlock(
            self._block.data[position:after].toreadonly(),
            starts[:count] - position,
            sizes[:count].copy(),
            self._records,
            self._offset + position,
        )
        self._records += count
        return found, after, needed if reason else 0

    def _fault(self, reason: int, record: int, position: int, needed: int) -> InputError:
        offset = self._offset + position
        where = f"Record {record}, at byte {offset},"
        if reason == INCOMPLETE:
            missing = needed - (self._filled - position)
            return MalformedInput(
                f"{where} is cut short: {missing} more bytes expected. Send the whole file.",
                code="truncated",
                row=record,
                offset=offset,
            )
        if reason == TOO_LARGE:
            return LimitExceeded(
                f"{where} is longer than {self._budget.limits.max_record_bytes} bytes, the most allowed.",
                code="record_too_large",
                row=record,
                offset=offset,
            )
        part = "payload" if reason == BAD_DATA else "length"
        return MalformedInput(
            f"{where} has a {part} that does not match its checksum.",
            code="corrupt_record",
            row=record,
            offset=offset,
        )
