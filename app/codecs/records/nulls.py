"""Rows that lack a feature: put between those that have it, or all rows of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.schema import Feature
from .arrays import null_column, with_nulls
from .lease import Lease

__all__ = ["AbsentColumns", "spread_rows"]

Mask = NDArray[np.bool_]


class AbsentColumns:
    """The columns of features that no row of a batch has; those of one layout are one, in the same memory.

    A few bytes can name thousands of features, each of them in another row: so nothing is done for each
    row of each.

    Args:
        lease: charged for the memory, where the caller has not accounted for all columns.
    """

    def __init__(self, num_rows: int, lease: Lease | None = None) -> None:
        self._num_rows = num_rows
        self._lease = lease
        self._columns: dict[object, pa.Array[Any]] = {}

    def column(self, feature: Feature) -> pa.Array[Any]:
        """As `null_column`.

        Raises:
            LimitExceeded: more than the budget.
        """
        layout = (feature.kind, feature.dtype.name, feature.shape)
        found = self._columns.get(layout)
        if found is None:
            if self._lease is not None:
                values = max(feature.dtype.itemsize, 8) * ((feature.num_values or 1) + len(feature.shape))
                self._lease.charge(self._num_rows * values, "Rows that lack a feature")
            found = self._columns[layout] = null_column(feature, self._num_rows)
        return found


def spread_rows(column: pa.Array[Any], present: Mask, lease: Lease | None = None) -> pa.Array[Any]:
    """A column with the rows of `column` where `present` is true, and null where it is not.

    Below a null nothing varies: lists are empty, values of a fixed size are zero.

    Args:
        column: in one of the layouts of `arrow/batches.py`, without nulls.
        lease: charged for the copy, where the caller has not accounted for it.

    Raises:
        LimitExceeded: more than the budget.
    """
    return with_nulls(_spread(column, present, lease), present)


def _spread(column: Any, present: Mask, lease: Lease | None) -> pa.Array[Any]:
    layout, num_rows = column.type, len(present)
    if isinstance(column, pa.StructArray):
        members = [_spread(column.field(index), present, lease) for index in range(layout.num_fields)]
        return pa.Array.from_buffers(layout, num_rows, [None], children=members)
    if isinstance(column, pa.FixedSizeListArray):
        _charge(lease, num_rows * layout.list_size)
        values = _spread(column.flatten(), np.repeat(present, layout.list_size), lease)
        return pa.Array.from_buffers(layout, num_rows, [None], children=[values])
    if isinstance(column, pa.ListArray):
        offsets = _spread_offsets(column.offsets.to_numpy(), present, lease)
        return pa.Array.from_buffers(layout, num_rows, [None, offsets], children=[column.values])
    if isinstance(column, pa.BinaryArray):
        _, found, data = column.buffers()
        bounds = np.zeros(1, np.int32) if found is None else np.frombuffer(memoryview(found), np.int32)
        bounds = bounds[column.offset : column.offset + len(column) + 1]
        return pa.Array.from_buffers(
            layout, num_rows, [None, _spread_offsets(bounds, present, lease), data or pa.py_buffer(b"")]
        )
    width = layout.bit_width // 8
    _charge(lease, num_rows * width)
    spread = np.zeros((num_rows, width), np.uint8)
    if len(column):
        memory = np.frombuffer(memoryview(column.buffers()[1]), np.uint8)
        begin = column.offset * width
        spread[present] = memory[begin : begin + len(column) * width].reshape(-1, width)
    return pa.Array.from_buffers(layout, num_rows, [None, pa.py_buffer(spread.reshape(-1).data)])


def _spread_offsets(bounds: NDArray[np.int32], present: Mask, lease: Lease | None) -> pa.Buffer:
    _charge(lease, 8 * (len(present) + 1))
    lengths = np.zeros(len(present) + 1, np.int32)
    lengths[1:][present] = np.diff(bounds)
    lengths[0] = bounds[0] if len(bounds) else 0
    return pa.py_buffer(np.cumsum(lengths, dtype=np.int32).data)


def _charge(lease: Lease | None, num_bytes: int) -> None:
    if lease is not None:
        lease.charge(num_bytes, "Rows that lack a feature")
