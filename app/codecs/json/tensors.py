"""Tensors as JSON: `{"dtype", "shape", "data"}`, bare arrays, TensorFlow Serving's and Open Inference forms.

Sparse and ragged tensors have the members that `json_kinds.py` reads.
A complex number is `[real, imaginary]`, in and out, below the axes of its tensor:
`{"dtype": "complex64", "shape": [2], "data": [[1.0, 0.0], [0.0, -1.0]]}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...domain.dtypes import INT64
from ...domain.tensor import (
    AnyTensor,
    NamedAny,
    RaggedTensor,
    SparseTensor,
    Tensor,
    num_elements,
    tensor_from_array,
)
from ...errors import UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, WholeBody
from ..content import STRING_OVERHEAD
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..tensor_stream import NamedStream, TensorStream
from ..tensors.components import components_of
from .out import gather, quote
from .tensor_body import read_tensors
from .tensor_data import data_texts, nested_ragged_texts
from .tensor_plain import read_plain
from .text import parse_json

__all__ = ["decode", "encode", "encode_stream"]


def decode(body: WholeBody, options: TensorDecodeOptions, budget: Budget) -> list[NamedAny]:
    """The tensors of the body.

    Raises:
        InputError: as `parse_json` and `read_tensors`.
    """
    text = body.view()
    tensors = read_plain(text, options, budget)
    if tensors is None:
        document = parse_json(text, budget, bare_nonfinite=options.nonfinite == "bare")
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


def encode_stream(tensors: Sequence[NamedStream], options: TensorEncodeOptions) -> Iterator[Buffer]:
    """As `encode`, of tensors that are arriving."""
    return gather(_texts(tensors, options))


def _texts(tensors: Sequence[NamedAny | NamedStream], options: TensorEncodeOptions) -> Iterator[str | Buffer]:
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


def _tensor_texts(
    named: NamedAny | NamedStream, index: int, options: TensorEncodeOptions
) -> Iterator[str | Buffer]:
    tensor, name = named.tensor, named.name
    if isinstance(tensor, SparseTensor):
        yield from _sparse_texts(tensor, name, options)
    elif isinstance(tensor, RaggedTensor):
        write = nested_ragged_texts if options.layout == "nested" else _ragged_texts
        yield from write(tensor, name, options)
    elif options.layout == "nested":
        yield from data_texts(tensor, name, tensor.shape, options)
    else:
        yield _head(tensor, name, index, options)
        yield from data_texts(tensor, name, (num_elements(tensor.shape),), options)
        yield "}"


def _sparse_texts(
    tensor: SparseTensor, name: str | None, options: TensorEncodeOptions
) -> Iterator[str | Buffer]:
    values = Tensor(tensor.dtype, (len(tensor.values),), tensor.values)
    indices = tensor_from_array(tensor.indices, INT64)
    dense_shape = tensor_from_array(np.array(tensor.dense_shape, np.int64), INT64)
    yield f'{{{_naming(name, options)}"dtype":"{tensor.dtype}","values":'
    for label, part in (("", values), (',"indices":', indices), (',"dense_shape":', dense_shape)):
        yield label
        yield from data_texts(part, name, part.shape, options)
    yield "}"


def _ragged_texts(
    tensor: RaggedTensor, name: str | None, options: TensorEncodeOptions
) -> Iterator[str | Buffer]:
    values = tensor.values
    # Without values, nothing would show the dimensions behind the first one.
    hidden = "" if len(values.values) or len(values.shape) == 1 else f'"shape":{list(values.shape)},'
    yield f'{{{_naming(name, options)}"dtype":"{tensor.dtype}",{hidden}"values":'
    shape = (0,) if hidden else values.shape
    yield from data_texts(values, name, shape, options)
    yield ',"row_splits":['
    for level, splits in enumerate(tensor.row_splits):
        yield "," if level else ""
        yield from data_texts(tensor_from_array(splits, INT64), name, (len(splits),), options)
    yield "]}"


def _naming(name: str | None, options: TensorEncodeOptions) -> str:
    return "" if name is None or options.layout == "nested" else f'"name":{quote(name)},'


def _head(tensor: Tensor | TensorStream, name: str | None, index: int, options: TensorEncodeOptions) -> str:
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
