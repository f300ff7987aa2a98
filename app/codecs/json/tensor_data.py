"""The values of dense and ragged tensors as JSON arrays, in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import DType
from ...domain.tensor import RaggedTensor, Shape, Tensor, num_elements
from ...errors import UnprocessableInput
from ...runtime.streams import Buffer
from ..content import STRING_OVERHEAD
from ..content_stream import ElementReader
from ..options import TensorEncodeOptions
from ..tensor_stream import TensorStream
from .out import PIECE_BYTES, b64_text, empty_text, num_brackets
from .spelling import joined_values, strings_from, value_texts
from .texts import Texts, concatenated, in_lists, joined, repeated, text_array
from .values import ItemError

__all__ = ["data_texts", "nested_ragged_texts"]

#: Numbers that are spelled at a time: a few hundred KiB of text, since no other thread runs meanwhile.
_CHUNK_VALUES: Final = 16_384


def data_texts(
    tensor: Tensor | TensorStream, name: str | None, shape: Shape, options: TensorEncodeOptions
) -> Iterator[str | Buffer]:
    """The elements in nested arrays of `shape`, which holds as many as the tensor's own.

    Raises:
        UnprocessableInput: a value that has no text under these options, named by its index.
    """
    reader = ElementReader(tensor) if isinstance(tensor, TensorStream) else _Elements(tensor)
    if not num_elements(tensor.shape):
        reader.close()
        yield empty_text(shape)
    elif isinstance(tensor, Tensor) and tensor.dtype.is_string:
        yield from _string_pieces(tensor, name, shape, options)
    else:
        yield from _number_pieces(reader, tensor.dtype, name, shape, options)


class _Elements:
    """The elements of a tensor in memory, read as an `ElementReader` reads them."""

    def __init__(self, tensor: Tensor) -> None:
        self._values = tensor.values
        self._position = 0

    def take(self, count: int) -> NDArray[Any]:
        start, self._position = self._position, self._position + count
        return self._values[start : self._position]

    def close(self) -> None:
        """Nothing is left to read."""


def _number_pieces(
    reader: ElementReader | _Elements,
    dtype: DType,
    name: str | None,
    shape: Shape,
    options: TensorEncodeOptions,
) -> Iterator[str | Buffer]:
    """Whole arrays at a time, of as many dimensions as a chunk holds; their outer brackets apart."""
    axis = next(axis for axis in range(len(shape) + 1) if num_elements(shape[axis:]) <= _CHUNK_VALUES)
    inner = shape[axis:]
    for start, stop in _chunks(shape, axis):
        yield ("," if start else "") + "[" * (num_brackets(shape, start) - len(inner))
        try:
            yield joined_values(reader.take(stop - start), dtype, options, inner)
        except ItemError as error:
            raise _located(error, name, start) from None
        yield "]" * (num_brackets(shape, stop) - len(inner))


def _chunks(shape: Shape, axis: int) -> Iterator[tuple[int, int]]:
    """The bounds of runs of `shape[axis:]` that do not reach from one array around them into the next."""
    size = num_elements(shape[axis:])
    around = num_elements(shape[max(axis - 1, 0) :])
    step = _CHUNK_VALUES // size * size
    for first in range(0, num_elements(shape), around):
        for start in range(first, first + around, step):
            yield start, min(start + step, first + around)


def _string_pieces(
    tensor: Tensor, name: str | None, shape: Shape, options: TensorEncodeOptions
) -> Iterator[str | Buffer]:
    for start, stop in _string_chunks(tensor):
        values = tensor.values[start:stop]
        yield "," if start else ""
        if len(values) == 1 and len(values[0]) > PIECE_BYTES and options.text == "b64":
            yield "[" * num_brackets(shape, start) + '{"b64":"'
            yield from b64_text(values, options.b64)
            yield '"}' + "]" * num_brackets(shape, stop)
            continue
        texts = _value_texts(tensor, name, start, stop, (), options)
        yield _bracketed(texts, shape, start).data.data


def _string_chunks(tensor: Tensor) -> Iterator[tuple[int, int]]:
    """The bounds of what is spelled at a time: many small values, or one large one."""
    start = size = 0
    for index, value in enumerate(tensor.values):
        if size and size + len(value) > PIECE_BYTES:
            yield start, index
            start, size = index, 0
        size += len(value) + STRING_OVERHEAD
    yield start, len(tensor.values)


def _bracketed(texts: Texts, shape: Shape, start: int) -> Texts:
    """The texts of a row-major run from index `start`, each with the brackets before and behind it."""
    index = np.arange(start, start + len(texts), dtype=np.int64)
    openings, closings = np.zeros_like(index), np.zeros_like(index)
    for axis in range(len(shape)):
        size = num_elements(shape[axis:])
        openings += index % size == 0
        closings += (index + 1) % size == 0
    return concatenated([_brackets("[", openings), texts, _brackets("]", closings)], len(texts))


def _brackets(bracket: str, counts: NDArray[Any]) -> Texts:
    data = text_array(bracket.encode() * int(counts.max()))
    return Texts(data, np.zeros_like(counts), counts)


def nested_ragged_texts(
    tensor: RaggedTensor, name: str | None, options: TensorEncodeOptions
) -> Iterator[str | Buffer]:
    """Nested arrays: runs of rows of the outermost cut, put together from the innermost lists outwards.

    Raises:
        UnprocessableInput: as `data_texts`.
    """
    firsts = tensor.row_splits[0]  # of each row, along the first axis of the values
    for splits in tensor.row_splits[1:]:
        firsts = splits[firsts]
    yield "["
    row, num_rows = 0, len(firsts) - 1
    while row < num_rows:
        behind = int(np.searchsorted(firsts, firsts[row] + _CHUNK_VALUES, side="right")) - 1
        stop = max(row + 1, min(behind, row + _CHUNK_VALUES))
        texts = _item_texts(tensor.values, name, int(firsts[row]), int(firsts[stop]), options)
        for cuts in reversed(_cuts(tensor, row, stop)):
            texts = in_lists(texts, cuts)
        yield "," if row else ""
        yield joined(texts)
        row = stop
    yield "]"


def _cuts(tensor: RaggedTensor, row: int, stop: int) -> list[NDArray[np.int64]]:
    """Where the lists of these rows begin, counted from the first one; outermost first."""
    cuts: list[NDArray[np.int64]] = []
    for splits in tensor.row_splits:
        cuts.append(splits[row : stop + 1] - splits[row])
        row, stop = int(splits[row]), int(splits[stop])
    return cuts


def _item_texts(
    values: Tensor, name: str | None, first: int, last: int, options: TensorEncodeOptions
) -> Texts:
    """One text for each of the items from `first` to `last` along the first axis."""
    inner = values.shape[1:]
    size = num_elements(inner)
    if not size:
        return repeated(empty_text(inner), last - first)
    return _value_texts(values, name, first * size, last * size, inner, options)


def _value_texts(
    tensor: Tensor, name: str | None, start: int, stop: int, shape: Shape, options: TensorEncodeOptions
) -> Texts:
    values: Any = tensor.values[start:stop]
    try:
        return value_texts(
            strings_from(values) if tensor.dtype.is_string else values, tensor.dtype, options, shape
        )
    except ItemError as error:
        raise _located(error, name, start) from None


def _located(error: ItemError, name: str | None, start: int) -> UnprocessableInput:
    of_name = "" if name is None else f" of {name[:64]!r}"
    return UnprocessableInput(
        f"Element {start + error.index}{of_name}: {error.detail}", code=error.code, feature=name
    )
