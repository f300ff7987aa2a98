"""Tensors as safetensors: several named arrays of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...domain.limits import Budget
from ...domain.streams import Buffer, ByteStream
from ...domain.tensor import NamedTensor
from ..containers.array import named_chunks
from ..containers.safetensors import read_safetensors, serialize_safetensors
from ..options import TensorDecodeOptions, TensorEncodeOptions
from .declared import check_declared

__all__ = ["decode", "encode"]


def decode(source: ByteStream, options: TensorDecodeOptions, budget: Budget) -> list[NamedTensor]:
    """The arrays under their names, in the order of the header.

    Raises:
        InputError: as `read_safetensors`; another dtype or shape than declared.
    """
    arrays = read_safetensors(source, budget)
    tensors = [NamedTensor(array.to_tensor(), name) for name, array in arrays.items()]
    for named in tensors:
        check_declared(named, options)
    return tensors


def encode(tensors: Sequence[NamedTensor], options: TensorEncodeOptions) -> Iterator[Buffer]:  # noqa: ARG001 (one signature for all)
    """The tensors under their names; those without one are tensor_0, tensor_1, ... by their position.

    Raises:
        UnprocessableInput: as `serialize_safetensors`.
    """
    return serialize_safetensors(named_chunks(tensors, "tensor_"))
