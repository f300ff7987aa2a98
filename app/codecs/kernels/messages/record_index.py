"""Lines of decimals: where each record of a file lies, as DALI reads it."""

from __future__ import annotations

import numpy as np

from ..memory import Ints, MutableBytes

#: Two numbers of up to 19 digits, a space and a line feed.
MAX_LINE_BYTES = 40

_SPACE = np.uint8(0x20)
_LINE_FEED = np.uint8(0x0A)
_ZERO = np.uint64(0x30)
_TEN = np.uint64(10)


def _write_decimal(out: MutableBytes, at: int, value: np.uint64) -> int:
    """Write the digits of `value`; the position behind them."""
    digits = 1
    rest = value // _TEN
    while rest > np.uint64(0):
        digits += 1
        rest //= _TEN
    for place in range(at + digits - 1, at - 1, -1):
        out[place] = np.uint8(_ZERO + value % _TEN)
        value //= _TEN
    return at + digits


def write_index_lines(begin: int, ends: Ints, out: MutableBytes) -> int:
    """Write `<offset> <size>` and a line feed for each record.

    Args:
        begin: where the first record begins in its file.
        ends: where each one ends, counted from there.
        out: has room for `MAX_LINE_BYTES` a record.

    Returns:
        The bytes written.
    """
    at = 0
    previous = 0
    for end in ends:
        at = _write_decimal(out, at, np.uint64(begin + previous))
        out[at] = _SPACE
        at = _write_decimal(out, at + 1, np.uint64(end - previous))
        out[at] = _LINE_FEED
        at += 1
        previous = end
    return at
