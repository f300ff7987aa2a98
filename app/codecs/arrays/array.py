"""The arrays that NPY, NPZ, safetensors and OIP hold: as they are found, and as they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ...domain.dtypes import STRING, DType
from ...domain.tensor import NamedTensor, Shape, Tensor
from ..tensor_stream import TensorStream

__all__ = ["Array", "ChunkedArray", "FoundArray", "named_chunks", "position_name"]


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """One array as it was found.

    Attributes:
        dtype: `text` or `bytes` for strings, whichever the container says; otherwise numeric.
        values: flat, row-major, little-endian; an object array of `bytes` for strings.
    """

    dtype: DType
    shape: Shape
    values: NDArray[Any]

    def to_tensor(self) -> Tensor:
        return Tensor(STRING if self.dtype.is_string else self.dtype, self.shape, self.values)


#: An array of numbers may also be read a piece at a time, whatever becomes of the others.
FoundArray = Array | TensorStream


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedArray:
    """One array to be written, under its name.

    Attributes:
        dtype: as of `Array`, or `string`.
        chunks: flat arrays of `dtype.numpy`; one after the other they are the elements, row-major.
    """

    name: str
    dtype: DType
    shape: Shape
    chunks: Sequence[NDArray[Any]]

    @property
    def num_elements(self) -> int:
        return sum(map(len, self.chunks))


def named_chunks(tensors: Sequence[NamedTensor], prefix: str) -> list[ChunkedArray]:
    """The tensors under their names; one without a name has `prefix` and its position."""
    return [
        ChunkedArray(
            position_name(named.name, prefix, index),
            named.tensor.dtype,
            named.tensor.shape,
            [named.tensor.values],
        )
        for index, named in enumerate(tensors)
    ]


def position_name(name: str | None, prefix: str, index: int) -> str:
    """The name that a tensor has, or else `prefix` and its position."""
    return f"{prefix}{index}" if name is None else name
