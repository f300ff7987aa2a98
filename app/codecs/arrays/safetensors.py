"""Tensors as safetensors: several named arrays of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from ...domain.tensor import NamedTensor
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..tensor_stream import NamedStream
from ..tensors.arriving import Arriving, named_arrival
from ..tensors.declared import check_declared
from .array import named_chunks, position_name
from .safetensors_file import (
    open_safetensors,
    read_safetensors,
    safetensors_header,
    safetensors_order,
    serialize_safetensors,
)

__all__ = ["decode", "decode_stream", "encode", "encode_stream"]

_PREFIX: Final = "tensor_"


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
    return serialize_safetensors(named_chunks(tensors, _PREFIX))


def decode_stream(
    source: ByteStream,
    options: TensorDecodeOptions,
    budget: Budget,
    num_bytes: int | None,  # noqa: ARG001 (one signature for all)
) -> Arriving:
    """As `decode`, while the body arrives.

    Raises:
        InputError: as `decode`, here or as the contents are drawn.
    """
    arrays = open_safetensors(source, budget)
    return [named_arrival(tensor, options, name) for name, tensor in arrays.items()]


def encode_stream(
    tensors: Sequence[NamedStream],
    options: TensorEncodeOptions,  # noqa: ARG001 (one signature for all)
) -> Iterator[Buffer] | None:
    """As `encode`, of tensors that are arriving; None where they would be written in another order.

    Raises:
        UnprocessableInput: as `serialize_safetensors`.
    """
    names = [position_name(named.name, _PREFIX, index) for index, named in enumerate(tensors)]
    streams = [named.tensor for named in tensors]
    order = safetensors_order([(name, item.dtype) for name, item in zip(names, streams, strict=True)])
    if order != list(range(len(tensors))):
        return None
    infos = [(name, item.dtype, item.shape) for name, item in zip(names, streams, strict=True)]
    return chain([safetensors_header(infos)], chain.from_iterable(item.content for item in streams))
