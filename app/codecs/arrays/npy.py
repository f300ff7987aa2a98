"""Tensors as NPY; see `npy_file.py` for what becomes of strings and bfloat16."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from ...domain.tensor import NamedTensor
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..tensor_stream import NamedStream
from ..tensors.arriving import Arriving, named_arrival
from ..tensors.declared import check_declared
from ..tensors.single import only_stream, only_tensor
from .npy_file import npy_number_header, open_npy, read_npy, serialize_npy

__all__ = ["decode", "decode_stream", "encode", "encode_stream"]


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


def decode_stream(
    source: ByteStream,
    options: TensorDecodeOptions,
    budget: Budget,
    num_bytes: int | None,  # noqa: ARG001 (one signature for all)
) -> Arriving:
    """As `decode`, while the body arrives.

    Raises:
        InputError: as `decode`, here or as the content is drawn.
    """
    return [named_arrival(open_npy(source, budget, declared=options.dtype), options)]


def encode_stream(tensors: Sequence[NamedStream], options: TensorEncodeOptions) -> Iterator[Buffer]:  # noqa: ARG001 (one signature for all)
    """As `encode`, of a tensor that is arriving."""
    stream = only_stream(tensors, "npy")
    return chain([npy_number_header(stream.dtype, stream.shape)], stream.content)
