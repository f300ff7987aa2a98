"""Statistics of values that arrive in pieces, in memory that does not grow with their number.

Of numbers: least, greatest, mean and standard deviation (of the population) of the finite ones, and how
many are zero, NaN or infinite. Integers keep every digit; means are float64, combined over pieces by Chan,
Golub and LeVeque's formula (1979). Of strings: their lengths in bytes. Whatever float64 does not hold, and
everything about no values at all, is null. Where more detail is asked for, also how the values are spread
(`distribution`), and of images what their headers say. The statistics of parts can be merged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Required, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from ...codecs.columns import Column, Strings
from ...domain.dtypes import INT64, DType
from ...domain.feature import Feature
from ...runtime.turns import offer_turn
from .distribution import Detail, DistributionJson, Numbers, Texts, ValuesJson
from .image_headers import ImageHeaders, ImagesJson

NumberT = TypeVar("NumberT", int, float)

#: Values looked at together; what is computed of them stays below some MiB.
_PIECE: Final = 1 << 18
#: Values whose float64 stay in the second-level cache.
_CACHED: Final = 1 << 14


@dataclass(slots=True)
class Range(Generic[NumberT]):
    """The least and the greatest of some numbers."""

    least: NumberT | None = None
    greatest: NumberT | None = None

    def add(self, numbers: NDArray[Any]) -> None:
        """Take in finite numbers."""
        if len(numbers):
            self.merge(Range(*_find_bounds(numbers)))

    def merge(self, other: Range[NumberT]) -> None:
        """Take in the range of other numbers."""
        if other.least is not None:
            self.least = other.least if self.least is None else min(self.least, other.least)
        if other.greatest is not None:
            self.greatest = other.greatest if self.greatest is None else max(self.greatest, other.greatest)


@dataclass(slots=True)
class _Moments:
    """Number, mean and sum of squared deviations."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, numbers: NDArray[Any]) -> None:
        """Take in finite numbers."""
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(numbers), _CACHED):
                deviations = numbers[start : start + _CACHED].astype(np.float64)
                mean = float(np.add.reduce(deviations)) / len(deviations)
                deviations -= mean
                squares = float(np.einsum("i,i", deviations, deviations))  # without a copy of the squares
                self.merge(_Moments(len(deviations), mean, squares))

    def merge(self, other: _Moments) -> None:
        if not other.count:
            return
        apart = other.mean - self.mean
        total = self.count + other.count
        self.squares += other.squares + apart * apart * (self.count * other.count / total)
        self.mean += apart * (other.count / total)
        self.count = total

    def to_json(self) -> StatisticsJson:
        if not self.count:
            return {"mean": None, "std": None}
        # Squares of large numbers are infinite, and what is added to these may be no number.
        return {"mean": _finite(self.mean), "std": _finite(math.sqrt(self.squares / self.count))}


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


def _find_sizes(bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    return bounds[1:] - bounds[:-1]


def _find_bounds(numbers: NDArray[Any]) -> tuple[Any, Any]:
    """The least and the greatest, int or float; one of them at least is not finite if any number is not."""
    # Of the two zeros one.
    return numbers.min().item() + 0, numbers.max().item() + 0


@dataclass(slots=True)
class NumberStatistics:
    """Of the values of one feature or tensor that are numbers.

    Attributes:
        dtype: of the values; a complex number has neither order nor, here, a mean.
        spread: how those that are finite are spread, if that is asked for.
    """

    dtype: DType
    spread: Numbers | None = None
    num_zeros: int = 0
    num_nan: int = 0
    num_infinite: int = 0
    range: Range[float] = field(default_factory=Range)
    moments: _Moments = field(default_factory=_Moments)

    def add(self, values: NDArray[Any]) -> None:
        """Take in flat values of `dtype.numpy`."""
        for start in range(0, len(values), _PIECE):
            offer_turn()
            piece = values[start : start + _PIECE]
            if self.dtype.kind == "complex":
                self._only_finite(piece)
                self.num_zeros += len(piece) - int(np.count_nonzero(piece))
            else:
                self._add_real(piece)

    def _add_real(self, piece: NDArray[Any]) -> None:
        if self.dtype.itemsize <= 2:  # those of ml_dtypes have few functions, and slow ones
            piece = piece.astype(np.float32 if self.dtype.is_float else np.int32)
        low, high = _find_bounds(piece)
        if not math.isfinite(low) or not math.isfinite(high):
            piece = piece[self._only_finite(piece)]
            if not len(piece):
                return
            low, high = _find_bounds(piece)
        if low <= 0 <= high:
            self.num_zeros += len(piece) - int(np.count_nonzero(piece))
        self.range.merge(Range(low, high))
        self.moments.add(piece)
        if self.spread is not None:
            self.spread.add(piece, low, high)

    def _only_finite(self, piece: NDArray[Any]) -> NDArray[np.bool_]:
        """Which are finite; the others are counted."""
        finite: NDArray[np.bool_] = np.isfinite(piece)
        num_nan = int(np.count_nonzero(np.isnan(piece)))
        self.num_nan += num_nan
        self.num_infinite += len(piece) - int(np.count_nonzero(finite)) - num_nan
        return finite

    def merge(self, other: NumberStatistics) -> None:
        """Take in what was found of other values of the same dtype."""
        self.num_zeros += other.num_zeros
        self.num_nan += other.num_nan
        self.num_infinite += other.num_infinite
        self.range.merge(other.range)
        self.moments.merge(other.moments)
        if self.spread is not None and other.spread is not None:
            self.spread.merge(other.spread)

    def distribution(self) -> DistributionJson | None:
        """How the finite ones are spread."""
        if self.spread is None:
            return None
        return self.spread.distribution(self.moments.count, self.range.least, self.range.greatest)

    def to_json(self) -> StatisticsJson:
        found: StatisticsJson = {}
        if self.dtype.kind != "complex":
            found = {"min": self.range.least, "max": self.range.greatest}
            found |= self.moments.to_json()
        found["num_zeros"] = self.num_zeros
        if self.dtype.is_float or self.dtype.kind == "complex":
            found |= {"num_nan": self.num_nan, "num_infinite": self.num_infinite}
        return found


@dataclass(slots=True)
class LengthStatistics:
    """Of the values of one feature or tensor that are strings: of their lengths in bytes.

    Attributes:
        spread: how they are spread, if that is asked for.
    """

    spread: Numbers | None = None
    num_empty: int = 0
    range: Range[int] = field(default_factory=Range)
    moments: _Moments = field(default_factory=_Moments)

    def add(self, lengths: NDArray[np.int64]) -> None:
        """Take in the lengths of strings."""
        for start in range(0, len(lengths), _PIECE):
            piece = lengths[start : start + _PIECE]
            low, high = _find_bounds(piece)
            if not low:
                self.num_empty += len(piece) - int(np.count_nonzero(piece))
            self.range.merge(Range(low, high))
            self.moments.add(piece)
            if self.spread is not None:
                self.spread.add(piece, low, high)

    def merge(self, other: LengthStatistics) -> None:
        """Take in what was found of other strings."""
        self.num_empty += other.num_empty
        self.range.merge(other.range)
        self.moments.merge(other.moments)
        if self.spread is not None and other.spread is not None:
            self.spread.merge(other.spread)

    def distribution(self) -> DistributionJson | None:
        """How the lengths are spread."""
        if self.spread is None:
            return None
        return self.spread.distribution(self.moments.count, self.range.least, self.range.greatest)

    def to_json(self) -> StatisticsJson:
        return {
            "min_length": self.range.least,
            "max_length": self.range.greatest,
            "mean_length": self.moments.to_json()["mean"],
            "num_empty": self.num_empty,
        }


class FeatureStatisticsJson(StatisticsJson, total=False):
    """Of one feature; `min_num_values` and `max_num_values` where rows differ in their number of values."""

    num_present: Required[int]
    num_missing: Required[int]
    num_values: Required[int]
    min_num_values: int | None
    max_num_values: int | None


class DetailedStatisticsJson(FeatureStatisticsJson, total=False):
    """Of one feature of a version. Of strings, `distribution` is that of their lengths.

    `values` is there unless they are complex numbers; `num_values_distribution` where rows differ in their
    number of values; `images` where the strings are images.
    """

    distribution: DistributionJson | None
    values: ValuesJson
    num_values_distribution: DistributionJson | None
    images: ImagesJson


class FeatureStatistics:
    """Of one column, batch by batch; those of several parts of the rows can be merged.

    Args:
        detail: what is found of how values are spread; None: nothing.
    """

    def __init__(self, feature: Feature, detail: Detail | None = None) -> None:
        self._feature = feature
        self._num_present = 0
        self._num_missing = 0
        self._num_values = 0
        is_string = feature.dtype.is_string
        self._values: LengthStatistics | NumberStatistics
        self._values = LengthStatistics() if is_string else NumberStatistics(feature.dtype)
        self._values_of_a_row = LengthStatistics()
        self._texts: Texts | None = None
        self._images: ImageHeaders | None = None
        self._is_detailed = detail is not None
        if detail is not None:
            self._look_closely(feature, detail)

    def _look_closely(self, feature: Feature, detail: Detail) -> None:
        if feature.dtype.is_string:
            self._values.spread = _lengths(detail)
            self._texts, self._images = Texts(detail), ImageHeaders(detail.image_stride, detail.seed)
        elif feature.dtype.kind != "complex":
            # Elements of tensors are too many, and of one byte too few, to estimate how many differ.
            finds = feature.dtype.itemsize > 1 and (feature.is_scalar or not feature.dtype.is_float)
            self._values.spread = Numbers(feature.dtype, detail, find_different=finds)
        if self._varies(feature):
            self._values_of_a_row.spread = _lengths(detail)

    def add(self, column: Column, num_rows: int) -> None:
        """Take in a column of a batch with so many rows."""
        num_present = column.count(num_rows)
        self._num_missing += num_rows - num_present
        if not num_present:
            return  # as most columns are where each row has few of thousands of features
        self._num_present += num_present
        values = column.values
        self._num_values += len(values)
        if self._varies(self._feature):
            self._values_of_a_row.add(_find_sizes(column.value_bounds(num_rows)))
        if isinstance(values, Strings):
            cast(LengthStatistics, self._values).add(_find_sizes(values.offsets))
            if self._texts is not None and self._images is not None:
                self._texts.add(values)
                self._images.add(values)
        else:
            cast(NumberStatistics, self._values).add(values)

    def merge(self, other: FeatureStatistics) -> None:
        """Take in what was found of the same feature in other rows, which come behind these."""
        self._num_present += other._num_present
        self._num_missing += other._num_missing
        self._num_values += other._num_values
        self._values_of_a_row.merge(other._values_of_a_row)
        if isinstance(self._values, LengthStatistics):
            self._values.merge(cast(LengthStatistics, other._values))
        else:
            self._values.merge(cast(NumberStatistics, other._values))
        if self._texts is not None and other._texts is not None:
            self._texts.merge(other._texts)
        if self._images is not None and other._images is not None:
            self._images.merge(other._images)

    def to_json(self, feature: Feature | None = None) -> DetailedStatisticsJson:
        """What was found.

        Args:
            feature: its lengths may have been found meanwhile.
        """
        varies = self._varies(self._feature if feature is None else feature)
        described: DetailedStatisticsJson = {
            "num_present": self._num_present,
            "num_missing": self._num_missing,
            "num_values": self._num_values,
        }
        if varies:
            described["min_num_values"] = self._values_of_a_row.range.least
            described["max_num_values"] = self._values_of_a_row.range.greatest
        described |= cast(DetailedStatisticsJson, self._values.to_json())
        if not self._is_detailed:
            return described
        described["distribution"] = self._values.distribution()
        if varies:
            described["num_values_distribution"] = self._values_of_a_row.distribution()
        if self._texts is not None:
            described["values"] = self._texts.values()
        elif self._values.spread is not None:
            described["values"] = self._values.spread.values()
        if self._images is not None and (images := self._images.to_json()) is not None:
            described["images"] = images
        return described

    @staticmethod
    def _varies(feature: Feature) -> bool:
        """Whether rows may differ in their number of values."""
        return feature.num_unknown > 0 or feature.kind == "sparse"


def _lengths(detail: Detail) -> Numbers:
    return Numbers(INT64, detail, find_frequent=False, find_different=False)
