"""List columns taken apart and put together, without a copy of their values."""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import LimitExceeded
from ..messages.example_values import arrow_buffer
from .lease import Lease

__all__ = ["is_present", "list_column", "split_lists", "validity_bitmap"]

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: Arrow's lists count their values by int32.
_MAX_OFFSET: Final = 2**31 - 1


def is_present(column: pa.Array[Any]) -> Flags:
    """By row, whether it is not null."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return column.is_valid().to_numpy(zero_copy_only=False)


def validity_bitmap(present: Flags) -> pa.Buffer | None:
    """Arrow's bitmap of the rows that are present; None where all are."""
    return None if present.all() else arrow_buffer(np.packbits(present, bitorder="little"))


def split_lists(column: pa.Array[Any], present: Flags, lease: Lease) -> tuple[pa.Array[Any], Ints]:
    """The values of all rows, and where each row's begin and the last one's end.

    Args:
        column: of type `list`.
        present: what lies under the other rows is left out; it means nothing.
        lease: charged for what is copied then.
    """
    listed = cast("pa.ListArray[Any]", column)
    offsets = listed.offsets.to_numpy().astype(np.int64)
    if np.diff(offsets)[~present].any():
        lease.charge(int(column.nbytes), "Values of a batch")
        rows: Any = pa.array(np.arange(len(column)), mask=~present)
        listed = cast("pa.ListArray[Any]", column.take(rows))
        offsets = listed.offsets.to_numpy().astype(np.int64)
    return listed.values.slice(offsets[0], offsets[-1] - offsets[0]), offsets - offsets[0]


def list_column(
    values: pa.Array[Any], starts: Ints, present: Flags | None, *, feature: str, lease: Lease
) -> pa.Array[Any]:
    """The column whose row `r` holds `values[starts[r]:starts[r + 1]]`; a row that is not present is null.

    Args:
        feature: its name, for the error.
        lease: charged for the offsets.

    Raises:
        LimitExceeded: more values than Arrow's offsets of 32 bits count (`column_too_large`).
    """
    if starts[-1] > _MAX_OFFSET:
        raise LimitExceeded(
            f"Rows of feature {feature!r} are too large for one column.",
            code="column_too_large",
            feature=feature,
        )
    lease.charge(4 * len(starts), "Offsets of a batch")
    buffers = [None if present is None else validity_bitmap(present), arrow_buffer(starts.astype(np.int32))]
    return pa.Array.from_buffers(pa.list_(values.type), len(starts) - 1, buffers, children=[values])
