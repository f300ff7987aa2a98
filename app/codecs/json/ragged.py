"""Ragged cells, as parsed from JSON, to a column: nested arrays, or values with row splits.

`{"values", "row_splits"}` is what a `tf.RaggedTensor` of the row consists of: `row_splits[0]` cuts what lies
below into the items of the first axis, and so on inwards; each begins with 0 and ends with the number of
items that it cuts.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa

from ...domain.schema import Feature
from ...domain.tensor import num_elements
from ..records.arrays import inner_column, list_column
from .components import check_dtype, check_members, integers
from .convert import convert_items
from .errors import Rows, cell_error, misfit
from .nesting import Nesting
from .values import ItemError, Reading

__all__ = ["build_ragged"]


def build_ragged(
    feature: Feature,
    cells: list[Any],
    reading: Reading,
    rows: Rows,
) -> pa.Array[Any]:
    """The column of a ragged feature; arguments as `build_dense`.

    Raises:
        SchemaConflict: a cell of another depth, or of another length where that is known.
        UnprocessableInput: row splits that do not fit the values (`invalid_row_splits`), values that do
            not fit the uniform dimensions (`shape_mismatch`), another `dtype` (`dtype_mismatch`).
        InputError: a value that the dtype does not hold.
    """
    nesting = Nesting()
    try:
        items = _opened(feature, _nested(feature, cells), nesting, rows)
        values = convert_items(items, feature.dtype, reading)
    except ItemError as error:
        raise cell_error(error, feature.name, rows[nesting.cell_of(error.index)]) from None
    column = inner_column(values, feature)
    for lengths in reversed(nesting.lengths[: feature.num_partitions + 1]):
        column = list_column(lengths, column, feature.name)
    return column


def _opened(feature: Feature, cells: list[Any], nesting: Nesting, rows: Rows) -> list[Any]:
    items = cells
    for dim in feature.shape:
        wrong = set(map(type, items)) - {list} or (dim is not None and set(map(len, items)) - {dim})
        if wrong:
            index = next(
                i
                for i, item in enumerate(items)
                if type(item) is not list or (dim is not None and len(item) != dim)
            )
            raise misfit(feature, items[index], rows[nesting.cell_of(index)])
        items = nesting.open(items)
    return items


def _nested(feature: Feature, cells: list[Any]) -> list[Any]:
    """The cells, all of them as nested arrays. Raises ItemError with the index of the cell."""
    if dict not in set(map(type, cells)):
        return cells
    return [
        _from_splits(index, cell, feature) if type(cell) is dict else cell for index, cell in enumerate(cells)
    ]


def _from_splits(index: int, cell: dict[str, Any], feature: Feature) -> list[Any]:
    check_members(
        index, cell, {"values", "row_splits"}, {"dtype"}, 'nested arrays or {"values", "row_splits"}'
    )
    check_dtype(index, cell.get("dtype"), feature)
    items, row_splits = cell["values"], cell["row_splits"]
    if not isinstance(items, list):
        raise ItemError(index, 'The "values" of a ragged value are an array.', "type_mismatch")
    if not isinstance(row_splits, list) or len(row_splits) != feature.num_partitions:
        raise _invalid(index, f'"row_splits" is not an array of {feature.num_partitions} arrays, one a cut')
    if feature.inner_shape and list not in set(map(type, items)):
        items = _inner(index, items, feature)
    for splits in reversed(row_splits):
        _check_splits(index, splits, len(items))
        items = [items[start:stop] for start, stop in pairwise(splits)]
    return items


def _inner(index: int, items: list[Any], feature: Feature) -> list[Any]:
    """Flat values in the nested arrays of the uniform dimensions."""
    if len(items) % num_elements(feature.inner_shape):
        raise ItemError(
            index,
            f"{len(items)} values do not divide into arrays of shape {list(feature.inner_shape)}.",
            "shape_mismatch",
        )
    for dim in reversed(feature.inner_shape):
        items = [items[start : start + dim] for start in range(0, len(items), dim)]
    return items


def _check_splits(index: int, splits: object, num_items: int) -> None:
    offsets = integers(splits)
    if not offsets:
        raise _invalid(index, '"row_splits" holds something else than arrays of one or more integers')
    if offsets[0] != 0 or offsets[-1] != num_items or any(a > b for a, b in pairwise(offsets)):
        raise _invalid(
            index, f"row splits do not rise from 0 to {num_items}, the number of items that they cut"
        )


def _invalid(index: int, what: str) -> ItemError:
    return ItemError(index, f"In a ragged value {what}.", "invalid_row_splits")
