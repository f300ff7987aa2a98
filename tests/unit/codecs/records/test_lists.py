from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.codecs.records import lists
from app.codecs.records.lease import Lease
from app.codecs.records.lists import is_present, list_column, split_lists, validity_bitmap
from app.errors import LimitExceeded
from app.runtime.budget import Budget


def lease() -> Lease:
    return Lease(Budget())


def split(column: pa.Array[Any]) -> tuple[list[Any], list[int]]:
    values, starts = split_lists(column, is_present(column), lease())
    return values.to_pylist(), starts.tolist()


def test_lists_are_taken_apart_and_put_together_without_a_copy() -> None:
    column = pa.array([[1, 2], [], None, [3]], pa.list_(pa.int64()))
    values, starts = split_lists(column, is_present(column), lease())
    buffers: list[Any] = [values.buffers()[1], column.buffers()[3]]
    assert buffers[0].address == buffers[1].address
    whole = list_column(values, starts, is_present(column), feature="x", lease=lease())
    whole.validate(full=True)
    assert whole.equals(column)


def test_a_slice_begins_at_0() -> None:
    column = pa.array([[1, 2], [3], None, [4, 5]], pa.list_(pa.int64()))
    assert split(column.slice(1)) == ([3, 4, 5], [0, 1, 1, 3])
    assert split(column.slice(4)) == ([], [0])
    assert split(column.slice(0, 0)) == ([], [0])


def test_what_lies_under_a_null_is_left_out() -> None:
    offsets = pa.array([0, 2, 3, 5], pa.int32())
    column: Any = pa.ListArray.from_arrays(
        offsets, pa.array([1, 2, 3, 4, 5]), mask=pa.array([False, True, False])
    )
    assert split(column) == ([1, 2, 4, 5], [0, 2, 2, 4])
    assert split(column.slice(1)) == ([4, 5], [0, 0, 2])


def test_a_bitmap_is_made_only_where_a_row_is_null() -> None:
    assert validity_bitmap(np.array([True, True])) is None
    bitmap: Any = validity_bitmap(np.array([True, False, True]))
    assert bitmap.to_pybytes() == b"\x05"


def test_more_than_offsets_can_count_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "_MAX_OFFSET", 2)
    with pytest.raises(LimitExceeded) as caught:
        list_column(pa.array([1, 2, 3]), np.array([0, 3]), None, feature="x", lease=lease())
    assert (caught.value.code, caught.value.location.feature) == ("column_too_large", "x")
