"""Protocol Buffers' base-128 varints and field sizes.

Source: https://protobuf.dev/programming-guides/encoding/. A reader answers `(value, position)`; a
negative position `~p` means that the bytes are malformed at `p`.
"""

from __future__ import annotations

import numpy as np

from .memory import Bytes, MutableBytes, bit_length, load_word, store_word

# A tag and a length are 32 bits wide, and upb, TensorFlow's parser in Python, reads five bytes at most.
_MAX_LENGTH_BYTES = 5
MAX_VARINT_BYTES = 10

#: The bit of each byte that says whether another one follows.
_HIGH_BITS = np.uint64(0x8080808080808080)


def varint_size(value: np.uint64) -> int:
    """Bytes that `value` takes: 1 to 10, that is its bits over seven, rounded up."""
    return (bit_length(value) * 9 + 64) >> 6


def field_size(length: int) -> int:
    """Bytes of a length-delimited field of number 1 to 15: tag, length and content."""
    return 1 + varint_size(np.uint64(length)) + length


def write_varint(out: MutableBytes, at: int, value: np.uint64) -> int:
    """Write `value` at `at`; the position behind it."""
    while value >= np.uint64(0x80):
        out[at] = np.uint8((value & np.uint64(0x7F)) | np.uint64(0x80))
        value = value >> np.uint64(7)
        at += 1
    out[at] = np.uint8(value)
    return at + 1


def write_length(out: MutableBytes, at: int, tag: int, length: int) -> int:
    """Write the one-byte tag and the length of a field; the position of its content."""
    out[at] = np.uint8(tag)
    return write_varint(out, at + 1, np.uint64(length))


def read_varint(data: Bytes, position: int, end: int) -> tuple[np.uint64, int]:
    """A varint of up to ten bytes; bits beyond the 64th are dropped, as every parser does."""
    value = np.uint64(0)
    for index in range(MAX_VARINT_BYTES):
        if position + index >= end:
            break
        byte = np.uint64(data[position + index])
        value |= (byte & np.uint64(0x7F)) << np.uint64(7 * index)
        if byte < np.uint64(0x80):
            return value, position + index + 1
    return np.uint64(0), ~position


def gather_bits(word: np.uint64) -> np.uint64:
    """The value of a varint of up to eight bytes, which fill `word` from below; above them, zeros."""
    word &= np.uint64(0x7F7F7F7F7F7F7F7F)
    word = (word & np.uint64(0x007F007F007F007F)) | ((word & np.uint64(0x7F007F007F007F00)) >> np.uint64(1))
    word = (word & np.uint64(0x00003FFF00003FFF)) | ((word & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2))
    return (word & np.uint64(0x0FFFFFFF)) | ((word & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4))


def spread_bits(value: np.uint64) -> np.uint64:
    """A value below 2^56 as a varint that fills the result from below; above it, zeros."""
    word = (value & np.uint64(0x0FFFFFFF)) | ((value & np.uint64(0x00FFFFFFF0000000)) << np.uint64(4))
    word = (word & np.uint64(0x00003FFF00003FFF)) | ((word & np.uint64(0x0FFFC0000FFFC000)) << np.uint64(2))
    word = (word & np.uint64(0x007F007F007F007F)) | ((word & np.uint64(0x3F803F803F803F80)) << np.uint64(1))
    behind = np.uint64(8 * (varint_size(value) - 1))
    return word | (_HIGH_BITS & ((np.uint64(1) << behind) - np.uint64(1)))


def read_packed_varint(data: Bytes, position: int, end: int) -> tuple[np.uint64, int]:
    """As `read_varint`, without a branch on the size where eight bytes of `data` follow."""
    if position + 8 > data.size:
        return read_varint(data, position, end)
    word = load_word(data, position)
    stops = ~word & _HIGH_BITS
    if stops == np.uint64(0):
        return read_varint(data, position, end)
    through = stops ^ (stops - np.uint64(1))  # all bits up to the first stop
    behind = position + (bit_length(through) >> 3)
    if behind > end:
        return np.uint64(0), ~position
    return gather_bits(word & through), behind


def read_two_varints(data: Bytes, position: int, end: int) -> tuple[np.uint64, np.uint64, int]:
    """Two varints that lie in the next eight bytes, and the position behind them; -1 where they do not."""
    if position + 8 > end:
        return np.uint64(0), np.uint64(0), -1
    word = load_word(data, position)
    stops = ~word & _HIGH_BITS
    if stops == np.uint64(0):
        return np.uint64(0), np.uint64(0), -1
    later = stops & (stops - np.uint64(1))
    if later == np.uint64(0):
        return np.uint64(0), np.uint64(0), -1
    first = stops ^ (stops - np.uint64(1))  # all bits up to the first stop
    through = later ^ (later - np.uint64(1))
    second = (word & through) >> np.uint64(bit_length(first))
    return gather_bits(word & first), gather_bits(second), position + (bit_length(through) >> 3)


def write_packed_varint(out: MutableBytes, at: int, value: np.uint64, end: int) -> int:
    """As `write_varint`, but bytes behind the value, up to `end`, may be overwritten."""
    if value < np.uint64(0x80) or value >= np.uint64(1 << 56) or at + 8 > end:
        return write_varint(out, at, value)
    store_word(out, at, spread_bits(value))
    return at + varint_size(value)


def _read_short(data: Bytes, position: int, end: int) -> tuple[int, int]:
    value = 0
    for index in range(_MAX_LENGTH_BYTES):
        if position + index >= end:
            break
        byte = int(data[position + index])
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    return 0, ~position


def read_tag(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """A field's tag: its number times eight, plus the wire type."""
    tag, after = _read_short(data, position, end)
    if after >= 0 and (tag < 8 or tag > 0xFFFFFFFF):
        return tag, ~position
    return tag, after


def read_length(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """The length of a field whose content fits before `end`."""
    length, after = _read_short(data, position, end)
    if after >= 0 and length > end - after:
        return length, ~position
    return length, after


def skip_field(data: Bytes, position: int, end: int, tag: int) -> int:
    """The position behind the content of a field, or `~p`. Groups are refused: nothing writes them."""
    wire = tag & 7
    if wire == 0:
        return read_varint(data, position, end)[1]
    if wire == 2:
        length, after = read_length(data, position, end)
        return after if after < 0 else after + length
    if wire == 1:
        after = position + 8
    elif wire == 5:
        after = position + 4
    else:
        return ~position
    return after if after <= end else ~position


def count_varints(data: Bytes, begin: int, end: int) -> int:
    """How many varints of up to ten bytes fill `begin` to `end` exactly, or `~p`.

    A varint ends at each byte below 0x80; eight bytes are looked at together.
    """
    if end > begin and data[end - 1] >= 0x80:
        return _count_slowly(data, begin, end)
    count = 0
    run = 0  # bytes of the varint that goes on
    position = begin
    while position + 8 <= end:
        stops = ~load_word(data, position) & _HIGH_BITS
        position += 8
        if stops == np.uint64(0):
            run += 8
        else:
            run += (bit_length(stops ^ (stops - np.uint64(1))) >> 3) - 1
        if run >= MAX_VARINT_BYTES:
            return _count_slowly(data, begin, end)
        if stops != np.uint64(0):
            run = 8 - (bit_length(stops) >> 3)
            stops >>= np.uint64(7)
            stops += stops >> np.uint64(32)
            stops += stops >> np.uint64(16)
            stops += stops >> np.uint64(8)
            count += int(np.int64(stops & np.uint64(0xFF)))
    while position < end:
        run += 1
        if data[position] < 0x80:
            if run > MAX_VARINT_BYTES:
                return _count_slowly(data, begin, end)
            count += 1
            run = 0
        position += 1
    return count


def _count_slowly(data: Bytes, begin: int, end: int) -> int:
    count = 0
    position = begin
    while position < end:
        _, position = read_varint(data, position, end)
        if position < 0:
            return position
        count += 1
    return count
