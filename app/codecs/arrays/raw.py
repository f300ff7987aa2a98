"""Tensors as nothing but their elements; dtype, shape, byte order and order come from outside.

The order is row-major (C) or column-major (F). An element of 4 or 2 bits takes a byte: written as the
int8 or uint8 of the same value, read so too or with the upper bits unset, as `ml_dtypes` leaves them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import DType
from ...domain.tensor import NamedTensor, Shape, Tensor, num_elements
from ...errors import MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream, read_all
from ..content import (
    CHUNK_BYTES,
    check_content,
    column_major,
    content_view,
    num_axes,
    row_major,
    sign_extended,
    swapped_chunks,
    to_little_endian,
)
from ..content_stream import checked_pieces, sign_extended_pieces, swapped_pieces
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..tensor_stream import NamedStream, TensorStream
from ..tensors.arriving import Arriving
from ..tensors.single import only_stream, only_tensor

__all__ = ["decode", "decode_stream", "encode", "encode_stream"]


def decode(source: ByteStream, options: TensorDecodeOptions, budget: Budget) -> list[NamedTensor]:
    """The body as the elements of one tensor; without a declared shape, of one dimension.

    Raises:
        MalformedInput: no dtype declared (`missing_dtype`).
        UnprocessableInput: strings (`no_raw_form`), a body of another length than declared
            (`content_size_mismatch`), a bool that is neither 0 nor 1 (`invalid_bool`).
        LimitExceeded: larger than the budget.
    """
    dtype = _declared_dtype(options)
    content: Buffer = read_all(source, budget)
    shape = _checked_shape(len(content), dtype, options.shape)
    check_content(content, dtype)
    if options.byte_order == "big" and dtype.itemsize > 1:
        budget.charge(len(content), "The tensor, turned to little-endian,")
        content = bytearray(content)
        to_little_endian(content, dtype)
        budget.release(len(content))
    values: NDArray[Any] = np.frombuffer(content, dtype.numpy)
    if options.order == "F" and num_axes(shape) > 1:
        budget.charge(values.nbytes, "The tensor, turned to row-major order,")
        values = row_major(values, shape)
        budget.release(values.nbytes)
    return [NamedTensor(Tensor(dtype, shape, values))]


def decode_stream(
    source: ByteStream, options: TensorDecodeOptions, budget: Budget, num_bytes: int | None
) -> Arriving:
    """As `decode`, while the body arrives: where it has a declared shape or a known length, and order C.

    Raises:
        InputError: as `decode`, here or as the content is drawn.
    """
    dtype, shape = _declared_dtype(options), options.shape
    if num_bytes is not None:
        shape = _checked_shape(num_bytes, dtype, shape)
    if shape is None or (options.order == "F" and num_axes(shape) > 1):
        return decode(source, options, budget)
    content: Iterator[Buffer] = checked_pieces(_pieces(source, dtype, shape), dtype)
    if options.byte_order == "big":
        content = swapped_pieces(content, dtype)
    return [NamedStream(TensorStream(dtype, shape, content))]


def _pieces(source: ByteStream, dtype: DType, shape: Shape) -> Iterator[bytes]:
    """All of the body, which is refused as soon as it is seen not to be as long as its shape says."""
    size, expected = 0, num_elements(shape) * dtype.itemsize
    while piece := source.read(CHUNK_BYTES):
        size += len(piece)
        if size > expected:
            raise _wrong_size(f"more than {expected}", dtype, shape)
        yield piece
    if size < expected:
        raise _wrong_size(str(size), dtype, shape)


def _declared_dtype(options: TensorDecodeOptions) -> DType:
    if options.dtype is None:
        raise MalformedInput(
            "Raw bytes do not say what they are: set ?dtype= (and ?shape= for more than one dimension).",
            code="missing_dtype",
        )
    _check_raw_form(options.dtype)
    return options.dtype


def _checked_shape(num_bytes: int, dtype: DType, shape: Shape | None) -> Shape:
    """The declared shape or the one that follows from the length, where the length fits."""
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


def encode(tensors: Sequence[NamedTensor], options: TensorEncodeOptions) -> Iterator[Buffer]:
    """The tensor's elements and nothing else.

    Raises:
        UnprocessableInput: not exactly one tensor, or one of strings (`no_raw_form`).
    """
    tensor = only_tensor(tensors, "raw")
    _check_raw_form(tensor.dtype)
    values = sign_extended(tensor.values, tensor.dtype)
    if options.order == "F":
        values = column_major(values, tensor.shape)
    if options.byte_order == "big" and tensor.dtype.itemsize > 1:
        return swapped_chunks(values, tensor.dtype)
    return iter([content_view(values)])


def encode_stream(tensors: Sequence[NamedStream], options: TensorEncodeOptions) -> Iterator[Buffer] | None:
    """As `encode`, of a tensor that is arriving; None where its elements change their order."""
    stream = only_stream(tensors, "raw")
    if options.order == "F" and num_axes(stream.shape) > 1:
        return None
    pieces = sign_extended_pieces(stream)
    return swapped_pieces(pieces, stream.dtype) if options.byte_order == "big" else pieces


def _check_raw_form(dtype: DType) -> None:
    if dtype.is_string:
        raise UnprocessableInput(
            "Strings have no raw form, since their lengths differ. Use 'tensorproto' or 'json'.",
            code="no_raw_form",
        )
