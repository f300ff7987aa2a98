"""JSON strings (RFC 8259, section 7) to UTF-8."""

from __future__ import annotations

import numpy as np

from ..memory import Bytes, MutableBytes, bit_length, copy_bytes, load_word
from ..utf8 import valid_utf8
from .number import UNREAD, byte_at

_QUOTE = 0x22
_BACKSLASH = 0x5C
_SPACE = 0x20
_LOWER_U = 0x75

_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH_BITS = np.uint64(0x8080808080808080)
_QUOTES = np.uint64(0x2222222222222222)
_BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
#: Brings a lane of 0x20 or more up to its high bit.
_BEYOND_CONTROLS = np.uint64(0x6060606060606060)


def zero_lanes(word: np.uint64) -> np.uint64:
    """The high bit of every lane that is 0."""
    return ~(((word & _LOW_BITS) + _LOW_BITS) | word) & _HIGH_BITS


def first_lane(marks: np.uint64) -> int:
    """The lane of the lowest bit that is set."""
    return (bit_length(marks & (~marks + np.uint64(1))) - 1) >> 3


def string_end(text: Bytes, position: int) -> int:
    """The position of the next quote, backslash or control character, or the end of the text."""
    while position + 8 <= text.size:
        word = load_word(text, position)
        stops = zero_lanes(word ^ _QUOTES) | zero_lanes(word ^ _BACKSLASHES)
        stops |= ~(((word & _LOW_BITS) + _BEYOND_CONTROLS) | word) & _HIGH_BITS
        if stops != np.uint64(0):
            return position + first_lane(stops)
        position += 8
    while position < text.size:
        byte = byte_at(text, position)
        if byte < _SPACE or byte in (_QUOTE, _BACKSLASH):
            break
        position += 1
    return position


def _hex_digit(byte: int) -> int:
    if 0x30 <= byte <= 0x39:
        return byte - 0x30
    byte |= 0x20
    return byte - 0x57 if 0x61 <= byte <= 0x66 else -1


def _read_unit(text: Bytes, position: int) -> int:
    """The UTF-16 unit of the escape of six characters at `position`, or -1."""
    if byte_at(text, position) != _BACKSLASH or byte_at(text, position + 1) != _LOWER_U:
        return -1
    unit = 0
    for index in range(2, 6):
        digit = _hex_digit(byte_at(text, position + index))
        if digit < 0:
            return -1
        unit = 16 * unit + digit
    return unit


def _short_escape(byte: int) -> int:
    """The character that a backslash and this letter stand for, or -1."""
    if byte in (_QUOTE, _BACKSLASH, 0x2F):
        return byte
    if byte == 0x6E:
        return 0x0A
    if byte == 0x74:
        return 0x09
    if byte == 0x72:
        return 0x0D
    if byte == 0x62:
        return 0x08
    return 0x0C if byte == 0x66 else -1


def _read_escape(text: Bytes, position: int) -> tuple[int, int]:
    """The character of the escape at `position`, and the position behind it or `UNREAD`."""
    if byte_at(text, position + 1) != _LOWER_U:
        character = _short_escape(byte_at(text, position + 1))
        return character, position + 2 if character >= 0 else UNREAD
    unit = _read_unit(text, position)
    if unit < 0 or 0xDC00 <= unit <= 0xDFFF:
        return unit, UNREAD
    if unit < 0xD800 or unit > 0xDFFF:
        return unit, position + 6
    low = _read_unit(text, position + 6)
    if low < 0xDC00 or low > 0xDFFF:
        return unit, UNREAD
    return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00), position + 12


def _write_utf8(out: MutableBytes, at: int, character: int) -> int:
    """Write one character of Unicode; the position behind it."""
    if character < 0x80:
        out[at] = np.uint8(character)
        return at + 1
    more = 1 if character < 0x800 else (2 if character < 0x10000 else 3)
    lead = 0xC0 if more == 1 else (0xE0 if more == 2 else 0xF0)
    out[at] = np.uint8(lead | (character >> (6 * more)))
    for index in range(more):
        shift = 6 * (more - 1 - index)
        out[at + 1 + index] = np.uint8(0x80 | ((character >> shift) & 0x3F))
    return at + more + 1


def read_string(text: Bytes, position: int, out: MutableBytes, at: int) -> tuple[int, int]:
    """Write the string whose quote is at `position` to `out`, as UTF-8.

    It never takes more bytes than its text, quotes not counted.

    Returns:
        The positions behind it, in `out` and in `text`; the second is `UNREAD` where it is no string, is
        not UTF-8, or has half of a surrogate pair.
    """
    if byte_at(text, position) != _QUOTE:
        return at, UNREAD
    position += 1
    while True:
        end = string_end(text, position)
        if not valid_utf8(text, position, end):
            return at, UNREAD
        copy_bytes(out, at, text, position, end - position)
        at += end - position
        stop = byte_at(text, end)
        if stop == _QUOTE:
            return at, end + 1
        if stop != _BACKSLASH:
            return at, UNREAD
        character, position = _read_escape(text, end)
        if position < 0:
            return at, UNREAD
        at = _write_utf8(out, at, character)
