from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.codecs.records.components import from_stored, parsed_schema, stored_schema, to_stored
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.errors import InputError
from app.runtime.budget import Budget
from tests.arrow_rows import arrow_schema, as_arrow, from_arrow
from tests.feature_values import Table, tables_of

_SETTINGS = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])

RAGGED = {"dtype": "int16", "shape": [None, None], "kind": "ragged"}
DEEP = {"dtype": "int16", "shape": [2, None, 3, None, 2], "kind": "ragged"}
SPARSE = {"dtype": "float32", "shape": [4, 2], "kind": "sparse"}


def schema_of(**features: Any) -> Schema:
    return Schema.from_json({"features": features})


def batch_of(schema: Schema, *rows: dict[str, Any]) -> pa.RecordBatch:
    """The rows; what one does not name is null."""
    return pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(schema))


def stored(schema: Schema, *batches: pa.RecordBatch, budget: Budget | None = None) -> list[dict[str, Any]]:
    records = to_stored(from_arrow(schema, iter(batches)), budget or Budget())
    found = []
    for batch in as_arrow(records):
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(stored_schema(schema)))
        found += batch.to_pylist()
    return found


def joined(schema: Schema, *batches: list[dict[str, Any]], budget: Budget | None = None) -> list[Any]:
    parsed = parsed_schema(schema)
    records = from_arrow(parsed, iter([batch_of(parsed, *rows) for rows in batches]))
    found = []
    for batch in as_arrow(from_stored(records, schema, budget or Budget())):
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(schema))
        found += [row["x"] for row in batch.to_pylist()]
    return found


@_SETTINGS
@given(tables_of("dense", "ragged", "sparse", "sequence"), st.integers(0, 3))
def test_components_become_the_same_columns_again(table: Table, begin: int) -> None:
    batch = table.batch()
    if table.schema.features:
        batch = batch.slice(begin)
    budget = Budget()
    parsed = parsed_schema(table.schema)
    parts = to_stored(from_arrow(table.schema, iter([batch]), len(table.rows)), budget)
    assert parts.num_rows == len(table.rows)
    again = from_stored(from_arrow(parsed, as_arrow(parts), parts.num_rows), table.schema, budget)
    assert (again.schema, again.num_rows) == (table.schema, len(table.rows))
    (found,) = as_arrow(again)
    found.validate(full=True)
    assert repr(found.to_pylist()) == repr(batch.to_pylist())
    assert list(as_arrow(again)) == []
    assert budget.remaining == budget.limits.max_decoded_bytes


def test_a_ragged_row_is_values_and_lengths() -> None:
    schema = schema_of(x=DEEP | {"nullable": True})
    row = [[[[], [[1, 2]], []]], []]
    assert stored(schema, batch_of(schema, {"x": row}, {})) == [
        {
            "x/ragged_flat_values": [1, 2],
            "x/ragged_row_lengths_0": [1, 0],
            "x/ragged_row_lengths_1": [3],
            "x/ragged_row_lengths_2": [0, 1, 0],
        },
        dict.fromkeys(stored_schema(schema).names),
    ]


def test_a_sparse_row_is_coordinates_by_axis_and_values() -> None:
    schema = schema_of(x=SPARSE | {"nullable": True})
    row = {"indices": [3, 1, 0, 0], "values": [0.5, 1.5]}
    assert stored(schema, batch_of(schema, {"x": row}, {})) == [
        {"x/indices_0": [3, 0], "x/indices_1": [1, 0], "x/values": [0.5, 1.5]},
        {"x/indices_0": None, "x/indices_1": None, "x/values": None},
    ]


@pytest.mark.parametrize(
    ("feature", "row", "what"),
    [
        (DEEP, [[]], "has 1 pieces where the schema's shape takes 2"),
        (DEEP, [[[[]]], []], "row length of 1 in cut 1, but the schema's shape says 3"),
        (SPARSE, {"indices": [4, 0], "values": [1.0]}, "index 4 on axis 0, which has the size 4"),
        (SPARSE, {"indices": [0, -1], "values": [1.0]}, "index -1 on axis 1, which has the size 2"),
    ],
)
def test_a_column_that_contradicts_its_schema_is_not_written(feature: Any, row: Any, what: str) -> None:
    schema = schema_of(x=feature | {"nullable": True})
    with pytest.raises(InputError, match=what) as caught:
        stored(schema, batch_of(schema, {}), batch_of(schema, {}, {"x": row}))
    location = caught.value.location
    assert (caught.value.code, location.row, location.feature) == ("schema_conflict", 2, "x")


def test_what_lies_under_a_null_is_not_looked_at() -> None:
    schema = schema_of(x=SPARSE | {"nullable": True})
    lists: list[Any] = [
        pa.array([[9, 9, 9], [1, 1]], pa.list_(pa.int64())),
        pa.array([[0.5], [1.5]], pa.list_(pa.float32())),
    ]
    column: Any = pa.StructArray.from_arrays(lists, ["indices", "values"], mask=pa.array([True, False]))
    batch = pa.RecordBatch.from_arrays([column], schema=arrow_schema(schema))
    assert stored(schema, batch)[1] == {"x/indices_0": [1], "x/indices_1": [1], "x/values": [1.5]}


def test_components_are_read_whatever_is_missing() -> None:
    schema = schema_of(x=RAGGED | {"nullable": True})
    rows: list[dict[str, Any]] = [
        {"x/ragged_flat_values": [1, 2], "x/ragged_row_lengths_0": [0, 2]},
        {},
        {"x/ragged_row_lengths_0": [0, 0]},
        {"x/ragged_flat_values": []},
    ]
    assert joined(schema, rows) == [[[], [1, 2]], None, [[], []], []]
    schema = schema_of(x=SPARSE | {"nullable": True})
    assert joined(schema, [{"x/values": []}, {}]) == [{"indices": [], "values": []}, None]


VALUES, LENGTHS = "x/ragged_flat_values", "x/ragged_row_lengths_"


@pytest.mark.parametrize(
    ("feature", "row", "what"),
    [
        (RAGGED, {}, "lacks feature 'x'. Declare the feature nullable"),
        (RAGGED, {VALUES: [1]}, "has 1 values, but its row lengths in cut 0 add up to 0"),
        (RAGGED, {LENGTHS + "0": [1]}, "has 0 values, but its row lengths in cut 0 add up to 1"),
        (RAGGED, {VALUES: [1], LENGTHS + "0": [2, -1]}, "row length of -1 in cut 0, that is no length"),
        (RAGGED, {VALUES: [1], LENGTHS + "0": [2**63 - 1] * 2 + [3]}, "that is no length"),
        (RAGGED, {VALUES: [1], LENGTHS + "0": [2**31]}, "that is no length"),
        (RAGGED | {"shape": [2, None]}, {VALUES: [1], LENGTHS + "0": [1]}, "has 1 pieces where .* takes 2"),
        (
            RAGGED | {"shape": [None, None, None]},
            {VALUES: [1], LENGTHS + "0": [2], LENGTHS + "1": [1]},
            "has 1 row lengths in cut 1, but its row lengths in cut 0 add up to 2",
        ),
        (
            RAGGED | {"shape": [None, 2, None]},
            {VALUES: [1], LENGTHS + "0": [1], LENGTHS + "1": [1]},
            "row length of 1 in cut 0, but the schema's shape says 2",
        ),
        (
            RAGGED | {"shape": [None, None, 2]},
            {VALUES: [1, 2, 3], LENGTHS + "0": [1]},
            "has 3 values, but its row lengths in cut 0 add up to 1 times 2",
        ),
        (RAGGED | {"shape": [None, None, 2]}, {VALUES: [1], LENGTHS + "0": [2**31 - 1]}, "times 2"),
        (SPARSE, {"x/values": [1.0]}, "has 0 indices on axis 0, but 1 values"),
        (SPARSE, {"x/values": [1.0], "x/indices_0": [1], "x/indices_1": [1, 1]}, "has 2 indices on axis 1"),
        (SPARSE, {"x/values": [1.0], "x/indices_0": [4], "x/indices_1": [1]}, "index 4 on axis 0"),
        (SPARSE, {"x/values": [1.0], "x/indices_0": [0], "x/indices_1": [-(2**63)]}, "index -92233"),
    ],
)
def test_components_that_contradict_each_other_are_named(feature: Any, row: Any, what: str) -> None:
    schema = schema_of(x=feature)
    fine = row_without_values(schema)
    with pytest.raises(InputError, match=what) as caught:
        joined(schema, [fine], [fine, row])
    location = caught.value.location
    assert (caught.value.code, location.row, location.feature) == ("schema_conflict", 2, "x")


def row_without_values(schema: Schema) -> dict[str, Any]:
    """A row that has every component: of no values, as far as the shape lets it."""
    feature = schema.features[0]
    row: dict[str, Any] = {name: [] for name in stored_schema(schema).names}
    if feature.kind == "ragged" and feature.shape[0] is not None:
        row[f"{LENGTHS}0"] = [0] * feature.shape[0]
    return row


def test_the_sums_are_of_each_row_alone() -> None:
    schema = schema_of(x=RAGGED)
    rows: list[dict[str, Any]] = [
        {VALUES: [1, 2], f"{LENGTHS}0": [1]},
        {VALUES: [3], f"{LENGTHS}0": [2]},
    ]
    with pytest.raises(InputError) as caught:
        joined(schema, rows)
    assert caught.value.location.row == 0


def test_two_features_under_one_name_are_refused_before_a_batch_is_drawn() -> None:
    ragged = schema_of(x=RAGGED).features[0]
    other = schema_of(**{VALUES: {"dtype": "int8"}}).features[0]
    schema = Schema((ragged, other))
    with pytest.raises(InputError) as caught:
        stored_schema(schema)
    assert caught.value.code == "duplicate_feature"
    with pytest.raises(InputError) as caught:
        parsed_schema(schema)
    assert caught.value.code == "duplicate_feature"


def test_lengths_and_coordinates_count_against_the_budget() -> None:
    budget = Budget(Limits(max_decoded_bytes=10_000))
    schema = schema_of(x=RAGGED)
    with pytest.raises(InputError) as caught:
        stored(schema, batch_of(schema, {"x": [[]] * 2000}), budget=budget)
    assert caught.value.code == "payload_too_large"
    schema = schema_of(x=SPARSE)
    many = {"x/values": [1.0] * 2000, "x/indices_0": [0] * 2000, "x/indices_1": [0] * 2000}
    with pytest.raises(InputError) as caught:
        joined(schema, [many], budget=Budget(Limits(max_decoded_bytes=10_000)))
    assert caught.value.code == "payload_too_large"
