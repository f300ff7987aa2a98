"""Steps on numbers: each becomes another one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from ..codecs import kernels
from ..domain.dtypes import DTYPES, FLOAT32, FLOAT64, INT64, DType
from ..domain.feature import Feature
from ..domain.meaning import Meaning, Quantized
from .step import ValuesRefused, ValueStep, invalid

Numbers = NDArray[Any]
#: Values that are quantized together: they stay in the second-level cache from step to step.
_BLOCK = 1 << 15
#: What becomes of a number beyond the range of its new dtype.
Unfit = Literal["error", "saturate"]


@dataclass(frozen=True, slots=True)
class Cast(ValueStep):
    """`tf.cast`: fractions are cut off. A number that does not fit is an error, or the nearest that fits."""

    name = "cast"
    dtype: DType
    unfit: Unfit = "error"

    def __post_init__(self) -> None:
        if self.dtype.is_string or self.dtype.kind == "complex" or self.dtype.is_narrow:
            raise invalid(self.name, f"{self.dtype} is no dtype of real numbers")

    @override
    def result_dtype(self, dtype: DType) -> DType:
        return self.dtype

    @override
    def convert(self, values: Numbers, feature: Feature) -> Numbers:
        if self.dtype.kind == "bool":
            result: Numbers = np.not_equal(values, 0)
            return result
        if self.dtype.is_float:
            return _as_float(values, self.dtype, self.unfit)
        return _as_integer(values, self.dtype, self.unfit)


def _as_float(values: Numbers, dtype: DType, unfit: Unfit) -> Numbers:
    with np.errstate(over="ignore"):
        converted = values.astype(dtype.numpy)
    beyond = np.isinf(converted) & np.isfinite(values)
    if beyond.any():
        if unfit == "error":
            raise ValuesRefused(beyond, f"a number is beyond the range of {dtype}")
        largest: Any = ml_dtypes.finfo(dtype.numpy).max  # type: ignore[no-untyped-call]
        converted[beyond] = np.where(converted[beyond] > 0, largest, -largest)
    return converted


def _as_integer(values: Numbers, dtype: DType, unfit: Unfit) -> Numbers:
    """Numbers as integers of `dtype`, cut off towards zero."""
    limits = np.iinfo(dtype.numpy)
    if values.dtype.kind == "b":
        return values.astype(dtype.numpy)
    if values.dtype.kind == "f" and values.size:
        least, most = np.trunc(float(values.min())), np.trunc(float(values.max()))  # NaN if there is one
        if least >= float(limits.min) and most < float(limits.max + 1):
            return values.astype(dtype.numpy)
    if values.dtype.kind not in "iu":
        wide = np.trunc(values.astype(np.float64))
        # 2^63 and 2^64 are floats, while the largest integers below them are not.
        low, high = wide < float(limits.min), wide >= float(limits.max + 1)
        if np.isnan(wide).any():
            raise ValuesRefused(np.isnan(wide), f"NaN is no {dtype}")
    else:
        wide = values
        # Compared as Python integers: a uint64 and an int64 have no common dtype in numpy.
        own = np.iinfo(values.dtype)
        low = values < limits.min if own.min < limits.min else np.zeros(values.shape, np.bool_)
        high = values > limits.max if own.max > limits.max else np.zeros(values.shape, np.bool_)
    if not (low.any() or high.any()):
        return wide.astype(dtype.numpy)
    if unfit == "error":
        raise ValuesRefused(low | high, f"a number is beyond the range of {dtype}")
    converted = np.where(low | high, 0, wide).astype(dtype.numpy)
    converted[low], converted[high] = limits.min, limits.max
    return converted


class FloatStep(ValueStep):
    """A step that computes in float32; in float64 where it is given that."""

    @override
    def result_dtype(self, dtype: DType) -> DType:
        return FLOAT64 if dtype is FLOAT64 else FLOAT32

    def check_arguments(self, feature: Feature, numbers: Iterable[float]) -> None:
        """Refuse arguments that the dtype in which the step computes does not hold.

        Raises:
            UnprocessableInput: one is beyond its range (`invalid_transform`).
        """
        dtype = self.result_dtype(feature.dtype)
        with np.errstate(over="ignore"):
            held = np.array(list(numbers)).astype(dtype.numpy)
        if not np.isfinite(held).all():
            raise invalid(self.name, f"it computes in {dtype} here, which does not hold its arguments")


@dataclass(frozen=True, slots=True)
class Scale(FloatStep):
    """`x * factor + offset`, as `tf.keras.layers.Rescaling`."""

    name = "scale"
    factor: float
    offset: float = 0.0

    @override
    def result(self, feature: Feature) -> Feature:
        result = ValueStep.result(self, feature)
        self.check_arguments(feature, (self.factor, self.offset))
        return result

    @override
    def convert(self, values: Numbers, feature: Feature) -> Numbers:
        kind = self.result_dtype(feature.dtype).numpy.type
        scaled: Numbers = np.multiply(values, kind(self.factor), dtype=kind)
        if self.offset:
            np.add(scaled, kind(self.offset), out=scaled)
        return scaled


@dataclass(frozen=True, slots=True)
class Normalize(FloatStep):
    """`(x - mean) / std`: one for all numbers, or one for each place of the last axis."""

    name = "normalize"
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not self.mean:
            raise invalid(self.name, "mean and std must be as long as each other")
        if any(std <= 0 for std in self.std):
            raise invalid(self.name, "std must be above 0")

    @override
    def result(self, feature: Feature) -> Feature:
        _check_last_axis(self, feature, len(self.mean))
        result = ValueStep.result(self, feature)
        self.check_arguments(feature, (*self.mean, *self.std))
        if not np.array(self.std).astype(result.dtype.numpy).all():
            raise invalid(self.name, f"a std is 0 in {result.dtype}, in which it computes here")
        return result

    @override
    def convert(self, values: Numbers, feature: Feature) -> Numbers:
        kind = self.result_dtype(feature.dtype).numpy.type
        places = values.reshape(-1, len(self.mean)) if len(self.mean) > 1 else values
        normalized = np.subtract(places, np.array(self.mean, kind), dtype=kind)
        result: Numbers = np.divide(normalized, np.array(self.std, kind), out=normalized)
        return result


def _check_last_axis(step: ValueStep, feature: Feature, length: int) -> None:
    if length > 1 and (feature.kind == "sparse" or not feature.shape or feature.shape[-1] != length):
        raise step.takes(feature, f"a last axis of {length}")


@dataclass(frozen=True, slots=True)
class Clip(ValueStep):
    """`tf.clip_by_value`."""

    name = "clip"
    min: float
    max: float

    def __post_init__(self) -> None:
        if self.min > self.max:
            raise invalid(self.name, "min is above max")

    @override
    def result(self, feature: Feature) -> Feature:
        result = ValueStep.result(self, feature)
        if feature.dtype.kind == "bool":
            raise self.takes(feature, "numbers")
        if not feature.dtype.is_float:
            limits = np.iinfo(feature.dtype.numpy)
            if not limits.min <= self.min <= self.max <= limits.max or self.min % 1 or self.max % 1:
                raise self.takes(feature, f"a dtype that holds {self.min} and {self.max}")
        return result

    @override
    def result_dtype(self, dtype: DType) -> DType:
        return dtype

    @override
    def convert(self, values: Numbers, feature: Feature) -> Numbers:
        kind = values.dtype.type
        low, high = (self.min, self.max) if feature.dtype.is_float else (int(self.min), int(self.max))
        result: Numbers = np.minimum(np.maximum(values, kind(low)), kind(high))
        return result


@dataclass(frozen=True, slots=True)
class Bucketize(ValueStep):
    """The number of boundaries at or below each number, as `tf.keras.layers.Discretization`: int64."""

    name = "bucketize"
    boundaries: tuple[float, ...]

    def __post_init__(self) -> None:
        if any(low >= high for low, high in zip(self.boundaries, self.boundaries[1:], strict=False)):
            raise invalid(self.name, "the boundaries must increase")

    @override
    def result_dtype(self, dtype: DType) -> DType:
        return INT64

    @override
    def convert(self, values: Numbers, feature: Feature) -> Numbers:
        if feature.dtype.is_float and np.isnan(values).any():
            raise ValuesRefused(np.isnan(values), "NaN lies in no bucket")
        kind = np.float64 if values.dtype == np.float64 else np.float32
        return np.searchsorted(np.array(self.boundaries, kind), values.astype(kind), "right").astype(np.int64)


@dataclass(frozen=True, slots=True)
class Quantize(ValueStep):
    """Affine quantization as TensorFlow Lite has it: `round(x / scale) + zero_point`.

    Args:
        dtype: int8, uint8, int16 or uint16.
        min, max: the range that all integers stand for, widened to hold 0; or
        scale, zero_point: of all numbers, or one for each place of the last axis.
        unfit: what becomes of numbers beyond the range.
    """

    name = "quantize"
    dtype: DType
    min: float | None = None
    max: float | None = None
    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()
    unfit: Unfit = "saturate"

    def __post_init__(self) -> None:
        if self.dtype.name not in _QUANTIZED:
            raise invalid(self.name, f"dtype must be one of {', '.join(_QUANTIZED)}")
        has_range = self.min is not None and self.max is not None
        if has_range == bool(self.scale) or (self.min is None) != (self.max is None):
            raise invalid(self.name, "either min and max are given, or scale")
        if self.min is not None and self.max is not None and self.min >= self.max:
            raise invalid(self.name, "min is not below max")
        if self.min is not None and self.max is not None and not _is_scale(self._step):
            raise invalid(self.name, "min and max are too near or too far apart for a scale in float32")
        _check_affine(self.name, self.scale, self.zero_point, self.dtype)

    @property
    def _step(self) -> float:
        """Between two integers, if all of them stand for the range from `min` to `max`, widened to hold 0."""
        limits = np.iinfo(self.dtype.numpy)
        return (max(self.max or 0.0, 0.0) - min(self.min or 0.0, 0.0)) / (int(limits.max) - int(limits.min))

    @property
    def affine(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Scale and zero point: what `dequantize` takes."""
        if self.min is None or self.max is None:
            return self.scale, self.zero_point or (0,) * len(self.scale)
        limits = np.iinfo(self.dtype.numpy)
        scale = float(np.float32(self._step))
        exact = limits.min - min(self.min, 0.0) / scale
        zero = int(np.clip(np.trunc(exact + np.copysign(0.5, exact)), limits.min, limits.max))
        return (scale,), (zero,)

    @override
    def result(self, feature: Feature) -> Feature:
        _check_last_axis(self, feature, len(self.affine[0]))
        if not feature.dtype.is_float:
            raise self.takes(feature, "floats")
        return replace(ValueStep.result(self, feature), meaning=Meaning(quantized=Quantized(*self.affine)))

    @override
    def result_dtype(self, dtype: DType) -> DType:
        return self.dtype

    @override
    def convert(self, values: Numbers, feature: Feature) -> Numbers:
        # `max` is NaN where one of them is.
        if values.size and np.isnan(values.max()):
            raise ValuesRefused(np.isnan(values), "NaN cannot be quantized")
        scales, zeros = self.affine
        # A block of values at a time stays in the second-level cache.
        places = max(1, _BLOCK // len(scales))
        divisors, offsets = (np.tile(np.array(item, np.float32), places) for item in (scales, zeros))
        limits = np.iinfo(self.dtype.numpy)
        least, largest = (-np.inf, np.inf) if self.unfit == "error" else (limits.min, limits.max)
        bounds = np.array((least, largest), np.float32)
        flat, quantized = values.reshape(-1), np.empty(values.size, self.dtype.numpy)
        for begin in range(0, values.size, len(divisors)):
            block = flat[begin : begin + len(divisors)].astype(np.float32, copy=False)
            numbers = np.empty(len(block), np.float32)
            kernels.load().quantize_singles(block, divisors, offsets, bounds, numbers)
            if self.unfit == "error":
                beyond = (numbers < limits.min) | (numbers > limits.max)
                if beyond.any():
                    where = np.zeros(values.size, np.bool_)
                    where[begin : begin + len(block)] = beyond
                    raise ValuesRefused(where, "a number is beyond the range that is quantized")
            quantized[begin : begin + len(block)] = numbers
        return quantized


@dataclass(frozen=True, slots=True)
class Dequantize(ValueStep):
    """`(x - zero_point) * scale`, float32: the inverse of `quantize`, to within half a step."""

    name = "dequantize"
    scale: tuple[float, ...]
    zero_point: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.scale:
            raise invalid(self.name, "it needs a scale")
        _check_affine(self.name, self.scale, self.zero_point, DTYPES["int32"])

    @override
    def result(self, feature: Feature) -> Feature:
        _check_last_axis(self, feature, len(self.scale))
        if feature.dtype.kind not in ("int", "uint") or feature.dtype.itemsize > 4:
            raise self.takes(feature, "integers of at most 32 bits")
        return ValueStep.result(self, feature)

    @override
    def result_dtype(self, dtype: DType) -> DType:
        return FLOAT32

    @override
    def convert(self, values: Numbers, feature: Feature) -> Numbers:
        kind = np.float32 if feature.dtype.itemsize < 4 else np.float64
        zeros = np.array(self.zero_point or (0,) * len(self.scale), kind)
        numbers = np.subtract(values.reshape(-1, len(self.scale)), zeros, dtype=kind)
        result: Numbers = np.multiply(numbers, np.array(self.scale, kind), out=numbers).astype(
            np.float32, copy=False
        )
        return result


def _is_scale(number: float) -> bool:
    """Whether it is above 0 in float32, with all its digits, and not infinite."""
    limits: Any = np.finfo(np.float32)
    return float(limits.tiny) <= number <= float(limits.max)


_QUANTIZED = ("int8", "uint8", "int16", "uint16")


def _check_affine(name: str, scale: tuple[float, ...], zero_point: tuple[int, ...], dtype: DType) -> None:
    if not all(map(_is_scale, scale)):
        raise invalid(name, "a scale must be above 0, and in the range of float32")
    if zero_point and len(zero_point) != len(scale):
        raise invalid(name, "there must be as many zero points as scales")
    limits = np.iinfo(dtype.numpy)
    if any(not limits.min <= item <= limits.max for item in zero_point):
        raise invalid(name, f"a zero point is beyond the range of {dtype}")
