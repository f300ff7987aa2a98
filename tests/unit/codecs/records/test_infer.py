from __future__ import annotations

from typing import Any

import pytest

from app.codecs.json.text import NegativeZero
from app.codecs.json.values import Reading
from app.codecs.schema_inference import HEAD_ROWS, FoundCells, infer_feature, infer_schema
from app.domain.limits import Limits
from app.domain.schema import Feature, FeatureShape
from app.errors import InputError, LimitExceeded, SchemaConflict, UnprocessableInput

INFERRED = Reading(declared=False)


def refused(*cells: Any, reading: Reading = INFERRED) -> InputError:
    with pytest.raises(InputError) as caught:
        infer_feature("x", FoundCells.among(list(cells)), reading)
    return caught.value


def test_the_contract_says_a_thousand_rows() -> None:
    assert HEAD_ROWS == 1000


@pytest.mark.parametrize(
    ("cells", "dtype", "shape", "nullable"),
    [
        ([1, 2], "int64", (), False),
        ([1, 2.0], "float64", (), False),
        ([NegativeZero(), 2], "int64", (), False),
        ([[NegativeZero(), 1.5], [1, 2]], "float64", (2,), False),
        ([True], "bool", (), False),
        (["a", "NaN"], "text", (), False),
        ([{"b64": ""}], "bytes", (), False),
        ([None, 1], "int64", (), True),
        ([[1, 2], [3, 4]], "int64", (2,), False),
        ([[1, 2], None, [3.5, 4]], "float64", (2,), True),
        ([[[1], [2]]], "int64", (2, 1), False),
        ([[1], [2, 3]], "int64", (None,), False),
        ([[], [2.5, 3]], "float64", (None,), False),
        ([[], []], "float64", (None,), False),
        ([[[], []]], "float64", (2, 0), False),
        ([["a"], []], "text", (None,), False),
    ],
)
def test_a_feature_from_its_cells(cells: list[Any], dtype: str, shape: FeatureShape, nullable: bool) -> None:
    feature = infer_feature("x", FoundCells.among(cells), INFERRED)
    assert feature is not None
    assert (feature.name, feature.dtype.name, feature.shape) == ("x", dtype, shape)
    assert (feature.nullable, feature.encoding, feature.kind) == (nullable, "list", "dense")


def test_nulls_alone_are_no_feature() -> None:
    assert infer_feature("x", FoundCells.among([None, None]), INFERRED) is None
    assert infer_feature("x", FoundCells.among([]), INFERRED) is None


@pytest.mark.parametrize(
    ("cells", "row"),
    [
        ([1, None, "a"], 2),
        ([1, True], 1),
        (["a", {"b64": ""}], 1),
        ([1, [1]], 1),
        ([[1], None, 1], 2),
        ([[1, 2], [3, "a"]], 1),
        ([[], None, [1], [2, True]], 3),
        ([[1], ["a", {"b64": ""}]], 1),
        ([["a"], [{"b64": ""}]], 1),
    ],
)
def test_two_kinds_in_one_feature_are_a_conflict(cells: list[Any], row: int) -> None:
    error = refused(*cells)
    assert isinstance(error, SchemaConflict)
    assert (error.code, error.location.row, error.location.feature) == ("schema_conflict", row, "x")


@pytest.mark.parametrize(
    ("cells", "shape", "kind"),
    [
        ([[[1, 2]], [[1, 2], [3, 4]]], (None, 2), "dense"),
        ([[[1]], []], (None, 1), "dense"),
        ([[], [], [[[1], [2]]]], (None, 2, 1), "dense"),
        ([[[], []], [[], []]], (2, 0), "dense"),
        ([[[1], [2, 3]]], (2, None), "ragged"),
        ([[[1], []]], (2, None), "ragged"),
        ([[[1]], [[1, 2]]], (1, None), "ragged"),
        ([[[1], [2, 3]], [[4]]], (None, None), "ragged"),
        ([[[[1, 2]], [[1, 2], [3, 4]]]], (2, None, 2), "ragged"),
        ([[[[1], [2]], [[1], [2, 3]]]], (2, 2, None), "ragged"),
        ([[[[]], []], []], (None, None, None), "ragged"),
        ([[[]], [[], []], []], (None, None), "ragged"),
        ([[[1]], None, [[1, 2]], [[]]], (1, None), "ragged"),
    ],
)
def test_nested_arrays_that_vary(cells: list[Any], shape: FeatureShape, kind: str) -> None:
    feature = infer_feature("x", FoundCells.among(cells), INFERRED)
    assert feature is not None
    assert (feature.shape, feature.kind, feature.encoding) == (shape, kind, "list")
    assert feature.dtype.name == ("int64" if "1" in str(cells) else "float64")
    assert Feature.from_json("x", feature.to_json()) == feature


@pytest.mark.parametrize(
    ("cells", "row"),
    [([[1, 2], None, [[1], [2]]], 2), ([[1, [2]]], 0), ([[[]], [[1, []]]], 1), ([[], [[1], 2]], 1)],
)
def test_values_at_differing_depths_are_ragged_beyond_help(cells: list[Any], row: int) -> None:
    error = refused(*cells)
    assert isinstance(error, UnprocessableInput)
    assert (error.code, error.location.row, error.location.feature) == ("ragged", row, "x")
    assert "schema" in error.detail


@pytest.mark.parametrize(
    ("cells", "dtype", "shape", "encoding"),
    [
        ([[1, 2], [3]], "int64", (None,), "list"),
        ([[], []], "float64", (None,), "list"),
        ([["a"], None], "text", (None,), "list"),
        ([[[1, 2], [3, 4]], [[5, 6]]], "int64", (None, 2), "list"),
        ([[[1, 2.5], [3]], []], "float64", (None, None), "list"),
        ([[[[], []]], [[[]]]], "float64", (None, None, None), "tensor"),
        ([[[[], []]], []], "float64", (None, 2, 0), "list"),
        ([[[]], []], "float64", (None, None), "list"),
        ([[[[1, 2]], [[3, 4], [5, 6]]]], "int64", (None, None, 2), "list"),
        ([[[[1]], [[3, 4], [5, 6]]]], "int64", (None, None, None), "tensor"),
    ],
)
def test_a_feature_list_is_a_sequence_of_steps(
    cells: list[Any], dtype: str, shape: FeatureShape, encoding: str
) -> None:
    feature = infer_feature("x", FoundCells.among(cells), INFERRED, sequence=True)
    assert feature is not None
    assert (feature.dtype.name, feature.shape, feature.kind) == (dtype, shape, "sequence")
    assert (feature.encoding, feature.nullable) == (encoding, None in cells)
    assert Feature.from_json("x", feature.to_json()) == feature


@pytest.mark.parametrize(
    ("cells", "code", "row"),
    [
        ([[1], 2], "schema_conflict", 1),
        ([None, {"b64": ""}], "schema_conflict", 1),
        ([[1], [2, "a"]], "schema_conflict", 1),
        ([[1], [], [[2]]], "schema_conflict", 2),
        ([[[1]], [[[1], [2, 3]]]], "ragged", 1),
        ([[[[1]]], [[[1], [2, 3]]]], "ragged", 1),
        ([[1], [None]], "null_value", 1),
        ([[[1]], [[1], None]], "null_value", 1),
    ],
)
def test_feature_lists_that_have_no_dense_step(cells: list[Any], code: str, row: int) -> None:
    with pytest.raises(InputError) as caught:
        infer_feature("x", FoundCells.among(cells), INFERRED, sequence=True)
    error = caught.value
    assert (error.code, error.location.row, error.location.feature) == (code, row, "x")


@pytest.mark.parametrize("cells", [[1, 1.5, [2]], [0, NegativeZero(), [2]], [[1], [], 2.5]])
def test_a_single_value_beside_an_array_names_the_row_of_the_other_kind(cells: list[Any]) -> None:
    error = refused(*cells)
    assert isinstance(error, SchemaConflict)
    assert (error.code, error.location.row) == ("schema_conflict", 2)


def test_null_inside_an_array_is_refused_or_nan() -> None:
    error = refused([1], [2, None])
    assert (error.code, error.location.row) == ("null_value", 1)
    feature = infer_feature("x", FoundCells.among([[1], [None]]), Reading(declared=False, null_is_nan=True))
    assert feature is not None
    assert feature.dtype.name == "float64"


def test_too_many_axes_are_refused() -> None:
    nested: Any = 1
    for _ in range(300):
        nested = [nested]
    assert isinstance(refused(nested), LimitExceeded)


def test_a_schema_keeps_the_order_of_its_names_and_drops_what_has_no_value() -> None:
    cells: dict[str, list[Any]] = {"b": [1, None], "none": [None, None], "a": ["x", "y"]}
    schema = infer_schema(cells, lambda name: FoundCells.among(cells[name]), INFERRED, Limits())
    assert [(feature.name, feature.nullable) for feature in schema] == [("b", True), ("a", False)]


@pytest.mark.parametrize("names", [["a" * 5000], [""]])
def test_names_that_no_example_holds_are_refused(names: list[str]) -> None:
    with pytest.raises(UnprocessableInput):
        infer_schema(names, lambda _: FoundCells.among([1]), INFERRED, Limits())


def test_too_many_features_are_refused() -> None:
    with pytest.raises(LimitExceeded):
        infer_schema(["a", "b", "c"], lambda _: FoundCells.among([1]), INFERRED, Limits(max_features=2))
