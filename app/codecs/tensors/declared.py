"""What the client declared beside a form that carries dtype and shape itself must agree with it."""

from __future__ import annotations

from ...domain.tensor import NamedTensor
from ...errors import UnprocessableInput
from ..options import TensorDecodeOptions

__all__ = ["check_declared"]


def check_declared(named: NamedTensor, options: TensorDecodeOptions) -> None:
    """Refuse a tensor of another dtype or shape than declared.

    Raises:
        UnprocessableInput: `dtype_mismatch`, `shape_mismatch`.
    """
    tensor = named.tensor
    if options.dtype is not None and options.dtype != tensor.dtype:
        raise UnprocessableInput(
            f"The tensor is {tensor.dtype}, but {options.dtype} was declared.",
            code="dtype_mismatch",
            feature=named.name,
        )
    if options.shape is not None and options.shape != tensor.shape:
        raise UnprocessableInput(
            f"The tensor has shape {list(tensor.shape)}, but {list(options.shape)} was declared.",
            code="shape_mismatch",
            feature=named.name,
        )
