"""Tensors that are decoded and encoded while they arrive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...domain.tensor import NamedTensor, Tensor
from ..options import TensorDecodeOptions
from ..tensor_stream import NamedStream, TensorStream
from .declared import check_declared, round_stream

#: One of the tensors of a body; in memory where its form leaves no other way.
Arrival = NamedStream | NamedTensor


class ArrivingOneByOne(Iterator[Any]):
    """Tensors of which only the end of the body tells how many there are.

    Attributes:
        kept: those in memory stay charged to the budget; otherwise each does until the next one is drawn.
    """

    kept: bool = False


#: All tensors of a body, each drawn to its end before the next one; a sequence where all are known.
Arriving = Sequence[Arrival] | ArrivingOneByOne


def named_arrival(
    tensor: TensorStream | Tensor, options: TensorDecodeOptions, name: str | None = None
) -> Arrival:
    """The tensor under its name, if it is what the client declared; one that arrives is rounded to that.

    Raises:
        UnprocessableInput: as `check_declared`.
    """
    named = NamedStream(tensor, name) if isinstance(tensor, TensorStream) else NamedTensor(tensor, name)
    check_declared(named, options)
    return round_stream(named, options) if isinstance(named, NamedStream) else named
