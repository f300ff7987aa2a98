"""Rounding to a floating dtype, and which values do not survive it.

Overflow shows as an infinity, in most dtypes of fewer than 16 bits as NaN, and in float4 not at all: what is
too large becomes its greatest value, and NaN a zero.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..domain.dtypes import DType

#: Halfway from the greatest float4, 6, to what would come next, 8: from here on rounding is up.
_FLOAT4_OVERFLOW: Final = 7.0


def round_values(values: NDArray[Any], dtype: DType) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The values rounded to nearest, and which of them are lost; the same array where nothing is rounded.

    Lost are finite values that overflow, infinities and NaNs where `dtype` (floating or complex) has none.
    """
    if values.dtype == dtype.numpy and dtype.has_infinity and dtype.has_nan:
        return values, np.zeros(values.shape, np.bool_)
    with np.errstate(over="ignore", invalid="ignore"):
        is_rounded_twice = values.dtype == np.float64 and dtype.numpy.isbuiltin != 1
        converted = (_round_to_odd(values) if is_rounded_twice else values).astype(dtype.numpy)
        finite = np.isfinite(converted)
        if finite.all() and dtype.has_infinity and dtype.has_nan:
            return converted, np.zeros(values.shape, np.bool_)
        lost = np.isfinite(values) & ~finite
        if not dtype.has_infinity:
            lost |= np.isinf(values)
        if not dtype.has_nan:
            # Not by their magnitude: an int16 has none of -32768. NaN is not within either.
            lost |= ~((values > -_FLOAT4_OVERFLOW) & (values < _FLOAT4_OVERFLOW))
    return converted, lost


def _round_to_odd(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """The values as float32 that round to fewer bits as the values themselves do.

    `ml_dtypes` makes a float32 of a float64 first, and a little more than half way becomes half way. An
    inexact one is cut off and its last bit set, which keeps it off the middle (Boldo and Melquiond, 2008).
    """
    narrow = values.astype(np.float32)
    bits = narrow.view(np.uint32)
    inexact = (narrow != values) & np.isfinite(values)
    bits -= (inexact & (np.abs(narrow) > np.abs(values))).astype(np.uint32)  # away from zero, or to infinity
    bits |= inexact.astype(np.uint32)
    return narrow
