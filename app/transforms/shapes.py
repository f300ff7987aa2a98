"""Steps on the shape of a value, and on values that are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from ..codecs.columns import Column, Strings
from ..domain.dtypes import FLOAT32, DType
from ..domain.feature import Encoding, Feature, FeatureShape
from ..domain.tensor import check_shape, num_elements
from .step import ArrayRefused, ArrayStep, Memory, RowsRefused, Step, Tools, changed, invalid, row_arrays

Array = NDArray[Any]


#: Indices that are made one-hot at a time.
_BLOCK: Final = 1 << 14
#: Of an array of numpy.
_MAX_DIMS: Final = 64
_MAX_ITEMSIZE: Final = 16


def _require_dense_numbers(step: Step, feature: Feature) -> None:
    if feature.dtype.is_string or feature.kind != "dense" or len(feature.shape) > _MAX_DIMS:
        raise step.takes(feature, f"dense numbers of at most {_MAX_DIMS} dimensions")


@dataclass(frozen=True, slots=True)
class Reshape(ArrayStep):
    """`tf.reshape`; one dimension may be -1."""

    name = "reshape"
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.shape.count(-1) > 1 or any(dim < -1 for dim in self.shape) or len(self.shape) > _MAX_DIMS:
            raise invalid(
                self.name,
                f"a shape has at most {_MAX_DIMS} dimensions of 0 and more, of which one may be -1",
            )
        check_shape([dim for dim in self.shape if dim != -1])

    @override
    def result(self, feature: Feature) -> Feature:
        _require_dense_numbers(self, feature)
        known = num_elements([dim for dim in self.shape if dim != -1])
        count, rest = feature.num_values, None
        if count is not None:
            rest = count // known if known else 0
            if count != known * (rest if -1 in self.shape else 1):
                raise self.takes(feature, f"what has the values of {list(self.shape)}")
        return changed(feature, shape=tuple(rest if dim == -1 else dim for dim in self.shape))

    @override
    def convert(self, array: Array) -> Array:
        try:
            return array.reshape(self.shape)
        except ValueError:
            raise ArrayRefused(f"{array.size} values do not fill the shape {list(self.shape)}") from None


@dataclass(frozen=True, slots=True)
class Flatten(ArrayStep):
    """All values on one axis, row-major."""

    name = "flatten"

    @override
    def result(self, feature: Feature) -> Feature:
        _require_dense_numbers(self, feature)
        return changed(feature, shape=(feature.num_values,))

    @override
    def convert(self, array: Array) -> Array:
        return array.reshape(-1)


@dataclass(frozen=True, slots=True)
class Transpose(ArrayStep):
    """`tf.transpose`; without `perm` the axes in reverse."""

    name = "transpose"
    perm: tuple[int, ...] | None = None

    @override
    def result(self, feature: Feature) -> Feature:
        _require_dense_numbers(self, feature)
        axes = self._axes(len(feature.shape))
        if sorted(axes) != list(range(len(feature.shape))):
            raise self.takes(feature, f"as many axes as {list(axes)} has, each once")
        return changed(feature, shape=tuple(feature.shape[axis] for axis in axes))

    def _axes(self, rank: int) -> tuple[int, ...]:
        return tuple(reversed(range(rank))) if self.perm is None else self.perm

    @override
    def convert(self, array: Array) -> Array:
        return array.transpose(self._axes(array.ndim))


@dataclass(frozen=True, slots=True)
class PadTo(ArrayStep):
    """Values of `value` behind the last one of each axis, up to `shape`; a longer axis is an error."""

    name = "pad_to"
    shape: tuple[int, ...]
    value: float = 0.0

    def __post_init__(self) -> None:
        if any(dim < 0 for dim in self.shape):
            raise invalid(self.name, "a shape has dimensions of 0 and more")
        check_shape((*self.shape, _MAX_ITEMSIZE))  # of bytes numpy has no more, even where none is there

    @override
    def result(self, feature: Feature) -> Feature:
        _require_dense_numbers(self, feature)
        dims = zip(feature.shape, self.shape, strict=False)
        if len(self.shape) != len(feature.shape) or any(dim is not None and dim > to for dim, to in dims):
            raise self.takes(feature, f"what fits into the shape {list(self.shape)}")
        _fill_value(self, feature, self.value)
        return changed(feature, shape=self.shape)

    @override
    def memory(self, shape: Sequence[int], dtype: DType) -> Memory:
        return Memory(num_elements(self.shape) * dtype.itemsize)

    @override
    def convert(self, array: Array) -> Array:
        if any(dim > to for dim, to in zip(array.shape, self.shape, strict=True)):
            raise ArrayRefused(f"its shape {list(array.shape)} is larger than {list(self.shape)}")
        padded = np.full(self.shape, self.value, array.dtype)
        padded[tuple(map(slice, array.shape))] = array
        return padded


def _fill_value(step: Step, feature: Feature, value: float) -> Any:
    """The value in the feature's dtype, which must hold it exactly unless it is a float or complex."""
    if feature.dtype.kind in ("float", "complex"):
        with np.errstate(over="ignore"):
            number = feature.dtype.numpy.type(value)
        if np.isinf(number):
            raise step.takes(feature, f"a dtype that holds {value}")
        return number
    least, most = feature.dtype.bounds
    if value % 1 or not least <= value <= most:
        raise step.takes(feature, f"a dtype that holds {value}")
    return feature.dtype.numpy.type(int(value))


@dataclass(frozen=True, slots=True)
class FillMissing(Step):
    """`value` in rows that lack the feature, which then has it everywhere."""

    name = "fill_missing"
    value: float | str

    @override
    def result(self, feature: Feature) -> Feature:
        if feature.kind != "dense" or None in feature.shape:
            raise self.takes(feature, "dense values of a known shape")
        if feature.dtype.is_string != isinstance(self.value, str):
            raise self.takes(feature, f"what holds {self.value!r}")
        if not isinstance(self.value, str):
            _fill_value(self, feature, self.value)
        return replace(feature, nullable=False)

    @override
    def apply(self, column: Column, feature: Feature, num_rows: int, tools: Tools) -> Column:
        present = column.present
        if present is None:
            return column
        width = feature.known_values
        if isinstance(column.values, Strings):
            filler = [str(self.value).encode()] * width
            tools.lease.charge(column.nbytes + num_rows * width * (8 + len(str(self.value))), "Filled values")
            rows = iter(_rows_of_strings(column.values, width))
            filled = [item for has in present.tolist() for item in (next(rows) if has else filler)]
            return Column(Strings.pack(filled), (), None, width)
        assert not isinstance(self.value, str)  # noqa: S101  # `result` refused it; this is for the type
        tools.lease.charge(num_rows * width * column.values.itemsize, "Filled values")
        fill = _fill_value(self, feature, self.value)
        values = np.full((num_rows, width), fill, column.values.dtype)
        values[present] = column.values.reshape(-1, width)
        return Column(values.reshape(-1), (), None, width)


def _rows_of_strings(strings: Strings, width: int) -> list[list[bytes]]:
    items = strings.unpack()
    return [items[at : at + width] for at in range(0, len(items), max(width, 1))]


@dataclass(frozen=True, slots=True)
class StoreAs(Step):
    """How an Example holds the values: as a `list`, as `raw` bytes or as a serialized `tensor`."""

    name = "store_as"
    encoding: Encoding

    @override
    def result(self, feature: Feature) -> Feature:
        return replace(feature, encoding=self.encoding)

    @override
    def apply(self, column: Column, feature: Feature, num_rows: int, tools: Tools) -> Column:
        return column


@dataclass(frozen=True, slots=True)
class OneHot(Step):
    """`tf.one_hot`: a last axis of `depth`. An index that is not on it is an error."""

    name = "one_hot"
    depth: int
    dtype: DType = FLOAT32
    on_value: float = 1.0
    off_value: float = 0.0

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise invalid(self.name, "depth must be at least 1")
        if self.dtype.is_string or self.dtype.kind == "complex" or self.dtype.is_narrow:
            raise invalid(self.name, f"{self.dtype} is no dtype of real numbers")

    @override
    def result(self, feature: Feature) -> Feature:
        if feature.kind != "dense" or feature.dtype.kind not in ("int", "uint") or feature.dtype.is_narrow:
            raise self.takes(feature, "dense integers")
        if feature.num_unknown > 1:
            raise self.takes(feature, "a shape with at most one unknown dimension")
        shape: FeatureShape = (*feature.shape, self.depth)
        check_shape([dim for dim in shape if dim is not None])
        result = changed(feature, self.dtype, shape)
        _fill_value(self, result, self.on_value)
        _fill_value(self, result, self.off_value)
        return result

    @override
    def apply(self, column: Column, feature: Feature, num_rows: int, tools: Tools) -> Column:
        indices = column.values
        assert not isinstance(indices, Strings)  # noqa: S101  # `result` refused them; this is for the type
        if indices.size and (indices.min() < 0 or indices.max() >= self.depth):
            outside = (indices < 0) | (indices >= self.depth)
            rows = [bool(row.any()) for row in row_arrays(replace(column, values=outside), feature, num_rows)]
            reason = f"an index is not below the depth of {self.depth}"
            raise RowsRefused({index: reason for index, is_outside in enumerate(rows) if is_outside})
        tools.lease.charge(len(indices) * self.depth * self.dtype.itemsize, "The step one_hot")
        result = self.result(feature)
        on, off = (_fill_value(self, result, value) for value in (self.on_value, self.off_value))
        size, dtype = len(indices) * self.depth, self.dtype.numpy
        # Zeros come from the system as they are, and are touched once.
        values = np.full(size, off, dtype) if any(off.tobytes()) else np.zeros(size, dtype)
        begins = np.arange(0, min(len(indices), _BLOCK) * self.depth, self.depth)
        for first in range(0, len(indices), _BLOCK):  # of which the places stay in the cache
            block = indices[first : first + _BLOCK].astype(np.int64)
            values[first * self.depth :][begins[: len(block)] + block] = on
        splits = tuple(split * self.depth for split in column.splits)
        return Column(values, splits, column.present, column.width if splits else column.width * self.depth)
