"""JSON texts side by side in one array of bytes: found, put into arrays and objects, or written from bytes.

Items follow one another with a byte or more between them; `begins` and `ends` say where each one lies.
The texts are UTF-8 and none of these loops looks inside them, but for the two that find numbers.
"""

from __future__ import annotations

import numpy as np

from ..memory import Bytes, Ints, MutableBytes, MutableInts, copy_bytes, load_word
from ..utf8 import valid_utf8

_COMMA = 0x2C
_OPEN = 0x5B
_CLOSE = 0x5D
_QUOTE = 0x22
_BACKSLASH = 0x5C

_CLOSES = np.uint64(0x5D5D5D5D5D5D5D5D)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH_BITS = np.uint64(0x8080808080808080)


def _word(data: Bytes, position: int) -> int:
    """One byte as a signed word, so that both worlds shift and add alike."""
    return int(np.int64(data[position]))


def find_scalars(text: Bytes, begins: MutableInts, ends: MutableInts) -> None:
    """Where the items lie that commas part, none of which has a comma inside; `begins` says how many."""
    item = 0
    begin = 0
    for position in range(text.size):
        if text[position] == _COMMA:
            begins[item] = begin
            ends[item] = position
            item += 1
            begin = position + 1
    begins[item] = begin
    ends[item] = text.size


def find_arrays(text: Bytes, closings: int, begins: MutableInts, ends: MutableInts) -> None:
    """Where arrays of numbers lie that commas part, each of which has `closings` closing brackets."""
    item = 0
    begin = 0
    left = closings
    position = 0
    while position < text.size:
        if position + 8 <= text.size:
            word = load_word(text, position) ^ _CLOSES
            if (((word & _LOW_BITS) + _LOW_BITS) | word) & _HIGH_BITS == _HIGH_BITS:
                position += 8  # none of the eight bytes is a closing bracket
                continue
        stop = min(position + 8, text.size)
        while position < stop:
            if text[position] == _CLOSE:
                left -= 1
                if left == 0:
                    begins[item] = begin
                    ends[item] = position + 1
                    item += 1
                    begin = position + 2
                    left = closings
            position += 1


def write_lists(
    text: Bytes,
    begins: Ints,
    ends: Ints,
    offsets: Ints,
    out: MutableBytes,
    out_begins: MutableInts,
    out_ends: MutableInts,
) -> int:
    """Write arrays of items, a comma between them; the bytes written.

    Args:
        offsets: the first item of each array, and where the last one ends.
    """
    at = 0
    for row in range(offsets.size - 1):
        if row:
            out[at] = _COMMA
            at += 1
        out_begins[row] = at
        out[at] = _OPEN
        at += 1
        item = offsets[row]
        stop = offsets[row + 1]
        while item < stop:
            begin = begins[item]
            end = ends[item]
            item += 1
            # Items that lie one comma apart are copied together with their commas.
            while item < stop and begins[item] == end + 1 and text[end] == _COMMA:
                end = ends[item]
                item += 1
            copy_bytes(out, at, text, begin, end - begin)
            at += end - begin
            if item < stop:
                out[at] = _COMMA
                at += 1
        out[at] = _CLOSE
        at += 1
        out_ends[row] = at
    return at


def append_spans(
    key: Bytes, text: Bytes, begins: Ints, ends: Ints, cursors: MutableInts, out: MutableBytes
) -> None:
    """Write `key` and then the item of each row where its cursor stands; move the cursor behind it."""
    for row in range(cursors.size):
        at = cursors[row]
        copy_bytes(out, at, key, 0, key.size)
        at += key.size
        size = ends[row] - begins[row]
        copy_bytes(out, at, text, begins[row], size)
        cursors[row] = at + size


def _escape_letter(byte: int) -> int:
    """The letter of a short escape, or 0."""
    if byte in (_QUOTE, _BACKSLASH):
        return byte
    if byte == 0x0A:
        return 0x6E  # n
    if byte == 0x0D:
        return 0x72  # r
    if byte == 0x09:
        return 0x74  # t
    if byte == 0x0C:
        return 0x66  # f
    if byte == 0x08:
        return 0x62  # b
    return 0


def quoted_size(data: Bytes, offsets: Ints) -> int:
    """The bytes of all strings with quotes, escapes and a comma behind each.

    Where the string at an index is not UTF-8: -1 less that index.
    """
    total = 0
    for item in range(offsets.size - 1):
        begin = offsets[item]
        end = offsets[item + 1]
        is_ascii = True
        for position in range(begin, end):
            byte = _word(data, position)
            if byte >= 0x80:
                is_ascii = False
            elif byte < 0x20 or byte in (_QUOTE, _BACKSLASH):
                total += 1 if _escape_letter(byte) else 5
        if not is_ascii and not valid_utf8(data, begin, end):
            return -1 - item
        total += end - begin + 3
    return total


def _hex_digit(value: int) -> int:
    return value + (0x30 if value < 10 else 0x57)


def write_quoted(
    data: Bytes, offsets: Ints, out: MutableBytes, begins: MutableInts, ends: MutableInts
) -> None:
    """Write the strings as `json.dumps` does with `ensure_ascii=False`, a comma between them."""
    at = 0
    for item in range(offsets.size - 1):
        if item:
            out[at] = _COMMA
            at += 1
        begins[item] = at
        out[at] = _QUOTE
        at += 1
        end = offsets[item + 1]
        start = offsets[item]  # of what is copied as it is
        for position in range(offsets[item], end):
            byte = _word(data, position)
            if byte >= 0x20 and byte not in (_QUOTE, _BACKSLASH):
                continue
            copy_bytes(out, at, data, start, position - start)
            at += position - start
            start = position + 1
            out[at] = _BACKSLASH
            letter = _escape_letter(byte)
            if letter:
                out[at + 1] = letter
                at += 2
            else:
                out[at + 1] = 0x75  # u00
                out[at + 2] = 0x30
                out[at + 3] = 0x30
                out[at + 4] = _hex_digit(byte >> 4)
                out[at + 5] = _hex_digit(byte & 15)
                at += 6
        copy_bytes(out, at, data, start, end - start)
        at += end - start
        out[at] = _QUOTE
        at += 1
        ends[item] = at


def write_b64(
    opening: Bytes,
    data: Bytes,
    offsets: Ints,
    alphabet: Bytes,
    padding: Bytes,
    closing: Bytes,
    out: MutableBytes,
    begins: MutableInts,
    ends: MutableInts,
) -> int:
    """Write the base64 of each string between `opening` and `closing`; the bytes written.

    A comma stands between one and the next.

    Args:
        alphabet: its 64 characters.
        padding: one character that fills up the last four, or none.
    """
    at = 0
    for item in range(offsets.size - 1):
        if item:
            out[at] = _COMMA
            at += 1
        begins[item] = at
        copy_bytes(out, at, opening, 0, opening.size)
        at += opening.size
        position = offsets[item]
        end = offsets[item + 1]
        while position + 3 <= end:
            group = _word(data, position) << 16 | _word(data, position + 1) << 8 | _word(data, position + 2)
            out[at] = alphabet[group >> 18]
            out[at + 1] = alphabet[group >> 12 & 63]
            out[at + 2] = alphabet[group >> 6 & 63]
            out[at + 3] = alphabet[group & 63]
            at += 4
            position += 3
        at = _write_rest(data, position, end, alphabet, padding, out, at)
        copy_bytes(out, at, closing, 0, closing.size)
        at += closing.size
        ends[item] = at
    return at


def _write_rest(
    data: Bytes, position: int, end: int, alphabet: Bytes, padding: Bytes, out: MutableBytes, at: int
) -> int:
    if position == end:
        return at
    group = _word(data, position) << 16
    characters = 2
    if position + 2 == end:
        group |= _word(data, position + 1) << 8
        characters = 3
    for index in range(characters):
        out[at + index] = alphabet[group >> (18 - 6 * index) & 63]
    at += characters
    if padding.size:
        for _ in range(4 - characters):
            out[at] = padding[0]
            at += 1
    return at
