from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from app.codecs.arrow.batches import arrow_schema
from app.codecs.columns import MAX_BATCH_ROWS
from app.codecs.json.blocks import Block, ColumnBlock, RowBlock, records_from_blocks
from app.codecs.options import RecordsDecodeOptions
from app.domain.limits import MIB, Limits
from app.domain.schema import Schema
from app.errors import InputError, LimitExceeded, SchemaConflict, UnprocessableInput
from app.runtime.budget import Budget
from tests.arrow_rows import as_arrow


def schema_of(**features: Any) -> Schema:
    return Schema.from_json({"features": features})


def drawn(
    blocks: list[Block], budget: Budget | None = None, **options: Any
) -> tuple[Schema, list[pa.RecordBatch]]:
    records = records_from_blocks(iter(blocks), RecordsDecodeOptions(**options), budget or Budget())
    batches = list(as_arrow(records))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == arrow_schema(records.schema)
    return records.schema, batches


def summary(schema: Schema) -> list[tuple[str, str, bool]]:
    return [(feature.name, feature.dtype.name, feature.nullable) for feature in schema]


def refused(blocks: list[Block], **options: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        drawn(blocks, **options)
    return caught.value


def rows(*items: dict[str, Any], first_row: int = 0) -> RowBlock:
    return RowBlock(list(items), 0, first_row)


def test_rows_and_columns_are_the_same_records() -> None:
    _, from_rows = drawn([rows({"a": 1, "b": "x"}, {"b": None, "a": 2})])
    _, from_columns = drawn([ColumnBlock({"a": [1, 2], "b": ["x", None]}, 2, 0)])
    assert from_rows[0].to_pydict() == from_columns[0].to_pydict() == {"a": [1, 2], "b": [b"x", None]}


def test_the_schema_is_that_of_exactly_the_first_thousand_rows() -> None:
    head = [{"a": 1}] * 999
    schema, _ = drawn([rows(*head, {"a": 1.5}, {"a": 2})])
    assert [(f.name, f.dtype.name) for f in schema] == [("a", "float64")]
    error = refused([rows(*head, {"a": 1}, {"a": 1.5})])
    assert (error.code, error.location.row) == ("schema_conflict", 1000)


@pytest.mark.parametrize("size", [1, 7, 999, 1000, 1001, 3000])
def test_the_cut_of_the_blocks_does_not_matter(size: int) -> None:
    items: list[dict[str, Any]] = [{"a": 1}] * 998 + [{"b": 2.5}, {"a": 3}, {"a": 4}, {"b": 5}] * 50
    blocks: list[Block] = [rows(*items[i : i + size], first_row=i) for i in range(0, len(items), size)]
    schema, batches = drawn(blocks)
    assert summary(schema) == [
        ("a", "int64", True),
        ("b", "float64", True),
    ]
    assert sum(batch.num_rows for batch in batches) == len(items)
    error = refused([*blocks, rows({"a": 1.0}, first_row=len(items))])
    assert (error.code, error.location.row) == ("schema_conflict", len(items))


def test_after_the_head_rows_are_read_only_when_drawn() -> None:
    def blocks() -> Iterator[Block]:
        yield rows(*[{"a": 1}] * 1000)
        raise AssertionError("read too early")

    records = records_from_blocks(blocks(), RecordsDecodeOptions(), Budget())
    assert next(as_arrow(records)).num_rows == 1000


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"a": 1, "new": 2}, "schema_conflict"),
        ({}, "schema_conflict"),
        ({"a": None}, "schema_conflict"),
        ({"a": [1]}, "schema_conflict"),
        ({"a": "1"}, "schema_conflict"),
        ({"a": True}, "schema_conflict"),
        ({"a": 2**63}, "out_of_range"),
    ],
)
def test_rows_after_the_head_have_to_fit(row: dict[str, Any], code: str) -> None:
    error = refused([rows(*[{"a": 1}] * 1000, row)])
    assert isinstance(error, UnprocessableInput)
    assert (error.code, error.location.row) == (code, 1000)
    assert error.location.feature == ("new" if "new" in row else "a")


def test_a_null_under_an_unknown_key_is_absent_and_nothing_is_lost() -> None:
    schema, batches = drawn([rows({"a": 1, "z": None}, {"a": 2})])
    assert schema.names == ("a",)
    assert batches[0].to_pydict() == {"a": [1, 2]}
    error = refused([rows(*[{"a": 1, "z": None}] * 1000, {"a": 1, "z": 5})])
    assert (error.code, error.location.row, error.location.feature) == ("schema_conflict", 1000, "z")


def test_with_infer_all_every_row_counts() -> None:
    blocks: list[Block] = [rows(*[{"a": 1}] * 1500), rows({"a": 1.5, "b": "x"}, first_row=1500)]
    schema, batches = drawn(blocks, infer="all")
    assert summary(schema) == [
        ("a", "float64", False),
        ("b", "text", True),
    ]
    assert sum(batch.num_rows for batch in batches) == 1501


def test_a_declared_schema_decides() -> None:
    schema = schema_of(a={"dtype": "int8"}, b={"dtype": "float64", "nullable": True})
    found, [batch] = drawn([rows({"a": "7", "b": "NaN"}, {"a": 1.0})], schema=schema)
    assert found is schema
    assert str(batch.to_pydict()) == "{'a': [7, 1], 'b': [nan, None]}"


@pytest.mark.parametrize(
    ("row", "code"),
    [({"a": 1, "c": 2}, "schema_conflict"), ({"c": 1}, "schema_conflict"), ({}, "schema_conflict")],
)
def test_rows_have_to_fit_the_declared_schema(row: dict[str, Any], code: str) -> None:
    error = refused([rows({"a": 1}, row)], schema=schema_of(a={"dtype": "int8"}))
    assert isinstance(error, SchemaConflict)
    assert (error.code, error.location.row) == (code, 1)


def test_an_undeclared_key_is_refused_with_what_to_do() -> None:
    with pytest.raises(SchemaConflict, match=r"\?undeclared=drop"):
        drawn([rows({"a": 1, "c": 2})], schema=schema_of(a={"dtype": "int8"}))


def test_undeclared_features_are_dropped_when_asked_for() -> None:
    _, [batch] = drawn([rows({"a": 1, "c": 2})], schema=schema_of(a={"dtype": "int8"}), undeclared="drop")
    assert batch.to_pydict() == {"a": [1]}


def test_rows_without_features_keep_their_number() -> None:
    _, [batch] = drawn([rows({}, {})])
    assert (batch.num_rows, batch.num_columns) == (2, 0)


def test_sequence_examples_are_named_as_not_served() -> None:
    row: dict[str, Any] = {"context": {"a": 1}, "feature_lists": {"f": [[1]]}}
    for schema in (None, schema_of(a={"dtype": "int8"})):
        assert refused([rows(row)], schema=schema).code == "unsupported_kind"
    plain: dict[str, Any] = {"context": "a", "feature_lists": 1}
    assert drawn([rows(plain)])[0].names == ("context", "feature_lists")


def test_batches_are_bounded_in_rows() -> None:
    _, batches = drawn([rows(*[{"a": 1}] * (2 * MAX_BATCH_ROWS + 1))])
    assert [batch.num_rows for batch in batches] == [MAX_BATCH_ROWS, MAX_BATCH_ROWS, 1]


def test_batches_of_wide_features_are_bounded_in_bytes() -> None:
    wide = schema_of(a={"dtype": "float32", "shape": [1_000_000], "nullable": True})
    budget = Budget()
    _, batches = drawn([rows(*[{}] * 5)], budget, schema=wide)
    assert sum(batch.num_rows for batch in batches) == 5
    assert max(batch.nbytes for batch in batches) <= 32 * MIB
    assert max(batch.nbytes for batch in batches) <= budget.peak
    assert budget.remaining == Limits().max_decoded_bytes


def test_a_row_of_nulls_is_charged_before_it_takes_memory() -> None:
    huge = schema_of(a={"dtype": "float32", "shape": [2**50], "nullable": True})
    error = refused([rows({})], schema=huge)
    assert isinstance(error, LimitExceeded)
    assert error.code == "payload_too_large"


def test_what_was_charged_for_a_block_is_released_once_it_is_drawn() -> None:
    budget = Budget()
    budget.charge(3000, "three blocks")
    blocks: list[Block] = [RowBlock([{"a": 1}] * 1000, 1000, first) for first in (0, 1000, 2000)]
    records = records_from_blocks(iter(blocks), RecordsDecodeOptions(), budget)
    held = [Limits().max_decoded_bytes - budget.remaining for _ in as_arrow(records)]
    assert held[0] - held[1] == held[1] - held[2] == 1000
    assert budget.remaining == Limits().max_decoded_bytes


def test_a_great_many_keys_are_refused() -> None:
    items: list[dict[str, Any]] = [{f"k{i}": 1} for i in range(1000)]
    with pytest.raises(LimitExceeded) as caught:
        drawn([rows(*items)], Budget(Limits(max_features=999)))
    assert caught.value.code == "too_many_features"


def test_unknown_keys_are_found_in_time_linear_in_the_rows() -> None:
    known = schema_of(a={"dtype": "int8", "nullable": True})
    items: list[dict[str, Any]] = [{f"k{i}_{j}": None for j in range(20)} for i in range(4000)]
    started = time.perf_counter()
    drawn([rows(*items)], schema=known)
    assert time.perf_counter() - started < 5  # 320 million look-ups otherwise
    error = refused([rows(*items, {"a": 1, "late": 0})], schema=known)
    assert (error.location.row, error.location.feature) == (4000, "late")


def test_unknown_columns_are_refused_by_their_first_value() -> None:
    block = ColumnBlock({"a": [1, 2, 3], "z": [None, None, 5]}, 3, 0)
    error = refused([block], schema=schema_of(a={"dtype": "int8"}))
    assert (error.code, error.location.row, error.location.feature) == ("schema_conflict", 2, "z")
    nulls = ColumnBlock({"a": [1], "z": [None]}, 1, 0)
    assert drawn([nulls], schema=schema_of(a={"dtype": "int8"}))[1][0].num_columns == 1


def sequence_row(index: int, **lists: Any) -> dict[str, Any]:
    return {"context": {"i": index}, "feature_lists": {"f": [index] * (index % 3)} | lists}


@pytest.mark.parametrize("size", [1, 7, 1000, 1003])
def test_the_cut_of_the_blocks_does_not_matter_to_sequences(size: int) -> None:
    items = [sequence_row(index) for index in range(1003)]
    blocks: list[Block] = [rows(*items[i : i + size], first_row=i) for i in range(0, len(items), size)]
    schema, batches = drawn(blocks, message="sequence_example")
    assert [(feature.name, feature.kind) for feature in schema] == [("i", "dense"), ("f", "sequence")]
    found = [row for batch in batches for row in batch.to_pylist()]
    assert found == [{"i": index, "f": [index] * (index % 3)} for index in range(1003)]


@pytest.mark.parametrize(
    ("row", "code", "feature"),
    [
        ({"context": {"f": [1]}}, "schema_conflict", "f"),
        ({"context": {"i": 1}, "feature_lists": {"i": [1], "f": []}}, "schema_conflict", "i"),
        (sequence_row(1, g=[1]), "schema_conflict", "g"),
        ({"i": 1}, "invalid_sequence_example", None),
        (sequence_row(1, f=["a"]), "schema_conflict", "f"),
    ],
)
def test_sequences_after_the_head_have_to_fit(row: dict[str, Any], code: str, feature: str | None) -> None:
    head = rows(*[sequence_row(index) for index in range(1000)])
    error = refused([head, rows(sequence_row(0), row, first_row=1000)], message="sequence_example")
    assert (error.code, error.location.row, error.location.feature) == (code, 1001, feature)


def test_many_features_each_of_few_rows_are_read_as_any_others() -> None:
    names = [f"f{number:04d}" for number in range(300)]
    values: list[Any] = [1, 2.5, "x", [1, 2], [[1], [2]], [], None, True, {"b64": "AA=="}]
    items = [{names[row]: values[row % len(values)]} for row in range(300)]
    full = [{**dict.fromkeys(names), **item} for item in items]
    sparse, dense = drawn([rows(*items)]), drawn([rows(*full)])
    assert summary(sparse[0]) == summary(dense[0])
    assert [batch.to_pydict() for batch in sparse[1]] == [batch.to_pydict() for batch in dense[1]]


def test_a_feature_that_must_be_there_is_missed_where_no_row_has_it() -> None:
    schema = schema_of(**{f"n{i}": {"dtype": "int64", "nullable": i > 0} for i in range(10)})
    error = refused([rows({"n1": 1}, {"n2": 2})], schema=schema)
    assert (error.code, error.location.feature, error.location.row) == ("schema_conflict", "n0", 0)
