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
from ...domain.tensor import num_elements
from ...errors import LossyConversion, UnprocessableInput
from ...runtime.streams import Buffer
from ..array import AnyTensor, Array, ElementReader, RaggedTensor, SparseTensor
from ..content import content_view
from ..options import TensorDecodeOptions
from ..rounding import round_values

#: So many elements are rounded at a time.
_CHUNK: Final = 64 * KIB


def round_array(array: Array, options: TensorDecodeOptions) -> Array:
    """The array as the declared dtype, where `options.lossy` rounds it; else itself.

    Raises, as its elements are drawn:
        LossyConversion: a value that overflows (`out_of_range`).
    """
    dtype = options.dtype
    if dtype is None or not _is_to_round(array, options):
        return array
    return replace(array, dtype=dtype, content=_pieces(array, dtype))


def _pieces(array: Array, dtype: DType) -> Iterator[Buffer]:
    reader, total = ElementReader(array), num_elements(array.shape)
    for start in range(0, total, _CHUNK):
        chunk = reader.take(min(_CHUNK, total - start))
        yield content_view(_round_chunk(chunk, dtype, start, array.name))
    reader.close()


def _round_chunk(values: NDArray[Any], dtype: DType, start: int, name: str | None) -> NDArray[Any]:
    converted, lost = round_values(values, dtype)
    if lost.any():
        index = int(np.argmax(lost))
        raise LossyConversion(
            f"Element {start + index} is {values[index]}, which {dtype} does not hold. Leave "
            "out dtype=, or declare a wider one.",
            code="out_of_range",
            feature=name,
        )
    return converted


def _is_to_round(tensor: AnyTensor, options: TensorDecodeOptions) -> bool:
    return options.lossy and _is_narrower(tensor, options)


def _is_narrower(tensor: AnyTensor, options: TensorDecodeOptions) -> bool:
    """Whether the declared dtype is a float of fewer bytes than the floats of a dense tensor."""
    return (
        isinstance(tensor, Array)
        and options.dtype is not None
        and tensor.dtype.is_float
        and options.dtype.is_float
        and options.dtype.itemsize < tensor.dtype.itemsize
    )


def check_declared(tensor: AnyTensor, options: TensorDecodeOptions) -> None:
    """Refuse a tensor of another dtype or shape than declared; a sparse one has its dense_shape.

    A dtype that the tensor will be rounded to is no other one. Dense components of a tensor of another kind
    are not looked at: what was declared is of the tensor that they make.

    Raises:
        UnprocessableInput: `dtype_mismatch`, `shape_mismatch`.
    """
    if options.dtype is None and options.shape is None:
        return
    if isinstance(tensor, Array) and options.kind in ("sparse", "ragged"):
        return
    dtype = STRING if tensor.dtype.is_string else tensor.dtype
    if options.dtype not in (None, dtype) and not _is_to_round(tensor, options):
        way = ", or set lossy=allow to have it rounded" if _is_narrower(tensor, options) else ""
        raise UnprocessableInput(
            f"The tensor is {dtype}, but {options.dtype} was declared. Leave out dtype={way}.",
            code="dtype_mismatch",
            feature=tensor.name,
        )
    if options.shape is None:
        return
    if isinstance(tensor, RaggedTensor):
        raise UnprocessableInput(
            "A ragged tensor has no shape that could be declared.",
            code="shape_mismatch",
            feature=tensor.name,
        )
    shape = tensor.dense_shape if isinstance(tensor, SparseTensor) else tensor.shape
    if options.shape != shape:
        raise UnprocessableInput(
            f"The tensor has shape {list(shape)}, but {list(options.shape)} was declared.",
            code="shape_mismatch",
            feature=tensor.name,
        )
