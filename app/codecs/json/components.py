"""The objects that stand for a ragged or a sparse value: members that both have."""

from __future__ import annotations

from typing import Any

from ...domain.dtypes import parse_dtype
from ...domain.schema import Feature
from ...errors import MalformedInput
from .values import ItemError, described

__all__ = ["check_dtype", "check_members", "integers"]


def check_members(index: int, cell: object, required: set[str], optional: set[str], what: str) -> None:
    """Refuse a cell that is not an object of these members.

    Args:
        index: of the cell, for the error.
        what: the forms that are taken, as the error calls them.

    Raises:
        ItemError: `type_mismatch`.
    """
    if isinstance(cell, dict) and required <= cell.keys() <= required | optional:
        return
    found = f"an object with {sorted(cell)[:6]}" if isinstance(cell, dict) else described(cell)
    raise ItemError(index, f"Expected {what}, found {found}.", "type_mismatch")


def check_dtype(index: int, name: object, feature: Feature) -> None:
    """Refuse a cell that says another dtype than the schema does.

    Raises:
        ItemError: `dtype_mismatch`, `unknown_dtype`.
    """
    if name is None:
        return
    if not isinstance(name, str):
        raise ItemError(index, '"dtype" is not a string.', "unknown_dtype", error=MalformedInput)
    try:
        dtype = parse_dtype(name)
    except MalformedInput as error:
        raise ItemError(index, error.detail, error.code, error=MalformedInput) from None
    if dtype.numpy != feature.dtype.numpy:
        raise ItemError(
            index, f"The value says dtype {dtype}, but the schema {feature.dtype}.", "dtype_mismatch"
        )


def integers(value: object) -> list[Any] | None:
    """`value` where it is an array of integers, else None."""
    if isinstance(value, list) and set(map(type, value)) <= {int}:
        return value
    return None
