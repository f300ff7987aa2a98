"""Columns to JSON: one text for each cell, in rows or in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.limits import MIB
from ...domain.schema import Feature, Schema
from ...domain.tensor import num_elements
from ...errors import InputError
from .errors import cell_error
from .kind_texts import element_texts, offsets_of, ragged_texts, sparse_texts
from .out import empty_text, quote
from .spelling import Spelling
from .texts import Texts, concatenated, in_lists, repeated, spread
from .values import ItemError

__all__ = ["cell_texts", "row_texts", "slices"]

#: Bytes of text that are made at a time: enough that a slice costs little, beside what is in it.
_SLICE_TEXT: Final = 4 * MIB
#: Digits and brackets take at most about this many times the bytes of the values in memory.
_TEXT_PER_BYTE: Final = 4


def slices(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batch in pieces whose text is about `_SLICE_TEXT`, with their first rows."""
    step = _rows_of_slice(batch.columns, batch.num_rows, 0)
    for start in range(0, batch.num_rows, step):
        yield start, batch.slice(start, step)


def _rows_of_slice(columns: Sequence[pa.Array[Any]], num_rows: int, shared: int) -> int:
    """How many rows have about `_SLICE_TEXT` of text, of which `shared` bytes stand in each."""
    num_bytes = sum(column.nbytes for column in columns)
    row_bytes = num_bytes // max(num_rows, 1) + 8 * len(columns) + 1
    return max(1, _SLICE_TEXT // (_TEXT_PER_BYTE * row_bytes + shared))


def row_texts(
    batch: pa.RecordBatch, schema: Schema, spelling: Spelling, first_row: int, separator: str = ","
) -> Iterator[Texts]:
    """One JSON object for each row, for some rows at a time; what a row lacks is null.

    A row of a SequenceExample is `{"context": {...}, "feature_lists": {...}}`.

    Args:
        separator: what stands in the memory between the rows.

    Raises:
        InputError: a value that has no text under these options.
    """
    parts = _row_parts(batch, schema)
    # Found once for all slices: a few bytes can name thousands of features that no row has.
    columns = {part: batch.column(part) for part in parts if isinstance(part, int)}
    shared = sum(len(part) for part in parts if isinstance(part, str))
    step = _rows_of_slice(list(columns.values()), batch.num_rows, shared)
    for start in range(0, batch.num_rows, step):
        texts: list[str | Texts] = []
        for part in parts:
            if isinstance(part, str):
                texts.append(part)
                continue
            cells = columns[part].slice(start, step)
            missing = cells.null_count == len(cells)
            feature = schema.features[part]
            texts.append("null" if missing else cell_texts(cells, feature, spelling, first_row + start))
        yield concatenated(texts, min(step, batch.num_rows - start), separator)


def _row_parts(batch: pa.RecordBatch, schema: Schema) -> list[str | int]:
    """Texts that all rows share, and the numbers of the columns whose cells stand between them."""
    context: list[str | int] = []
    lists: list[str | int] = []
    for index, feature in enumerate(schema):
        members = lists if feature.kind == "sequence" else context
        key = ("," if members else "") + quote(feature.name) + ":"
        if batch.column(index).null_count == batch.num_rows:
            members.append(f"{key}null")
        else:
            members += [key, index]
    parts: list[str | int] = ["{", *context, "}"]
    if schema.message == "sequence_example":
        parts = ['{"context":', *parts, ',"feature_lists":{', *lists, "}}"]
    joined: list[str | int] = []
    for is_text, group in groupby(parts, lambda part: isinstance(part, str)):
        some = list(group)
        joined += ["".join(map(str, some))] if is_text else some
    return joined


def cell_texts(column: pa.Array[Any], feature: Feature, spelling: Spelling, first_row: int) -> Texts:
    """One JSON text for each cell: a value, nested arrays, the object of a sparse value, or null.

    Args:
        first_row: the row of the first cell, for errors.

    Raises:
        InputError: a value that has no text under these options.
    """
    present = column.drop_null() if column.null_count else column
    try:
        texts = _present_texts(present, feature, spelling)
    except ItemError as error:
        raise _located(error, column, feature, first_row) from None
    if not column.null_count:
        return texts
    return spread(texts, column.is_valid().to_numpy(zero_copy_only=False))


def _present_texts(column: pa.Array[Any], feature: Feature, spelling: Spelling) -> Texts:
    """Raises ItemError with the index of the cell."""
    if feature.kind == "ragged":
        return ragged_texts(column, feature, spelling)
    if feature.kind == "sparse":
        return sparse_texts(column, feature, spelling)
    if feature.kind == "sequence":
        return _sequence(column, feature, spelling)
    return (_varying if feature.num_unknown else _fixed)(column, feature, spelling)


def _sequence(column: Any, feature: Feature, spelling: Spelling) -> Texts:
    """Raises ItemError with the index of the cell."""
    offsets = offsets_of(column)
    try:
        steps = _present_texts(column.flatten(), feature.step, spelling)
    except ItemError as error:
        cell = int(np.searchsorted(offsets, error.index, side="right")) - 1
        raise ItemError(cell, error.detail, error.code) from None
    return in_lists(steps, offsets)


def _fixed(column: Any, feature: Feature, spelling: Spelling) -> Texts:
    """Raises ItemError with the index of the cell."""
    shape = [dim or 0 for dim in feature.shape]
    size = num_elements(shape)
    if not size:
        return repeated(empty_text(shape), len(column))
    elements = column if feature.is_scalar else column.flatten()
    try:
        return element_texts(elements, feature.dtype, spelling, shape)
    except ItemError as error:
        raise ItemError(error.index // size, error.detail, error.code) from None


def _varying(column: Any, feature: Feature, spelling: Spelling) -> Texts:
    """Raises ItemError with the index of the cell."""
    if isinstance(column, pa.StructArray):
        lists: Any = column.field("values")
        dims: Any = column.field("shape")
        shapes = dims.flatten().to_numpy().reshape(-1, len(feature.shape))
    else:
        lists = column
        shapes = _resolved(feature, lists.value_lengths().to_numpy())
    try:
        texts = element_texts(lists.flatten(), feature.dtype, spelling)
    except ItemError as error:
        cell = int(np.searchsorted(offsets_of(lists), error.index, side="right")) - 1
        raise ItemError(cell, error.detail, error.code) from None
    return _nested(texts, shapes)


def _resolved(feature: Feature, lengths: NDArray[Any]) -> NDArray[np.int64]:
    """The shapes of cells of these `lengths` where one dimension is unknown; by cell and axis."""
    unknown = lengths // max(feature.known_values, 1)
    dims = [unknown if dim is None else np.full(len(lengths), dim) for dim in feature.shape]
    return np.stack(dims, axis=1).astype(np.int64)


def _nested(texts: Texts, shapes: NDArray[np.int64]) -> Texts:
    """The texts in nested arrays, one for each of the `shapes`."""
    for shape in np.unique(shapes[(shapes == 0).any(axis=1)], axis=0).tolist():
        empty_text(shape)  # refuses what would be a great many empty arrays
    for axis in reversed(range(shapes.shape[1])):
        lengths = np.repeat(shapes[:, axis], shapes[:, :axis].prod(axis=1))
        texts = in_lists(texts, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))
    return texts


def _located(error: ItemError, column: pa.Array[Any], feature: Feature, first_row: int) -> InputError:
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    return cell_error(error, feature.name, first_row + int(rows[error.index]))
