"""NPY: one array in numpy's own format (`numpy.lib.format`). Nothing is ever unpickled.

Strings: numpy keeps them at one fixed width, filled up with NULs, and strips trailing NULs when it
reads; so does `read_npy`, and `serialize_npy` refuses strings that end in one. numpy's "U" is UTF-32
in the file and UTF-8 here. bfloat16 is written as numpy and ml_dtypes write it, "<V2": two bytes that
a reader has to be told the meaning of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import TEXT, DType
from ...domain.limits import MIB
from ...domain.tensor import Shape, num_elements
from ...errors import MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream
from ..content import (
    CHUNK_BYTES,
    STRING_OVERHEAD,
    check_content,
    content_view,
    num_axes,
    read_content,
    row_major,
    to_little_endian,
)
from ..content_stream import arriving_pieces, checked_pieces, swapped_pieces
from ..tensor_stream import TensorStream
from .array import Array, FoundArray
from .npy_header import MAX_NUMPY_RANK, NpyHeader, read_npy_header, serialize_npy_header

__all__ = ["npy_number_header", "open_npy", "read_npy", "serialize_npy"]

#: Strings padded to the longest one may not take more: one long string among a million short ones.
_MAX_PADDED_BYTES: Final = 1024 * MIB


def read_npy(stream: ByteStream, budget: Budget, *, declared: DType | None = None) -> Array:
    """The one array of an NPY stream, which must end with it.

    Args:
        declared: what the client says the elements are; only bfloat16 needs it.

    Raises:
        MalformedInput: as `read_npy_header`; cut short (`truncated`); longer than the header says
            (`trailing_bytes`).
        UnprocessableInput: as `read_npy_header`; bools other than 0 and 1 (`invalid_bool`); code
            points that are not Unicode (`invalid_text`).
        UnknownForm: as `read_npy_header`.
        LimitExceeded: larger than the budget.
    """
    return _read_content(stream, read_npy_header(stream, budget.limits, declared=declared), budget)


def open_npy(stream: ByteStream, budget: Budget, *, declared: DType | None = None) -> FoundArray:
    """The one array of an NPY stream, while it arrives; in memory where that must be.

    Strings must, and what lies in Fortran order.

    Raises: as `read_npy`, here or as the content is drawn.
    """
    header = read_npy_header(stream, budget.limits, declared=declared)
    dtype = header.element.dtype
    if dtype.is_string or (header.fortran_order and num_axes(header.shape) > 1):
        return _read_content(stream, header, budget)
    content: Iterator[Buffer] = checked_pieces(_pieces(stream, header), dtype, offset=header.num_bytes)
    if header.element.big_endian:
        content = swapped_pieces(content, dtype)
    return TensorStream(dtype, header.shape, content)


def _pieces(stream: ByteStream, header: NpyHeader) -> Iterator[bytes]:
    yield from arriving_pieces(stream, _content_bytes(header), "the NPY array", offset=header.num_bytes)
    _check_end(stream, header)


def _content_bytes(header: NpyHeader) -> int:
    return num_elements(header.shape) * header.element.itemsize


def _check_end(stream: ByteStream, header: NpyHeader) -> None:
    if stream.read(1):
        raise MalformedInput(
            "There are more bytes after the NPY array than its header says.",
            code="trailing_bytes",
            offset=header.num_bytes + _content_bytes(header),
        )


def _read_content(stream: ByteStream, header: NpyHeader, budget: Budget) -> Array:
    num_bytes = _content_bytes(header)
    budget.charge(num_bytes, "The NPY array")
    content = read_content(stream, num_bytes, "the NPY array", offset=header.num_bytes)
    _check_end(stream, header)
    if header.element.dtype.is_string:
        values = _strings(content, header, budget)
    else:
        values = _numbers(content, header, budget)
    return Array(header.element.dtype, header.shape, values)


def _numbers(content: bytearray, header: NpyHeader, budget: Budget) -> NDArray[Any]:
    dtype = header.element.dtype
    check_content(content, dtype, offset=header.num_bytes)
    if header.element.big_endian:
        to_little_endian(content, dtype)
    return _row_major(np.frombuffer(content, dtype.numpy), header, budget)


def _row_major(stored: NDArray[Any], header: NpyHeader, budget: Budget) -> NDArray[Any]:
    """The elements in C order, flat; a copy where they are in Fortran order."""
    if not header.fortran_order or num_axes(header.shape) < 2:
        return stored
    budget.charge(stored.nbytes, "The NPY array, turned from Fortran order,")
    ordered = row_major(stored, header.shape)
    budget.release(stored.nbytes)
    return ordered


def _strings(content: bytearray, header: NpyHeader, budget: Budget) -> NDArray[Any]:
    """An object array of `bytes`, without the NULs at their ends."""
    element, count = header.element, num_elements(header.shape)
    budget.charge(count * (STRING_OVERHEAD + element.itemsize), "The strings of the NPY array")
    if not element.itemsize:
        return np.full(count, b"", object)
    if element.dtype is TEXT:
        _check_code_points(content, header)
        stored = np.frombuffer(content, f"{'>' if element.big_endian else '<'}U{element.itemsize // 4}")
    else:
        stored = np.frombuffer(content, f"S{element.itemsize}")
    stored = _row_major(stored, header, budget)
    values = _encoded(stored) if element.dtype is TEXT else stored.astype(object)
    budget.release(len(content))
    return values


def _check_code_points(content: bytearray, header: NpyHeader) -> None:
    points = np.frombuffer(content, ">u4" if header.element.big_endian else "<u4")
    step = CHUNK_BYTES // 4
    for start in range(0, len(points), step):
        chunk = points[start : start + step]
        invalid = (chunk > 0x10FFFF) | ((chunk >= 0xD800) & (chunk < 0xE000))
        if invalid.any():
            where = start + int(np.argmax(invalid))
            raise UnprocessableInput(
                f"The NPY array holds {int(points[where]):#x}, which is the code of no Unicode character.",
                code="invalid_text",
                offset=header.num_bytes + 4 * where,
            )


def _encoded(stored: NDArray[Any]) -> NDArray[Any]:
    values = np.empty(len(stored), object)
    step = max(1, CHUNK_BYTES // stored.itemsize)
    for start in range(0, len(stored), step):
        values[start : start + step] = [text.encode() for text in stored[start : start + step].tolist()]
    return values


def serialize_npy(dtype: DType, shape: Shape, chunks: Sequence[NDArray[Any]]) -> Iterator[Buffer]:
    """The bytes that `numpy.save` writes for the array.

    Args:
        chunks: flat arrays of `dtype.numpy`; one after the other they are the elements, row-major.

    Text becomes numpy's "U", other strings "S".

    Raises:
        UnprocessableInput: numpy has no such array (`not_expressible`); text that is not UTF-8
            (`invalid_utf8`).
    """
    if dtype.is_string:
        yield from _serialize_strings(dtype, shape, chunks)
        return
    yield npy_number_header(dtype, shape)
    for chunk in chunks:
        yield content_view(chunk)


def npy_number_header(dtype: DType, shape: Shape) -> bytes:
    """What stands before the elements of an array of numbers.

    Raises:
        UnprocessableInput: numpy has no such array (`not_expressible`).
    """
    _check_rank(shape)
    if not (dtype.in_numpy or dtype.name == "bfloat16"):
        raise UnprocessableInput(
            f"NPY has no name for {dtype}. Choose 'raw', 'json' or 'tensorproto', or another dtype.",
            code="not_expressible",
        )
    # ml_dtypes gives bfloat16 the kind and order of a structure; numpy.save writes "<V2".
    return serialize_npy_header(dtype.numpy.str, shape)


def _check_rank(shape: Shape) -> None:
    if len(shape) > MAX_NUMPY_RANK:
        raise _not_expressible(f"it has {len(shape)} dimensions, and numpy holds at most {MAX_NUMPY_RANK}")


def _serialize_strings(dtype: DType, shape: Shape, chunks: Sequence[NDArray[Any]]) -> Iterator[Buffer]:
    _check_rank(shape)
    if any(value.endswith(b"\0") for chunk in chunks for value in chunk):
        raise _not_expressible("a string ends in NUL, which numpy would strip")
    is_text = dtype is TEXT
    width = max((len(_text(value) if is_text else value) for chunk in chunks for value in chunk), default=0)
    stored = np.dtype(f"{'<U' if is_text else 'S'}{max(width, 1)}")  # as numpy: no strings of width 0
    if stored.itemsize * num_elements(shape) > _MAX_PADDED_BYTES:
        raise _not_expressible(f"every string would be padded to the longest one, {stored.itemsize} bytes")
    yield serialize_npy_header(stored.str, shape)
    step = max(1, CHUNK_BYTES // stored.itemsize)
    for chunk in chunks:
        for start in range(0, len(chunk), step):
            piece = chunk[start : start + step]
            yield np.array([_text(value) for value in piece] if is_text else piece, stored).tobytes()


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UnprocessableInput("Declared as text, but not UTF-8.", code="invalid_utf8") from None


def _not_expressible(why: str) -> UnprocessableInput:
    return UnprocessableInput(
        f"The array has no NPY form: {why}. Choose another output form.", code="not_expressible"
    )
