"""Elements as they arrive: the content of `TensorStream`, piece by piece.

A piece is handed on as it came, without a copy, wherever its bytes stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..domain.dtypes import BOOL, DType
from ..domain.tensor import Tensor
from ..errors import MalformedInput
from ..runtime.budget import Budget
from ..runtime.streams import Buffer, ByteStream
from .content import (
    CHUNK_BYTES,
    check_content,
    content_view,
    in_low_bits,
    sign_extended,
    swap_unit,
    to_little_endian,
)
from .tensor_stream import TensorStream

__all__ = [
    "ElementReader",
    "arriving_pieces",
    "checked_pieces",
    "low_bit_pieces",
    "materialised",
    "sign_extended_pieces",
    "swapped_pieces",
]


def arriving_pieces(stream: ByteStream, num_bytes: int, what: str, *, offset: int = 0) -> Iterator[bytes]:
    """Exactly `num_bytes` of `stream`, as they come.

    Raises:
        MalformedInput: the stream ends early (`truncated`).
    """
    left = num_bytes
    while left:
        piece = stream.read(min(left, CHUNK_BYTES))
        if not piece:
            found = num_bytes - left
            raise MalformedInput(
                f"The body ends inside {what}: {num_bytes} bytes expected, {found} found.",
                code="truncated",
                offset=offset + found,
            )
        left -= len(piece)
        yield piece


def checked_pieces(pieces: Iterator[bytes], dtype: DType, *, offset: int = 0) -> Iterator[bytes]:
    """The same pieces, refused where a byte is no element of `dtype`.

    Raises:
        UnprocessableInput: as `check_content`.
    """
    if not (dtype is BOOL or dtype.is_narrow):
        return pieces
    return _checked(pieces, dtype, offset)


def _checked(pieces: Iterator[bytes], dtype: DType, offset: int) -> Iterator[bytes]:
    first = 0
    for piece in pieces:
        check_content(piece, dtype, offset=offset, first=first)
        yield piece
        first += len(piece)


def swapped_pieces(pieces: Iterator[Buffer], dtype: DType) -> Iterator[Buffer]:
    """The elements in the other byte order; a complex number is two of them."""
    if swap_unit(dtype) == 1:
        return pieces
    return _swapped(pieces, dtype)


def _swapped(pieces: Iterator[Buffer], dtype: DType) -> Iterator[Buffer]:
    unit = swap_unit(dtype)
    pending = bytearray()
    for piece in pieces:
        pending += piece
        whole = len(pending) // unit * unit
        if whole:
            swapped, pending = pending[:whole], pending[whole:]
            to_little_endian(swapped, dtype)
            yield swapped


def low_bit_pieces(stream: TensorStream) -> Iterator[Buffer]:
    """The elements as TensorFlow holds them: the upper bits of those of 4 or 2 bits unset."""
    if not stream.dtype.is_narrow:
        return stream.content
    return (in_low_bits(np.frombuffer(piece, np.uint8), stream.dtype).data for piece in stream.content)


def sign_extended_pieces(stream: TensorStream) -> Iterator[Buffer]:
    """The elements as bytes; those of 4 or 2 bits as the int8 or uint8 of the same value."""
    dtype = stream.dtype
    if not dtype.is_narrow:
        return stream.content
    return (content_view(sign_extended(np.frombuffer(piece, dtype.numpy), dtype)) for piece in stream.content)


class ElementReader:
    """The elements of a stream, as many at a time as are asked for."""

    def __init__(self, stream: TensorStream) -> None:
        self._content = stream.content
        self._dtype = stream.dtype
        self._left = stream.num_bytes
        self._pending = memoryview(b"")

    def take(self, count: int) -> NDArray[Any]:
        """The next `count` elements, flat; the last of them are given once the stream has come to its end."""
        needed = count * self._dtype.itemsize
        gathered = bytearray(self._pending[:needed])
        self._pending = self._pending[needed:]
        while len(gathered) < needed:
            piece = memoryview(next(self._content)).cast("B")
            missing = needed - len(gathered)
            gathered += piece[:missing]
            self._pending = piece[missing:]
        self._left -= needed
        if not self._left:
            self.close()
        return np.frombuffer(gathered, self._dtype.numpy)

    def close(self) -> None:
        """Draw the stream to its end, where its last checks are."""
        for _ in self._content:
            pass


def materialised(stream: TensorStream, budget: Budget) -> Tensor:
    """The tensor in memory, once all of it has arrived.

    Raises:
        InputError: as its content does.
        LimitExceeded: larger than the budget.
    """
    budget.charge(stream.num_bytes, "The tensor")
    content = bytearray()
    for piece in stream.content:
        content += piece
    return Tensor(stream.dtype, stream.shape, np.frombuffer(content, stream.dtype.numpy))
