"""Tensors as NPZ: several named arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ...domain.limits import Budget
from ...domain.streams import Buffer, ByteStream, MemoryFile, read_all
from ...domain.tensor import NamedTensor
from ..containers.array import named_chunks
from ..containers.npy import serialize_npy
from ..containers.npz import read_npz, serialize_npz
from ..options import TensorDecodeOptions, TensorEncodeOptions
from .declared import check_declared

__all__ = ["decode", "encode"]


def decode(source: ByteStream, options: TensorDecodeOptions, budget: Budget) -> list[NamedTensor]:
    """The arrays of the archive under their names, in its order.

    Raises:
        InputError: as `read_npz`; another dtype or shape than declared.
    """
    archive = read_all(source, budget)
    arrays = read_npz(MemoryFile(archive), budget, declared=lambda _: options.dtype)
    budget.release(len(archive))
    tensors = [NamedTensor(array.to_tensor(), name) for name, array in arrays.items()]
    for named in tensors:
        check_declared(named, options)
    return tensors


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
