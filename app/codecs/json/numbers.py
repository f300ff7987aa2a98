"""Arrays of numbers from JSON text to values without a Python object for each: the fast path.

It takes the plain case alone. What it does not take, errors among it, goes the way of `json_text`,
`json_values` and `json_convert`, which decide what every text means; the result is the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import FLOAT32, FLOAT64, INT64, PRECISION, DType
from ...domain.tensor import MAX_RANK, Shape
from ...runtime.budget import Budget
from .. import kernels
from ..kernels.json_array import COUNT, END, NOT_INTEGERS, RANK, READ, SEEN, SPAN, WIDE
from ..kernels.json_number import DECIMAL, NEGATIVE
from ..rounding import rounded

__all__ = ["NotPlain", "NumberArray", "read_number_array"]

_NUM_FOUND: Final = 6
#: The first number of an array, where it is a decimal; looked for in so many bytes.
_DECIMAL: Final = re.compile(rb"[\[ \t\r\n]*+-?+[0-9]++\.")
_LOOK_BYTES: Final = 64
#: A value and the comma or bracket behind it take two bytes at least.
_MIN_TEXT_BYTES: Final = 2
_WORD_BYTES: Final = 8


class NotPlain(Exception):
    """Not of the kind that the fast path takes: the general one has to look."""


@dataclass(frozen=True, slots=True)
class NumberArray:
    """A JSON array of numbers, nested or not, rectangular and not empty.

    Attributes:
        values: flat; int64 or uint64 where every token is an integer, else float64.
        shape: of the nesting.
        end: where the text goes on behind it.
        has_decimals: whether a token has a point or an exponent.
        span: where the values are float64: the bits of a significand that holds every integer token.
    """

    values: NDArray[Any]
    shape: Shape
    end: int
    has_decimals: bool
    span: int

    def infer_dtype(self) -> DType:
        """The dtype that the items have when none is declared; as `json_values.infer_dtype`."""
        return FLOAT64 if self.has_decimals else INT64

    def values_as(self, dtype: DType) -> NDArray[Any]:
        """A flat array, as `json_convert.convert_items` gives it.

        Raises:
            NotPlain: `dtype` may not hold them, or is none of integers or floats.
        """
        if not dtype.has_kernel:
            raise NotPlain
        if dtype.is_integer:
            return self._integers(dtype)
        if dtype.is_float:
            return self._floats(dtype)
        raise NotPlain

    def _integers(self, dtype: DType) -> NDArray[Any]:
        if self.values.dtype.kind == "f":
            raise NotPlain
        bounds = np.iinfo(dtype.numpy)
        if int(self.values.min()) < bounds.min or int(self.values.max()) > bounds.max:
            raise NotPlain
        return self.values.astype(dtype.numpy)

    def _floats(self, dtype: DType) -> NDArray[Any]:
        precision = PRECISION[dtype.name]
        if self.values.dtype.kind != "f":
            if int(self.values.min()) < -(2**precision) or int(self.values.max()) > 2**precision:
                raise NotPlain
            return self.values.astype(np.float64).astype(dtype.numpy)  # exact
        if self.span > precision:
            raise NotPlain
        if dtype is FLOAT32:
            with np.errstate(over="ignore"):
                values = self.values.astype(np.float32)
            if not np.isfinite(values).all():
                raise NotPlain
            return values
        if dtype is FLOAT64:
            return self.values.copy()  # which lie in as much memory as the text could have held
        values, lost = rounded(self.values, dtype)
        if lost.any():
            raise NotPlain
        return values


def read_number_array(text: NDArray[np.uint8], position: int, budget: Budget) -> NumberArray:
    """The array that begins at `position`.

    What it takes is charged to `budget`, with the array that `values_as` makes of it; the caller
    releases it.

    Raises:
        NotPlain: something else stands there.
        LimitExceeded: too large for the budget.
    """
    room = (len(text) - position) // _MIN_TEXT_BYTES
    budget.charge(room * _WORD_BYTES, "The numbers of the JSON")
    words = np.empty(room, np.uint64)
    # The array may stand inside an object.
    rank = max(0, min(MAX_RANK, budget.limits.max_json_depth - 1))
    shape = np.zeros(rank, np.int64)
    found = np.zeros(_NUM_FOUND, np.int64)
    read = kernels.load().read_number_array
    # Where the first of them is none, the pass over integers would only find that.
    as_floats = int(_DECIMAL.match(text[position : position + _LOOK_BYTES].tobytes()) is not None)
    status = read(text, position, as_floats, words, shape, np.zeros(rank, np.int64), found)
    if status == NOT_INTEGERS:
        as_floats = 1
        status = read(text, position, as_floats, words, shape, np.zeros(rank, np.int64), found)
    if status != READ:
        raise NotPlain
    count = int(found[COUNT])
    budget.charge(2 * count * _WORD_BYTES, "The numbers of the JSON")
    values = words[:count]
    is_wide = bool(found[WIDE])
    if is_wide and found[SEEN] & NEGATIVE:
        raise NotPlain  # negative ones beside some beyond int64: no dtype of integers has both
    return NumberArray(
        values.view(np.float64 if as_floats else np.uint64 if is_wide else np.int64),
        tuple(shape[: found[RANK]].tolist()),
        int(found[END]),
        bool(found[SEEN] & DECIMAL),
        int(found[SPAN]),
    )
