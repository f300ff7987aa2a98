"""Lines of NDJSON to the cells of the features that a schema names.

What is read here is the plain case: every line one strict JSON object, of known keys alone, none twice,
whose numbers, booleans and strings fit their features. At anything else the walk ends, whatever it is.
"""

from __future__ import annotations

import numpy as np

from .example_index import _find_key
from .json_array import float_bits, integer_bits, skip_blanks
from .json_number import (
    DECIMAL,
    INFINITY,
    NEGATIVE,
    TRUNCATED,
    UNREAD,
    bit_span,
    byte_at,
    integer_magnitude,
    scan_number,
)
from .json_string import read_string, string_end
from .memory import Bytes, Ints, MutableBytes, MutableInts, MutableWords, Words, copy_bytes, same_bytes

__all__ = ["ANY", "BOOLEAN", "FLOAT", "INTEGER", "TEXT", "gather_cells", "read_rows"]

#: What the values of a feature are.
INTEGER = 0
FLOAT = 1
BOOLEAN = 2
TEXT = 3

#: A dimension that differs between rows; only ever the first.
ANY = -1

_OPEN = 0x5B
_CLOSE = 0x5D
_OPEN_OBJECT = 0x7B
_CLOSE_OBJECT = 0x7D
_COMMA = 0x2C
_COLON = 0x3A
_QUOTE = 0x22
_SPACE = 0x20
_LOWER_F = 0x66
_LOWER_N = 0x6E

# The letters of a word, the first lowest; "false" without its f.
_TRUE = 0x65757274
_ALSE = 0x65736C61
_NULL = 0x6C6C756E


def _letters_at(text: Bytes, position: int) -> int:
    """The next four bytes, the first lowest."""
    letters = 0
    for index in range(4):
        letters |= byte_at(text, position + index) << (8 * index)
    return letters


def _read_boolean(text: Bytes, position: int) -> tuple[np.uint64, int]:
    if _letters_at(text, position) == _TRUE:
        return np.uint64(1), position + 4
    if byte_at(text, position) == _LOWER_F and _letters_at(text, position + 1) == _ALSE:
        return np.uint64(0), position + 5
    return np.uint64(0), UNREAD


def _read_value(
    text: Bytes, position: int, kind: int, positive: np.uint64, negative: np.uint64
) -> tuple[np.uint64, int]:
    """The bits of one number or boolean, and the position behind it or `UNREAD`; limits as in `read_rows`."""
    if kind == BOOLEAN:
        return _read_boolean(text, position)
    significand, exponent, flags, position = scan_number(text, position)
    if position < 0:
        return significand, UNREAD
    if kind == FLOAT:
        bits = float_bits(significand, exponent, flags)
        if not flags & DECIMAL and (flags & TRUNCATED or np.uint64(bit_span(significand)) > positive):
            return bits, UNREAD
        return bits, position if bits != INFINITY else UNREAD
    magnitude, fits = integer_magnitude(text, significand, exponent, flags, position)
    if flags & DECIMAL or not fits or magnitude > (negative if flags & NEGATIVE else positive):
        return magnitude, UNREAD
    return integer_bits(magnitude, flags), position


def _read_cell(
    text: Bytes,
    position: int,
    kind: int,
    positive: np.uint64,
    negative: np.uint64,
    dims: Ints,
    first_dim: int,
    rank: int,
    lengths: MutableInts,
    values: MutableWords,
    count: int,
) -> tuple[int, int]:
    """The value of one feature in one row: how many values there are now, and the position behind it."""
    depth = 0
    while True:
        while depth < rank:
            if byte_at(text, position) != _OPEN:
                return count, UNREAD
            lengths[depth] = 0
            depth += 1
            position = skip_blanks(text, position + 1)
            if byte_at(text, position) == _CLOSE and depth == 1 and dims[first_dim] == ANY:
                return count, position + 1
        length = 0
        while True:
            if count >= values.size:
                return count, UNREAD
            bits, position = _read_value(text, position, kind, positive, negative)
            if position < 0 or rank == 0:
                values[count] = bits
                return count + 1, position
            values[count] = bits
            count += 1
            length += 1
            if byte_at(text, position) != _COMMA:
                position = skip_blanks(text, position)
                if byte_at(text, position) != _COMMA:
                    break
            position += 1
            if byte_at(text, position) <= _SPACE:
                position = skip_blanks(text, position)
        lengths[depth - 1] = length
        while byte_at(text, position) == _CLOSE:
            depth -= 1
            if dims[first_dim + depth] not in (ANY, lengths[depth]):
                return count, UNREAD
            position += 1
            if depth == 0:
                return count, position
            lengths[depth - 1] += 1
            position = skip_blanks(text, position)
        if byte_at(text, position) != _COMMA or depth == rank:
            return count, UNREAD
        position = skip_blanks(text, position + 1)


def _read_key(text: Bytes, position: int, guess: int, keys: Bytes, key_offsets: Ints) -> tuple[int, int]:
    """The number of the key whose quote is at `position`, and the position behind the closing one."""
    position += 1
    if guess < key_offsets.size - 1:
        begin = key_offsets[guess]
        size = key_offsets[guess + 1] - begin
        behind = position + size
        if byte_at(text, behind) == _QUOTE and same_bytes(text, position, keys, begin, size):
            return guess, behind + 1
    end = string_end(text, position)
    if byte_at(text, end) != _QUOTE:
        return 0, UNREAD
    key = _find_key(text, position, end, key_offsets.size, keys, key_offsets)
    return key, end + 1 if key >= 0 else UNREAD


def read_rows(
    text: Bytes,
    starts: Ints,
    ends: Ints,
    keys: Bytes,
    key_offsets: Ints,
    kinds: Ints,
    limits: Words,
    nullable: Ints,
    dims: Ints,
    dim_offsets: Ints,
    follow: MutableInts,
    seen: MutableInts,
    lengths: MutableInts,
    values: MutableWords,
    chars: MutableBytes,
    begins: MutableInts,
    counts: MutableInts,
) -> int:
    """Read the lines `text[starts[row]:ends[row]]`.

    Features are numbered as their keys are sorted. Cell `feature * rows + row` of `begins` says where
    the values of a row begin in `values`, or its text in `chars`, and stays at -1 where it is null or
    absent; that of `counts` says how many they are.

    Args:
        keys: key `k` is `keys[key_offsets[k]:key_offsets[k + 1]]`; none has a quote, a backslash, or
            a control character.
        limits: two for each feature: of integers, the greatest value and the greatest magnitude of
            a negative one; of floats, the bits that an integer may have, trailing zeros not counted.
        dims: the shape of feature `k` is `dims[dim_offsets[k]:dim_offsets[k + 1]]`, without a 0.
        follow: by feature number plus one, which one to expect next; kept from call to call.
        seen: by feature, 0 at first.
        lengths: scratch, as long as the longest shape.
        values: room for all numbers; filled with the bits of float64, int64, uint64, or 0 and 1.
        chars: room for all strings.

    Returns:
        The number of rows that were read: fewer than there are where one of them is not plain.
    """
    rows = starts.size
    num_values = 0
    num_chars = 0
    for row in range(rows):
        position = skip_blanks(text, starts[row])
        if byte_at(text, position) != _OPEN_OBJECT:
            return row
        position = skip_blanks(text, position + 1)
        num_seen = 0
        previous = 0
        if byte_at(text, position) == _CLOSE_OBJECT:
            position += 1
        else:
            while True:
                if byte_at(text, position) != _QUOTE:
                    return row
                key, position = _read_key(text, position, follow[previous], keys, key_offsets)
                if position < 0 or seen[key] == row + 1:
                    return row
                seen[key] = row + 1
                num_seen += 1
                follow[previous] = key
                previous = key + 1
                position = skip_blanks(text, position)
                if byte_at(text, position) != _COLON:
                    return row
                position = skip_blanks(text, position + 1)
                cell = key * rows + row
                if byte_at(text, position) == _LOWER_N:
                    if not nullable[key] or _letters_at(text, position) != _NULL:
                        return row
                    position += 4
                elif kinds[key] == TEXT:
                    begins[cell] = num_chars
                    num_chars, position = read_string(text, position, chars, num_chars)
                    counts[cell] = num_chars - begins[cell]
                else:
                    begins[cell] = num_values
                    num_values, position = _read_cell(
                        text, position, kinds[key], limits[2 * key], limits[2 * key + 1],
                        dims, dim_offsets[key], dim_offsets[key + 1] - dim_offsets[key],
                        lengths, values, num_values,
                    )  # fmt: skip
                    counts[cell] = num_values - begins[cell]
                if position < 0:
                    return row
                position = skip_blanks(text, position)
                byte = byte_at(text, position)
                position += 1
                if byte == _CLOSE_OBJECT:
                    break
                if byte != _COMMA:
                    return row
                position = skip_blanks(text, position)
        # Blanks may have led into another line.
        if position > ends[row] or skip_blanks(text, position) < ends[row]:
            return row
        if num_seen < kinds.size:
            for key in range(kinds.size):
                if seen[key] != row + 1 and not nullable[key]:
                    return row
    return rows


def gather_cells(
    data: Bytes, begins: Ints, counts: Ints, itemsize: int, starts: Ints, out: MutableBytes
) -> None:
    """Copy the items of each row to where `starts` says; positions count items, -1 is a row without any."""
    for row in range(begins.size):
        if begins[row] >= 0:
            size = counts[row] * itemsize
            copy_bytes(out, starts[row] * itemsize, data, begins[row] * itemsize, size)
