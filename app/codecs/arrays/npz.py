"""Tensors as NPZ: several named arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ...domain.tensor import NamedTensor
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, WholeBody
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..tensors.arriving import Arriving, named_arrival
from ..tensors.declared import check_declared
from .array import named_chunks
from .npy_file import serialize_npy
from .npz_file import open_npz, read_npz, serialize_npz

__all__ = ["decode", "decode_stream", "encode"]


def decode(body: WholeBody, options: TensorDecodeOptions, budget: Budget) -> list[NamedTensor]:
    """The arrays of the archive under their names, in its order.

    Raises:
        InputError: as `read_npz`; another dtype or shape than declared.
    """
    arrays = read_npz(body, budget, declared=lambda _: options.dtype)
    tensors = [NamedTensor(array.to_tensor(), name) for name, array in arrays.items()]
    for named in tensors:
        check_declared(named, options)
    return tensors


def decode_stream(
    body: WholeBody,
    options: TensorDecodeOptions,
    budget: Budget,
    num_bytes: int | None,  # noqa: ARG001 (one signature for all)
) -> Arriving:
    """As `decode`, of each array no more in memory than a piece.

    Raises:
        InputError: as `decode`, here or as the contents are drawn.
    """
    arrays = open_npz(body, budget, declared=lambda _: options.dtype)
    return [named_arrival(tensor, options, name) for name, tensor in arrays.items()]


def encode(tensors: Sequence[NamedTensor], options: TensorEncodeOptions) -> Iterator[Buffer]:  # noqa: ARG001 (one signature for all)
    """The tensors under their names; those without one as numpy.savez names them: arr_0, arr_1, ...

    Raises:
        UnprocessableInput: two of one name, a name that no member can have, or a tensor that numpy
            cannot hold.
    """
    return serialize_npz(
        [
            (array.name, partial(serialize_npy, array.dtype, array.shape, array.chunks))
            for array in named_chunks(tensors, "arr_")
        ]
    )
