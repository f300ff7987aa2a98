"""The schema of rows that come without one.

From exactly the first 1,000 rows, however the body is chunked (all rows with `infer=all`). A feature

- is what its values are: bool, int64, float32 (where one value is a float token), text, or bytes;
- has the shape of its nested arrays where that is the same in every row, and shape `[null]` where
  plain arrays differ in length, or all are empty (then float32, as in TensorFlow);
- is nullable where a row lacks it or has null;
- is left out where no row has a value: a value in a later row is then a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Final

from ...domain.dtypes import STRING
from ...domain.limits import Limits
from ...domain.schema import Feature, FeatureShape, Schema, check_feature_names, default_encoding
from ...domain.tensor import check_shape
from ...errors import SchemaConflict, UnprocessableInput
from ..json_values import ItemError, Reading, flatten, infer_dtype
from .json_arrays import cell_error

__all__ = ["HEAD_ROWS", "infer_feature", "infer_schema"]

#: So many rows are looked at; part of the HTTP contract.
HEAD_ROWS: Final = 1000


def infer_schema(
    names: Iterable[str], cells_of: Callable[[str], list[Any]], reading: Reading, limits: Limits
) -> Schema:
    """The schema of the rows whose keys are `names`, in this order.

    Args:
        cells_of: the cells of a feature by its name, None where a row lacks it. Asked for one
            feature at a time, since a few rows can have a great many keys.

    Raises:
        SchemaConflict: values of two kinds in one feature.
        UnprocessableInput: ragged arrays, names that no Example can hold.
    """
    names = list(names)
    check_feature_names(names, limits)
    features = (infer_feature(name, cells_of(name), reading) for name in names)
    return Schema(tuple(feature for feature in features if feature is not None))


def infer_feature(name: str, cells: list[Any], reading: Reading) -> Feature | None:
    """The feature that holds these cells, or None where every cell is None.

    Raises:
        SchemaConflict: values of two kinds.
        UnprocessableInput: arrays that differ in more than the length of one dimension (`ragged`).
    """
    rows = [row for row, cell in enumerate(cells) if cell is not None]
    if not rows:
        return None
    nullable = len(rows) < len(cells)
    present = [cells[row] for row in rows] if nullable else cells
    items, shape = _items_and_shape(name, present, rows)
    try:
        dtype = infer_dtype(items, reading)
    except ItemError as error:
        raise cell_error(error, name, _row_of(error.index, present, rows)) from None
    if dtype is STRING:
        index = next(i for i, item in enumerate(items) if type(item) is not type(items[0]))
        raise SchemaConflict(
            f'Feature {name!r} is text in one row and {{"b64": ...}} in another. Declare it in a schema.',
            row=_row_of(index, present, rows),
            feature=name,
        )
    encoding = default_encoding(dtype, shape)
    return Feature(name, dtype, shape, encoding=encoding, nullable=nullable)


def _items_and_shape(name: str, cells: list[Any], rows: list[int]) -> tuple[list[Any], FeatureShape]:
    types = set(map(type, cells))
    if list not in types:
        return cells, ()
    if len(types) > 1:
        index = next(i for i, cell in enumerate(cells) if (type(cell) is list) != (type(cells[0]) is list))
        raise SchemaConflict(
            f"Feature {name!r} is an array in one row and a single value in another.",
            row=rows[index],
            feature=name,
        )
    try:
        items, (_, *shape) = flatten(cells)
    except ItemError as error:
        items = list(chain.from_iterable(cells))
        if list in set(map(type, items)):
            raise _ragged(error, name, rows) from None
        return items, (None,)
    return items, (None,) if shape == [0] else check_shape(shape)


def _ragged(error: ItemError, name: str, rows: list[int]) -> UnprocessableInput:
    row = rows[(error.path or (0,))[0]]
    return UnprocessableInput(
        f"Feature {name!r}, row {row}: {error.detail} Declare its shape in a schema, with null for a "
        "dimension that varies.",
        code="ragged",
        row=row,
        feature=name,
    )


def _row_of(index: int, cells: list[Any], rows: list[int]) -> int:
    """The row of the item at `index` of all items."""
    for row, cell in zip(rows, cells, strict=True):
        index -= len(flatten([cell])[0])
        if index < 0:
            return row
    raise IndexError(index)  # pragma: no cover
