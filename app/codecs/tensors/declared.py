"""What the client declared beside a form that carries dtype and shape itself must agree with it.

With `options.lossy` a declared dtype may be a narrower float: dense tensors are rounded to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import STRING, DType
from ...domain.limits import KIB
from ...domain.tensor import NamedAny, RaggedTensor, SparseTensor, Tensor, num_elements
from ...errors import LossyConversion, UnprocessableInput
from ...runtime.streams import Buffer
from ..array import Array, ElementReader
from ..content import content_view
from ..options import TensorDecodeOptions
from ..rounding import rounded
from ..tensor_stream import NamedStream, TensorStream

#: So many elements are rounded at a time.
_CHUNK: Final = 64 * KIB


def round_array(array: Array, options: TensorDecodeOptions) -> Array:
    """The array as the declared dtype, where `options.lossy` rounds it; else itself.

    Raises, as its elements are drawn:
        LossyConversion: a value that overflows (`out_of_range`).
    """
    dtype = options.dtype
    if dtype is None or not _is_rounded(array, options):
        return array
    return replace(array, dtype=dtype, content=_pieces(array, dtype))


def round_stream(named: NamedStream, options: TensorDecodeOptions) -> NamedStream:
    """As `round_array`."""
    stream = named.tensor
    array = round_array(Array(stream.dtype, stream.shape, stream.content, named.name), options)
    return NamedStream(TensorStream(array.dtype, array.shape, array.pieces()), named.name)


def _pieces(array: Array, dtype: DType) -> Iterator[Buffer]:
    reader, total = ElementReader(array), num_elements(array.shape)
    for start in range(0, total, _CHUNK):
        chunk = reader.take(min(_CHUNK, total - start))
        yield content_view(_rounded(chunk, dtype, start, array.name))
    reader.close()


def _rounded(values: NDArray[Any], dtype: DType, start: int, name: str | None) -> NDArray[Any]:
    converted, lost = rounded(values, dtype)
    if lost.any():
        index = int(np.argmax(lost))
        raise LossyConversion(
            f"Element {start + index} is {values[index]}, which {dtype} does not hold. Leave "
            "out ?dtype=, or declare a wider one.",
            code="out_of_range",
            feature=name,
        )
    return converted


def _is_rounded(tensor: object, options: TensorDecodeOptions) -> bool:
    return options.lossy and _is_narrower(tensor, options)


def _is_narrower(tensor: object, options: TensorDecodeOptions) -> bool:
    """Whether the declared dtype is a float of fewer bytes than the floats of a dense tensor."""
    return (
        isinstance(tensor, Array | Tensor | TensorStream)
        and options.dtype is not None
        and tensor.dtype.is_float
        and options.dtype.is_float
        and options.dtype.itemsize < tensor.dtype.itemsize
    )


def check_declared(named: Array | NamedAny | NamedStream, options: TensorDecodeOptions) -> None:
    """Refuse a tensor of another dtype or shape than declared; a sparse one has its dense_shape.

    Nothing is said against a dtype that the tensor will be rounded to.

    Where the client declared another kind than dense, dense tensors are the components of one of that
    kind, which is looked at once it is put together.

    Raises:
        UnprocessableInput: `dtype_mismatch`, `shape_mismatch`.
    """
    tensor = named if isinstance(named, Array) else named.tensor
    if isinstance(tensor, Tensor) and options.kind in ("sparse", "ragged"):
        return
    dtype = STRING if tensor.dtype.is_string else tensor.dtype
    if options.dtype not in (None, dtype) and not _is_rounded(tensor, options):
        way = ", or set ?lossy=allow to have it rounded" if _is_narrower(tensor, options) else ""
        raise UnprocessableInput(
            f"The tensor is {dtype}, but {options.dtype} was declared. Leave out ?dtype={way}.",
            code="dtype_mismatch",
            feature=named.name,
        )
    if options.shape is None:
        return
    if isinstance(tensor, RaggedTensor):
        raise UnprocessableInput(
            "A ragged tensor has no shape that could be declared.", code="shape_mismatch", feature=named.name
        )
    shape = tensor.dense_shape if isinstance(tensor, SparseTensor) else tensor.shape
    if options.shape != shape:
        raise UnprocessableInput(
            f"The tensor has shape {list(shape)}, but {list(options.shape)} was declared.",
            code="shape_mismatch",
            feature=named.name,
        )
