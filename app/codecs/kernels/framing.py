"""TFRecord frames: u64 length, u32 masked CRC32C of it, payload, u32 masked CRC32C of the payload.

Source: `tensorflow/core/lib/io/record_writer.h`. All numbers are little-endian.
"""

from __future__ import annotations

import numpy as np

from .crc32c import crc32c, mask_crc
from .memory import Bytes, MutableBytes, MutableInts, load_word, store_u32, store_word

__all__ = [
    "BAD_DATA",
    "BAD_LENGTH",
    "FOOTER_BYTES",
    "HEADER_BYTES",
    "INCOMPLETE",
    "OVERHEAD_BYTES",
    "TOO_LARGE",
    "scan_frames",
    "write_footer",
    "write_header",
]

HEADER_BYTES = 12
FOOTER_BYTES = 4
OVERHEAD_BYTES = HEADER_BYTES + FOOTER_BYTES

#: Why `scan_frames` stopped; 0 where its arrays were full.
INCOMPLETE = 1
BAD_LENGTH = 2
TOO_LARGE = 3
BAD_DATA = 4


def write_header(out: MutableBytes, at: int, length: int) -> int:
    """Write the header of a payload of `length` bytes; the position of the payload."""
    store_word(out, at, np.uint64(length))
    store_u32(out, at + 8, mask_crc(crc32c(out, at, at + 8)))
    return at + HEADER_BYTES


def write_footer(out: MutableBytes, begin: int, end: int) -> int:
    """Write the CRC of the payload `out[begin:end]` behind it; the position of the next frame."""
    store_u32(out, end, mask_crc(crc32c(out, begin, end)))
    return end + FOOTER_BYTES


def _load_u32(data: Bytes, begin: int) -> np.uint64:
    value = np.uint64(0)
    for index in range(4):
        value |= np.uint64(data[begin + index]) << np.uint64(8 * index)
    return value


def scan_frames(
    data: Bytes,
    begin: int,
    end: int,
    max_payload: int,
    starts: MutableInts,
    sizes: MutableInts,
    stop: MutableInts,
) -> int:
    """Find and check the whole frames of `data[begin:end]`, as many as `starts` has room for.

    Args:
        starts, sizes: filled with where each payload begins, and its bytes.
        stop: filled with the reason for stopping, the position of the frame there, and how many bytes of
            that frame must be there to go on.

    Returns:
        The number of frames.
    """
    position = begin
    count = 0
    stop[0] = 0
    while count < starts.size and stop[0] == 0:
        needed = HEADER_BYTES
        if end - position >= HEADER_BYTES:
            length = load_word(data, position)
            if mask_crc(crc32c(data, position, position + 8)) != _load_u32(data, position + 8):
                stop[0] = BAD_LENGTH
            elif length > np.uint64(max_payload):
                stop[0] = TOO_LARGE
            else:
                needed = OVERHEAD_BYTES + int(np.int64(length))
        if stop[0] == 0 and end - position < needed:
            stop[0] = INCOMPLETE
        if stop[0] == 0:
            footer = position + needed - FOOTER_BYTES
            if mask_crc(crc32c(data, position + HEADER_BYTES, footer)) != _load_u32(data, footer):
                stop[0] = BAD_DATA
        stop[2] = needed
        if stop[0] == 0:
            starts[count] = position + HEADER_BYTES
            sizes[count] = needed - OVERHEAD_BYTES
            count += 1
            position += needed
    stop[1] = position
    return count
