"""The values of one feature in some rows of JSON to a column.

A ragged value is nested arrays, or the members of a `tf.RaggedTensor`; a sparse one has those of a
`tf.SparseTensor`, whose coordinates keep their order and number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....domain.feature import Feature, FeatureShape
from ....domain.tensor import num_elements
from ....errors import InputError, SchemaConflict
from ...columns import Column, item_width
from ...kernels.json.tape import ARRAY, NULL
from ..errors import cell_error
from ..items import convert, flatten
from ..tape import Items
from ..values import (
    ItemError,
    Reading,
    null_error,
)
from .cells import Cells
from .components import open_ragged, read_sparse
from .nested import (
    cell_at,
    count_bounds,
    misfit,
)

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def build_column(feature: Feature, cells: Cells, reading: Reading, first_row: int) -> Column:
    """The column of `feature`.

    Args:
        first_row: the number of the first row, for errors.

    Raises:
        SchemaConflict: a cell of another kind, shape or type than the feature's, or absent where the
            feature is not nullable.
        InputError: a value that the dtype does not hold, or components that do not fit one another. Errors
            carry feature and row.
    """
    present = None
    if cells.rows is not None:
        present = np.zeros(cells.num_rows, np.bool_)
        present[cells.rows] = True
        if not feature.nullable:
            raise _missing(feature, first_row + int(np.argmin(present)), reading)
    rows = cells.row_numbers(first_row)
    builder = {"dense": _dense, "ragged": _ragged, "sparse": _sparse, "sequence": _sequence}[feature.kind]
    column = builder(feature, cells.items, reading, rows)
    return Column(
        column.values, column.splits, present, item_width(feature), column.shapes, column.coordinates
    )


def _missing(feature: Feature, row: int, reading: Reading) -> SchemaConflict:
    hint = "Send it, or declare the feature nullable."
    if not reading.declared:
        hint = (
            "The schema was inferred from rows that all have it: set infer=all, or declare a schema in "
            "which the feature is nullable."
        )
    return SchemaConflict(
        f"Row {row} lacks the feature {feature.name!r}. {hint}", row=row, feature=feature.name
    )


def _item_shape(feature: Feature) -> FeatureShape:
    """The shape of a cell's nested arrays: a complex number is one of two floats."""
    return (*feature.shape, 2) if feature.dtype.kind == "complex" else feature.shape


def _dense(feature: Feature, items: Items, reading: Reading, rows: Ints) -> Column:
    return (_varying if feature.num_unknown else _fixed)(feature, items, reading, rows)


def _fixed(feature: Feature, items: Items, reading: Reading, rows: Ints) -> Column:
    shape = tuple(dim or 0 for dim in _item_shape(feature))
    for axis, dim in enumerate(shape):
        wrong = None
        if items.only(ARRAY):
            found, counts = items.open()
            is_other = counts != dim
            if np.count_nonzero(is_other):
                wrong = is_other
        else:
            is_array = items.kinds == ARRAY
            wrong = ~is_array
            wrong[is_array] = items.take(is_array).counts() != dim
        if wrong is not None:
            index = int(np.argmax(wrong))
            raise misfit(feature, items, index, rows[index // num_elements(shape[:axis])])
        items = found
    try:
        return Column(convert(items, feature.dtype, reading))
    except ItemError as error:
        raise cell_error(error, feature.name, rows[error.index // num_elements(shape)]) from None


def _varying(feature: Feature, items: Items, reading: Reading, rows: Ints) -> Column:
    cells, shape = items, _item_shape(feature)
    is_flat = len(shape) == 1
    sizes: list[Ints] = []
    owners = np.arange(len(cells))
    wrong = np.zeros(len(cells), np.bool_)
    for dim in shape:
        is_array = items.kinds == ARRAY
        if not is_array.all():
            wrong[owners[~is_array]] = True
            items, owners = items.take(is_array), owners[is_array]
        children, counts = items.open()
        # The length of each cell's first array of this axis, which is that of all others.
        length = np.full(len(cells), dim or 0, np.int64)
        length[owners[::-1]] = counts[::-1]
        wrong[owners[counts != length[owners]]] = True
        if dim is not None:
            wrong |= length != dim
        sizes.append(length)
        items, owners = children, np.repeat(owners, counts)
    if not is_flat:
        wrong[owners[items.kinds == ARRAY]] = True
    shapes = np.stack(sizes[: len(feature.shape)], axis=1)
    if feature.num_unknown == 1 and not feature.known_values:
        wrong |= shapes[:, feature.shape.index(None)] != 0  # which the column would not tell
    if wrong.any():
        index = int(np.argmax(wrong))
        raise _unfit(feature, cells, index, reading, rows[index])
    counts = np.bincount(owners, minlength=len(cells))
    try:
        values = convert(items, feature.dtype, reading)
    except ItemError as error:
        raise cell_error(error, feature.name, rows[owners[error.index]]) from None
    splits = count_bounds(counts // 2 if feature.dtype.kind == "complex" else counts)
    return Column(values, (splits,), shapes=shapes if feature.num_unknown > 1 else None)


def _unfit(feature: Feature, cells: Items, index: int, reading: Reading, row: int) -> InputError:
    """The error of a cell whose arrays are not of the shape."""
    # An inferred shape is nobody's word: a row that is ragged then conflicts like any other.
    if reading.declared:
        try:
            flatten(cells.take(slice(index, index + 1)))
        except ItemError as error:
            return cell_error(error, feature.name, row)
    return misfit(feature, cells, index, row)


def _sequence(feature: Feature, cells: Items, reading: Reading, rows: Ints) -> Column:
    if not cells.only(ARRAY):
        index = int(np.argmax(cells.kinds != ARRAY))
        raise misfit(feature, cells, index, rows[index])
    steps, counts = cells.open()
    step_rows = np.repeat(rows, counts)
    if not feature.step.is_scalar and steps.has(NULL):
        raise cell_error(null_error(0), feature.name, step_rows[int(np.argmax(steps.kinds == NULL))])
    column = _dense(feature.step, steps, reading, step_rows)
    return Column(column.values, (count_bounds(counts), *column.splits), shapes=column.shapes)


def _ragged(feature: Feature, cells: Items, reading: Reading, rows: Ints) -> Column:
    opened = open_ragged(feature, cells, rows)
    try:
        values = convert(opened.items, feature.dtype, reading)
    except ItemError as error:
        index = cell_at(count_bounds(opened.lengths()[-1]), error.index)
        raise cell_error(error, feature.name, rows[index]) from None
    return Column(values, tuple(map(count_bounds, opened.counts)))


def _sparse(feature: Feature, cells: Items, reading: Reading, rows: Ints) -> Column:
    try:
        items, counts, coordinates = read_sparse(feature, cells)
    except ItemError as error:
        raise cell_error(error, feature.name, rows[error.index]) from None
    bounds = count_bounds(counts)
    try:
        values = convert(items, feature.dtype, reading)
    except ItemError as error:
        raise cell_error(error, feature.name, rows[cell_at(bounds, error.index)]) from None
    return Column(values, (bounds,), coordinates=coordinates.reshape(-1, len(feature.shape)))
