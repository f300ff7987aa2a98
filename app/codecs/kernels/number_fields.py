"""Fields of text that are numbers, as JSON spells them, or booleans."""

from __future__ import annotations

import numpy as np

from .json.number import DECIMAL as HAS_POINT
from .json.number import INFINITY, NEGATIVE, TRUNCATED, double_bits, scan_number
from .memory import Bytes, Ints, MutableFlags, MutableWords, load_word

#: What a field is. `OTHER` is text, or a number that others have to look at: an integer beyond 64 bits, more
#: than 19 digits, more than `MAX_FIELD` characters, or beyond float64.
OTHER = 0
INTEGER = 1  # its word is an int64
NEGATIVE_ZERO = 2  # the integer -0; its word is 0
DECIMAL = 3  # its word has the bits of the nearest float64
NONFINITE = 4  # NaN, Infinity or -Infinity; its word has the bits of the float64
TRUE = 5  # true, True, TRUE, as JSON, Python and R write it
FALSE = 6

MAX_FIELD = 32

_SIGN = np.uint64(1 << 63)
_NAN = np.uint64(0x7FF8000000000000)
_MINUS = 0x2D
_INFINITY_WORD = np.uint64(int.from_bytes(b"Infinity", "little"))


def _packed(text: str) -> int:
    return int.from_bytes(text.encode(), "big")


_NAN_TEXT = _packed("NaN")
_TRUE_TEXTS = (_packed("true"), _packed("True"), _packed("TRUE"))
_FALSE_TEXTS = (_packed("false"), _packed("False"), _packed("FALSE"))


def _read_word(field: Bytes) -> tuple[int, np.uint64]:
    """Kind and value of a field that is no number."""
    if 3 <= field.size <= 5:
        text = 0
        for index in range(field.size):
            text = text << 8 | int(field[index])
        if text == _NAN_TEXT:
            return NONFINITE, _NAN
        if text in _TRUE_TEXTS:
            return TRUE, np.uint64(1)
        if text in _FALSE_TEXTS:
            return FALSE, np.uint64(0)
    elif field.size == 8 and load_word(field, 0) == _INFINITY_WORD:
        return NONFINITE, INFINITY
    elif field.size == 9 and int(field[0]) == _MINUS and load_word(field, 1) == _INFINITY_WORD:
        return NONFINITE, INFINITY | _SIGN
    return OTHER, np.uint64(0)


def read_number_fields(data: Bytes, offsets: Ints, kinds: MutableFlags, words: MutableWords) -> None:
    """Say of each field what it is, and its value.

    Args:
        data: the characters of all fields.
        offsets: field i is `data[offsets[i]:offsets[i + 1]]`; they ascend and lie within data.
        kinds, words: one for each field.
    """
    for index in range(kinds.size):
        begin, end = offsets[index], offsets[index + 1]
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
