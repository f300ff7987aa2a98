"""Where rows of JSON lie, without a look at what they hold: the objects of an array, and lines.

What stands between the objects of an array is read strictly. In an object brackets are counted and strings
passed over: where each turns out to be one object of strict JSON, so is the array.
"""

from __future__ import annotations

import numpy as np

from ..memory import Bytes, MutableInts, load_word
from .number import UNREAD, byte_at, skip_blanks
from .string import first_lane, string_end, zero_lanes

#: What `find_lines` goes on from, by position in `state`.
BEGIN = 0  # of the line that is not whole yet
SEEN = 1  # up to here it has no line feed
COUNT = 2  # lines so far that are not blank
LONGEST = 3  # bytes of the longest line so far, blank ones included
NUM_STATE = 4

_LINE_FEED = 0x0A
_SPACE = 0x20
_OPEN = 0x5B
_CLOSE = 0x5D
_OPEN_OBJECT = 0x7B
_CLOSE_OBJECT = 0x7D
_COMMA = 0x2C
_QUOTE = 0x22
_BACKSLASH = 0x5C

_LINE_FEEDS = np.uint64(0x0A0A0A0A0A0A0A0A)
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

    An object is found where a comma or the closing bracket follows it. The search ends where anything else
    stands, or the text ends.

    Args:
        position: of the bracket that opens the array, or of the comma behind an object.
        starts, ends: filled with where each object begins, and the position behind it. Behind the last one
            `starts` has the position from which to go on: of the comma that follows it, of the bracket that
            closes the array, or the same again.

    Returns:
        How many there are.
    """
    count = 0
    is_first = byte_at(text, position) == _OPEN
    while count + 1 < starts.size:
        begin = skip_blanks(text, position + 1)
        if is_first and byte_at(text, begin) == _CLOSE:
            position = begin
            break
        is_first = False
        if byte_at(text, begin) != _OPEN_OBJECT:
            break
        end = _object_stop(text, begin)
        if end < 0:
            break
        behind = skip_blanks(text, end)
        byte = byte_at(text, behind)
        if byte not in (_COMMA, _CLOSE):
            break
        starts[count] = begin
        ends[count] = end
        count += 1
        position = behind
        if byte == _CLOSE:
            break
    starts[count] = position
    return count


def _line_end(text: Bytes, position: int) -> int:
    """The position of the next line feed, or the end of the text."""
    while position + 32 <= len(text):
        marks = zero_lanes(load_word(text, position) ^ _LINE_FEEDS)
        marks |= zero_lanes(load_word(text, position + 8) ^ _LINE_FEEDS)
        marks |= zero_lanes(load_word(text, position + 16) ^ _LINE_FEEDS)
        marks |= zero_lanes(load_word(text, position + 24) ^ _LINE_FEEDS)
        if marks != np.uint64(0):
            break
        position += 32
    while position + 8 <= len(text):
        marks = zero_lanes(load_word(text, position) ^ _LINE_FEEDS)
        if marks != np.uint64(0):
            return position + first_lane(marks)
        position += 8
    while position < len(text) and byte_at(text, position) != _LINE_FEED:
        position += 1
    return position


def _is_blank(text: Bytes, position: int, end: int) -> bool:
    """Whether all of a line is whitespace (RFC 8259, section 2)."""
    while position < end and byte_at(text, position) in (_SPACE, 0x09, 0x0D):
        position += 1
    return position >= end


def find_lines(text: Bytes, enough: int, starts: MutableInts, ends: MutableInts, state: MutableInts) -> bool:
    """Find whole lines until there are as many as `starts` has room for, or `enough` bytes of them.

    Args:
        starts, ends: filled with where each line begins that is not blank, and its line feed.
        state: all 0 at first. Where the lines are not enough, the same again with more text behind this one.

    Returns:
        Whether they are enough. They reach to `state[BEGIN]`.
    """
    begin, seen, count, longest = state[BEGIN], state[SEEN], state[COUNT], state[LONGEST]
    is_enough = False
    while not is_enough:
        end = _line_end(text, seen)
        seen = end
        if end >= len(text):
            break
        longest = max(longest, end - begin)
        if not _is_blank(text, begin, end):
            starts[count] = begin
            ends[count] = end
            count += 1
        begin = seen = end + 1
        is_enough = count == starts.size or begin >= enough
    state[BEGIN], state[SEEN], state[COUNT], state[LONGEST] = begin, seen, count, longest
    return is_enough
