"""Flat numpy arrays <-> the column layouts of `columns.py`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.dtypes import DType
from ...domain.schema import Feature
from ...domain.tensor import Shape, num_elements
from ...errors import LimitExceeded
from ..content import content_view
from .columns import column_type, storage_type

__all__ = ["column_from_values", "null_column", "values_from_column"]

#: Arrow's lists count their values, and its strings their bytes, by int32.
_MAX_OFFSET: Final = 2**31 - 1


def column_from_values(
    values: NDArray[Any], feature: Feature, row_shape: Shape, num_rows: int
) -> pa.Array[Any]:
    """The column of `num_rows` rows that all have the shape `row_shape`; numbers are not copied.

    Args:
        values: flat, of `feature.dtype.numpy`, row after row.

    Raises:
        LimitExceeded: more values or bytes than one column holds (`column_too_large`).
    """
    elements = _elements(values, feature)
    if feature.is_scalar:
        return elements
    layout = column_type(feature)
    if feature.num_unknown == 0:
        return pa.Array.from_buffers(layout, num_rows, [None], children=[elements])
    if len(values) > _MAX_OFFSET:
        raise _too_large(feature)
    offsets = np.arange(num_rows + 1, dtype=np.int32) * np.int32(num_elements(row_shape))
    list_type = pa.list_(storage_type(feature.dtype))
    lists = pa.Array.from_buffers(
        list_type, num_rows, [None, pa.py_buffer(content_view(offsets))], children=[elements]
    )
    if feature.num_unknown == 1:
        return lists
    dims = pa.array(np.tile(np.array(row_shape, np.int64), num_rows))
    shapes = pa.Array.from_buffers(pa.list_(pa.int64(), len(row_shape)), num_rows, [None], children=[dims])
    return pa.Array.from_buffers(layout, num_rows, [None], children=[shapes, lists])


def null_column(feature: Feature, num_rows: int) -> pa.Array[Any]:
    """A column of a feature that every row lacks; the values it could have take their room all the same."""
    nulls: Any = pa.nulls  # declared for each Arrow type apart, and not for one that is known later
    column: pa.Array[Any] = nulls(num_rows, column_type(feature))
    return column


def _elements(values: NDArray[Any], feature: Feature) -> pa.Array[Any]:
    storage = storage_type(feature.dtype)
    if not feature.dtype.is_string:
        return pa.Array.from_buffers(storage, len(values), [None, pa.py_buffer(content_view(values))])
    if sum(map(len, values)) > _MAX_OFFSET:
        raise _too_large(feature)
    return pa.array(values, storage)


def _too_large(feature: Feature) -> LimitExceeded:
    return LimitExceeded(
        f"Rows of feature {feature.name!r} are too large for one column.",
        code="column_too_large",
        feature=feature.name,
    )


def values_from_column(column: pa.Array[Any], feature: Feature) -> NDArray[Any]:
    """The values of a column without nulls whose feature has no unknown dimension, flat.

    Numbers are a view of the column's memory; strings an object array of `bytes`.
    """
    lists: Any = column  # `flatten` is declared on the classes of lists alone
    elements = column if feature.is_scalar else lists.flatten()
    if feature.dtype.is_string:
        strings = np.empty(len(elements), object)
        strings[:] = elements.to_pylist()
        return strings
    return _view(elements, feature.dtype)


def _view(elements: pa.Array[Any], dtype: DType) -> NDArray[Any]:
    if not len(elements):
        return np.empty(0, dtype.numpy)
    memory: Any = elements.buffers()[1]  # declared as optional; only an empty array has none
    values = np.frombuffer(memory, np.uint8)[elements.offset * dtype.itemsize :]
    return values[: len(elements) * dtype.itemsize].view(dtype.numpy)
