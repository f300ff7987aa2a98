"""Ragged and sparse features in a TFRecord: the lists of an Example that stand for them.

A ragged value is its values and the lengths of each cut, a sparse one its values and its coordinates by axis.
"""

from collections.abc import Sequence
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given

from app.codecs.columns import AbsentColumns, Batch, Column, Records
from app.domain.dtypes import BYTES, DTYPES, TEXT
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.runtime.budget import Budget
from tests.support import format_cases
from tests.support.format_cases import Refusal, assert_rows, schema_of
from tests.support.random_rows import records

RAGGED = {"dtype": "int16", "shape": [None, None], "kind": "ragged"}
DEEP = {"dtype": "int16", "shape": [2, None, 3, None, 2], "kind": "ragged"}
SPARSE = {"dtype": "float32", "shape": [4, 2], "kind": "sparse"}
NULLABLE = {"nullable": True}
VALUES, LENGTHS = "x/ragged_flat_values", "x/ragged_row_lengths_"
INT16 = {"dtype": "int16", "shape": [None], "nullable": True}
INT64 = {"dtype": "int64", "shape": [None], "nullable": True}
FLOATS = {"dtype": "float32", "shape": [None], "nullable": True}
#: The lists of each of the features above.
COMPONENTS = schema_of(
    **{
        VALUES: INT16,
        **{f"{LENGTHS}{cut}": INT64 for cut in range(3)},
        "x/values": FLOATS,
        **{f"x/indices_{axis}": INT64 for axis in range(2)},
    }
)

#: What lists hold exactly.
EXACT = [DTYPES[name] for name in ("bool", "int16", "int64", "float32", "bfloat16")] + [TEXT, BYTES]


def encode(found: Records, **limits: int) -> bytes | Refusal:
    return format_cases.write("tfrecord", found, limits=Limits(**limits))


def components(rows: Sequence[dict[str, Any]]) -> bytes:
    """Records with these lists; what a row does not name is not there."""
    data = encode(format_cases.records(list(rows), schema=COMPONENTS))
    assert isinstance(data, bytes)
    return data


def lists_of(data: bytes | Refusal) -> list[dict[str, Any]]:
    """The lists in each record."""
    assert isinstance(data, bytes), data
    found = format_cases.read("tfrecord", data, schema=COMPONENTS)
    assert isinstance(found, format_cases.Rows), found
    return [{name: value for name, value in row.items() if value is not None} for row in found.rows]


def read(data: bytes, schema: Schema, **limits: int) -> format_cases.Rows | Refusal:
    return format_cases.read("tfrecord", data, schema=schema, limits=Limits(**limits))


@hypothesis.settings(max_examples=50, deadline=None)
@given(found=records(("scalar", "ragged", "sparse", "dense"), EXACT))
def test_components_become_the_same_rows_again(found: Records) -> None:
    batches = list(found.batches)
    data = encode(Records(found.schema, iter(batches)))
    assert isinstance(data, bytes), data
    assert_rows(read(data, found.schema), format_cases.rows_of(batches, found.schema))


def test_a_ragged_row_is_values_and_lengths() -> None:
    schema = schema_of(x=DEEP | NULLABLE)
    rows: list[dict[str, Any]] = [{"x": [[[[], [[1, 2]], []]], []]}, {"x": None}]
    data = encode(format_cases.records(rows, schema=schema))
    lists = {VALUES: [1, 2], f"{LENGTHS}0": [1, 0], f"{LENGTHS}1": [3], f"{LENGTHS}2": [0, 1, 0]}
    assert lists_of(data) == [lists, {}]
    assert isinstance(data, bytes)
    assert_rows(read(data, schema), rows)


def test_a_sparse_row_is_coordinates_by_axis_and_values() -> None:
    schema = schema_of(x=SPARSE | NULLABLE)
    row = {"values": [0.5, 1.5], "indices": [[3, 1], [0, 0]]}
    data = encode(format_cases.records([{"x": row}, {"x": None}], schema=schema))
    assert lists_of(data) == [{"x/values": [0.5, 1.5], "x/indices_0": [3, 0], "x/indices_1": [1, 0]}, {}]
    assert isinstance(data, bytes)
    assert_rows(read(data, schema), [{"x": row}, {"x": None}])


def ragged(*splits: list[int]) -> Column:
    """A column of one row out of two, the second, without values."""
    none = np.zeros(2 * splits[-1][-1], np.int16)
    return Column(none, tuple(map(np.array, splits)), np.array([False, True]), 2)


def sparse(*coordinates: int) -> Column:
    one = np.array([coordinates])
    return Column(np.ones(1, np.float32), (np.array([0, 1]),), np.array([False, True]), coordinates=one)


@pytest.mark.parametrize(
    ("feature", "column", "what"),
    [
        (DEEP, ragged([0, 1], [0, 0], [0], [0]), "has 1 pieces where the schema's shape takes 2"),
        (DEEP, ragged([0, 2], [0, 1, 1], [0, 1], [0, 0]), "row length of 1 in cut 1, but the schema's shape"),
        (SPARSE, sparse(4, 0), "index 4 on axis 0, which has the size 4"),
        (SPARSE, sparse(0, -1), "index -1 on axis 1, which has the size 2"),
    ],
)
def test_a_column_that_contradicts_its_schema_is_not_written(feature: Any, column: Column, what: str) -> None:
    schema = schema_of(x=feature | NULLABLE)
    absent = Batch(1, (AbsentColumns(1).column(schema.features[0]),))
    found = encode(Records(schema, iter([absent, Batch(2, (column,))])))
    assert isinstance(found, Refusal)
    assert found == Refusal("schema_conflict", 2, "x")
    assert what in found.detail


@pytest.mark.parametrize(
    ("feature", "rows", "values"),
    [
        (
            RAGGED,
            [
                {VALUES: [1, 2], f"{LENGTHS}0": [0, 2]},
                {},
                {f"{LENGTHS}0": [0, 0]},
                {VALUES: []},
            ],
            [[[], [1, 2]], None, [[], []], []],
        ),
        (SPARSE, [{"x/values": []}, {}], [{"values": [], "indices": []}, None]),
    ],
)
def test_components_are_read_whatever_is_missing(feature: Any, rows: list[Any], values: list[Any]) -> None:
    found = read(components(rows), schema_of(x=feature | NULLABLE))
    assert_rows(found, [{"x": value} for value in values])


@pytest.mark.parametrize(
    ("feature", "row", "what"),
    [
        (RAGGED, {}, "lacks feature 'x'. Declare the feature nullable"),
        (RAGGED, {VALUES: [1]}, "has 1 values, but its row lengths in cut 0 add up to 0"),
        (RAGGED, {f"{LENGTHS}0": [1]}, "has 0 values, but its row lengths in cut 0 add up to 1"),
        (RAGGED, {VALUES: [1], f"{LENGTHS}0": [2, -1]}, "row length of -1 in cut 0, that is no length"),
        (RAGGED, {VALUES: [1], f"{LENGTHS}0": [2**63 - 1] * 2 + [3]}, "that is no length"),
        (RAGGED, {VALUES: [1], f"{LENGTHS}0": [2**31]}, "that is no length"),
        (RAGGED | {"shape": [2, None]}, {VALUES: [1], f"{LENGTHS}0": [1]}, "has 1 pieces where the"),
        (
            RAGGED | {"shape": [None, None, None]},
            {VALUES: [1], f"{LENGTHS}0": [2], f"{LENGTHS}1": [1]},
            "has 1 row lengths in cut 1, but its row lengths in cut 0 add up to 2",
        ),
        (
            RAGGED | {"shape": [None, 2, None]},
            {VALUES: [1], f"{LENGTHS}0": [1], f"{LENGTHS}1": [1]},
            "row length of 1 in cut 0, but the schema's shape says 2",
        ),
        (
            RAGGED | {"shape": [None, None, 2]},
            {VALUES: [1, 2, 3], f"{LENGTHS}0": [1]},
            "has 3 values, but its row lengths in cut 0 add up to 1 times 2",
        ),
        (RAGGED | {"shape": [None, None, 2]}, {VALUES: [1], f"{LENGTHS}0": [2**31 - 1]}, "times 2"),
        (SPARSE, {"x/values": [1.0]}, "has 0 indices on axis 0, but 1 values"),
        (SPARSE, {"x/values": [1.0], "x/indices_0": [1], "x/indices_1": [1, 1]}, "has 2 indices on axis 1"),
        (SPARSE, {"x/values": [1.0], "x/indices_0": [4], "x/indices_1": [1]}, "index 4 on axis 0"),
        (SPARSE, {"x/values": [1.0], "x/indices_0": [0], "x/indices_1": [-(2**63)]}, "index -92233"),
    ],
)
def test_components_that_contradict_each_other_are_named(feature: Any, row: Any, what: str) -> None:
    # A row without values, as far as the shape lets it.
    fine: dict[str, Any] = {"x/values": []}
    if feature["kind"] == "ragged":
        fine = {VALUES: [], f"{LENGTHS}0": [0] * (feature["shape"][0] or 0)}
    found = read(components([fine, fine, row]), schema_of(x=feature))
    assert isinstance(found, Refusal)
    assert found == Refusal("schema_conflict", 2, "x")
    assert what in found.detail


def test_the_sums_are_of_each_row_alone() -> None:
    rows = [{VALUES: [1, 2], f"{LENGTHS}0": [1]}, {VALUES: [3], f"{LENGTHS}0": [2]}]
    assert read(components(rows), schema_of(x=RAGGED)) == Refusal("schema_conflict", 0, "x")


def test_two_features_under_one_name_are_refused_before_a_row_is_drawn() -> None:
    schema = Schema((*schema_of(x=RAGGED), *schema_of(**{VALUES: "int8"})))
    refused = Refusal("duplicate_feature", feature=VALUES)
    assert encode(Records(schema, iter(()))) == refused
    assert read(components([{}]), schema) == refused


def test_lengths_and_coordinates_count_against_the_budget() -> None:
    few = {"max_decoded_bytes": 60_000}
    schema = schema_of(x=RAGGED)
    many = format_cases.records([{"x": [[]] * 5000}], schema=schema)
    assert isinstance(encode(many, **few), Refusal)
    rows = [{"x/values": [1.0] * 2000, "x/indices_0": [0] * 2000, "x/indices_1": [0] * 2000}]
    data = components(rows)
    budget = Budget()
    for _ in format_cases.decode("tfrecord", data, budget, schema=schema_of(x=SPARSE)).batches:
        pass
    assert budget.peak > 2000 * (4 + 2 * 8 + 2 * 8)
    found = read(data, schema_of(x=SPARSE), max_decoded_bytes=budget.peak - 1)
    assert isinstance(found, Refusal)
    assert found.code == "payload_too_large"
