"""One array of a container of several, as it was found there: what NPY, NPZ, safetensors and OIP give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ...domain.dtypes import STRING, DType
from ...domain.tensor import Shape, Tensor

__all__ = ["Array"]


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """One array.

    Attributes:
        dtype: `text` or `bytes` for strings, whichever the container says; otherwise numeric.
        values: flat, row-major, little-endian; an object array of `bytes` for strings.
    """

    dtype: DType
    shape: Shape
    values: NDArray[Any]

    def to_tensor(self) -> Tensor:
        return Tensor(STRING if self.dtype.is_string else self.dtype, self.shape, self.values)
