"""The schema of rows that come without one.

From exactly the first 1,000 rows, however the body is chunked (all rows with `infer=all`). A feature

- is what its values are: bool, int64, float64 (where one value is a float token), text, or bytes;
- has the shape of its nested arrays where that is the same in every row, and shape `[null]` where
  plain arrays differ in length;
- is dense of shape `[null, ...]` where nested arrays differ in the first length alone, and ragged where
  others differ too: null on every axis that varies, or on which all arrays are empty. An empty array says
  nothing about what could be inside it;
- is a sequence where it is a feature list of a SequenceExample: its step is inferred from all steps of
  all rows, as dense;
- is nullable where a row lacks it or has null;
- is left out where no row has a value, since null and empty arrays have no dtype: a value in a later row is
  then a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..domain.dtypes import FLOAT32, STRING, DType
from ..domain.feature import Feature, FeatureKind, FeatureShape, default_encoding
from ..domain.limits import Limits
from ..domain.schema import Schema, check_feature_names
from ..domain.tensor import check_shape
from ..errors import InputError, SchemaConflict, UnprocessableInput
from .json.errors import cell_error
from .json.items import Nesting, infer_dtype
from .json.rows.cells import Cells
from .json.tape import Items
from .json.values import ItemError, Reading, null_error
from .kernels.json.tape import ARRAY, NULL

Ints = NDArray[np.int64]

#: So many rows are looked at; part of the HTTP contract.
HEAD_ROWS: Final = 1000


def infer_schema(
    names: Iterable[str],
    cells_of: Callable[[str], Cells],
    reading: Reading,
    limits: Limits,
    *,
    sequences: Set[str] = frozenset(),
    known: Schema | None = None,
) -> Schema:
    """The schema of the rows whose keys are `names`, in this order.

    Args:
        cells_of: the cells of a feature by its name. Asked for one feature at a time, since a few rows
            can have a great many keys.
        sequences: which of the names are feature lists.
        known: features that are not to be inferred; one that a row lacks becomes nullable, and one that was
            inferred itself may come out wider.

    Raises:
        SchemaConflict: values of two kinds in one feature.
        UnprocessableInput: arrays of differing depth, names that no Example can hold.
    """
    names = list(names)
    check_feature_names(names, limits)
    given = {} if known is None else known.by_name
    features = (
        _in_view_of(given[name], cells_of(name), reading)
        if name in given
        else infer_feature(name, cells_of(name), reading, sequence=name in sequences)
        for name in names
    )
    return Schema(tuple(feature for feature in features if feature is not None))


def _in_view_of(feature: Feature, found: Cells, reading: Reading) -> Feature:
    feature = replace(feature, nullable=feature.nullable or found.rows is not None)
    if not feature.inferred or feature.kind == "sequence":
        return feature
    try:
        nesting, items = _open(feature.name, found.items, found.row_numbers(0))
        dims = _dense_shape(nesting)
        is_float = feature.may_become_float32 and len(items) > 0 and infer_dtype(items, reading).is_float
    except (InputError, ItemError):
        return feature  # who reads them by the feature says what is wrong, if anything is
    return feature.widen_to(FLOAT32 if is_float else feature.dtype, dims)


def infer_feature(name: str, found: Cells, reading: Reading, *, sequence: bool = False) -> Feature | None:
    """The feature that holds these cells, or None where there is none.

    Raises:
        SchemaConflict: values of two kinds.
        UnprocessableInput: values at differing depths, or steps that no dense feature holds (`ragged`).
    """
    rows, present = found.row_numbers(0), found.items
    if not len(present):
        return None
    kind: FeatureKind = "dense"
    if sequence:
        steps, counts = _open_steps(name, present, rows)
        rows = np.repeat(rows, counts)
        nesting, items = _open(name, steps, rows)
    else:
        nesting, items = _open(name, present, rows)
    if not len(items):
        return None
    dtype = _infer_dtype(name, items, nesting, rows, reading)
    if sequence:
        shape, kind = (None, *_shape_of_steps(name, nesting, rows)), "sequence"
    else:
        shape, kind = _infer_shape(nesting)
    encoding = default_encoding(dtype, shape, kind)
    return Feature(
        name, dtype, shape, kind, encoding=encoding, nullable=found.rows is not None, inferred=True
    )


def _open_steps(name: str, cells: Items, rows: Ints) -> tuple[Items, Ints]:
    """The steps of all rows, and how many each row has."""
    if not cells.only(ARRAY):
        index = int(np.argmax(cells.kinds != ARRAY))
        row = int(rows[index])
        raise SchemaConflict(
            f"Feature list {name!r} is {cells.describe(index)} in row {row}; "
            "it is sent as an array of steps.",
            row=row,
            feature=name,
        )
    return cells.open()


def _shape_of_steps(name: str, nesting: Nesting, rows: Ints) -> FeatureShape:
    if (step := nesting.first_uneven()) is not None:
        raise _ragged(name, rows[step], "A step of a feature list is one dense array, and this is none.")
    return _dense_shape(nesting)


def _infer_dtype(name: str, items: Items, nesting: Nesting, rows: Ints, reading: Reading) -> DType:
    try:
        dtype = infer_dtype(items, reading)
    except ItemError as error:
        raise cell_error(error, name, rows[nesting.cell_of(error.index)]) from None
    if dtype is STRING:
        index = int(np.argmax(items.kinds != items.kinds[0]))
        raise SchemaConflict(
            f'Feature {name!r} is text in one row and {{"b64": ...}} in another. Declare it in a schema.',
            row=int(rows[nesting.cell_of(index)]),
            feature=name,
        )
    return dtype


def _open(name: str, cells: Items, rows: Ints) -> tuple[Nesting, Items]:
    """The values of all cells, and how the arrays of each axis cut them."""
    nesting, items = Nesting(), cells
    while items.has(ARRAY):
        if not items.only(ARRAY):
            raise _two_depths(name, items, nesting, rows)
        items = nesting.open(items)
    return nesting, items


def _two_depths(name: str, items: Items, nesting: Nesting, rows: Ints) -> InputError:
    is_array = items.kinds == ARRAY
    index = int(np.argmax(is_array != is_array[0]))
    row = int(rows[nesting.cell_of(index)])
    if items.has(NULL):
        index = int(np.argmax(items.kinds == NULL))
        return cell_error(null_error(index), name, rows[nesting.cell_of(index)])
    if nesting.counts:
        what = f"{items.describe(index).capitalize()} stands beside {items.describe(0)}."
        return _ragged(name, row, what)
    return SchemaConflict(
        f"Feature {name!r} is an array in one row and a single value in another.", row=row, feature=name
    )


def _ragged(name: str, row: int, what: str) -> UnprocessableInput:
    return UnprocessableInput(
        f"Feature {name!r}, row {row}: {what} Nested arrays have their values all at one depth; declare a "
        "schema where they are meant to differ.",
        code="ragged",
        row=int(row),
        feature=name,
    )


def _infer_shape(nesting: Nesting) -> tuple[FeatureShape, FeatureKind]:
    shape = _dense_shape(nesting)
    return shape, "ragged" if None in shape[1:] else "dense"


def _dense_shape(nesting: Nesting) -> FeatureShape:
    """The length of each axis where it is the same in every array, else None."""
    dims = tuple(
        None if np.count_nonzero(counts != counts[0]) else int(counts[0]) for counts in nesting.counts
    )
    check_shape([dim or 0 for dim in dims])
    # Beside a length that varies, or alone, 0 is no length that a later row has to keep.
    return tuple(dim or None for dim in dims) if None in dims or dims == (0,) else dims
