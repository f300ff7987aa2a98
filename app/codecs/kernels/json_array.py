"""A JSON array of numbers, nested or not, to flat values and a shape.

What is read here is the plain case: strict JSON, numbers alone, rectangular, no empty array. Anything
else is `UNREAD`, whatever it is.
"""

from __future__ import annotations

import numpy as np

from .json_number import (
    DECIMAL,
    INFINITY,
    NEGATIVE,
    TRUNCATED,
    UNREAD,
    bit_span,
    byte_at,
    double_bits,
    integer_magnitude,
    scan_number,
)
from .memory import Bytes, MutableInts, MutableWords

__all__ = [
    "COUNT",
    "END",
    "NOT_INTEGERS",
    "RANK",
    "READ",
    "SEEN",
    "SPAN",
    "WIDE",
    "float_bits",
    "integer_bits",
    "read_number_array",
    "skip_blanks",
]

#: What `read_number_array` answers beside `UNREAD`.
READ = 0
NOT_INTEGERS = 1

#: What its `found` holds, by position.
COUNT = 0  # of the values
RANK = 1
END = 2  # the position behind the array
SEEN = 3  # the flags of all tokens
SPAN = 4  # of floats: the widest integer token, in bits of a significand that holds it
WIDE = 5  # of integers: whether one is beyond int64, so that all have to be read as uint64

_OPEN = 0x5B
_CLOSE = 0x5D
_COMMA = 0x2C
_SPACE = 0x20
_LINE_FEED = 0x0A
_RETURN = 0x0D
_TAB = 0x09

_SIGN = np.uint64(1 << 63)


def skip_blanks(text: Bytes, position: int) -> int:
    """The position of the next byte that is no whitespace of JSON."""
    while position < len(text):
        byte = byte_at(text, position)
        if byte > _SPACE or (byte != _SPACE and byte != _LINE_FEED and byte != _RETURN and byte != _TAB):
            break
        position += 1
    return position


def float_bits(significand: np.uint64, exponent: int, flags: int) -> np.uint64:
    """The float64 that `scan_number` has read; the bits of an infinity where it is none that is sure."""
    bits = np.uint64(0)
    for more in range(2 if flags & TRUNCATED else 1):
        # What was cut off lies between this significand and the next one.
        nearest = double_bits(significand + np.uint64(more), exponent)
        if more and nearest != bits:
            return INFINITY
        bits = nearest
    if bits < INFINITY:
        bits |= np.uint64(flags & NEGATIVE) << np.uint64(63)
    return bits


def integer_bits(magnitude: np.uint64, flags: int) -> np.uint64:
    """The two's complement of an integer."""
    sign = np.uint64(0) - np.uint64(flags & NEGATIVE)
    return (magnitude ^ sign) - sign


def _read_row(
    text: Bytes, position: int, as_floats: int, values: MutableWords, found: MutableInts
) -> tuple[int, int]:
    """The numbers of one innermost array: how many, and the position behind the last; or why not."""
    begin = found[COUNT]
    count = begin
    seen = 0
    span = 0
    while True:
        if count >= values.size:
            return 0, UNREAD
        significand, exponent, flags, position = scan_number(text, position)
        if position < 0:
            return 0, UNREAD
        if as_floats:
            bits = float_bits(significand, exponent, flags)
            if bits == INFINITY:
                return 0, UNREAD
            if not flags & DECIMAL:
                if flags & TRUNCATED:
                    return 0, UNREAD
                span = max(span, bit_span(significand))
        else:
            magnitude, fits = integer_magnitude(text, significand, exponent, flags, position)
            if flags & DECIMAL or (flags & NEGATIVE and magnitude == np.uint64(0)):
                return NOT_INTEGERS, UNREAD
            bits = integer_bits(magnitude, flags)
            if not fits or (flags & NEGATIVE and magnitude > _SIGN):
                return 0, UNREAD
            if magnitude >= _SIGN and not flags & NEGATIVE:
                found[WIDE] = 1
        seen |= flags
        values[count] = bits
        count += 1
        byte = byte_at(text, position)
        if byte != _COMMA:
            position = skip_blanks(text, position)
            byte = byte_at(text, position)
            if byte != _COMMA:
                break
        position += 1
        if byte_at(text, position) <= _SPACE:
            position = skip_blanks(text, position)
    found[COUNT] = count
    found[SEEN] |= seen
    found[SPAN] = max(found[SPAN], span)
    return count - begin, position


def read_number_array(
    text: Bytes,
    position: int,
    as_floats: int,
    values: MutableWords,
    shape: MutableInts,
    lengths: MutableInts,
    found: MutableInts,
) -> int:
    """Read the array that begins at `position`.

    Args:
        as_floats: read every token as a float64; else the array holds integers alone, and no -0.
        values: filled with the bits of float64, or of int64 or uint64; room for as many as there may be.
        shape: filled from the front; its size bounds the nesting.
        lengths: scratch of the same size.
        found: filled as the constants above say.

    Returns:
        READ, UNREAD, or NOT_INTEGERS, which only a call for integers gives: floats may be read.
    """
    for index in range(found.size):
        found[index] = 0
    rank = 0
    depth = 0
    while True:
        position = skip_blanks(text, position)
        while byte_at(text, position) == _OPEN:
            if depth == shape.size or (rank and depth == rank):
                return UNREAD
            lengths[depth] = 0
            if not rank:
                shape[depth] = -1
            depth += 1
            position = skip_blanks(text, position + 1)
        if depth == 0 or (rank and depth != rank):
            return UNREAD
        rank = depth
        length, position = _read_row(text, position, as_floats, values, found)
        if position < 0:
            return length if length == NOT_INTEGERS else UNREAD
        lengths[depth - 1] = length
        while byte_at(text, position) == _CLOSE:
            depth -= 1
            if shape[depth] < 0:
                shape[depth] = lengths[depth]
            elif shape[depth] != lengths[depth]:
                return UNREAD
            position += 1
            if depth == 0:
                found[RANK] = rank
                found[END] = position
                return READ
            lengths[depth - 1] += 1
            position = skip_blanks(text, position)
        if byte_at(text, position) != _COMMA or depth == rank:
            return UNREAD
        position += 1
