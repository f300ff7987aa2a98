"""Parsed JSON values: flat items, their shape, and the dtype that they have when none is declared.

An error here knows only the index of the item at fault (`ItemError`); whoever called knows which
pointer, or which row and feature, that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Literal

from ...domain.dtypes import BOOL, BYTES, FLOAT32, FLOAT64, INT64, STRING, TEXT, DType
from ...domain.tensor import Shape
from ...errors import InputError, UnprocessableInput
from .text import NegativeZero, NonFinite

__all__ = [
    "INTEGER_TYPES",
    "NUMBER_TYPES",
    "ItemError",
    "Reading",
    "described",
    "flatten",
    "infer_dtype",
    "null_error",
    "unravel",
]

_NONE: Final = type(None)
INTEGER_TYPES: Final = frozenset({int, NegativeZero})
NUMBER_TYPES: Final = INTEGER_TYPES | {float, NonFinite}
_NUMBERS: Final[dict[type, str]] = {
    int: "an integer",
    NegativeZero: "an integer",
    float: "a decimal number",
    NonFinite: "NaN or an infinity",
}
_FAMILIES: Final[dict[type, str]] = {
    bool: "a boolean",
    int: "a number",
    NegativeZero: "a number",
    float: "a number",
    NonFinite: "a number",
    str: "a string",
    dict: "an object",
    list: "an array",
    _NONE: "null",
}


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


def flatten(nested: list[Any]) -> tuple[list[Any], Shape]:
    """The items of rectangular nested lists in row-major order, and the shape.

    Raises:
        ItemError: the lists are ragged.
    """
    items, shape = nested, [len(nested)]
    while list in (types := set(map(type, items))):
        lengths = set(map(len, items)) if len(types) == 1 else set()
        if len(lengths) != 1:
            raise _ragged(items, tuple(shape))
        shape.append(lengths.pop())
        items = list(chain.from_iterable(items))
    return items, tuple(shape)


def _ragged(items: list[Any], shape: Shape) -> ItemError:
    first = _length(items[0])
    index = next(i for i, item in enumerate(items) if _length(item) != first)
    return ItemError(
        index,
        f"The nested arrays are ragged: {described(items[index])} stands beside {described(items[0])}.",
        "ragged",
        path=unravel(index, shape),
    )


def _length(item: object) -> int:
    return len(item) if type(item) is list else -1


def described(item: object) -> str:
    """The kind of an item, as errors call it."""
    if type(item) is list:
        return f"an array of {len(item)}"
    return _NUMBERS.get(type(item)) or _FAMILIES[type(item)]


def infer_dtype(items: list[Any], reading: Reading) -> DType:
    """The dtype of items that nobody declared: bool, int64, float64, text, bytes, or string for both.

    Any float token makes all of them float64. No items at all are float32, as in TensorFlow.

    Raises:
        ItemError: a mixture, or a null.
    """
    types = set(map(type, items))
    if _NONE in types and (not reading.null_is_nan or types - NUMBER_TYPES - {_NONE}):
        raise null_error(next(i for i, item in enumerate(items) if item is None))
    families = {_FAMILIES[type_] for type_ in types - {_NONE}}
    if len(families) > 1 and families != {"a string", "an object"}:
        first = _FAMILIES[type(items[0])]
        index = next(i for i, item in enumerate(items) if _FAMILIES[type(item)] != first)
        raise ItemError(
            index,
            f"{_FAMILIES[type(items[index])].capitalize()} stands beside {first} in one array. "
            'Numbers never mix with booleans or strings ("NaN" only where a float dtype is declared).',
            "mixed_types",
        )
    if types & {str, dict}:
        return STRING if len(types) > 1 else TEXT if str in types else BYTES
    if types == {bool}:
        return BOOL
    if not types:
        return FLOAT32
    return INT64 if types <= INTEGER_TYPES else FLOAT64


def null_error(index: int) -> ItemError:
    """A null where a value has to be."""
    return ItemError(
        index,
        "null is not a value of an array. Leave it out, or set ?nonfinite=null to read it as NaN in floats.",
        "null_value",
    )
