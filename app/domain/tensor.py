"""Shapes of tensors, as far as TensorFlow holds them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from ..errors import LimitExceeded, MalformedInput, UnprocessableInput

Shape = tuple[int, ...]

#: TensorFlow's own: `TensorShape::MaxDimensions()` in tensorflow/core/framework/tensor_shape.h.
MAX_RANK: Final = 254
#: A dimension is an int64 in TensorShapeProto.
MAX_DIM: Final = 2**63 - 1


def check_distinct(names: Iterable[str | None]) -> None:
    """Refuse two tensors of one name; any number may have none.

    Raises:
        UnprocessableInput: `duplicate_name`.
    """
    seen: set[str] = set()
    for name in names:
        if name is None:
            continue
        if name in seen:
            raise UnprocessableInput(
                f"Two tensors are called {name[:64]!r}. Rename one of them.",
                code="duplicate_name",
                feature=name,
            )
        seen.add(name)


def num_elements(shape: Sequence[int]) -> int:
    """The product of the dimensions; exact, since Python's integers do not overflow."""
    return math.prod(shape)


def check_shape(shape: Sequence[object], *, offset: int | None = None) -> Shape:
    """The shape as a tuple of non-negative ints that TensorFlow can hold.

    Every dimension is capped even when another one is 0, as TensorFlow does.

    Raises:
        MalformedInput: a dimension is not an integer, is negative, or does not fit an int64.
        LimitExceeded: more than 254 dimensions, or 2^63 elements or more.
    """
    if len(shape) > MAX_RANK:
        raise LimitExceeded(
            f"The shape has {len(shape)} dimensions; TensorFlow holds at most {MAX_RANK}.",
            code="rank_too_large",
            offset=offset,
        )
    dims: list[int] = []
    for dim in shape:
        if not isinstance(dim, int) or isinstance(dim, bool) or not 0 <= dim <= MAX_DIM:
            raise MalformedInput(
                f"Dimension {str(dim)[:40]} is not an integer from 0 to 2^63-1.",
                code="invalid_shape",
                offset=offset,
            )
        dims.append(dim)
    if math.prod(filter(None, dims)) > MAX_DIM:
        raise LimitExceeded(
            "The dimensions multiply to more than 2^63-1.", code="shape_too_large", offset=offset
        )
    return tuple(dims)
