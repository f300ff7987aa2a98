"""Fields of text that are numbers or booleans, with blanks (spaces and tabs) around them or not.

Numbers are spelled as in JSON and as pandas, polars, numpy, R and C write them, too: `.5`, `5.`, `+5`, and
`nan`, `inf` and `infinity` in any case. Numbers with leading zeros (`007`) and hexadecimal ones are text.
"""

from __future__ import annotations

import numpy as np

from .json.number import DECIMAL as HAS_POINT
from .json.number import INFINITY, NEGATIVE, TRUNCATED, double_bits, scan_number
from .memory import Bytes, Ints, MutableBytes, MutableFlags, MutableWords

#: What a field is. `OTHER` is text, or a number that others have to look at: an integer beyond 64 bits, more
#: than 19 digits, more than `MAX_FIELD` characters, or beyond float64.
OTHER = 0
INTEGER = 1  # its word is an int64
NEGATIVE_ZERO = 2  # the integer -0; its word is 0
DECIMAL = 3  # its word has the bits of the nearest float64
NONFINITE = 4  # NaN or an infinity; its word has the bits of the float64
TRUE = 5  # true, True, TRUE, as JSON, Python and R write it
FALSE = 6

MAX_FIELD = 32

_SIGN = np.uint64(1 << 63)
_NAN = np.uint64(0x7FF8000000000000)
_TAB = 0x09
_SPACE = 0x20
_PLUS = 0x2B
_MINUS = 0x2D
_POINT = 0x2E
_ZERO = 0x30


def _packed(text: str) -> int:
    return int.from_bytes(text.encode(), "big")


_TRUE_TEXTS = (_packed("true"), _packed("True"), _packed("TRUE"))
_FALSE_TEXTS = (_packed("false"), _packed("False"), _packed("FALSE"))
#: Makes the letters of a packed text lower case.
_LOWER = _packed(" " * 8)
_NAN_TEXT = _packed("nan") | _LOWER
_SHORT_INFINITY = _packed("inf") | _LOWER
_LONG_INFINITY = _packed("infinity")


def _read_word(field: Bytes) -> tuple[int, np.uint64]:
    """Kind and value of a field that is not a finite number."""
    signs = 1 if field.size and (int(field[0]) == _PLUS or int(field[0]) == _MINUS) else 0
    size = field.size - signs
    if not 3 <= size <= 8:
        return OTHER, np.uint64(0)
    text = 0
    for index in range(signs, field.size):
        text = text << 8 | int(field[index])
    if not signs and text in _TRUE_TEXTS:
        return TRUE, np.uint64(1)
    if not signs and text in _FALSE_TEXTS:
        return FALSE, np.uint64(0)
    text |= _LOWER
    if size == 3 and text == _NAN_TEXT:
        return NONFINITE, _NAN
    if (size == 3 and text == _SHORT_INFINITY) or (size == 8 and text == _LONG_INFINITY):
        return NONFINITE, INFINITY | _SIGN if int(field[0]) == _MINUS else INFINITY
    return OTHER, np.uint64(0)


def _is_digit(field: Bytes, index: int) -> bool:
    return 0 <= index < field.size and 0 <= int(field[index]) - _ZERO <= 9


def _spell_as_json(field: Bytes, spelled: MutableBytes) -> int:
    """Write a number without a plus, and with digits on both sides of its point; how many bytes that are."""
    size = 0
    has_plus = field.size > 1 and int(field[0]) == _PLUS and int(field[1]) != _MINUS
    for index in range(1 if has_plus else 0, field.size):
        is_point = int(field[index]) == _POINT
        is_after_digit, is_before_digit = _is_digit(field, index - 1), _is_digit(field, index + 1)
        if is_point and is_before_digit and not is_after_digit:
            spelled[size] = _ZERO
            size += 1
        spelled[size] = field[index]
        size += 1
        if is_point and is_after_digit and not is_before_digit:
            spelled[size] = _ZERO
            size += 1
    return size


def read_number_fields(
    data: Bytes, offsets: Ints, kinds: MutableFlags, words: MutableWords, spelled: MutableBytes
) -> None:
    """Say of each field what it is, and its value.

    Args:
        data: the characters of all fields.
        offsets: field i is `data[offsets[i]:offsets[i + 1]]`; they ascend and lie within data.
        kinds, words: one for each field.
        spelled: `2 * MAX_FIELD` bytes to work in.
    """
    for index in range(kinds.size):
        begin, end = offsets[index], offsets[index + 1]
        while begin < end and (int(data[begin]) == _SPACE or int(data[begin]) == _TAB):
            begin += 1
        while begin < end and (int(data[end - 1]) == _SPACE or int(data[end - 1]) == _TAB):
            end -= 1
        size = end - begin
        kinds[index] = OTHER
        words[index] = 0
        if size <= 0 or size > MAX_FIELD:
            continue
        # Alone, so that no digit of the next field is read as one of this.
        field = data[begin:end]
        significand, exponent, flags, position = scan_number(field, 0)
        if position != size:
            kinds[index], words[index] = _read_word(field)
            if kinds[index] != OTHER:
                continue
            size = _spell_as_json(field, spelled)
            significand, exponent, flags, position = scan_number(spelled[:size], 0)
            if position != size:
                continue
        if flags & TRUNCATED:
            continue
        is_negative = flags & NEGATIVE != 0
        if flags & HAS_POINT:
            bits = double_bits(significand, exponent)
            if bits < INFINITY:
                kinds[index] = DECIMAL
                words[index] = bits | _SIGN if is_negative else bits
        elif is_negative:
            if significand == np.uint64(0):
                kinds[index] = NEGATIVE_ZERO
            elif significand <= _SIGN:
                kinds[index] = INTEGER
                words[index] = ~significand + np.uint64(1)
        elif significand < _SIGN:
            kinds[index] = INTEGER
            words[index] = significand
