"""Statistics of values that arrive in pieces, in memory that does not grow with their number.

Of numbers: least, greatest, mean and standard deviation (of the population) of the finite ones, and how
many are zero, NaN or infinite. Integers keep every digit; means are float64, combined over pieces by Chan,
Golub and LeVeque's formula (1979). Of strings: their lengths in bytes. Whatever float64 does not hold, and
everything about no values at all, is null.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from ...domain.dtypes import DType
from ...runtime.turns import offer_turn

#: Values looked at together; what is computed of them stays below some MiB.
_PIECE: Final = 1 << 18


@dataclass(slots=True)
class Range:
    """The least and the greatest of whole numbers."""

    least: int | None = None
    greatest: int | None = None

    def add(self, numbers: NDArray[Any]) -> None:
        if len(numbers):
            low, high = int(numbers.min()), int(numbers.max())
            self.least = low if self.least is None else min(self.least, low)
            self.greatest = high if self.greatest is None else max(self.greatest, high)


@dataclass(slots=True)
class _Moments:
    """Number, mean and sum of squared deviations."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, numbers: NDArray[np.float64]) -> None:
        if not len(numbers):
            return
        count = len(numbers)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(numbers.mean())
            squares = float(np.square(numbers - mean).sum())
            apart = mean - self.mean
            total = self.count + count
            self.squares += squares + apart * apart * (self.count * count / total)
            self.mean += apart * (count / total)
        self.count = total

    def to_json(self) -> StatisticsJson:
        if not self.count:
            return {"mean": None, "std": None}
        return {"mean": _finite(self.mean), "std": _finite(math.sqrt(max(0.0, self.squares / self.count)))}


class StatisticsJson(TypedDict, total=False):
    """Of values: those of numbers, or of the lengths of strings in bytes.

    Null is what there is none of, and what float64 does not hold. Integers are exact.
    """

    min: float | None
    max: float | None
    mean: float | None
    std: float | None
    num_zeros: int
    num_nan: int
    num_infinite: int
    min_length: int | None
    max_length: int | None
    mean_length: float | None
    num_empty: int


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


@dataclass(slots=True)
class NumberStatistics:
    """Of the values of one feature or tensor that are numbers.

    Attributes:
        dtype: of the values; a complex number has neither order nor, here, a mean.
    """

    dtype: DType
    num_zeros: int = 0
    num_nan: int = 0
    num_infinite: int = 0
    range: Range = field(default_factory=Range)
    float_min: float = math.inf
    float_max: float = -math.inf
    moments: _Moments = field(default_factory=_Moments)

    def add(self, values: NDArray[Any]) -> None:
        """Take in flat values of `dtype.numpy`."""
        for start in range(0, len(values), _PIECE):
            offer_turn()
            piece = values[start : start + _PIECE]
            if self.dtype.is_float:
                # Those of ml_dtypes have few functions of their own.
                piece = piece.astype(np.float64)
                self._add_floats(piece)
            elif self.dtype.kind == "complex":
                self._count_non_finite(piece)
            else:
                piece = piece.astype(np.int16) if self.dtype.itemsize == 1 else piece
                self.range.add(piece)
                self.moments.add(piece.astype(np.float64))
            self.num_zeros += len(piece) - int(np.count_nonzero(piece))

    def _count_non_finite(self, piece: NDArray[Any]) -> NDArray[np.bool_]:
        finite: NDArray[np.bool_] = np.isfinite(piece)
        num_nan = int(np.count_nonzero(np.isnan(piece)))
        self.num_nan += num_nan
        self.num_infinite += len(piece) - int(np.count_nonzero(finite)) - num_nan
        return finite

    def _add_floats(self, piece: NDArray[np.float64]) -> None:
        finite = self._count_non_finite(piece)
        numbers = piece[finite]
        if len(numbers):
            self.float_min = min(self.float_min, float(numbers.min()))
            self.float_max = max(self.float_max, float(numbers.max()))
            self.moments.add(numbers)

    def to_json(self) -> StatisticsJson:
        found: StatisticsJson = {}
        if self.dtype.is_float:
            found = {"min": _finite(self.float_min), "max": _finite(self.float_max)}
        elif self.dtype.kind != "complex":
            found = {"min": self.range.least, "max": self.range.greatest}
        if self.dtype.kind != "complex":
            found |= self.moments.to_json()
        found["num_zeros"] = self.num_zeros
        if self.dtype.is_float or self.dtype.kind == "complex":
            found |= {"num_nan": self.num_nan, "num_infinite": self.num_infinite}
        return found


@dataclass(slots=True)
class LengthStatistics:
    """Of the values of one feature or tensor that are strings: of their lengths in bytes."""

    num_empty: int = 0
    range: Range = field(default_factory=Range)
    moments: _Moments = field(default_factory=_Moments)

    def add(self, lengths: NDArray[np.int64]) -> None:
        """Take in the lengths of strings."""
        for start in range(0, len(lengths), _PIECE):
            piece = lengths[start : start + _PIECE]
            self.num_empty += len(piece) - int(np.count_nonzero(piece))
            self.range.add(piece)
            self.moments.add(piece.astype(np.float64))

    def to_json(self) -> StatisticsJson:
        return {
            "min_length": self.range.least,
            "max_length": self.range.greatest,
            "mean_length": self.moments.to_json()["mean"],
            "num_empty": self.num_empty,
        }
