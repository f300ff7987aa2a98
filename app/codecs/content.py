"""Elements <-> bytes: the row-major content that NPY, raw bodies and `tensor_content` have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..domain.dtypes import BOOL, DType
from ..errors import UnprocessableInput
from ..runtime.streams import CHUNK_BYTES, Buffer, ByteStream, iter_exactly

#: What one element of an object array of `bytes` takes beside its bytes: the reference and the header.
STRING_OVERHEAD: Final = 8 + 33


def read_content(stream: ByteStream, num_bytes: int, what: str, *, offset: int = 0) -> bytearray:
    """Exactly `num_bytes` of `stream` in one writable buffer, which grows as they arrive.

    The caller has charged them. Unlike `read_exactly` it does not copy at the end.

    Raises:
        MalformedInput: the stream ends early (`truncated`).
    """
    content = bytearray()
    for piece in iter_exactly(stream, num_bytes, what, offset=offset):
        content += piece
    return content


def check_pieces(pieces: Iterator[bytes], dtype: DType, *, offset: int = 0) -> Iterator[bytes]:
    """The same pieces, refused where a byte is no element of `dtype`.

    Raises:
        UnprocessableInput: a bool other than 0 and 1, or bits above those of a narrow dtype.
    """
    if not (dtype is BOOL or dtype.is_narrow):
        return pieces
    return _check_pieces(pieces, dtype, offset)


def _check_pieces(pieces: Iterator[bytes], dtype: DType, offset: int) -> Iterator[bytes]:
    first = 0
    for piece in pieces:
        check_content(piece, dtype, offset=offset, first=first)
        yield piece
        first += len(piece)


def swap_pieces(pieces: Iterator[Buffer], dtype: DType) -> Iterator[Buffer]:
    """The elements in the other byte order; a complex number is two of them."""
    if _swap_unit(dtype) == 1:
        return pieces
    return _swap(pieces, dtype)


def _swap(pieces: Iterator[Buffer], dtype: DType) -> Iterator[Buffer]:
    unit = _swap_unit(dtype)
    pending = bytearray()
    for piece in cut_pieces(pieces):
        pending += piece
        whole = len(pending) // unit * unit
        if whole:
            swapped, pending = pending[:whole], pending[whole:]
            np.frombuffer(swapped, f"u{unit}").byteswap(inplace=True)
            yield swapped


def low_bit_pieces(pieces: Iterator[Buffer], dtype: DType) -> Iterator[Buffer]:
    """The elements as TensorFlow holds them: the upper bits of those of 4 or 2 bits unset."""
    if not dtype.is_narrow:
        return pieces
    return (in_low_bits(np.frombuffer(piece, np.uint8), dtype).data for piece in cut_pieces(pieces))


def cut_pieces(pieces: Iterable[Buffer]) -> Iterator[memoryview]:
    """The same bytes, not copied, in pieces small enough to be copied without a charge."""
    for piece in pieces:
        view = memoryview(piece)
        for begin in range(0, len(view), CHUNK_BYTES):
            yield view[begin : begin + CHUNK_BYTES]


def _swap_unit(dtype: DType) -> int:
    """How many bytes are turned around at a time."""
    return dtype.itemsize // 2 if dtype.kind == "complex" else dtype.itemsize


def num_axes(shape: Sequence[int]) -> int:
    """How many axes matter to the order of the elements; numpy holds at most 64, and these only."""
    return 0 if 0 in shape else sum(dim != 1 for dim in shape)


def row_major(values: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
    """Flat elements in column-major (Fortran) order -> a copy in row-major (C) order."""
    return values.reshape([dim for dim in shape if dim != 1], order="F").ravel(order="C")


def column_major(values: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
    """Flat elements in row-major (C) order -> in column-major (Fortran) order; a copy where it matters."""
    if num_axes(shape) < 2:
        return values
    return values.reshape([dim for dim in shape if dim != 1]).ravel(order="F")


def content_view(values: NDArray[Any]) -> memoryview:
    """The memory of flat numeric `values` as bytes, also where numpy exports no buffer (bfloat16)."""
    return values.view(np.uint8).data


def extend_sign(values: NDArray[Any], dtype: DType) -> NDArray[Any]:
    """The same elements; those of 4 or 2 bits as the int8 or uint8 of the same value, else a view.

    `ml_dtypes` and TensorFlow leave the upper bits of an int4 unset and ignore them when they read it;
    others read the byte as a number.
    """
    if not dtype.is_narrow:
        return values
    return (
        values.view(np.uint8)
        if dtype.is_float
        else values.astype(np.int8 if dtype.kind == "int" else np.uint8)
    )


def in_low_bits(raw: NDArray[np.uint8], dtype: DType) -> NDArray[np.uint8]:
    """The bytes of elements as TensorFlow holds them: the upper bits of a dtype of 4 or 2 bits unset."""
    return raw & np.uint8((1 << dtype.num_bits) - 1) if dtype.is_narrow else raw


def narrow_faults(raw: NDArray[np.uint8], dtype: DType) -> NDArray[np.bool_]:
    """Which bytes are no element of a dtype of 4 or 2 bits: neither in the low bits nor sign-extended."""
    beyond = raw >= np.uint8(1 << dtype.num_bits)
    return beyond & (raw < np.uint8(256 + dtype.bounds[0])) if dtype.kind == "int" else beyond


def check_content(content: Buffer, dtype: DType, *, offset: int = 0, first: int = 0) -> None:
    """Refuse bytes that are no element of `dtype`: what they mean differs between readers.

    Args:
        offset: where in the input the tensor's content begins, for errors.
        first: the index of the first element of `content` in the tensor.

    Raises:
        UnprocessableInput: a bool other than 0 and 1 (`invalid_bool`), or upper bits in an element of 4
            or 2 bits (`out_of_range`).
    """
    if len(content) == 0 or not (dtype is BOOL or dtype.is_narrow):
        return
    raw = np.frombuffer(content, np.uint8)
    if dtype.is_narrow:
        faults, code, only = (
            narrow_faults(raw, dtype),
            "out_of_range",
            f"only {dtype.num_bits} bits are",
        )
    elif raw.max() > 1:
        faults, code, only = raw > 1, "invalid_bool", "only 0 and 1 are"
    else:
        return
    for where in np.flatnonzero(faults)[:1].tolist():
        raise UnprocessableInput(
            f"Element {first + where} of the tensor is the byte {raw[where]}; {only} {dtype}.",
            code=code,
            offset=offset + first + where,
        )
