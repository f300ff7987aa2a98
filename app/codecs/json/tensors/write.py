"""Tensors to JSON, in memory or arriving, a piece at a time.

| layout | one | several |
|---|---|---|
| flat | `{"dtype", "shape", "data"}`, with `name` where it has one | `{"tensors": [...]}` |
| nested | the nested arrays | `{"outputs": {name: ...}}`, or `{"tensors": [...]}` if one has no name |
| oip | `{"name", "datatype", "shape", "data"}` | `{"outputs": [...]}` |

A tensor without a name is `output_0`, by its position, in the last layout. A sparse tensor has its members
in both of the others; a ragged one is nested arrays in `nested`. In `oip` both are their components
(`components.py`). A complex number is `[real, imaginary]`, below the axes of its tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from ....domain.dtypes import INT64, DType
from ....domain.tensor import Shape, num_elements
from ....errors import UnprocessableInput
from ....runtime.budget import Budget
from ....runtime.streams import Buffer
from ...array import (
    AnyTensor,
    Array,
    ElementReader,
    RaggedTensor,
    SparseTensor,
)
from ...columns import (
    Ints,
    Strings,
    part,
)
from ...content import STRING_OVERHEAD
from ...options import TensorEncodeOptions
from ...tensors.components import components_of
from ..texts import (
    PIECE_BYTES,
    Texts,
    byte_array,
    concatenate,
    empty_lists,
    gather,
    join,
    quote,
)
from ..values import ItemError
from ..write import (
    b64_text,
    joined_values,
    nested_texts,
    value_texts,
)

#: Numbers that are spelled at a time: a few hundred KiB of text, since no other thread runs meanwhile.
_CHUNK_VALUES: Final = 16_384
#: Strings, however short they are.
_CHUNK_STRINGS: Final = PIECE_BYTES // 2 // STRING_OVERHEAD


def write(tensors: Iterable[AnyTensor], options: TensorEncodeOptions, _budget: Budget) -> Iterator[Buffer]:
    """The tensors in pieces; see the table above.

    Raises:
        UnprocessableInput: a value that has no text under these options, or a dtype without a
            `datatype` (complex, in the layout oip).
    """
    return gather(_texts(tensors, options))


def _texts(tensors: Iterable[AnyTensor], options: TensorEncodeOptions) -> Iterator[str | Buffer]:
    items = list(tensors)
    if options.layout == "oip":
        items = [array for tensor in items for array in components_of(tensor)]
    if len(items) == 1:
        yield from _tensor_texts(items[0], 0, options)
        return
    by_name = options.layout == "nested" and all(tensor.name is not None for tensor in items)
    key = "outputs" if by_name or options.layout == "oip" else "tensors"
    yield f'{{"{key}":' + ("{" if by_name else "[")
    for index, tensor in enumerate(items):
        yield "," if index else ""
        yield quote(tensor.name or "") + ":" if by_name else ""
        yield from _tensor_texts(tensor, index, options)
    yield ("}" if by_name else "]") + "}"


def _tensor_texts(tensor: AnyTensor, index: int, options: TensorEncodeOptions) -> Iterator[str | Buffer]:
    if isinstance(tensor, SparseTensor):
        yield from _sparse_texts(tensor, options)
    elif isinstance(tensor, RaggedTensor):
        yield from (_nested_ragged_texts if options.layout == "nested" else _ragged_texts)(tensor, options)
    elif options.layout == "nested":
        yield from _data_texts(tensor, tensor.name, tensor.shape, options)
    else:
        yield _head(tensor, index, options)
        yield from _data_texts(tensor, tensor.name, (num_elements(tensor.shape),), options)
        yield "}"


def _head(array: Array, index: int, options: TensorEncodeOptions) -> str:
    dtype, name = array.dtype, array.name
    if options.layout == "oip":
        if dtype.oip is None:
            raise UnprocessableInput(
                f"{dtype} has no Open Inference datatype. Use layout=flat.",
                code="no_datatype",
                feature=name,
            )
        name = f"output_{index}" if name is None else name
        key, label = "datatype", dtype.oip
    else:
        key, label = "dtype", dtype.name
    shape = ",".join(map(str, array.shape))
    return f'{{{_name_member(name, options)}"{key}":"{label}","shape":[{shape}],"data":'


def _name_member(name: str | None, options: TensorEncodeOptions) -> str:
    return "" if name is None or options.layout == "nested" else f'"name":{quote(name)},'


def _sparse_texts(tensor: SparseTensor, options: TensorEncodeOptions) -> Iterator[str | Buffer]:
    indices = Array.of(tensor.indices, INT64)
    dense_shape = Array.of(np.array(tensor.dense_shape, np.int64), INT64)
    yield f'{{{_name_member(tensor.name, options)}"dtype":"{tensor.dtype}","values":'
    for label, array in (("", tensor.values), (',"indices":', indices), (',"dense_shape":', dense_shape)):
        yield label
        yield from _data_texts(array, tensor.name, array.shape, options)
    yield "}"


def _ragged_texts(tensor: RaggedTensor, options: TensorEncodeOptions) -> Iterator[str | Buffer]:
    values = tensor.values
    # Without values, nothing would show the dimensions behind the first one.
    hidden = "" if values.shape[0] or len(values.shape) == 1 else f'"shape":{list(values.shape)},'
    yield f'{{{_name_member(tensor.name, options)}"dtype":"{tensor.dtype}",{hidden}"values":'
    shape = (0,) if hidden else values.shape
    yield from _data_texts(values, tensor.name, shape, options)
    yield ',"row_splits":['
    for level, splits in enumerate(tensor.row_splits):
        yield "," if level else ""
        yield from _data_texts(Array.of(splits, INT64), tensor.name, (len(splits),), options)
    yield "]}"


def _nested_ragged_texts(tensor: RaggedTensor, options: TensorEncodeOptions) -> Iterator[str | Buffer]:
    """Nested arrays, some rows of the outermost axis at a time."""
    dtype = tensor.dtype
    values = tensor.values.elements
    inner = tensor.values.shape[1:]
    firsts = tensor.row_splits[0]  # of each row, along the first axis of the values
    for splits in tensor.row_splits[1:]:
        firsts = splits[firsts]
    yield "["
    row, num_rows = 0, len(firsts) - 1
    while row < num_rows:
        behind = int(np.searchsorted(firsts, firsts[row] + _CHUNK_VALUES, side="right")) - 1
        stop = max(row + 1, min(behind, row + _CHUNK_VALUES))
        first, last = (int(firsts[at]) * num_elements(inner) for at in (row, stop))
        try:
            texts = nested_texts(
                part(values, first, last),
                dtype,
                options,
                inner,
                _cuts(tensor, row, stop),
                stop - row,
            )
        except ItemError as error:
            raise _locate(error, tensor.name, first) from None
        yield "," if row else ""
        yield join(texts)
        row = stop
    yield "]"


def _cuts(tensor: RaggedTensor, row: int, stop: int) -> list[Ints]:
    """Where the lists of these rows begin, counted from the first one; outermost first."""
    cuts: list[Ints] = []
    for splits in tensor.row_splits:
        cuts.append(splits[row : stop + 1] - splits[row])
        row, stop = int(splits[row]), int(splits[stop])
    return cuts


def _data_texts(
    array: Array, name: str | None, shape: Shape, options: TensorEncodeOptions
) -> Iterator[str | Buffer]:
    """The elements in nested arrays of `shape`, which holds as many as the array's own."""
    if array.dtype.is_string:
        if 0 in shape:
            yield empty_lists(shape)
        else:
            yield from _string_pieces(array.strings, array.dtype, name, shape, options)
        return
    reader = ElementReader(array)
    if 0 in shape:
        reader.close()
        yield empty_lists(shape)
    else:
        yield from _number_pieces(reader, array.dtype, name, shape, options)


def _number_pieces(
    reader: ElementReader,
    dtype: DType,
    name: str | None,
    shape: Shape,
    options: TensorEncodeOptions,
) -> Iterator[str | Buffer]:
    """Whole arrays at a time, of as many dimensions as a chunk holds; their outer brackets apart."""
    axis = next(axis for axis in range(len(shape) + 1) if num_elements(shape[axis:]) <= _CHUNK_VALUES)
    inner = shape[axis:]
    for start, stop in _chunks(shape, axis):
        yield ("," if start else "") + "[" * (_num_brackets(shape, start) - len(inner))
        try:
            yield joined_values(reader.take(stop - start), dtype, options, inner)
        except ItemError as error:
            raise _locate(error, name, start) from None
        yield "]" * (_num_brackets(shape, stop) - len(inner))


def _chunks(shape: Shape, axis: int) -> Iterator[tuple[int, int]]:
    """The bounds of runs of `shape[axis:]` that do not reach from one array around them into the next."""
    size = num_elements(shape[axis:])
    around = num_elements(shape[max(axis - 1, 0) :])
    step = _CHUNK_VALUES // size * size
    for first in range(0, num_elements(shape), around):
        for start in range(first, first + around, step):
            yield start, min(start + step, first + around)


def _num_brackets(shape: Shape, index: int) -> int:
    """How many of the nested arrays of `shape` begin at an element, or end before it; no dimension is 0."""
    size = 1
    for depth, dim in enumerate(reversed(shape)):
        size *= dim
        if index % size:
            return depth
    return len(shape)


def _string_pieces(
    strings: Strings, dtype: DType, name: str | None, shape: Shape, options: TensorEncodeOptions
) -> Iterator[str | Buffer]:
    for start, stop in _string_chunks(strings):
        values = strings.part(start, stop)
        yield "," if start else ""
        if len(values) == 1 and len(values.data) > PIECE_BYTES and options.text == "b64":
            yield "[" * _num_brackets(shape, start) + '{"b64":"'
            yield from b64_text([values.data.data], options.b64)
            yield '"}' + "]" * _num_brackets(shape, stop)
            continue
        try:
            texts = value_texts(values, dtype, options)
        except ItemError as error:
            raise _locate(error, name, start) from None
        yield _bracketed(texts, shape, start).data.data


def _string_chunks(strings: Strings) -> Iterator[tuple[int, int]]:
    """The bounds of what is spelled at a time: many small values, or one large one."""
    start = 0
    while start < len(strings):
        behind = np.searchsorted(strings.offsets, strings.offsets[start] + PIECE_BYTES // 2, side="right")
        stop = max(start + 1, min(int(behind) - 1, start + _CHUNK_STRINGS))
        yield start, stop
        start = stop


def _bracketed(texts: Texts, shape: Shape, start: int) -> Texts:
    """The texts of a row-major run from index `start`, each with the brackets before and behind it."""
    index = np.arange(start, start + len(texts), dtype=np.int64)
    openings, closings = np.zeros_like(index), np.zeros_like(index)
    for axis in range(len(shape)):
        size = num_elements(shape[axis:])
        openings += index % size == 0
        closings += (index + 1) % size == 0
    return concatenate([_brackets("[", openings), texts, _brackets("]", closings)], len(texts))


def _brackets(bracket: str, counts: Ints) -> Texts:
    data = byte_array(bracket.encode() * int(counts.max()))
    return Texts(data, np.zeros_like(counts), counts)


def _locate(error: ItemError, name: str | None, start: int) -> UnprocessableInput:
    of_name = "" if name is None else f" of {name[:64]!r}"
    return UnprocessableInput(
        f"Element {start + error.index}{of_name}: {error.detail}", code=error.code, feature=name
    )
