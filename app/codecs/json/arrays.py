"""The cells of one feature of any kind, as parsed from JSON, to a column in the layouts of `columns.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ...domain.schema import Feature
from ...errors import SchemaConflict
from ..records.arrays import list_column
from ..records.nulls import spread_rows
from ..schema_inference import FoundCells
from .dense import build_dense
from .errors import Rows, cell_error, misfit
from .nesting import Nesting
from .ragged import build_ragged
from .sparse import build_sparse
from .values import Reading, null_error

__all__ = ["build_column", "build_found"]


def build_column(feature: Feature, cells: list[Any], reading: Reading, first_row: int) -> pa.Array[Any]:
    """The column of `feature`; a cell that is None is a row without the feature.

    Args:
        first_row: the row of the first cell, for errors.

    Raises:
        SchemaConflict: a cell of another kind, shape or type than the feature's, or absent where the
            feature is not nullable (`schema_conflict`).
        InputError: a value that the dtype does not hold. Errors carry feature and row.
    """
    return build_found(feature, FoundCells.among(cells), reading, first_row)


def build_found(feature: Feature, found: FoundCells, reading: Reading, first_row: int) -> pa.Array[Any]:
    """As `build_column`, where it is known already which rows have the feature."""
    if not found.nullable:
        return _build(feature, found.cells, reading, range(first_row, first_row + found.num_rows))
    rows = np.asarray(found.rows, np.int64)
    present = np.zeros(found.num_rows, np.bool_)
    present[rows] = True
    if not feature.nullable:
        raise _missing(feature, first_row + int(np.argmin(present)), reading)
    return spread_rows(_build(feature, found.cells, reading, rows + first_row), present)


def _build(feature: Feature, cells: list[Any], reading: Reading, rows: Rows) -> pa.Array[Any]:
    """The column of these cells alone, which are in these rows."""
    if feature.kind == "ragged":
        return build_ragged(feature, cells, reading, rows)
    if feature.kind == "sparse":
        return build_sparse(feature, cells, reading, rows)
    if feature.kind == "sequence":
        return _build_sequence(feature, cells, reading, rows)
    return build_dense(feature, cells, reading, rows)


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


def _build_sequence(
    feature: Feature,
    cells: list[Any],
    reading: Reading,
    rows: Rows,
) -> pa.Array[Any]:
    for row, cell in zip(rows, cells, strict=True):
        if type(cell) is not list:
            raise misfit(feature, cell, row)
    nesting = Nesting()
    steps = nesting.open(cells)
    if not feature.step.is_scalar and None in steps:
        raise cell_error(null_error(0), feature.name, rows[nesting.cell_of(steps.index(None))])
    step_rows = np.repeat(np.array(rows, np.int64), nesting.lengths[0])
    column = build_dense(feature.step, steps, reading, step_rows)
    return list_column(nesting.lengths[0], column, feature.name)
