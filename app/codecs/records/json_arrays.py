"""The cells of one feature, as parsed from JSON, to a column in the layouts of `columns.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.schema import Feature, FeatureShape
from ...domain.tensor import Shape, num_elements
from ...errors import InputError, LimitExceeded, SchemaConflict
from ..json_convert import convert_items
from ..json_values import ItemError, Reading, flatten
from .arrays import column_from_values
from .columns import column_type, storage_type

__all__ = ["build_column", "cell_error"]

#: Codes of `ItemError` that say: these cells are of another kind than the schema says.
_CONFLICTS: Final = frozenset({"type_mismatch", "mixed_types"})
#: Arrow's lists count their values by int32.
_MAX_OFFSET: Final = 2**31 - 1


def cell_error(error: ItemError, feature: str, row: int) -> InputError:
    """What the client sees of an item that cannot be read."""
    conflict = error.code in _CONFLICTS
    return (SchemaConflict if conflict else error.error)(
        f"Feature {feature!r}, row {row}: {error.detail}",
        code="schema_conflict" if conflict else error.code,
        row=row,
        feature=feature,
    )


def build_column(feature: Feature, cells: list[Any], reading: Reading, first_row: int) -> pa.Array[Any]:
    """The column of `feature`; a cell that is None is a row without the feature.

    Arrays without elements fit every inner dimension that they cannot show: `[]` has shape
    `[0, 3]` where `[null, 3]` is declared.

    Args:
        first_row: the row of the first cell, for errors.

    Raises:
        SchemaConflict: a cell of another shape or type than the feature's, or absent where the
            feature is not nullable (`schema_conflict`).
        InputError: a value that the dtype does not hold. Errors carry feature and row.
    """
    present = None
    rows: Sequence[int] = range(first_row, first_row + len(cells))
    if None in cells:
        present = np.fromiter((cell is not None for cell in cells), np.bool_, len(cells))
        if not feature.nullable:
            raise _missing(feature, rows[int(np.argmin(present))], reading)
        rows = (np.flatnonzero(present) + first_row).tolist()
        cells = [cell for cell in cells if cell is not None]
    if feature.num_unknown:
        return _varying_column(feature, cells, reading, rows, present)
    return _fixed_column(feature, cells, reading, rows, present)


def _missing(feature: Feature, row: int, reading: Reading) -> SchemaConflict:
    hint = "Send it, or declare the feature nullable."
    if not reading.declared:
        hint = (
            "The schema was inferred from rows that all have it: set ?infer=all, or declare a schema in "
            "which the feature is nullable."
        )
    return SchemaConflict(
        f"Row {row} lacks the feature {feature.name!r}. {hint}",
        row=row,
        feature=feature.name,
    )


def _item_shape(feature: Feature) -> FeatureShape:
    """The shape of a cell's nested arrays: a complex number is one of two floats."""
    return (*feature.shape, 2) if feature.dtype.kind == "complex" else feature.shape


def _fixed_column(
    feature: Feature,
    cells: list[Any],
    reading: Reading,
    rows: Sequence[int],
    present: NDArray[np.bool_] | None,
) -> pa.Array[Any]:
    shape = tuple(dim or 0 for dim in _item_shape(feature))
    items = cells
    for axis, dim in enumerate(shape):
        if set(map(type, items)) - {list} or set(map(len, items)) - {dim}:
            index = next(i for i, item in enumerate(items) if type(item) is not list or len(item) != dim)
            raise _misfit(feature, items[index], rows[index // num_elements(shape[:axis])])
        items = list(chain.from_iterable(items))
    try:
        values = convert_items(items, feature.dtype, reading)
    except ItemError as error:
        raise cell_error(error, feature.name, rows[error.index // num_elements(shape)]) from None
    row_shape = tuple(dim or 0 for dim in feature.shape)
    if present is None:
        return column_from_values(values, feature, row_shape, len(cells))
    full = np.full(
        (len(present), num_elements(row_shape)), b"" if feature.dtype.is_string else 0, values.dtype
    )
    full[present] = values.reshape(len(cells), num_elements(row_shape))
    column = column_from_values(full.reshape(-1), feature, row_shape, len(present))
    return _with_nulls(column, present)


def _misfit(feature: Feature, item: object, row: int) -> SchemaConflict:
    found = f"an array of {len(item)} stands" if isinstance(item, list) else "a single value stands"
    return SchemaConflict(
        f"Feature {feature.name!r} is {feature.dtype} of shape {list(feature.shape)} in the schema, "
        f"but in row {row} {found} where it does not fit.",
        row=row,
        feature=feature.name,
    )


def _varying_column(
    feature: Feature,
    cells: list[Any],
    reading: Reading,
    rows: Sequence[int],
    present: NDArray[np.bool_] | None,
) -> pa.Array[Any]:
    shapes: list[Shape] = []
    parts: list[list[Any]] = []
    for row, cell in zip(rows, cells, strict=True):
        items, shape = _read_cell(feature, cell, row)
        parts.append(items)
        shapes.append(shape)
    starts = np.cumsum([0, *map(len, parts)])
    try:
        values = convert_items(list(chain.from_iterable(parts)), feature.dtype, reading)
    except ItemError as error:
        row = rows[int(np.searchsorted(starts, error.index, side="right")) - 1]
        raise cell_error(error, feature.name, row) from None
    if present is None:
        return _varying_layout(feature, values, shapes)
    given = iter(shapes)
    absent = (0,) * len(feature.shape)
    column = _varying_layout(feature, values, [next(given) if here else absent for here in present])
    return _with_nulls(column, present)


def _read_cell(feature: Feature, cell: object, row: int) -> tuple[list[Any], Shape]:
    """The items of one cell and the shape of the feature in this row."""
    if type(cell) is not list:
        raise _misfit(feature, cell, row)
    if len(feature.shape) == 1 and feature.dtype.kind != "complex":
        return cell, (len(cell),)
    try:
        items, found = flatten(cell)
    except ItemError as error:
        raise cell_error(error, feature.name, row) from None
    expected = _item_shape(feature)
    if not items:
        found += tuple(dim or 0 for dim in expected[len(found) :])
    fits = len(found) == len(expected) and all(
        dim is None or dim == length for dim, length in zip(expected, found, strict=True)
    )
    if not fits:
        raise _misfit(feature, cell, row)
    return items, found[: len(feature.shape)]


def _varying_layout(feature: Feature, values: NDArray[Any], shapes: list[Shape]) -> pa.Array[Any]:
    if len(values) > _MAX_OFFSET:
        raise LimitExceeded(
            f"Rows of feature {feature.name!r} are too large for one column.",
            code="column_too_large",
            feature=feature.name,
        )
    elements = column_from_values(values, replace(feature, shape=()), (), len(values))
    offsets = np.cumsum([0, *map(num_elements, shapes)], dtype=np.int32)
    lists = pa.Array.from_buffers(
        pa.list_(storage_type(feature.dtype)),
        len(shapes),
        [None, pa.py_buffer(offsets.data)],
        children=[elements],
    )
    if feature.num_unknown == 1:
        return lists
    dims = pa.array(np.array(shapes, np.int64).reshape(-1))
    dims_type = pa.list_(pa.int64(), len(feature.shape))
    dims_lists = pa.Array.from_buffers(dims_type, len(shapes), [None], children=[dims])
    return pa.Array.from_buffers(column_type(feature), len(shapes), [None], children=[dims_lists, lists])


def _with_nulls(column: pa.Array[Any], present: NDArray[np.bool_]) -> pa.Array[Any]:
    """The same column, null where `present` is false; what lies below keeps no nulls."""
    validity = pa.py_buffer(np.packbits(present, bitorder="little").data)
    layout = column.type
    if isinstance(column, pa.StructArray):
        children = [column.field(index) for index in range(layout.num_fields)]
        return pa.Array.from_buffers(layout, len(column), [validity], children=children)
    if isinstance(column, pa.FixedSizeListArray):
        return pa.Array.from_buffers(layout, len(column), [validity], children=[column.values])
    if isinstance(column, pa.ListArray):
        offsets = column.buffers()[1]
        return pa.Array.from_buffers(layout, len(column), [validity, offsets], children=[column.values])
    return pa.Array.from_buffers(layout, len(column), [validity, *column.buffers()[1:]])
