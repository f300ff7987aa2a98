"""Sparse cells, as parsed from JSON, to a column: `{"values", "indices", "dense_shape", "dtype"}`.

The members are those of a `tf.SparseTensor`. Order and number of the coordinates stay as they were sent.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from ...domain.schema import Feature
from ..arrow.batches import column_type
from ..records.arrays import element_column, list_column
from .components import check_dtype, check_members, integers
from .convert import convert_items
from .errors import Rows, cell_error
from .values import ItemError, Reading

__all__ = ["build_sparse"]


def build_sparse(
    feature: Feature,
    cells: list[Any],
    reading: Reading,
    rows: Rows,
) -> pa.Array[Any]:
    """The column of a sparse feature; arguments as `build_dense`.

    Raises:
        SchemaConflict: a cell that is no such object.
        UnprocessableInput: coordinates outside the shape (`index_out_of_bounds`), not of its rank, or more
            or fewer than values, or another `dense_shape` than the schema says (`shape_mismatch`);
            another `dtype` (`dtype_mismatch`).
        InputError: a value that the dtype does not hold.
    """
    try:
        coordinates = [_read_cell(index, cell, feature) for index, cell in enumerate(cells)]
    except ItemError as error:
        raise cell_error(error, feature.name, rows[error.index]) from None
    lengths = np.fromiter((len(cell["values"]) for cell in cells), np.int64, len(cells))
    try:
        values = convert_items(
            list(chain.from_iterable(cell["values"] for cell in cells)), feature.dtype, reading
        )
    except ItemError as error:
        cell = int(np.searchsorted(np.cumsum(lengths), error.index, side="right"))
        raise cell_error(error, feature.name, rows[cell]) from None
    indices = pa.array(np.array(list(chain.from_iterable(coordinates)), np.int64))
    children = [
        list_column(lengths * len(feature.shape), indices, feature.name),
        list_column(lengths, element_column(values, feature), feature.name),
    ]
    column: pa.Array[Any] = pa.Array.from_buffers(column_type(feature), len(cells), [None], children=children)
    return column


def _read_cell(index: int, cell: Any, feature: Feature) -> list[int]:
    """The coordinates of a cell, row-major. Raises ItemError with the index of the cell."""
    check_members(index, cell, {"values", "indices"}, {"dense_shape", "dtype"}, '{"values", "indices"}')
    check_dtype(index, cell.get("dtype"), feature)
    shape = cell.get("dense_shape")
    if shape is not None and (integers(shape) is None or tuple(shape) != feature.shape):
        raise ItemError(
            index,
            f'"dense_shape" is {str(shape)[:80]}, but the schema says {list(feature.shape)}.',
            "shape_mismatch",
        )
    if not isinstance(cell["values"], list):
        raise ItemError(index, 'The "values" of a sparse value are an array.', "type_mismatch")
    coordinates = _coordinates(index, cell["indices"], len(feature.shape))
    num_indices, num_values = len(coordinates) // len(feature.shape), len(cell["values"])
    if num_indices != num_values:
        raise ItemError(
            index, f"A sparse value has {num_indices} indices and {num_values} values.", "shape_mismatch"
        )
    _check_bounds(index, coordinates, feature)
    return coordinates


def _coordinates(index: int, indices: object, rank: int) -> list[int]:
    items = indices
    if isinstance(items, list) and list in (types := set(map(type, items))):
        if len(types) == 1 and set(map(len, items)) != {rank}:
            raise ItemError(index, f"Indices of {rank} integers each are expected.", "shape_mismatch")
        items = list(chain.from_iterable(items)) if len(types) == 1 else None
    elif items and rank != 1:
        items = None
    coordinates = integers(items)
    if coordinates is None:
        flat = " or of integers" if rank == 1 else ""
        raise ItemError(
            index,
            f'The "indices" of a sparse value are an array of arrays of {rank} integers{flat}.',
            "type_mismatch",
        )
    return coordinates


def _check_bounds(index: int, coordinates: list[int], feature: Feature) -> None:
    rank = len(feature.shape)
    for axis, dim in enumerate(feature.shape):
        of_axis = coordinates[axis::rank]
        if of_axis and not (min(of_axis) >= 0 and max(of_axis) < (dim or 0)):
            wrong = next(i for i in of_axis if not 0 <= i < (dim or 0))
            raise ItemError(
                index,
                f"Index {str(wrong)[:40]} lies outside the {dim} places of axis {axis}.",
                "index_out_of_bounds",
            )
