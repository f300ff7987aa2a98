"""Tensors that are still arriving: dtype and shape are known, the elements come in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..domain.dtypes import DType
from ..domain.tensor import Shape, num_elements
from ..runtime.streams import Buffer

__all__ = ["NamedStream", "TensorStream"]


@dataclass(frozen=True, slots=True, eq=False)
class TensorStream:
    """One array of numbers, of which no more is held than a piece.

    Attributes:
        dtype: numeric.
        shape: as of `Tensor`.
        content: the elements, row-major and little-endian, in pieces that are cut anywhere and that nobody
            writes to; together `num_bytes`. Drawn once, and to its end: what is behind the last piece, a
            checksum or the end of the body, is checked then.
    """

    dtype: DType
    shape: Shape
    content: Iterator[Buffer]

    @property
    def num_bytes(self) -> int:
        """Bytes of the elements, without any header."""
        return num_elements(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class NamedStream:
    """A tensor that is arriving, with the name under which it came, where it had one."""

    tensor: TensorStream
    name: str | None = None
