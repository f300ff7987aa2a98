"""Tensor: a dtype, a shape and the elements in row-major order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import LimitExceeded, MalformedInput, UnprocessableInput
from .dtypes import DType

__all__ = [
    "MAX_DIM",
    "MAX_RANK",
    "NamedTensor",
    "Shape",
    "Tensor",
    "check_shape",
    "num_elements",
    "tensor_from_array",
]

Shape = tuple[int, ...]

#: TensorFlow's own: `TensorShape::MaxDimensions()` in tensorflow/core/framework/tensor_shape.h.
MAX_RANK: Final = 254
#: A dimension is an int64 in TensorShapeProto.
MAX_DIM: Final = 2**63 - 1


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
        if self.dtype.is_string:
            return sum(map(len, self.values))
        return int(self.values.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class NamedTensor:
    """A tensor with the name under which it came, where it had one."""

    tensor: Tensor
    name: str | None = None


def tensor_from_array(array: NDArray[Any], dtype: DType) -> Tensor:
    """A tensor from an array of any layout; copies only where layout or byte order ask for it."""
    flat = np.ascontiguousarray(array, dtype=dtype.numpy).reshape(-1)
    return Tensor(dtype, tuple(int(dim) for dim in array.shape), flat)
