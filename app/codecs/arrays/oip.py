"""Tensors as the Open Inference Protocol's binary form: JSON, then the elements of the tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...domain.dtypes import BYTES
from ...domain.tensor import NamedTensor
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream
from ..json.tensor_body import read_tensor
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..tensors.declared import check_declared
from . import raw
from .array import Array, named_chunks
from .oip_body import read_oip, serialize_oip

__all__ = ["decode", "encode"]


def decode(source: ByteStream, options: TensorDecodeOptions, budget: Budget) -> list[NamedTensor]:
    """The tensors of a request or a response; where the JSON has no length, one raw tensor.

    Raises:
        InputError: as `read_oip` and `read_tensor`, or as `raw.decode`; another dtype or shape than declared.
    """
    if options.json_bytes == 0:
        return raw.decode(source, options, budget)
    undeclared = replace(options, dtype=None, shape=None)

    def read_json(item: dict[str, Any], pointer: str) -> Array:
        tensor = read_tensor(item, pointer, undeclared).tensor
        return Array(BYTES if tensor.dtype.is_string else tensor.dtype, tensor.shape, tensor.values)

    bare = options.nonfinite == "bare"
    body = read_oip(source, options.json_bytes, budget, read_json, bare_nonfinite=bare)
    tensors = [NamedTensor(found.array.to_tensor(), found.name) for found in body.tensors]
    for named in tensors:
        check_declared(named, options)
    return tensors


def encode(tensors: Sequence[NamedTensor], options: TensorEncodeOptions) -> Iterator[Buffer]:  # noqa: ARG001 (one signature for all)
    """The tensors as a response; those without a name are output_0, output_1, ... by their position.

    Raises:
        UnprocessableInput: as `serialize_oip`.
    """
    return serialize_oip(named_chunks(tensors, "output_"))
