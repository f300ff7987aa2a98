"""How JSON values are read, and the error of one that cannot be.

An error here knows only the index of the item at fault (`ItemError`); whoever called knows which
pointer, or which row and feature, that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from ...domain.tensor import Shape
from ...errors import InputError, UnprocessableInput


@dataclass(frozen=True, slots=True)
class Reading:
    """How items are read.

    Attributes:
        declared: the client named the dtype: "NaN" and digits in a string are numbers then, 1.0 is
            an integer, and text may stand for bytes. An inferred dtype takes what it was inferred from.
        null_is_nan: null inside an array of floats is NaN.
    """

    declared: bool = True
    null_is_nan: bool = False

    @classmethod
    @cache
    def of(cls, nonfinite: Literal["error", "null", "bare"], *, declared: bool) -> Reading:
        return cls(declared, nonfinite == "null")


class ItemError(Exception):
    """An item that cannot be read; `located` turns it into what a client sees.

    Attributes:
        index: of the item in the flat list.
        path: the indices that lead to it, where they are known better than by `index`.
    """

    def __init__(
        self,
        index: int,
        detail: str,
        code: str,
        *,
        error: type[InputError] = UnprocessableInput,
        path: Shape | None = None,
    ) -> None:
        super().__init__(detail)
        self.index = index
        self.detail = detail
        self.code = code
        self.error = error
        self.path = path


def unravel(index: int, shape: Sequence[int]) -> Shape:
    """The row-major index of every axis."""
    path: list[int] = []
    for dim in reversed(shape):
        index, position = divmod(index, dim)
        path.append(position)
    return tuple(reversed(path))


def null_error(index: int) -> ItemError:
    """A null where a value has to be."""
    return ItemError(
        index,
        "null is not a value of an array. Leave it out, or set nonfinite=null to read it as NaN in floats.",
        "null_value",
    )
