from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.codecs.arrow.batches import column_type
from app.codecs.json.arrays import build_column
from app.codecs.json.errors import cell_error
from app.codecs.json.values import ItemError, Reading
from app.domain.dtypes import DTYPES, parse_feature_dtype
from app.domain.schema import Feature, FeatureShape, default_encoding
from app.errors import InputError, LossyConversion, SchemaConflict, UnprocessableInput


def feature(name: str, shape: FeatureShape = (), *, nullable: bool = False) -> Feature:
    dtype = parse_feature_dtype(name)
    return Feature("x", dtype, shape, encoding=default_encoding(dtype, shape), nullable=nullable)


def built(target: Feature, *cells: Any, reading: Reading | None = None) -> pa.Array[Any]:
    column = build_column(target, list(cells), reading or Reading(), 100)
    column.validate(full=True)
    assert column.type == column_type(target)
    assert len(column) == len(cells)
    return column


def refused(target: Feature, *cells: Any, reading: Reading | None = None) -> InputError:
    with pytest.raises(InputError) as caught:
        build_column(target, list(cells), reading or Reading(), 100)
    return caught.value


@pytest.mark.parametrize(
    ("target", "cells", "expected"),
    [
        (feature("bool"), [True, False], [1, 0]),
        (feature("int8", (2, 2)), [[[1, 2], [3, 4]]], [[1, 2, 3, 4]]),
        (feature("float32", (2, 0)), [[[], []], [[], []]], [[], []]),
        (feature("uint64"), [2**64 - 1, "7"], [2**64 - 1, 7]),
        (feature("float16", (1,)), [[0.5]], [[0.5]]),
        (feature("bfloat16"), [1.0, "NaN"], [0x3F80, 0x7FC0]),
        (feature("complex64"), [[1, 2]], [np.array([1 + 2j], np.complex64).tobytes()]),
        (feature("complex64", (1,)), [[[1, 2]]], [[np.array([1 + 2j], np.complex64).tobytes()]]),
        (feature("text"), ["é", {"b64": "YQ"}], ["é".encode(), b"a"]),
        (feature("bytes", (2,)), [["a", {"b64": "/w"}]], [[b"a", b"\xff"]]),
        (feature("int64", (None,)), [[], [1, 2], [3]], [[], [1, 2], [3]]),
        (feature("text", (None,)), [["a"], []], [[b"a"], []]),
        (feature("int64", (None, 2)), [[[1, 2], [3, 4]], []], [[1, 2, 3, 4], []]),
        (feature("int64", (2, None)), [[[1], [2]], [[], []]], [[1, 2], []]),
        (
            feature("int8", (None, None)),
            [[[1, 2]], [[3], [4]], []],
            [
                {"shape": [1, 2], "values": [1, 2]},
                {"shape": [2, 1], "values": [3, 4]},
                {"shape": [0, 0], "values": []},
            ],
        ),
    ],
)
def test_cells_in_the_layout_of_their_feature(target: Feature, cells: list[Any], expected: list[Any]) -> None:
    assert built(target, *cells).to_pylist() == expected


def test_unknown_dimensions_of_complex_numbers() -> None:
    column: Any = built(feature("complex64", (None,)), [[1, 2], [3, 4]], [])
    assert column.value_lengths().to_pylist() == [2, 0]


@pytest.mark.parametrize("name", [*(set(DTYPES) - {"string"}), "text", "bytes"])
@pytest.mark.parametrize("shape", [(), (2,), (2, 2), (None,), (2, None), (None, None), (0,)])
def test_absent_cells_are_nulls_at_the_top_alone(name: str, shape: FeatureShape) -> None:
    target = feature(name, shape, nullable=True)
    value: Any = "a" if target.dtype.is_string else target.dtype.kind == "bool" or 1
    value = [1, 1] if target.dtype.kind == "complex" else value
    for dim in reversed(shape):
        value = [value] * (2 if dim is None else dim)
    column = built(target, None, value, None)
    assert column.is_valid().to_pylist() == [False, True, False]
    assert built(target, value).to_pylist()[0] == column.to_pylist()[1]
    assert built(target, None, None).null_count == 2
    children = (
        [column.field(i) for i in range(2)]
        if isinstance(column, pa.StructArray)
        else [getattr(column, "values", None)]
    )
    assert all(child is None or child.null_count == 0 for child in children)


def test_an_absent_cell_needs_a_nullable_feature() -> None:
    error = refused(feature("int8"), 1, None)
    assert isinstance(error, SchemaConflict)
    assert (error.code, error.location.row, error.location.feature) == ("schema_conflict", 101, "x")
    assert "declare the feature nullable" in error.detail
    assert "infer" not in error.detail


def test_an_absent_cell_of_an_inferred_feature_says_how_to_infer_it() -> None:
    with pytest.raises(SchemaConflict) as caught:
        build_column(feature("int64"), [1, None], Reading(declared=False), 1000)
    assert (caught.value.code, caught.value.location.row) == ("schema_conflict", 1001)
    assert "?infer=all" in caught.value.detail
    assert "nullable" in caught.value.detail


@pytest.mark.parametrize(
    ("target", "cells", "row"),
    [
        (feature("int8"), [1, [2]], 101),
        (feature("int8", (2,)), [[1, 2], [1]], 101),
        (feature("int8", (2,)), [[1, 2], 1], 101),
        (feature("int8", (2,)), [[1, [2]]], 100),
        (feature("int8", (2, 2)), [[[1, 2], [3, 4]], [[1, 2], [3]]], 101),
        (feature("int8", (None,)), [[1], 2], 101),
        (feature("int8", (None,)), [[1], [[2]]], 101),
        (feature("int8", (None, 2)), [[[1, 2]], [[1]]], 101),
        (feature("int8", (None, 2)), [[[1, 2]], [1, 2]], 101),
        (feature("int8", (2, None)), [[[1], [2]], []], 101),
        (feature("int8", (None, 0)), [[], [[], []]], 101),
        (feature("int8", (0, None)), [[], [[1]]], 101),
        (feature("int8"), [1, True], 101),
        (feature("int8", (None,)), [[], [1, 2], [3, True]], 102),
        (feature("bool"), [True, 1], 101),
        (feature("text"), ["a", 1], 101),
    ],
)
def test_cells_of_another_shape_or_type_are_conflicts(target: Feature, cells: list[Any], row: int) -> None:
    error = refused(target, *cells)
    assert isinstance(error, SchemaConflict)
    assert (error.code, error.location.row, error.location.feature) == ("schema_conflict", row, "x")


def test_rows_are_counted_over_nulls_and_empty_cells() -> None:
    assert refused(feature("int8", nullable=True), None, 1, None, 300).location.row == 103
    assert refused(feature("int8", (None,), nullable=True), [], None, [], [1, 300]).location.row == 103
    assert refused(feature("int8", (2,), nullable=True), None, [1, 2], [1, 300]).location.row == 102


@pytest.mark.parametrize(
    ("target", "cell", "code", "kind"),
    [
        (feature("int8"), 300, "out_of_range", UnprocessableInput),
        (feature("float32"), 16777217, "inexact_integer", LossyConversion),
        (feature("float32", (1,)), [None], "null_value", UnprocessableInput),
        (feature("text"), {"b64": "/w=="}, "invalid_utf8", UnprocessableInput),
        (feature("bytes"), {"b64": "?"}, "invalid_base64", InputError),
        (feature("int8", (None, None)), [[1], [2, 3]], "ragged", UnprocessableInput),
        (feature("int8"), {"values": [1], "row_splits": [0, 1]}, "unsupported_kind", UnprocessableInput),
    ],
)
def test_values_that_the_dtype_does_not_hold(
    target: Feature, cell: Any, code: str, kind: type[InputError]
) -> None:
    error = refused(target, cell)
    assert isinstance(error, kind)
    assert (error.code, error.location.row, error.location.feature) == (code, 100, "x")


def test_null_inside_an_array_is_nan_when_asked_for() -> None:
    column = built(feature("float32", (1,)), [None], reading=Reading(null_is_nan=True))
    assert str(column.to_pylist()) == "[[nan]]"


def test_errors_of_items_name_feature_and_row() -> None:
    error = cell_error(ItemError(3, "It is wrong.", "out_of_range"), "y", 7)
    assert error.detail == "Feature 'y', row 7: It is wrong."
    assert (error.location.row, error.location.feature) == (7, "y")


def of_kind(kind: str, name: str, shape: list[int | None], *, nullable: bool = False) -> Feature:
    return Feature.from_json("x", {"dtype": name, "shape": shape, "kind": kind, "nullable": nullable})


RAGGED = of_kind("ragged", "int8", [None, None])
BLOCKS = of_kind("ragged", "int8", [None, None, 2, 2])
SPARSE = of_kind("sparse", "float32", [3, 4])
SPARSE_LIST = of_kind("sparse", "text", [3])


@pytest.mark.parametrize(
    ("target", "cells", "expected"),
    [
        (RAGGED, [[[1], [2, 3]], [], [[]]], [[[1], [2, 3]], [], [[]]]),
        (
            RAGGED,
            [
                {"values": [1, 2, 3], "row_splits": [[0, 1, 1, 3]]},
                [[4]],
                {"values": [], "row_splits": [[0]], "dtype": "INT8"},
            ],
            [[[1], [], [2, 3]], [[4]], []],
        ),
        (
            of_kind("ragged", "int8", [None, 2, None]),
            [{"values": [1, 2, 3], "row_splits": [[0, 2, 4], [0, 1, 1, 3, 3]]}],
            [[[[1], []], [[2, 3], []]]],
        ),
        (BLOCKS, [[[[[1, 2], [3, 4]]], []]], [[[[1, 2, 3, 4]], []]]),
        (BLOCKS, [{"values": [[[1, 2], [3, 4]]], "row_splits": [[0, 0, 1]]}], [[[], [[1, 2, 3, 4]]]]),
        (BLOCKS, [{"values": [1, 2, 3, 4], "row_splits": [[0, 1]]}], [[[[1, 2, 3, 4]]]]),
        (
            of_kind("ragged", "text", [2, None]),
            [{"values": ["a", "é"], "row_splits": [[0, 2, 2]], "dtype": "string"}],
            [[[b"a", "é".encode()], []]],
        ),
        (
            SPARSE,
            [
                {"values": [1, 2.5], "indices": [[2, 3], [0, 0]]},
                {"values": [], "indices": [], "dense_shape": [3, 4], "dtype": "float32"},
            ],
            [{"indices": [2, 3, 0, 0], "values": [1, 2.5]}, {"indices": [], "values": []}],
        ),
        (
            SPARSE_LIST,
            [{"values": ["a", "b"], "indices": [2, 1]}, {"values": ["c"], "indices": [[0]]}],
            [{"indices": [2, 1], "values": [b"a", b"b"]}, {"indices": [0], "values": [b"c"]}],
        ),
        (of_kind("sequence", "int8", [None]), [[1, 2], [], [3]], [[1, 2], [], [3]]),
        (of_kind("sequence", "int8", [None, 2]), [[[1, 2]], []], [[[1, 2]], []]),
        (of_kind("sequence", "int8", [None, None]), [[[1, 2], []], []], [[[1, 2], []], []]),
        (
            of_kind("sequence", "int8", [None, None, None]),
            [[[[1, 2]], []]],
            [[{"shape": [1, 2], "values": [1, 2]}, {"shape": [0, 0], "values": []}]],
        ),
    ],
)
def test_cells_of_every_kind_in_the_layout_of_their_feature(
    target: Feature, cells: list[Any], expected: list[Any]
) -> None:
    assert built(target, *cells).to_pylist() == expected


@pytest.mark.parametrize("shape", [[None], [None, 2], [None, None], [None, None, None]])
@pytest.mark.parametrize("kind", ["ragged", "sequence"])
def test_absent_cells_of_lists_are_nulls_at_the_top_alone(kind: str, shape: list[int | None]) -> None:
    shape = [*shape, None] if kind == "ragged" else shape
    value: Any = 1
    for _ in shape:
        value = [value, value]
    column: Any = built(of_kind(kind, "int8", shape, nullable=True), None, value, None)
    assert column.is_valid().to_pylist() == [False, True, False]
    assert (len(column.values), column.values.null_count) == (2, 0)


def test_absent_sparse_cells_are_nulls_at_the_top_alone() -> None:
    value = {"values": [1], "indices": [[2, 3]]}
    column: Any = built(of_kind("sparse", "int8", [3, 4], nullable=True), None, value, None)
    assert column.is_valid().to_pylist() == [False, True, False]
    assert [column.field(index).null_count for index in range(2)] == [0, 0]
    assert column.to_pylist()[1] == {"indices": [2, 3], "values": [1]}


@pytest.mark.parametrize(
    ("target", "cell", "code"),
    [
        (RAGGED, [1, 2], "schema_conflict"),
        (RAGGED, [[1], 2], "schema_conflict"),
        (RAGGED, [[1], None], "null_value"),
        (RAGGED, [[1], [None]], "null_value"),
        (RAGGED, [[[1]]], "schema_conflict"),
        (RAGGED, [["a"]], "inexact_integer"),
        (RAGGED, [[True]], "schema_conflict"),
        (RAGGED, [[300]], "out_of_range"),
        (of_kind("ragged", "int8", [2, None]), [[1]], "schema_conflict"),
        (BLOCKS, [[[[1, 2]]]], "schema_conflict"),
        (RAGGED, {"b64": ""}, "schema_conflict"),
        (RAGGED, {"values": [1]}, "schema_conflict"),
        (RAGGED, {"values": [1], "row_splits": [[0, 1]], "shape": []}, "schema_conflict"),
        (RAGGED, {"values": 1, "row_splits": [[0, 1]]}, "schema_conflict"),
        (RAGGED, {"values": [1], "row_splits": [0, 1]}, "invalid_row_splits"),
        (RAGGED, {"values": [1], "row_splits": [[0, 1], [0, 1]]}, "invalid_row_splits"),
        (RAGGED, {"values": [1], "row_splits": [[]]}, "invalid_row_splits"),
        (RAGGED, {"values": [1], "row_splits": [[0, True]]}, "invalid_row_splits"),
        (RAGGED, {"values": [1], "row_splits": [[1, 1]]}, "invalid_row_splits"),
        (RAGGED, {"values": [1], "row_splits": [[0, 2]]}, "invalid_row_splits"),
        (RAGGED, {"values": [1, 2], "row_splits": [[0, 1]]}, "invalid_row_splits"),
        (RAGGED, {"values": [1, 2], "row_splits": [[0, 2, 1, 2]]}, "invalid_row_splits"),
        (RAGGED, {"values": [1, 2], "row_splits": [[0, -1, 2]]}, "invalid_row_splits"),
        (BLOCKS, {"values": [1, 2, 3], "row_splits": [[0, 1]]}, "shape_mismatch"),
        (RAGGED, {"values": [1], "row_splits": [[0, 1]], "dtype": "int16"}, "dtype_mismatch"),
        (RAGGED, {"values": [1], "row_splits": [[0, 1]], "dtype": "int7"}, "unknown_dtype"),
        (RAGGED, {"values": [1], "row_splits": [[0, 1]], "dtype": 7}, "unknown_dtype"),
        (SPARSE, [[1]], "schema_conflict"),
        (SPARSE, 1, "schema_conflict"),
        (SPARSE, {"b64": ""}, "schema_conflict"),
        (SPARSE, {"values": [1], "indices": [[0, 0]], "shape": [3, 4]}, "schema_conflict"),
        (SPARSE, {"values": 1, "indices": [[0, 0]]}, "schema_conflict"),
        (SPARSE, {"values": [1], "indices": 1}, "schema_conflict"),
        (SPARSE, {"values": [1], "indices": [0, 0]}, "schema_conflict"),
        (SPARSE, {"values": [1], "indices": [[0]]}, "shape_mismatch"),
        (SPARSE, {"values": [1], "indices": [[0, 0], [1, 1]]}, "shape_mismatch"),
        (SPARSE, {"values": [1, 2], "indices": [[0, 0]]}, "shape_mismatch"),
        (SPARSE, {"values": [1], "indices": [[0, 4]]}, "index_out_of_bounds"),
        (SPARSE, {"values": [1], "indices": [[-1, 0]]}, "index_out_of_bounds"),
        (SPARSE, {"values": [1], "indices": [[2**70, 0]]}, "index_out_of_bounds"),
        (SPARSE, {"values": [1], "indices": [[0, 1.0]]}, "schema_conflict"),
        (SPARSE, {"values": [1], "indices": [[0, True]]}, "schema_conflict"),
        (SPARSE, {"values": [1], "indices": [[0, "1"]]}, "schema_conflict"),
        (SPARSE, {"values": [1], "indices": [None]}, "schema_conflict"),
        (SPARSE_LIST, {"values": ["a", "b"], "indices": [0, [1]]}, "schema_conflict"),
        (SPARSE, {"values": [], "indices": [], "dense_shape": [4, 3]}, "shape_mismatch"),
        (SPARSE, {"values": [], "indices": [], "dense_shape": 3}, "shape_mismatch"),
        (
            of_kind("sparse", "int8", [1]),
            {"values": [], "indices": [], "dense_shape": [True]},
            "shape_mismatch",
        ),
        (SPARSE, {"values": [], "indices": [], "dtype": "float64"}, "dtype_mismatch"),
        (SPARSE, {"values": [True], "indices": [[0, 0]]}, "schema_conflict"),
        (SPARSE, {"values": [None], "indices": [[0, 0]]}, "null_value"),
        (of_kind("sequence", "int8", [None]), 1, "schema_conflict"),
        (of_kind("sequence", "int8", [None]), [1, None], "null_value"),
        (of_kind("sequence", "int8", [None]), [[1]], "schema_conflict"),
        (of_kind("sequence", "int8", [None, 2]), [[1, 2], None], "null_value"),
        (of_kind("sequence", "int8", [None, 2]), [[1, 2], [1]], "schema_conflict"),
        (of_kind("sequence", "int8", [None, None]), [[1, 2], None], "null_value"),
        (of_kind("sequence", "int8", [None, None, None]), [[[1], [2, 3]]], "ragged"),
        (of_kind("sequence", "int8", [None]), [300], "out_of_range"),
        (feature("int8"), {"values": [1], "indices": [0], "dense_shape": [1]}, "unsupported_kind"),
    ],
)
def test_cells_that_do_not_fit_their_kind(target: Feature, cell: Any, code: str) -> None:
    good: Any = {"sparse": {"values": [], "indices": []}, "dense": 1}.get(target.kind, [])
    if target.shape == (2, None):
        good = {"values": [], "row_splits": [[0, 0, 0]]}
    error = refused(target, good, cell, good)
    assert (error.code, error.location.row, error.location.feature) == (code, 101, "x")


def test_null_among_the_values_of_a_kind_is_nan_when_asked_for() -> None:
    nan = Reading(null_is_nan=True)
    assert str(built(of_kind("ragged", "float32", [None, None]), [[None]], reading=nan)[0]) == str(
        built(of_kind("ragged", "float32", [None, None]), [["NaN"]])[0]
    )
    steps = built(of_kind("sequence", "float32", [None]), [None], reading=nan)
    assert str(steps.to_pylist()) == "[[nan]]"
    sparse = built(SPARSE, {"values": [None], "indices": [[0, 0]]}, reading=nan)
    assert "'values': [nan]" in str(sparse.to_pylist())
