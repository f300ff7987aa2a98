"""Tensors as JSON: `{"dtype", "shape", "data"}`, bare arrays, TensorFlow Serving's and Open Inference forms.

A complex number is `[real, imaginary]`, in and out, below the axes of its tensor:
`{"dtype": "complex64", "shape": [2], "data": [[1.0, 0.0], [0.0, -1.0]]}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from numpy.typing import NDArray

from ...domain.limits import Budget
from ...domain.streams import Buffer, ByteStream, read_all
from ...domain.tensor import NamedTensor, Shape, Tensor
from ...errors import UnprocessableInput
from ..content import STRING_OVERHEAD
from ..json_out import PIECE_BYTES, b64_text, empty_text, gather, nest, quote, tokens
from ..json_text import parse_body
from ..json_values import ItemError
from ..options import TensorDecodeOptions, TensorEncodeOptions
from .json_body import read_tensors
from .json_plain import read_plain

__all__ = ["decode", "encode"]

#: Values that are spelled at a time: about a piece of text.
_CHUNK_VALUES: Final = 8192


def decode(source: ByteStream, options: TensorDecodeOptions, budget: Budget) -> list[NamedTensor]:
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


def _held_bytes(tensor: Tensor) -> int:
    overhead = STRING_OVERHEAD * len(tensor.values) if tensor.dtype.is_string else 0
    return tensor.num_bytes + overhead


def encode(tensors: Sequence[NamedTensor], options: TensorEncodeOptions) -> Iterator[Buffer]:
    """One tensor as it is, several in an envelope, in pieces.

    | layout | one | several |
    |---|---|---|
    | flat | `{"dtype", "shape", "data"}`, with `name` where it has one | `{"tensors": [...]}` |
    | nested | the nested arrays | `{"outputs": {name: ...}}`, or `{"tensors": [...]}` if one has no name |
    | oip | `{"name", "datatype", "shape", "data"}` | `{"outputs": [...]}` |

    A tensor without a name is `output_0`, by its position, in the last layout.

    Raises:
        UnprocessableInput: a value that has no text under these options, or a dtype without a
            `datatype` (complex, in the layout oip).
    """
    return gather(_texts(tensors, options))


def _texts(tensors: Sequence[NamedTensor], options: TensorEncodeOptions) -> Iterator[str]:
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


def _tensor_texts(named: NamedTensor, index: int, options: TensorEncodeOptions) -> Iterator[str]:
    tensor = named.tensor
    if options.layout == "nested":
        yield from _data_texts(named, tensor.shape, options)
        return
    yield _head(named, index, options)
    yield from _data_texts(named, (len(tensor.values),), options)
    yield "}"


def _head(named: NamedTensor, index: int, options: TensorEncodeOptions) -> str:
    dtype, name = named.tensor.dtype, named.name
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
    naming = "" if name is None else f'"name":{quote(name)},'
    shape = ",".join(map(str, named.tensor.shape))
    return f'{{{naming}"{key}":"{label}","shape":[{shape}],"data":'


def _data_texts(named: NamedTensor, shape: Shape, options: TensorEncodeOptions) -> Iterator[str]:
    values = named.tensor.values
    if not len(values):
        yield empty_text(shape)
        return
    for start, stop in _chunks(named.tensor):
        yield "," if start else ""
        if _is_streamed(values[start:stop], named.tensor, options):
            opening, closing = nest(["|"], shape, start)[0].split("|")
            yield opening + '{"b64":"'
            yield from b64_text([values[start]])
            yield '"}' + closing
            continue
        try:
            texts = tokens(values[start:stop], named.tensor.dtype, options)
        except ItemError as error:
            raise _located(error, named, start) from None
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


def _located(error: ItemError, named: NamedTensor, start: int) -> UnprocessableInput:
    name = "" if named.name is None else f" of {named.name[:64]!r}"
    return UnprocessableInput(
        f"Element {start + error.index}{name}: {error.detail}", code=error.code, feature=named.name
    )
