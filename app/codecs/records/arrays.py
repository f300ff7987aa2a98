"""Flat numpy arrays <-> the Arrow layouts of `arrow/batches.py`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.dtypes import DType
from ...domain.schema import Feature
from ...domain.tensor import Shape, num_elements
from ...errors import LimitExceeded
from ..arrow.batches import column_type, storage_type
from ..content import content_view, sign_extended

__all__ = [
    "column_from_values",
    "element_column",
    "inner_column",
    "keeps_shape",
    "list_column",
    "null_column",
    "string_buffers",
    "values_from_column",
    "values_from_elements",
    "with_nulls",
]

#: Arrow's lists count their values, and its strings their bytes, by int32.
_MAX_OFFSET: Final = 2**31 - 1


def column_from_values(
    values: NDArray[Any], feature: Feature, row_shape: Shape, num_rows: int
) -> pa.Array[Any]:
    """The column of `num_rows` rows that all have the shape `row_shape`; numbers are not copied.

    Args:
        values: flat, of `feature.dtype.numpy`, row after row.
        feature: of any kind but `sparse`.

    Raises:
        LimitExceeded: more values or bytes than one column holds (`column_too_large`).
    """
    if feature.kind == "sequence":
        num_steps = num_rows * row_shape[0]
        steps = column_from_values(values, feature.step, row_shape[1:], num_steps)
        return list_column(np.full(num_rows, row_shape[0]), steps, feature.name)
    if feature.kind == "ragged":
        return _rectangular_ragged(values, feature, row_shape, num_rows)
    elements = element_column(values, feature)
    if feature.is_scalar:
        return elements
    layout = column_type(feature)
    if feature.num_unknown == 0:
        return pa.Array.from_buffers(layout, num_rows, [None], children=[elements])
    lists = list_column(np.full(num_rows, num_elements(row_shape)), elements, feature.name)
    if feature.num_unknown == 1:
        return lists
    dims = pa.array(np.tile(np.array(row_shape, np.int64), num_rows))
    shapes = pa.Array.from_buffers(pa.list_(pa.int64(), len(row_shape)), num_rows, [None], children=[dims])
    return pa.Array.from_buffers(layout, num_rows, [None], children=[shapes, lists])


def _rectangular_ragged(
    values: NDArray[Any], feature: Feature, row_shape: Shape, num_rows: int
) -> pa.Array[Any]:
    column = inner_column(values, feature)
    for axis in range(feature.num_partitions, -1, -1):
        lengths = np.full(num_rows * num_elements(row_shape[:axis]), row_shape[axis])
        column = list_column(lengths, column, feature.name)
    return column


def keeps_shape(feature: Feature, shape: Shape) -> bool:
    """Whether the layout of a dense feature tells `shape`: a 0 beside it hides an unknown dimension."""
    if feature.num_unknown != 1 or feature.known_values:
        return True
    return shape[feature.shape.index(None)] == 0


def inner_column(values: NDArray[Any], feature: Feature) -> pa.Array[Any]:
    """The innermost items of a ragged column: its values, or the uniform arrays of them."""
    elements = element_column(values, feature)
    if not feature.inner_shape:
        return elements
    size = num_elements(feature.inner_shape)
    layout = pa.list_(elements.type, size)
    return pa.Array.from_buffers(layout, len(elements) // size, [None], children=[elements])


def list_column(lengths: NDArray[Any], items: pa.Array[Any], name: str) -> pa.Array[Any]:
    """The items in lists of these lengths, one after the other.

    Raises:
        LimitExceeded: more items than one column holds (`column_too_large`).
    """
    if len(items) > _MAX_OFFSET:
        raise _too_large(name)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(content_view(offsets))]
    return pa.Array.from_buffers(pa.list_(items.type), len(lengths), buffers, children=[items])


def null_column(feature: Feature, num_rows: int) -> pa.Array[Any]:
    """A column of a feature that every row lacks; the values it could have take their room all the same.

    Below a null lists are empty and values of a fixed size are zero. (`pa.nulls` has nulls there too.)
    """
    return with_nulls(_zeros(column_type(feature), num_rows), np.zeros(num_rows, np.bool_))


def _zeros(layout: Any, length: int) -> pa.Array[Any]:
    """`length` times the value of `layout` that has nothing in it."""
    if isinstance(layout, pa.StructType):
        members = [_zeros(layout.field(index).type, length) for index in range(layout.num_fields)]
        return pa.Array.from_buffers(layout, length, [None], children=members)
    if isinstance(layout, pa.FixedSizeListType):
        items = _zeros(layout.value_type, length * layout.list_size)
        return pa.Array.from_buffers(layout, length, [None], children=[items])
    if isinstance(layout, pa.ListType):
        items = _zeros(layout.value_type, 0)
        return pa.Array.from_buffers(layout, length, [None, _zero_bytes(4 * (length + 1))], children=[items])
    if pa.types.is_binary(layout):
        buffers = [None, _zero_bytes(4 * (length + 1)), pa.py_buffer(b"")]
        return pa.Array.from_buffers(layout, length, buffers)
    return pa.Array.from_buffers(layout, length, [None, _zero_bytes(length * layout.bit_width // 8)])


def _zero_bytes(size: int) -> pa.Buffer:
    return pa.py_buffer(np.zeros(size, np.uint8).data)


def with_nulls(column: pa.Array[Any], present: NDArray[np.bool_]) -> pa.Array[Any]:
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


def element_column(values: NDArray[Any], feature: Feature) -> pa.Array[Any]:
    """The values alone, each an item of the storage type.

    Raises:
        LimitExceeded: more bytes than one column holds (`column_too_large`).
    """
    storage = storage_type(feature.dtype)
    if not feature.dtype.is_string:
        memory = pa.py_buffer(content_view(sign_extended(values, feature.dtype)))
        return pa.Array.from_buffers(storage, len(values), [None, memory])
    if sum(map(len, values)) > _MAX_OFFSET:
        raise _too_large(feature.name)
    return pa.array(values, storage)


def _too_large(name: str) -> LimitExceeded:
    return LimitExceeded(
        f"Rows of feature {name!r} are too large for one column.",
        code="column_too_large",
        feature=name,
    )


def values_from_column(column: pa.Array[Any], feature: Feature) -> NDArray[Any]:
    """The values of a column without nulls whose feature has no unknown dimension, flat.

    Numbers are a view of the column's memory; strings an object array of `bytes`.
    """
    lists: Any = column  # `flatten` is declared on the classes of lists alone
    elements = column if feature.is_scalar else lists.flatten()
    return values_from_elements(elements, feature.dtype)


def string_buffers(values: pa.Array[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The memory of binary values without nulls, and where each begins in it and the last one ends."""
    _, offsets, data = values.buffers()
    if offsets is None or not len(values):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    bounds = np.frombuffer(memoryview(offsets), np.int32, len(values) + 1, 4 * values.offset)
    found = np.empty(0, np.uint8) if data is None else np.frombuffer(memoryview(data), np.uint8)
    return found, bounds.astype(np.int64)


def values_from_elements(elements: pa.Array[Any], dtype: DType) -> NDArray[Any]:
    """As `values_from_column`, of a column of the storage type."""
    if dtype.is_string:
        strings = np.empty(len(elements), object)
        strings[:] = elements.to_pylist()
        return strings
    if not len(elements):
        return np.empty(0, dtype.numpy)
    memory: Any = elements.buffers()[1]  # declared as optional; only an empty array has none
    values = np.frombuffer(memory, np.uint8)[elements.offset * dtype.itemsize :]
    return values[: len(elements) * dtype.itemsize].view(dtype.numpy)
