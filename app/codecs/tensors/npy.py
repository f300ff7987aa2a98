"""Tensors as NPY; see `containers/npy.py` for what becomes of strings and bfloat16."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...domain.limits import Budget
from ...domain.streams import Buffer, ByteStream
from ...domain.tensor import NamedTensor
from ..containers.npy import read_npy, serialize_npy
from ..options import TensorDecodeOptions, TensorEncodeOptions
from .declared import check_declared
from .single import only_tensor

__all__ = ["decode", "encode"]


def decode(source: ByteStream, options: TensorDecodeOptions, budget: Budget) -> list[NamedTensor]:
    """The one array of the body.

    Raises:
        InputError: as `read_npy`; another dtype or shape than declared.
    """
    named = NamedTensor(read_npy(source, budget, declared=options.dtype).to_tensor())
    check_declared(named, options)
    return [named]


def encode(tensors: Sequence[NamedTensor], options: TensorEncodeOptions) -> Iterator[Buffer]:  # noqa: ARG001 (one signature for all)
    """The tensor as `numpy.save` writes it.

    Raises:
        UnprocessableInput: not exactly one tensor, or one that numpy cannot hold.
    """
    tensor = only_tensor(tensors, "npy")
    return serialize_npy(tensor.dtype, tensor.shape, [tensor.values])
