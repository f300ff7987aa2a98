"""Tensors of every kind: dense, sparse (coordinates and values) and ragged (values and row splits)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import LimitExceeded, MalformedInput, UnprocessableInput
from .dtypes import DType

__all__ = [
    "MAX_DIM",
    "MAX_RANK",
    "AnyTensor",
    "NamedAny",
    "NamedTensor",
    "RaggedTensor",
    "Shape",
    "SparseTensor",
    "Tensor",
    "check_distinct",
    "check_shape",
    "num_elements",
    "tensor_from_array",
]

Shape = tuple[int, ...]

#: TensorFlow's own: `TensorShape::MaxDimensions()` in tensorflow/core/framework/tensor_shape.h.
MAX_RANK: Final = 254
#: A dimension is an int64 in TensorShapeProto.
MAX_DIM: Final = 2**63 - 1
_STRINGS_AT_ONCE: Final = 65_536


def check_distinct(names: Iterable[str | None]) -> None:
    """Refuse two tensors of one name; any number may have none.

    Raises:
        UnprocessableInput: `duplicate_name`.
    """
    seen: set[str] = set()
    for name in names:
        if name is None:
            continue
        if name in seen:
            raise UnprocessableInput(
                f"Two tensors are called {name[:64]!r}. Rename one of them.",
                code="duplicate_name",
                feature=name,
            )
        seen.add(name)


def num_elements(shape: Sequence[int]) -> int:
    """The product of the dimensions; exact, since Python's integers do not overflow."""
    return math.prod(shape)


def check_shape(shape: Sequence[object], *, offset: int | None = None) -> Shape:
    """The shape as a tuple of non-negative ints that TensorFlow can hold.

    Every dimension is capped even when another one is 0, as TensorFlow does.

    Raises:
        MalformedInput: a dimension is not an integer, is negative, or does not fit an int64.
        LimitExceeded: more than 254 dimensions, or 2^63 elements or more.
    """
    if len(shape) > MAX_RANK:
        raise LimitExceeded(
            f"The shape has {len(shape)} dimensions; TensorFlow holds at most {MAX_RANK}.",
            code="rank_too_large",
            offset=offset,
        )
    dims: list[int] = []
    for dim in shape:
        if not isinstance(dim, int) or isinstance(dim, bool) or not 0 <= dim <= MAX_DIM:
            raise MalformedInput(
                f"Dimension {str(dim)[:40]} is not an integer from 0 to 2^63-1.",
                code="invalid_shape",
                offset=offset,
            )
        dims.append(dim)
    if math.prod(dim for dim in dims if dim) > MAX_DIM:
        raise LimitExceeded(
            "The dimensions multiply to more than 2^63-1.", code="shape_too_large", offset=offset
        )
    return tuple(dims)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """One array.

    Attributes:
        dtype: never `text` or `bytes`; a tensor of strings is `string`.
        shape: up to 254 dimensions (numpy stops at 64, hence the flat values).
        values: one-dimensional, C-contiguous, `num_elements(shape)` long, of `dtype.numpy`
            (little-endian); for strings an object array of `bytes`.
    """

    dtype: DType
    shape: Shape
    values: NDArray[Any]

    def __post_init__(self) -> None:
        if self.values.ndim != 1 or self.values.dtype != self.dtype.numpy:
            raise ValueError(f"values must be flat {self.dtype.numpy}, not {self.values.dtype}")
        if len(self.values) != num_elements(self.shape):
            raise UnprocessableInput(
                f"Shape {list(self.shape)} takes {num_elements(self.shape)} elements, "
                f"but there are {len(self.values)}.",
                code="shape_mismatch",
            )

    @property
    def num_bytes(self) -> int:
        """Bytes of the elements, without any header."""
        return _num_bytes(self.dtype, self.values)


def _num_bytes(dtype: DType, values: NDArray[Any]) -> int:
    if not dtype.is_string:
        return int(values.nbytes)
    # Not at once: one call would hold the interpreter's lock for as long as it takes.
    steps = range(0, len(values), _STRINGS_AT_ONCE)
    return sum(sum(map(len, values[begin : begin + _STRINGS_AT_ONCE])) for begin in steps)


@dataclass(frozen=True, slots=True, eq=False)
class SparseTensor:
    """The elements of an array that are given; the others are zero, or the empty string.

    Attributes:
        dtype: of the values.
        dense_shape: of the whole array.
        indices: int64 `[n, rank]`, C-contiguous: the coordinates of each value, in the order in which
            they came; nothing is sorted, and nothing that stands twice is summed up.
        values: `n` of them, flat, as in `Tensor`.

    Raises:
        UnprocessableInput: a coordinate beyond `dense_shape` (`index_out_of_bounds`); components that
            do not fit one another (`shape_mismatch`).
    """

    dtype: DType
    dense_shape: Shape
    indices: NDArray[np.int64]
    values: NDArray[Any]

    def __post_init__(self) -> None:
        if self.values.ndim != 1 or self.values.dtype != self.dtype.numpy or self.indices.dtype != np.int64:
            raise ValueError("values must be flat, of the dtype's numpy type, and indices int64")
        if self.indices.shape != (len(self.values), len(self.dense_shape)):
            raise UnprocessableInput(
                f"{len(self.values)} values of {len(self.dense_shape)} dimensions take indices of shape "
                f"{[len(self.values), len(self.dense_shape)]}, not {list(self.indices.shape)}.",
                code="shape_mismatch",
            )
        outside = (self.indices < 0) | (self.indices >= np.array(self.dense_shape, np.int64))
        if outside.any():
            where = int(np.argmax(outside.any(axis=1)))
            raise UnprocessableInput(
                f"Index {where} of the sparse tensor is {self.indices[where].tolist()[:16]}, which lies "
                f"outside the dense_shape {list(self.dense_shape)[:16]}.",
                code="index_out_of_bounds",
            )

    @property
    def num_bytes(self) -> int:
        """Bytes of values and indices, without any header."""
        return int(self.indices.nbytes) + _num_bytes(self.dtype, self.values)


@dataclass(frozen=True, slots=True, eq=False)
class RaggedTensor:
    """Rows of different lengths, cut out of the first axis of one array.

    Attributes:
        values: all elements; the axes behind the first one are uniform.
        row_splits: int64 each, outermost first. Row `i` of a level is what lies from `splits[i]` to
            `splits[i + 1]` of the next level; those of the innermost cut the first axis of `values`.

    Raises:
        UnprocessableInput: splits that do not begin with 0, decrease, or do not end where the next
            level does (`invalid_row_splits`).
    """

    values: Tensor
    row_splits: tuple[NDArray[np.int64], ...]

    def __post_init__(self) -> None:
        if not self.row_splits or any(splits.dtype != np.int64 for splits in self.row_splits):
            raise ValueError("row_splits must be one or more int64 arrays")
        if not self.values.shape:
            raise _invalid_splits("the values are a scalar, which has no axis to cut")
        if len(self.row_splits) + len(self.values.shape) > MAX_RANK:
            raise _invalid_splits(f"it has more than {MAX_RANK} dimensions")
        lengths = [*(len(splits) - 1 for splits in self.row_splits[1:]), self.values.shape[0]]
        for level, (splits, length) in enumerate(zip(self.row_splits, lengths, strict=True)):
            if splits.ndim != 1 or not len(splits) or splits[0] != 0:
                raise _invalid_splits(f"row_splits {level} must be one axis that begins with 0")
            if (splits[1:] < splits[:-1]).any():
                raise _invalid_splits(f"row_splits {level} decreases")
            if splits[-1] != length:
                raise _invalid_splits(f"row_splits {level} ends with {splits[-1]}, but cuts {length} rows")

    @property
    def dtype(self) -> DType:
        return self.values.dtype

    @property
    def num_bytes(self) -> int:
        """Bytes of values and row splits, without any header."""
        return self.values.num_bytes + sum(int(splits.nbytes) for splits in self.row_splits)


def _invalid_splits(why: str) -> UnprocessableInput:
    return UnprocessableInput(f"This is no ragged tensor: {why}.", code="invalid_row_splits")


AnyTensor = Tensor | SparseTensor | RaggedTensor


@dataclass(frozen=True, slots=True, eq=False)
class NamedAny:
    """A tensor of any kind with the name under which it came, where it had one."""

    tensor: AnyTensor
    name: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class NamedTensor(NamedAny):
    """A dense tensor with its name: what most forms hold."""

    tensor: Tensor


def tensor_from_array(array: NDArray[Any], dtype: DType) -> Tensor:
    """A tensor from an array of any layout; copies only where layout or byte order ask for it."""
    flat = np.ascontiguousarray(array, dtype=dtype.numpy).reshape(-1)
    return Tensor(dtype, tuple(int(dim) for dim in array.shape), flat)
