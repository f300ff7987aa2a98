"""Columns: what slicing and joining keep."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.codecs.columns import AbsentColumns, Batch, Column, Records, Strings, in_batches, join_batches
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.errors import LimitExceeded
from app.runtime.budget import Budget
from tests.support import format_cases
from tests.support.arrow_rows import arrow_schema, batches_from_arrow, batches_to_arrow
from tests.support.column_checks import check_batch
from tests.support.feature_values import Table, tables_of

SCALARS = Schema.from_json({"features": {"x": {"dtype": "int64"}}})
TABLES = tables_of("dense", "ragged", "sparse", "sequence")
FEATURES: dict[str, dict[str, Any]] = {
    "scalar": {"dtype": "float32"},
    "text": {"dtype": "text"},
    "fixed": {"dtype": "int4", "shape": [2, 3], "encoding": "tensor"},
    "texts": {"dtype": "bytes", "shape": [2]},
    "empty": {"dtype": "bool", "shape": [0]},
    "list": {"dtype": "bfloat16", "shape": [None]},
    "tensor": {"dtype": "complex64", "shape": [None, None], "encoding": "tensor"},
    "ragged": {"dtype": "int64", "shape": [None, None, 2], "kind": "ragged"},
    "sparse": {"dtype": "text", "shape": [4, 5], "kind": "sparse"},
    "steps": {"dtype": "bool", "shape": [None, 2], "kind": "sequence"},
    "texts of steps": {"dtype": "text", "shape": [None, None], "kind": "sequence"},
    "tensors of steps": {"dtype": "uint8", "shape": [None] * 3, "kind": "sequence", "encoding": "tensor"},
}
EVERY_KIND = Schema.from_json(
    {"features": {name: feature | {"nullable": True} for name, feature in FEATURES.items()}}
)


def to_columns(schema: Schema, *batches: pa.RecordBatch) -> list[Batch]:
    return [check_batch(batch, schema) for batch in batches_from_arrow(schema, batches)]


def to_arrow(schema: Schema, *batches: Batch) -> list[pa.RecordBatch]:
    found = list(batches_to_arrow(schema, batches))
    for batch in found:
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(schema))
    return found


def rows(*batches: pa.RecordBatch) -> str:
    return repr([row for batch in batches for row in batch.to_pylist()])


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(TABLES, st.integers(0, 4), st.integers(0, 4))
def test_rows_go_to_arrow_and_back_whole_and_in_parts(table: Table, first: int, count: int) -> None:
    schema, batch = table.schema, table.batch()
    first = min(first, batch.num_rows)
    last = min(first + count, batch.num_rows)
    [columns] = to_columns(schema, batch)
    assert rows(*to_arrow(schema, columns)) == rows(batch)
    part = check_batch(columns.rows(first, last), schema)
    assert rows(*to_arrow(schema, part)) == rows(batch.slice(first, last - first))
    assert rows(*to_arrow(schema, *to_columns(schema, batch.slice(first)))) == rows(batch.slice(first))
    parts = [columns.rows(0, first), part, columns.rows(last, batch.num_rows)]
    joined = check_batch(join_batches(parts), schema)
    assert rows(*to_arrow(schema, joined)) == rows(batch)
    assert joined.nbytes <= columns.nbytes + 8 * sum(len(column.splits) + 1 for column in columns.columns)


def test_a_feature_that_no_row_has_takes_its_mask_alone() -> None:
    absent = AbsentColumns(3)
    batch = Batch(3, tuple(map(absent.column, EVERY_KIND)))
    check_batch(batch, EVERY_KIND)
    assert rows(*to_arrow(EVERY_KIND, batch)) == repr([dict.fromkeys(EVERY_KIND.names)] * 3)
    assert not any(column.occurs for column in batch.columns)
    assert absent.column(EVERY_KIND.features[0]) is batch.columns[0]
    assert len({id(column.present) for column in batch.columns}) == 1
    [back] = to_columns(EVERY_KIND, *to_arrow(EVERY_KIND, batch))
    assert rows(*to_arrow(EVERY_KIND, back)) == rows(*to_arrow(EVERY_KIND, batch))


def test_batches_of_no_rows_and_of_no_features_keep_their_number() -> None:
    nothing = pa.RecordBatch.from_pylist([], arrow_schema(EVERY_KIND))
    [batch] = to_columns(EVERY_KIND, nothing)
    assert (batch.num_rows, rows(*to_arrow(EVERY_KIND, batch))) == (0, "[]")
    assert [found.num_rows for found in to_arrow(Schema(()), Batch(7, ()))] == [7]
    assert join_batches([Batch(2, ()), Batch(3, ())]).num_rows == 5


def test_strings_are_packed() -> None:
    strings = Strings.pack([b"", b"ab", b"", b"\xff"])
    assert (len(strings), strings.nbytes, strings.unpack()) == (4, 3 + 40, [b"", b"ab", b"", b"\xff"])
    assert strings.part(1, 3).unpack() == [b"ab", b""]
    assert np.shares_memory(strings.part(1, 4).data, strings.data)
    assert Strings.pack([]).unpack() == []


def test_bounds_and_counts() -> None:
    present = np.array([True, False, True])
    fixed = Column(np.arange(4), (), present, 2)
    assert fixed.count(3) == 2
    assert fixed.value_bounds(3).tolist() == [0, 2, 4]
    ragged = Column(np.arange(6), (np.array([0, 2, 3]), np.array([0, 1, 1, 3])), present, 2)
    assert ragged.value_bounds(3).tolist() == [0, 2, 6]
    assert ragged.rows(1, 3).splits[1].tolist() == [0, 2]
    assert ragged.rows(1, 3).values.tolist() == [2, 3, 4, 5]  # type: ignore[union-attr]  # no strings


# Batches of one size, as training takes them.


def cut(sizes: list[int]) -> Records:
    """Rows 0, 1, ... in batches of these sizes."""
    whole = Batch(sum(sizes), (Column(np.arange(sum(sizes))),))
    bounds = np.cumsum([0, *sizes]).tolist()
    return Records(SCALARS, (whole.rows(*cuts) for cuts in pairwise(bounds)), sum(sizes))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 12), max_size=10), st.integers(1, 15), st.booleans())
def test_rows_stay_in_order_in_batches_of_one_size(sizes: list[int], batch: int, drop: bool) -> None:
    budget = Budget()
    found = in_batches(cut(sizes), batch, budget, drop_remainder=drop)
    batches = [check_batch(part, SCALARS) for part in found.batches]
    kept = sum(sizes) - (sum(sizes) % batch if drop else 0)
    assert [row["x"] for row in format_cases.rows_of(batches, SCALARS)] == list(range(kept))
    assert all(part.num_rows == batch for part in batches[:-1])
    assert all(0 < part.num_rows <= batch for part in batches)
    assert found.num_rows == kept
    assert budget.remaining == Budget().remaining


def test_a_batch_beyond_the_budget_is_refused() -> None:
    few = Budget(Limits(max_decoded_bytes=50_000))
    with pytest.raises(LimitExceeded, match="batch"):
        list(in_batches(cut([1000] * 9), 9000, few).batches)
    assert few.remaining == 50_000


def test_rows_without_a_feature_keep_their_number_in_batches_of_one_size() -> None:
    found = in_batches(Records(Schema(()), iter([Batch(3, ())] * 3)), 4, Budget())
    assert [batch.num_rows for batch in found.batches] == [4, 4, 1]
