"""TFRecord framing: u64 length, u32 masked CRC32C of it, payload, u32 masked CRC32C of the payload.

Source: `tensorflow/core/lib/io/record_writer.h`; all numbers are little-endian. TFRecord has no footer,
so a file that is cut between two records looks whole; any other cut is refused here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, Literal

import numpy as np

from ...domain.compression import Compression
from ...domain.limits import KIB
from ...errors import InputError, LimitExceeded, MalformedInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream, peek
from .. import kernels
from ..compression.inflate import InflatedStream
from ..compression.tfrecord import compress, detect_compression
from ..kernels.framing import BAD_DATA, HEADER_BYTES, INCOMPLETE, OVERHEAD_BYTES, TOO_LARGE
from .frame_window import FrameBlock, FrameWindow, Stop

__all__ = [
    "BLOCK_BYTES",
    "HEADER_BYTES",
    "OVERHEAD_BYTES",
    "FrameBlock",
    "RunningCrc",
    "compress",
    "corrupt_record",
    "cut_record",
    "frame_footer",
    "frame_header",
    "iter_frames",
    "large_record",
    "masked_crc32c",
    "uncompressed",
]

#: Frames are read and written in blocks of this size; a larger record gets its own. Blocks of 1 MiB go
#: back to the system as they are freed, and touching new pages took a third of the time of decoding.
BLOCK_BYTES: Final = 512 * KIB

_MASK_DELTA: Final = 0xA282EAD8


def masked_crc32c(*buffers: Buffer) -> int:
    """The masked CRC32C of the bytes of all `buffers`, one after the other."""
    return _crc_of(buffers).masked()


class RunningCrc:
    """The CRC32C of bytes that come one after the other."""

    def __init__(self) -> None:
        self._extend = kernels.load().extend_crc
        self._crc = np.uint64(0)

    def extend(self, buffer: Buffer) -> None:
        """Take `buffer` into it."""
        data = np.frombuffer(buffer, np.uint8)
        self._crc = np.uint64(self._extend(self._crc, data, 0, len(data)))

    def masked(self) -> int:
        """The masked CRC32C of what was taken so far."""
        value = int(self._crc)
        return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF

    def footer(self) -> bytes:
        """The 4 bytes behind the payload that was taken."""
        return struct.pack("<I", self.masked())


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
    its stretches do, and lie there. A block's memory is charged to `budget` until
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
    return _FrameReader(uncompressed(source, compression, budget), budget).blocks()


def uncompressed(source: ByteStream, compression: Compression | None, budget: Budget) -> ByteStream:
    """What `source` holds once it is inflated, where it has to be.

    Args:
        compression: None looks at the first bytes.
    """
    if compression == "none":
        return source
    if compression is not None:
        return _inflated_unless_empty(source, compression, budget)
    head, rest = peek(source, HEADER_BYTES)
    if len(head) == HEADER_BYTES and head == frame_header(int.from_bytes(head[:8], "little")):
        return rest
    detected = detect_compression(head)
    return rest if detected is None else InflatedStream(rest, detected, budget)


def _inflated_unless_empty(source: ByteStream, compression: Compression, budget: Budget) -> ByteStream:
    head, rest = peek(source, 1)
    if not head:
        return rest  # TensorFlow, too, reads an empty file as no records, whatever the compression.
    return InflatedStream(rest, compression, budget)


class _FrameReader:
    """Hands out the whole frames of a window, and moves it on; the first fault ends it."""

    def __init__(self, stream: ByteStream, budget: Budget) -> None:
        self._budget = budget
        self._window = FrameWindow(stream, budget, BLOCK_BYTES)
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
        help_ = "Send the whole file, or name another form with Content-Type or ?from=."
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
            "its checksum. Name another form with Content-Type or ?from=."
        )
    return MalformedInput(
        what,
        code="corrupt_record",
        row=record,
        offset=offset,
    )
