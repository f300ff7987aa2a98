"""Columns to JSON: one text for each cell, in rows or in columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...domain.schema import Feature, Schema
from ...domain.tensor import num_elements
from ...errors import InputError
from ..json_out import PIECE_BYTES, Spelling, empty_text, nest, quote, tokens
from ..json_values import ItemError
from .arrays import values_from_column
from .json_errors import cell_error
from .json_kind_texts import list_texts, offsets_of, ragged_texts, sparse_texts

__all__ = ["cell_texts", "row_texts", "slices"]

#: Digits and brackets take at most about this many times the bytes of the values in memory.
_TEXT_PER_BYTE: Final = 4


def slices(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batch in pieces whose text is about as large as what is sent at a time, with their first rows."""
    num_rows = max(batch.num_rows, 1)
    row_bytes = batch.nbytes // num_rows + 8 * batch.num_columns + 1
    step = max(1, PIECE_BYTES // (_TEXT_PER_BYTE * row_bytes))
    for start in range(0, batch.num_rows, step):
        yield start, batch.slice(start, step)


def row_texts(batch: pa.RecordBatch, schema: Schema, spelling: Spelling, first_row: int) -> list[str]:
    """One JSON object for each row; what a row lacks is null.

    A row of a SequenceExample is `{"context": {...}, "feature_lists": {...}}`.

    Raises:
        InputError: a value that has no text under these options.
    """
    members: dict[bool, list[list[str]]] = {False: [], True: []}
    for feature, column in zip(schema, batch.columns, strict=True):
        key = quote(feature.name) + ":"
        texts = [key + text for text in cell_texts(column, feature, spelling, first_row)]
        members[feature.kind == "sequence"].append(texts)
    context = _object_texts(members[False], batch.num_rows)
    if schema.message == "example":
        return context
    lists = _object_texts(members[True], batch.num_rows)
    pairs = zip(context, lists, strict=True)
    return [f'{{"context":{features},"feature_lists":{steps}}}' for features, steps in pairs]


def _object_texts(columns: list[list[str]], num_rows: int) -> list[str]:
    if not columns:
        return ["{}"] * num_rows
    return ["{" + ",".join(cells) + "}" for cells in zip(*columns, strict=True)]


def cell_texts(column: pa.Array[Any], feature: Feature, spelling: Spelling, first_row: int) -> list[str]:
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
    given = iter(texts)
    return [next(given) if valid else "null" for valid in column.is_valid().to_pylist()]


def _present_texts(column: pa.Array[Any], feature: Feature, spelling: Spelling) -> list[str]:
    """Raises ItemError with the index of the cell."""
    if feature.kind == "ragged":
        return ragged_texts(column, feature, spelling)
    if feature.kind == "sparse":
        return sparse_texts(column, feature, spelling)
    if feature.kind == "sequence":
        return _sequence(column, feature, spelling)
    return (_varying if feature.num_unknown else _fixed)(column, feature, spelling)


def _sequence(column: Any, feature: Feature, spelling: Spelling) -> list[str]:
    """Raises ItemError with the index of the cell."""
    offsets = offsets_of(column)
    try:
        steps = _present_texts(column.flatten(), feature.step, spelling)
    except ItemError as error:
        cell = int(np.searchsorted(offsets, error.index, side="right")) - 1
        raise ItemError(cell, error.detail, error.code) from None
    return list_texts(steps, offsets)


def _fixed(column: pa.Array[Any], feature: Feature, spelling: Spelling) -> list[str]:
    """Raises ItemError with the index of the cell."""
    shape = [dim or 0 for dim in feature.shape]
    size = num_elements(shape)
    if not size:
        return [empty_text(shape)] * len(column)
    try:
        texts = nest(tokens(values_from_column(column, feature), feature.dtype, spelling), shape)
    except ItemError as error:
        raise ItemError(error.index // size, error.detail, error.code) from None
    if size == 1:
        return texts
    return [",".join(texts[start : start + size]) for start in range(0, len(texts), size)]


def _varying(column: pa.Array[Any], feature: Feature, spelling: Spelling) -> list[str]:
    """Raises ItemError with the index of the cell."""
    lists: Any = column
    if isinstance(column, pa.StructArray):
        lists = column.field("values")
        dims: Any = column.field("shape")
        shapes = dims.flatten().to_numpy().reshape(-1, len(feature.shape)).tolist()
    else:
        shapes = [_resolved(feature, length) for length in lists.value_lengths().to_pylist()]
    stops = np.cumsum(lists.value_lengths().to_numpy(), dtype=np.int64)
    values = values_from_column(lists.flatten(), replace(feature, shape=()))
    try:
        texts = tokens(values, feature.dtype, spelling)
    except ItemError as error:
        cell = int(np.searchsorted(stops, error.index, side="right"))
        raise ItemError(cell, error.detail, error.code) from None
    bounds = [0, *stops.tolist()]
    return [_nested(texts[bounds[i] : bounds[i + 1]], shape) for i, shape in enumerate(shapes)]


def _resolved(feature: Feature, length: int) -> list[int]:
    """The shape of a cell of `length` values where one dimension is unknown."""
    unknown = length // max(feature.known_values, 1)
    return [unknown if dim is None else dim for dim in feature.shape]


def _nested(texts: list[str], shape: list[int]) -> str:
    return ",".join(nest(texts, shape)) if texts else empty_text(shape)


def _located(error: ItemError, column: pa.Array[Any], feature: Feature, first_row: int) -> InputError:
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    return cell_error(error, feature.name, first_row + int(rows[error.index]))
