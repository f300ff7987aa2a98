"""TFRecord frames: u64 length, u32 masked CRC32C of it, payload, u32 masked CRC32C of the payload.

Source: `tensorflow/core/lib/io/record_writer.h`. All numbers are little-endian.
"""

from __future__ import annotations

import numpy as np

from ..addresses import copy_from, raw_address
from ..crc32c import LANES_BYTES, crc32c, mask_crc, three_crcs, word_crc
from ..memory import Bytes, Ints, MutableBytes, MutableInts, load_word, raw_load, store_word

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
    _store_crc(out, at + 8, word_crc(out, at))
    return at + HEADER_BYTES


def write_footer(out: MutableBytes, begin: int, end: int) -> int:
    """Write the CRC of the payload `out[begin:end]` behind it; the position of the next frame."""
    _store_crc(out, end, crc32c(out, begin, end))
    return end + FOOTER_BYTES


def write_footers(out: MutableBytes, begin: int, end: int) -> None:
    """Write the payloads' CRCs of the frames `out[begin:end]`, whose headers are there."""
    position = begin
    while position < end:
        first = position + HEADER_BYTES
        first_end = _payload_end(out, position)
        second = first_end + OVERHEAD_BYTES
        second_end = _payload_end(out, first_end + FOOTER_BYTES) if second <= end else end
        third = second_end + OVERHEAD_BYTES
        third_end = _payload_end(out, second_end + FOOTER_BYTES) if third <= end else end
        if third <= end and max(first_end - first, second_end - second, third_end - third) < LANES_BYTES:
            one, two, three = three_crcs(out, first, first_end, second, second_end, third, third_end)
            _store_crc(out, first_end, one)
            _store_crc(out, second_end, two)
            _store_crc(out, third_end, three)
            position = third_end + FOOTER_BYTES
        else:
            position = write_footer(out, first, first_end)


def _payload_end(out: Bytes, position: int) -> int:
    return position + HEADER_BYTES + int(np.int64(load_word(out, position)))


def _store_crc(out: MutableBytes, at: int, crc: np.uint64) -> None:
    """Store the masked CRC as four bytes, with the four before it, which stay as they are."""
    before = load_word(out, at - 4) & np.uint64(0xFFFFFFFF)
    store_word(out, at - 4, before | (mask_crc(crc) << np.uint64(32)))


def _has_crc(data: Bytes, at: int, crc: np.uint64) -> bool:
    return bool(mask_crc(crc) == load_word(data, at - 4) >> np.uint64(32))


def find_header(data: Bytes, begin: int, end: int, max_payload: int) -> int:
    """The first position in `data[begin:end]` of a whole header with a good checksum and such a length.

    -1 where there is none. Raises IndexError: `begin` or `end` is not inside.
    """
    if begin < 0 or end > data.size:
        raise IndexError("range out of bounds")
    limit = np.uint64(max_payload)
    for position in range(begin, end - HEADER_BYTES + 1):
        if raw_load(data, position) <= limit and _has_crc(data, position + 8, word_crc(data, position)):
            return position
    return -1


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
        if count + 3 <= starts.size:
            behind = _scan_three(data, position, end, max_payload, starts, sizes, count)
            if behind > position:
                position = behind
                count += 3
                continue
        needed = HEADER_BYTES
        if end - position >= HEADER_BYTES:
            length = load_word(data, position)
            if not _has_crc(data, position + 8, word_crc(data, position)):
                stop[0] = BAD_LENGTH
            elif length > np.uint64(max_payload):
                stop[0] = TOO_LARGE
            else:
                needed = OVERHEAD_BYTES + int(np.int64(length))
        if stop[0] == 0 and end - position < needed:
            stop[0] = INCOMPLETE
        if stop[0] == 0:
            footer = position + needed - FOOTER_BYTES
            if not _has_crc(data, footer, crc32c(data, position + HEADER_BYTES, footer)):
                stop[0] = BAD_DATA
        stop[2] = needed
        if stop[0] == 0:
            starts[count] = position + HEADER_BYTES
            sizes[count] = needed - OVERHEAD_BYTES
            count += 1
            position += needed
    stop[1] = position
    return count


def _scan_three(
    data: Bytes,
    position: int,
    end: int,
    max_payload: int,
    starts: MutableInts,
    sizes: MutableInts,
    count: int,
) -> int:
    """Take three good frames of moderate size at once; the position behind them.

    0 where there is anything else: one by one, they tell what it is.
    """
    limit = min(max_payload, LANES_BYTES - 1)
    first = _good_length(data, position, end, limit)
    if first < 0:
        return 0
    one = position + HEADER_BYTES
    position = one + first + FOOTER_BYTES
    second = _good_length(data, position, end, limit)
    if second < 0:
        return 0
    two = position + HEADER_BYTES
    position = two + second + FOOTER_BYTES
    third = _good_length(data, position, end, limit)
    if third < 0:
        return 0
    three = position + HEADER_BYTES
    position = three + third + FOOTER_BYTES
    crc_1, crc_2, crc_3 = three_crcs(data, one, one + first, two, two + second, three, three + third)
    if not (
        _has_crc(data, one + first, crc_1)
        and _has_crc(data, two + second, crc_2)
        and _has_crc(data, three + third, crc_3)
    ):
        return 0
    starts[count] = one
    sizes[count] = first
    starts[count + 1] = two
    sizes[count + 1] = second
    starts[count + 2] = three
    sizes[count + 2] = third
    return position


def _good_length(data: Bytes, position: int, end: int, limit: int) -> int:
    """The payload's bytes of a frame that is wholly there, with a header that is right; -1 otherwise."""
    if end - position < HEADER_BYTES:
        return -1
    length = load_word(data, position)
    if length > np.uint64(limit) or not _has_crc(data, position + 8, word_crc(data, position)):
        return -1
    size = int(np.int64(length))
    return size if end - position >= size + OVERHEAD_BYTES else -1


def write_frames(data: Bytes, offsets: Ints, out: MutableBytes) -> None:
    """Write the strings `data[offsets[i]:offsets[i + 1]]` as frames, one behind the other, to `out`."""
    at = 0
    for index in range(offsets.size - 1):
        size = offsets[index + 1] - offsets[index]
        begin = write_header(out, at, size)
        copy_from(out, begin, raw_address(data), data.size, offsets[index], size)
        at = write_footer(out, begin, begin + size)


def gather_frames(data: Bytes, begins: Ints, ends: Ints, out: MutableBytes) -> int:
    """Copy the frames from `begins` to `ends` one behind the other; the bytes written to `out`."""
    at = 0
    for frame in range(begins.size):
        size = ends[frame] - begins[frame]
        copy_from(out, at, raw_address(data), data.size, begins[frame], size)
        at += size
    return at
