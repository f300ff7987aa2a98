"""Tensors as JSON: `{"dtype", "shape", "data"}`, bare arrays, TensorFlow Serving's and Open Inference forms.

Sparse and ragged tensors have the members that `json_kinds.py` reads.
A complex number is `[real, imaginary]`, in and out, below the axes of its tensor:
`{"dtype": "complex64", "shape": [2], "data": [[1.0, 0.0], [0.0, -1.0]]}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import INT64
from ...domain.limits import Budget
from ...domain.streams import Buffer, ByteStream, read_all
from ...domain.tensor import (
    AnyTensor,
    NamedAny,
    RaggedTensor,
    Shape,
    SparseTensor,
    Tensor,
    num_elements,
    tensor_from_array,
)
from ...errors import UnprocessableInput
from ..content import STRING_OVERHEAD
from ..json_out import PIECE_BYTES, b64_text, empty_text, gather, nest, quote, tokens
from ..json_text import parse_body
from ..json_values import ItemError
from ..options import TensorDecodeOptions, TensorEncodeOptions
from .components import components_of
from .json_body import read_tensors
from .json_plain import read_plain

__all__ = ["decode", "encode"]

#: Values that are spelled at a time: about a piece of text.
_CHUNK_VALUES: Final = 8192


def decode(source: ByteStream, options: TensorDecodeOptions, budget: Budget) -> list[NamedAny]:
    """The tensors of the body.

    Raises:
        InputError: as `parse_body` and `read_tensors`.
    """
    body = read_all(source, budget, "The JSON body")
    tensors = read_plain(body, options, budget)
    if tensors is not None:
        budget.release(len(body))
    else:
        document = parse_body(body, budget, bare_nonfinite=options.nonfinite == "bare")
        tensors = read_tensors(document.value, options, budget.limits)
        # The estimate covered the arrays; from here on they alone are held.
        budget.release(document.num_bytes)
    budget.charge(sum(_held_bytes(named.tensor) for named in tensors), "The tensors")
    return tensors


def _held_bytes(tensor: AnyTensor) -> int:
    values = tensor.values.values if isinstance(tensor, RaggedTensor) else tensor.values
    overhead = STRING_OVERHEAD * len(values) if tensor.dtype.is_string else 0
    return tensor.num_bytes + overhead


def encode(tensors: Sequence[NamedAny], options: TensorEncodeOptions) -> Iterator[Buffer]:
    """One tensor as it is, several in an envelope, in pieces.

    | layout | one | several |
    |---|---|---|
    | flat | `{"dtype", "shape", "data"}`, with `name` where it has one | `{"tensors": [...]}` |
    | nested | the nested arrays | `{"outputs": {name: ...}}`, or `{"tensors": [...]}` if one has no name |
    | oip | `{"name", "datatype", "shape", "data"}` | `{"outputs": [...]}` |

    A tensor without a name is `output_0`, by its position, in the last layout. A sparse tensor has its
    members in both of the others; a ragged one is nested arrays in `nested`. In `oip` both are their
    components (`components.py`).

    Raises:
        UnprocessableInput: a value that has no text under these options, or a dtype without a
            `datatype` (complex, in the layout oip).
    """
    if options.layout == "oip":
        tensors = [part for named in tensors for part in components_of(named)]
    return gather(_texts(tensors, options))


def _texts(tensors: Sequence[NamedAny], options: TensorEncodeOptions) -> Iterator[str]:
    if len(tensors) == 1:
        yield from _tensor_texts(tensors[0], 0, options)
        return
    by_name = options.layout == "nested" and all(named.name is not None for named in tensors)
    key = "outputs" if by_name or options.layout == "oip" else "tensors"
    yield f'{{"{key}":' + ("{" if by_name else "[")
    for index, named in enumerate(tensors):
        yield "," if index else ""
        yield quote(named.name or "") + ":" if by_name else ""
        yield from _tensor_texts(named, index, options)
    yield ("}" if by_name else "]") + "}"


def _tensor_texts(named: NamedAny, index: int, options: TensorEncodeOptions) -> Iterator[str]:
    tensor, name = named.tensor, named.name
    if isinstance(tensor, SparseTensor):
        yield from _sparse_texts(tensor, name, options)
    elif isinstance(tensor, RaggedTensor):
        write = _nested_ragged_texts if options.layout == "nested" else _ragged_texts
        yield from write(tensor, name, options)
    elif options.layout == "nested":
        yield from _data_texts(tensor, name, tensor.shape, options)
    else:
        yield _head(tensor, name, index, options)
        yield from _data_texts(tensor, name, (len(tensor.values),), options)
        yield "}"


def _sparse_texts(tensor: SparseTensor, name: str | None, options: TensorEncodeOptions) -> Iterator[str]:
    values = Tensor(tensor.dtype, (len(tensor.values),), tensor.values)
    indices = tensor_from_array(tensor.indices, INT64)
    dense_shape = tensor_from_array(np.array(tensor.dense_shape, np.int64), INT64)
    yield f'{{{_naming(name, options)}"dtype":"{tensor.dtype}","values":'
    for label, part in (("", values), (',"indices":', indices), (',"dense_shape":', dense_shape)):
        yield label
        yield from _data_texts(part, name, part.shape, options)
    yield "}"


def _ragged_texts(tensor: RaggedTensor, name: str | None, options: TensorEncodeOptions) -> Iterator[str]:
    values = tensor.values
    # Without values, nothing would show the dimensions behind the first one.
    hidden = "" if len(values.values) or len(values.shape) == 1 else f'"shape":{list(values.shape)},'
    yield f'{{{_naming(name, options)}"dtype":"{tensor.dtype}",{hidden}"values":'
    shape = (0,) if hidden else values.shape
    yield from _data_texts(values, name, shape, options)
    yield ',"row_splits":['
    for level, splits in enumerate(tensor.row_splits):
        yield "," if level else ""
        yield from _data_texts(tensor_from_array(splits, INT64), name, (len(splits),), options)
    yield "]}"


def _nested_ragged_texts(
    tensor: RaggedTensor, name: str | None, options: TensorEncodeOptions
) -> Iterator[str]:
    """A row of the outermost cut at a time, each put together from its innermost lists outwards."""
    outermost = tensor.row_splits[0].tolist()
    yield "["
    for row, (start, stop) in enumerate(pairwise(outermost)):
        yield "," if row else ""
        bounds = [(start, stop)]
        for splits in tensor.row_splits[1:]:
            start, stop = int(splits[start]), int(splits[stop])
            bounds.append((start, stop))
        texts = _element_texts(tensor.values, name, start, stop, options)
        for splits, (first, last) in zip(tensor.row_splits[:0:-1], bounds[-2::-1], strict=True):
            cuts = (splits[first : last + 1] - splits[first]).tolist()
            texts = [f"[{','.join(texts[a:b])}]" for a, b in pairwise(cuts)]
        yield f"[{','.join(texts)}]"
    yield "]"


def _element_texts(
    values: Tensor, name: str | None, start: int, stop: int, options: TensorEncodeOptions
) -> list[str]:
    """One text for each of the elements from `start` to `stop` along the first axis."""
    inner = values.shape[1:]
    size = num_elements(inner)
    if size == 0:
        return [empty_text(inner)] * (stop - start)
    first = start * size
    try:
        texts = tokens(values.values[first : stop * size], values.dtype, options)
    except ItemError as error:
        raise _located(error, name, first) from None
    if not inner:
        return texts
    texts = nest(texts, inner)
    return [",".join(texts[at : at + size]) for at in range(0, len(texts), size)]


def _naming(name: str | None, options: TensorEncodeOptions) -> str:
    return "" if name is None or options.layout == "nested" else f'"name":{quote(name)},'


def _head(tensor: Tensor, name: str | None, index: int, options: TensorEncodeOptions) -> str:
    dtype = tensor.dtype
    if options.layout == "oip":
        if dtype.oip is None:
            raise UnprocessableInput(
                f"{dtype} has no Open Inference datatype. Use ?layout=flat.",
                code="no_datatype",
                feature=name,
            )
        name = f"output_{index}" if name is None else name
        key, label = "datatype", dtype.oip
    else:
        key, label = "dtype", dtype.name
    shape = ",".join(map(str, tensor.shape))
    return f'{{{_naming(name, options)}"{key}":"{label}","shape":[{shape}],"data":'


def _data_texts(
    tensor: Tensor, name: str | None, shape: Shape, options: TensorEncodeOptions
) -> Iterator[str]:
    values = tensor.values
    if not len(values):
        yield empty_text(shape)
        return
    for start, stop in _chunks(tensor):
        yield "," if start else ""
        if _is_streamed(values[start:stop], tensor, options):
            opening, closing = nest(["|"], shape, start)[0].split("|")
            yield opening + '{"b64":"'
            yield from b64_text([values[start]], options.b64)
            yield '"}' + closing
            continue
        try:
            texts = tokens(values[start:stop], tensor.dtype, options)
        except ItemError as error:
            raise _located(error, name, start) from None
        yield ",".join(nest(texts, shape, start))


def _chunks(tensor: Tensor) -> Iterator[tuple[int, int]]:
    """The bounds of what is spelled at a time: many small values, or one large string."""
    num_values = len(tensor.values)
    if not tensor.dtype.is_string:
        yield from ((i, min(i + _CHUNK_VALUES, num_values)) for i in range(0, num_values, _CHUNK_VALUES))
        return
    start = size = 0
    for index, value in enumerate(tensor.values):
        if size and size + len(value) > PIECE_BYTES:
            yield start, index
            start, size = index, 0
        size += len(value) + STRING_OVERHEAD
    yield start, num_values


def _is_streamed(values: NDArray[Any], tensor: Tensor, options: TensorEncodeOptions) -> bool:
    is_large = tensor.dtype.is_string and len(values) == 1 and len(values[0]) > PIECE_BYTES
    return is_large and options.text == "b64"


def _located(error: ItemError, name: str | None, start: int) -> UnprocessableInput:
    of_name = "" if name is None else f" of {name[:64]!r}"
    return UnprocessableInput(
        f"Element {start + error.index}{of_name}: {error.detail}", code=error.code, feature=name
    )
