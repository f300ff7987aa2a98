"""Where the objects of a JSON array lie, without a look at what they hold.

What stands between them is read strictly. In an object brackets are counted and strings passed over: where
each turns out to be one object of strict JSON, so is the array.
"""

from __future__ import annotations

import numpy as np

from .json_number import UNREAD, byte_at, skip_blanks
from .json_string import first_lane, string_end, zero_lanes
from .memory import Bytes, MutableInts, load_word

_OPEN = 0x5B
_CLOSE = 0x5D
_OPEN_OBJECT = 0x7B
_CLOSE_OBJECT = 0x7D
_COMMA = 0x2C
_QUOTE = 0x22
_BACKSLASH = 0x5C

_QUOTES = np.uint64(0x2222222222222222)
#: Every bracket and brace, and few other bytes, become 0x7F where these bits are set.
_BRACKET_BITS = np.uint64(0x2626262626262626)
_BRACKETS = np.uint64(0x7F7F7F7F7F7F7F7F)


def _string_stop(text: Bytes, position: int) -> int:
    """The position behind the string whose first character is at `position`, or UNREAD."""
    while True:
        position = string_end(text, position)
        byte = byte_at(text, position)
        if byte == _QUOTE:
            return position + 1
        if byte != _BACKSLASH:
            return UNREAD
        position += 2


def _skip_scalars(text: Bytes, position: int) -> int:
    """The position of the next quote, bracket or brace, or one before it; or the end of the text."""
    while position + 8 <= len(text):
        word = load_word(text, position)
        marks = zero_lanes(word ^ _QUOTES) | zero_lanes((word | _BRACKET_BITS) ^ _BRACKETS)
        if marks != np.uint64(0):
            return position + first_lane(marks)
        position += 8
    return position


def _object_stop(text: Bytes, position: int) -> int:
    """The position behind the object that begins at `position`, or UNREAD."""
    depth = 0
    while position < len(text):
        position = _skip_scalars(text, position)
        byte = byte_at(text, position)
        position += 1
        if byte == _QUOTE:
            position = _string_stop(text, position)
            if position < 0:
                break
        elif byte in (_OPEN, _OPEN_OBJECT):
            depth += 1
        elif byte in (_CLOSE, _CLOSE_OBJECT):
            depth -= 1
            if depth == 0:
                return position
    return UNREAD


def find_objects(text: Bytes, position: int, starts: MutableInts, ends: MutableInts) -> int:
    """The next objects of an array, as many as `starts` and `ends` have room for, but for one.

    Args:
        position: of the bracket that opens the array, or of the comma behind an object.
        starts, ends: filled with where each object begins, and the position behind it. Behind the last one
            `starts` has the position of the comma that follows it, or of the bracket that closes the array.

    Returns:
        How many there are; UNREAD where anything else stands there.
    """
    count = 0
    is_first = byte_at(text, position) == _OPEN
    while count + 1 < starts.size:
        position = skip_blanks(text, position + 1)
        if is_first and byte_at(text, position) == _CLOSE:
            break
        is_first = False
        if byte_at(text, position) != _OPEN_OBJECT:
            return UNREAD
        starts[count] = position
        position = _object_stop(text, position)
        if position < 0:
            return UNREAD
        ends[count] = position
        count += 1
        position = skip_blanks(text, position)
        byte = byte_at(text, position)
        if byte == _CLOSE:
            break
        if byte != _COMMA:
            return UNREAD
    starts[count] = position
    return count
