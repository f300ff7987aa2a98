"""The cells of one dense feature, as parsed from JSON, to a column in the layouts of `columns.py`."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.schema import Feature, FeatureShape
from ...domain.tensor import Shape, num_elements
from ..arrow.batches import column_type
from ..records.arrays import column_from_values, element_column, keeps_shape, list_column
from .convert import convert_items
from .errors import Rows, cell_error, misfit
from .values import ItemError, Reading, flatten

__all__ = ["build_dense"]


def build_dense(
    feature: Feature,
    cells: list[Any],
    reading: Reading,
    rows: Rows,
) -> pa.Array[Any]:
    """The column of the cells of a dense feature.

    Arrays without elements fit every inner dimension that they cannot show: `[]` has shape
    `[0, 3]` where `[null, 3]` is declared.

    Args:
        cells: those that are present, None is not.
        rows: the row of each of them, for errors.

    Raises:
        SchemaConflict: a cell of another shape or type than the feature's (`schema_conflict`).
        InputError: a value that the dtype does not hold. Errors carry feature and row.
    """
    build = _varying_column if feature.num_unknown else _fixed_column
    return build(feature, cells, reading, rows)


def _item_shape(feature: Feature) -> FeatureShape:
    """The shape of a cell's nested arrays: a complex number is one of two floats."""
    return (*feature.shape, 2) if feature.dtype.kind == "complex" else feature.shape


def _fixed_column(
    feature: Feature,
    cells: list[Any],
    reading: Reading,
    rows: Rows,
) -> pa.Array[Any]:
    shape = tuple(dim or 0 for dim in _item_shape(feature))
    items = cells
    for axis, dim in enumerate(shape):
        if set(map(type, items)) - {list} or set(map(len, items)) - {dim}:
            index = next(i for i, item in enumerate(items) if type(item) is not list or len(item) != dim)
            raise misfit(feature, items[index], rows[index // num_elements(shape[:axis])])
        items = list(chain.from_iterable(items))
    try:
        values = convert_items(items, feature.dtype, reading)
    except ItemError as error:
        raise cell_error(error, feature.name, rows[error.index // num_elements(shape)]) from None
    row_shape = tuple(dim or 0 for dim in feature.shape)
    return column_from_values(values, feature, row_shape, len(cells))


def _varying_column(
    feature: Feature,
    cells: list[Any],
    reading: Reading,
    rows: Rows,
) -> pa.Array[Any]:
    shapes: list[Shape] = []
    parts: list[list[Any]] = []
    for row, cell in zip(rows, cells, strict=True):
        items, shape = _read_cell(feature, cell, reading, row)
        parts.append(items)
        shapes.append(shape)
    starts = np.cumsum([0, *map(len, parts)])
    try:
        values = convert_items(list(chain.from_iterable(parts)), feature.dtype, reading)
    except ItemError as error:
        row = rows[int(np.searchsorted(starts, error.index, side="right")) - 1]
        raise cell_error(error, feature.name, row) from None
    return _varying_layout(feature, values, shapes)


def _read_cell(feature: Feature, cell: object, reading: Reading, row: int) -> tuple[list[Any], Shape]:
    """The items of one cell and the shape of the feature in this row."""
    if type(cell) is not list:
        raise misfit(feature, cell, row)
    if len(feature.shape) == 1 and feature.dtype.kind != "complex":
        return cell, (len(cell),)
    try:
        items, found = flatten(cell)
    except ItemError as error:
        # An inferred shape is nobody's word: a row that is ragged then conflicts like any other.
        raise (
            cell_error(error, feature.name, row) if reading.declared else misfit(feature, cell, row)
        ) from None
    expected = _item_shape(feature)
    if not items:
        found += tuple(dim or 0 for dim in expected[len(found) :])
    fits = len(found) == len(expected) and all(
        dim is None or dim == length for dim, length in zip(expected, found, strict=True)
    )
    if not fits or not keeps_shape(feature, found):
        raise misfit(feature, cell, row)
    return items, found[: len(feature.shape)]


def _varying_layout(feature: Feature, values: NDArray[Any], shapes: list[Shape]) -> pa.Array[Any]:
    sizes = np.fromiter(map(num_elements, shapes), np.int64, len(shapes))
    lists = list_column(sizes, element_column(values, feature), feature.name)
    if feature.num_unknown == 1:
        return lists
    dims = pa.array(np.array(shapes, np.int64).reshape(-1))
    dims_type = pa.list_(pa.int64(), len(feature.shape))
    dims_lists = pa.Array.from_buffers(dims_type, len(shapes), [None], children=[dims])
    return pa.Array.from_buffers(column_type(feature), len(shapes), [None], children=[dims_lists, lists])
