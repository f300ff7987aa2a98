from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.codecs.columns import Records
from app.domain.schema import Schema
from app.errors import InputError, LossyConversion
from app.runtime.budget import Budget
from tests.support.arrow_rows import arrow_schema, as_arrow, from_arrow
from tests.support.feature_values import Table, tables_of
from tests.support.format_cases import decode, encode
from tests.support.tfrecord_frames import payloads

_SETTINGS = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])

STEPS = {"dtype": "int64", "shape": [None], "kind": "sequence", "nullable": True}
RAGGED = {"dtype": "float32", "shape": [None, None], "kind": "ragged"}
SPARSE = {"dtype": "float64", "shape": [4], "kind": "sparse"}


def schema_of(**features: Any) -> Schema:
    return Schema.from_json({"features": features})


def encoded(schema: Schema, *rows: dict[str, Any], lossy: bool = False) -> bytes:
    batch = pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(schema))
    return encode("tfrecord", from_arrow(schema, iter([batch])), lossy=lossy)


def parsed(data: bytes, **options: Any) -> Records:
    return decode("tfrecord", data, **options)


def rows_of(records: Records) -> list[dict[str, Any]]:
    return [row for batch in as_arrow(records) for row in batch.to_pylist()]


@_SETTINGS
@given(
    tables_of("dense", "ragged", "sparse", "sequence") | tables_of("dense", "ragged", "sparse"),
    st.integers(0, 4),
    st.integers(1, 200),
)
def test_rows_of_every_kind_return_from_their_messages(table: Table, begin: int, chunk: int) -> None:
    batch = table.batch()
    if table.schema.features:
        batch = batch.slice(begin)
    budget = Budget()
    records = from_arrow(table.schema, iter([batch]))
    found = decode("tfrecord", encode("tfrecord", records, budget), budget, chunk, schema=table.schema)
    assert found.schema == table.schema
    gathered = []
    for part in as_arrow(found):
        part.validate(full=True)
        assert part.schema.equals(arrow_schema(table.schema))
        gathered += part.to_pylist()
    assert repr(gathered) == repr(batch.to_pylist())
    assert budget.remaining == budget.limits.max_decoded_bytes


def test_the_schema_chooses_the_message() -> None:
    dense = {"c": {"dtype": "int64"}}
    context = schema_of(**dense).with_message("sequence_example")
    assert encoded(schema_of(**dense), {"c": 1}) == encoded(context, {"c": 1})
    assert payloads(encoded(schema_of(x=STEPS), {"x": []})) == [bytes.fromhex("1207 0a05 0a0178 1200")]


def test_the_message_combines_with_a_declared_schema() -> None:
    data = encoded(schema_of(c={"dtype": "int64"}, x=STEPS), {"c": 1, "x": [2]}, {"c": 3, "x": None})
    declared = schema_of(c={"dtype": "int64"})
    # Rows of which only the context is declared.
    records = parsed(data, schema=declared, message="sequence_example", undeclared="drop")
    assert records.schema.message == "sequence_example"
    assert rows_of(records) == [{"c": 1}, {"c": 3}]
    with pytest.raises(InputError) as caught:
        rows_of(parsed(data, schema=declared, undeclared="drop"))
    assert (caught.value.code, caught.value.location.row) == ("sequence_example", 0)
    assert "message=sequence_example" in caught.value.detail
    with pytest.raises(InputError) as caught:
        parsed(data, schema=schema_of(x=STEPS), message="example")
    assert (caught.value.code, caught.value.location.feature) == ("invalid_feature", "x")


def test_without_a_schema_the_message_decides() -> None:
    data = encoded(schema_of(c={"dtype": "int64"}, x=STEPS), {"c": 1, "x": [2]})
    assert rows_of(parsed(data, message="sequence_example")) == [{"c": [1], "x": [[2]]}]
    with pytest.raises(InputError) as caught:
        parsed(data)
    assert caught.value.code == "sequence_example"
    example = encoded(schema_of(c={"dtype": "int64"}), {"c": 1})
    assert rows_of(parsed(example)) == rows_of(parsed(example, message="sequence_example")) == [{"c": [1]}]
    assert parsed(example).schema.message == "example"


def test_components_are_read_as_lists_where_nothing_is_declared() -> None:
    data = encoded(schema_of(x=RAGGED), {"x": [[1.0], []]})
    assert rows_of(parsed(data)) == [{"x/ragged_flat_values": [1.0], "x/ragged_row_lengths_0": [1, 0]}]


def test_value_that_does_not_fit_a_list_names_its_feature() -> None:
    schema = schema_of(x=SPARSE)
    with pytest.raises(LossyConversion) as caught:
        encoded(schema, {"x": {"indices": [0], "values": [1.0]}})
    assert caught.value.location.feature == "x"
    with pytest.raises(LossyConversion) as caught:
        encoded(schema, *[{"x": {"indices": [0], "values": [value]}} for value in (1.0, 1e300)], lossy=True)
    assert (caught.value.location.feature, caught.value.location.row) == ("x", 1)


def test_a_component_of_another_kind_is_refused_under_the_name_of_the_feature() -> None:
    data = encoded(schema_of(**{"x/values": {"dtype": "int64"}}), {"x/values": 1})
    with pytest.raises(InputError, match="'x/values' is an Int64List") as caught:
        rows_of(parsed(data, schema=schema_of(x=SPARSE)))
    location = caught.value.location
    assert (caught.value.code, location.row, location.feature) == ("schema_conflict", 0, "x")


def test_a_component_that_is_not_declared_is_named() -> None:
    data = encoded(schema_of(x=RAGGED), {"x": [[1.0]]})
    flat = {"dtype": "float32", "shape": [None]}
    with pytest.raises(InputError) as caught:
        rows_of(parsed(data, schema=schema_of(**{"x/ragged_flat_values": flat})))
    assert caught.value.location.feature == "x/ragged_row_lengths_0"
