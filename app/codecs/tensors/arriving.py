"""Tensors that are decoded and encoded while they arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...domain.tensor import NamedTensor, Tensor
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream, WholeBody
from ..arrays.array import Array
from ..content_stream import materialised
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..tensor_stream import NamedStream, TensorStream
from .declared import check_declared, round_stream

__all__ = [
    "Arrival",
    "Arriving",
    "ArrivingOneByOne",
    "FileStreamDecoder",
    "StreamDecoder",
    "StreamEncoder",
    "in_memory",
    "named_arrival",
]

#: One of the tensors of a body; in memory where its form leaves no other way.
Arrival = NamedStream | NamedTensor


class ArrivingOneByOne(Iterator[Arrival]):
    """Tensors of which only the end of the body tells how many there are.

    Attributes:
        kept: those in memory stay charged to the budget; otherwise each does until the next one is drawn.
    """

    kept: bool = False


#: All tensors of a body, each drawn to its end before the next one; a sequence where all are known.
Arriving = Sequence[Arrival] | ArrivingOneByOne
#: Also takes the length of the body, where that is known, in bytes.
StreamDecoder = Callable[[ByteStream, TensorDecodeOptions, Budget, int | None], Arriving]
FileStreamDecoder = Callable[[WholeBody, TensorDecodeOptions, Budget, int | None], Arriving]
#: Gives None where these tensors have to be in memory to be written so.
StreamEncoder = Callable[[Sequence[NamedStream], TensorEncodeOptions], Iterator[Buffer] | None]


def named_arrival(
    tensor: TensorStream | Tensor | Array, options: TensorDecodeOptions, name: str | None = None
) -> Arrival:
    """The tensor under its name, if it is what the client declared; one that arrives is rounded to that.

    Raises:
        UnprocessableInput: as `check_declared`.
    """
    if isinstance(tensor, Array):
        tensor = tensor.to_tensor()
    named = NamedStream(tensor, name) if isinstance(tensor, TensorStream) else NamedTensor(tensor, name)
    check_declared(named, options)
    return round_stream(named, options) if isinstance(named, NamedStream) else named


def in_memory(arrival: Arrival, budget: Budget) -> NamedTensor:
    """The tensor, once all of it has arrived.

    Raises:
        InputError: as `materialised`.
    """
    if isinstance(arrival, NamedStream):
        return NamedTensor(materialised(arrival.tensor, budget), arrival.name)
    return arrival
