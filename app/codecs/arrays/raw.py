"""Tensors as their elements alone. dtype, shape, byte order and axis order come from parameters.

The order is row-major (C) or column-major (F). An element of 4 or 2 bits takes a byte: written as the
int8 or uint8 of the same value, read so too or with the upper bits unset, as `ml_dtypes` leaves them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ...domain.dtypes import DType
from ...domain.tensor import Shape, num_elements
from ...errors import MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import CHUNK_BYTES, Buffer, ByteStream
from ..array import Array, only_array
from ..content import (
    check_pieces,
    column_major,
    content_view,
    cut_pieces,
    extend_sign,
    num_axes,
    row_major,
    swap_pieces,
)
from ..options import TensorDecodeOptions, TensorEncodeOptions


def read(source: ByteStream, options: TensorDecodeOptions, budget: Budget) -> list[Array]:
    """The body as the elements of one tensor; without a declared shape, of one dimension.

    It is in memory where its order is F, and where neither its shape nor the length of the body is known.

    Raises:
        MalformedInput: no dtype declared (`missing_dtype`).
        UnprocessableInput: strings (`no_raw_form`), a body of another length than declared
            (`content_size_mismatch`), a bool that is neither 0 nor 1 (`invalid_bool`).
        LimitExceeded: larger than the budget.
    """
    dtype, shape = _declared_dtype(options), options.shape
    if options.body_bytes is not None:
        shape = _check_shape(options.body_bytes, dtype, shape)
    content: Iterator[Buffer] = check_pieces(_pieces(source, dtype, shape), dtype)
    if options.byte_order == "big":
        content = swap_pieces(content, dtype)
    if shape is None:
        body = bytearray()
        for piece in content:
            budget.charge(len(piece), "The body")
            body += piece
        shape = (len(body) // dtype.itemsize,)
        array = Array(dtype, shape, np.frombuffer(body, dtype.numpy))
    else:
        array = Array(dtype, shape, content)
    if options.order == "C" or num_axes(shape) < 2:
        return [array]
    stored = array.read(budget)
    budget.charge(stored.num_bytes, "The tensor, turned to row-major order,")
    ordered = row_major(stored.values, shape)
    budget.release(stored.num_bytes)
    return [replace(array, content=ordered)]


def write(arrays: Sequence[Array], options: TensorEncodeOptions, budget: Budget) -> Iterator[Buffer]:
    """The elements of the one array and nothing else; it is read into memory where their order changes.

    Raises:
        UnprocessableInput: not exactly one array (`no_tensors`, `several_tensors`), or one of strings
            (`no_raw_form`).
    """
    array = only_array(arrays, "raw")
    _check_raw_form(array.dtype)
    if options.order == "F" and num_axes(array.shape) > 1:
        array = array.read(budget)
        budget.charge(array.num_bytes, "The tensor, turned to column-major order,")
        array = replace(array, content=column_major(array.values, array.shape))
    pieces = _extend_signs(array)
    return swap_pieces(pieces, array.dtype) if options.byte_order == "big" else pieces


def _extend_signs(array: Array) -> Iterator[Buffer]:
    """The elements as bytes; those of 4 or 2 bits as the int8 or uint8 of the same value."""
    dtype = array.dtype
    if not dtype.is_narrow:
        return array.pieces()
    pieces = (np.frombuffer(piece, dtype.numpy) for piece in cut_pieces(array.pieces()))
    return (content_view(extend_sign(piece, dtype)) for piece in pieces)


def _pieces(source: ByteStream, dtype: DType, shape: Shape | None) -> Iterator[bytes]:
    """The body, which is refused as soon as its length is known not to fit its shape."""
    size, expected = 0, None if shape is None else num_elements(shape) * dtype.itemsize
    while piece := source.read(CHUNK_BYTES):
        size += len(piece)
        if expected is not None and size > expected:
            raise _wrong_size(f"more than {expected}", dtype, shape)
        yield piece
    _check_shape(size, dtype, shape)


def _declared_dtype(options: TensorDecodeOptions) -> DType:
    if options.dtype is None:
        raise MalformedInput(
            "Raw bytes do not say what they are: set dtype= (and shape= for more than one dimension).",
            code="missing_dtype",
        )
    _check_raw_form(options.dtype)
    return options.dtype


def _check_shape(num_bytes: int, dtype: DType, shape: Shape | None) -> Shape:
    """The declared shape, or the one that follows from the length."""
    if shape is None and num_bytes % dtype.itemsize == 0:
        return (num_bytes // dtype.itemsize,)
    if shape is not None and num_bytes == num_elements(shape) * dtype.itemsize:
        return shape
    raise _wrong_size(str(num_bytes), dtype, shape)


def _wrong_size(found: str, dtype: DType, shape: Shape | None) -> UnprocessableInput:
    expected = (
        f"a multiple of {dtype.itemsize}"
        if shape is None
        else f"{num_elements(shape) * dtype.itemsize} for shape {list(shape)}"
    )
    return UnprocessableInput(
        f"The body is {found} bytes; {dtype} takes {expected}.", code="content_size_mismatch"
    )


def _check_raw_form(dtype: DType) -> None:
    if dtype.is_string:
        raise UnprocessableInput(
            "Strings have no raw format, since their lengths differ. Use 'tensorproto' or 'json'.",
            code="no_raw_form",
        )
