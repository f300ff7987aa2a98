"""Numbers of a JSON tape to float32 or float64."""

from __future__ import annotations

import numpy as np

from ..memory import Bytes, Doubles, MutableDoubles, MutableSingles, Words
from .tape import DECIMAL_NUMBER, INTEGER, NEGATIVE_ZERO, NONFINITE

#: From here on a float64 rounds to an infinite float32: half a step beyond the greatest one.
_SINGLE_OVERFLOW = 2.0**128 - 2.0**103


def _read_decimals(
    kinds: Bytes, decimals: Doubles, overflow: float, out: MutableSingles | MutableDoubles
) -> bool:
    """As `read_floats`, of decimals alone: without a branch, so that several are compared at a time."""
    are_read = True
    for index in range(min(len(kinds), len(decimals), len(out))):
        value = decimals[index]
        is_read = (kinds[index] == DECIMAL_NUMBER) & (-overflow < value) & (value < overflow)
        out[index] = value if is_read else 0.0
        are_read &= is_read
    return are_read


def read_floats(
    kinds: Bytes, words: Words, limit: int, singles: MutableSingles, doubles: MutableDoubles
) -> bool:
    """Write all items to `singles`, rounded to nearest, or to `doubles` where the other is empty.

    Args:
        limit: integers between this and its negative are exact.

    Returns:
        Whether all are numbers and none overflows; where not, what was written means nothing.
    """
    integers = words.view(np.int64)
    decimals = words.view(np.float64)
    is_single = singles.size > 0
    overflow = _SINGLE_OVERFLOW if is_single else np.inf
    size = min(len(kinds), len(words), len(singles) if is_single else len(doubles))
    if size < len(kinds):
        return False
    if is_single:
        are_read = _read_decimals(kinds, decimals, overflow, singles)
    else:
        are_read = _read_decimals(kinds, decimals, overflow, doubles)
    if are_read:
        return True
    are_read = True
    for index in range(size):
        kind = kinds[index]
        value = decimals[index]
        is_read = kind == NONFINITE or (kind == DECIMAL_NUMBER and -overflow < value < overflow)
        if kind == INTEGER:
            is_read = -limit <= integers[index] <= limit
            value = np.float64(integers[index])
        elif kind == NEGATIVE_ZERO:
            is_read = True
            value = -0.0
        are_read &= is_read
        value = value if is_read else 0.0
        if is_single:
            singles[index] = value
        else:
            doubles[index] = value
    return are_read
