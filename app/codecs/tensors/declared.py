"""What the client declared beside a form that carries dtype and shape itself must agree with it.

With `options.lossy` a declared dtype may be a narrower float: dense tensors are rounded to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import DType
from ...domain.limits import KIB
from ...domain.tensor import NamedAny, NamedTensor, RaggedTensor, SparseTensor, Tensor, num_elements
from ...errors import LossyConversion, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer
from ..content import content_view
from ..content_stream import ElementReader
from ..options import TensorDecodeOptions
from ..rounding import rounded
from ..tensor_stream import NamedStream, TensorStream

__all__ = ["check_declared", "round_stream", "round_tensor"]

#: So many elements are rounded at a time.
_CHUNK: Final = 64 * KIB


def round_tensor(named: NamedTensor, options: TensorDecodeOptions, budget: Budget) -> NamedTensor:
    """The tensor as the declared dtype, where `options.lossy` rounds it; else itself.

    Raises:
        LossyConversion: a value that overflows (`out_of_range`).
        LimitExceeded: more than the budget.
    """
    tensor, dtype = named.tensor, options.dtype
    if dtype is None or not _is_rounded(tensor, options):
        return named
    budget.charge(len(tensor.values) * dtype.itemsize, "The tensor, rounded,")
    values = np.empty(len(tensor.values), dtype.numpy)
    for start in range(0, len(values), _CHUNK):
        chunk = tensor.values[start : start + _CHUNK]
        values[start : start + len(chunk)] = _rounded(chunk, dtype, start, named.name)
    return NamedTensor(Tensor(dtype, tensor.shape, values), named.name)


def round_stream(named: NamedStream, options: TensorDecodeOptions) -> NamedStream:
    """As `round_tensor`, as the elements arrive."""
    tensor, dtype = named.tensor, options.dtype
    if dtype is None or not _is_rounded(tensor, options):
        return named
    return NamedStream(TensorStream(dtype, tensor.shape, _pieces(tensor, dtype, named.name)), named.name)


def _pieces(tensor: TensorStream, dtype: DType, name: str | None) -> Iterator[Buffer]:
    reader, total = ElementReader(tensor), num_elements(tensor.shape)
    for start in range(0, total, _CHUNK):
        chunk = reader.take(min(_CHUNK, total - start))
        yield content_view(_rounded(chunk, dtype, start, name))
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
        isinstance(tensor, Tensor | TensorStream)
        and options.dtype is not None
        and tensor.dtype.is_float
        and options.dtype.is_float
        and options.dtype.itemsize < tensor.dtype.itemsize
    )


def check_declared(named: NamedAny | NamedStream, options: TensorDecodeOptions) -> None:
    """Refuse a tensor of another dtype or shape than declared; a sparse one has its dense_shape.

    Nothing is said against a dtype that the tensor will be rounded to.

    Where the client declared another kind than dense, dense tensors are the components of one of that
    kind, which is looked at once it is put together.

    Raises:
        UnprocessableInput: `dtype_mismatch`, `shape_mismatch`.
    """
    tensor = named.tensor
    if isinstance(tensor, Tensor) and options.kind in ("sparse", "ragged"):
        return
    if options.dtype not in (None, tensor.dtype) and not _is_rounded(tensor, options):
        way = ", or set ?lossy=allow to have it rounded" if _is_narrower(tensor, options) else ""
        raise UnprocessableInput(
            f"The tensor is {tensor.dtype}, but {options.dtype} was declared. Leave out ?dtype={way}.",
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
