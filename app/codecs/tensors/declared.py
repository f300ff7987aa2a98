"""What the client declared beside a form that carries dtype and shape itself must agree with it."""

from __future__ import annotations

from ...domain.tensor import NamedAny, RaggedTensor, SparseTensor, Tensor
from ...domain.tensor_stream import NamedStream
from ...errors import UnprocessableInput
from ..options import TensorDecodeOptions

__all__ = ["check_declared"]


def check_declared(named: NamedAny | NamedStream, options: TensorDecodeOptions) -> None:
    """Refuse a tensor of another dtype or shape than declared; a sparse one has its dense_shape.

    Where the client declared another kind than dense, dense tensors are the components of one of that
    kind, which is looked at once it is put together.

    Raises:
        UnprocessableInput: `dtype_mismatch`, `shape_mismatch`.
    """
    tensor = named.tensor
    if isinstance(tensor, Tensor) and options.kind in ("sparse", "ragged"):
        return
    if options.dtype is not None and options.dtype != tensor.dtype:
        raise UnprocessableInput(
            f"The tensor is {tensor.dtype}, but {options.dtype} was declared.",
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
