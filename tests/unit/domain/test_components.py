from __future__ import annotations

from typing import Any

import pytest

from app.domain.feature import stored_features
from app.domain.schema import Schema
from app.errors import InputError, LossyConversion


def schema_of(**features: Any) -> Schema:
    return Schema.from_json({"features": features})


def stored(**feature: Any) -> list[dict[str, Any]]:
    found = stored_features(schema_of(x=feature).features[0])
    return [{"name": part.name} | part.to_json() for part in found]


def test_a_ragged_feature_is_its_values_and_the_lengths_of_each_cut() -> None:
    listed = {"kind": "dense", "encoding": "list", "shape": [None], "nullable": True}
    assert stored(dtype="uint8", shape=[None, 3, None, 2], kind="ragged", nullable=True) == [
        {"name": "x/ragged_flat_values", "dtype": "uint8"} | listed,
        {"name": "x/ragged_row_lengths_0", "dtype": "int64"} | listed,
        {"name": "x/ragged_row_lengths_1", "dtype": "int64"} | listed,
    ]


def test_a_sparse_feature_is_its_coordinates_by_axis_and_its_values() -> None:
    listed = {"kind": "dense", "encoding": "list", "shape": [None], "nullable": False}
    assert stored(dtype="text", shape=[4, 5], kind="sparse") == [
        {"name": "x/indices_0", "dtype": "int64"} | listed,
        {"name": "x/indices_1", "dtype": "int64"} | listed,
        {"name": "x/values", "dtype": "text"} | listed,
    ]


@pytest.mark.parametrize("kind", ["dense", "sequence"])
def test_other_features_are_stored_as_they_are(kind: str) -> None:
    feature = schema_of(x={"dtype": "int8", "shape": [None, 2], "kind": kind}).features[0]
    assert stored_features(feature) == (feature,)


@pytest.mark.parametrize("other", ["x/values", "x/indices_0"])
def test_features_that_would_be_stored_under_one_name_are_refused_where_a_schema_enters(other: str) -> None:
    sparse = {"dtype": "int8", "shape": [2], "kind": "sparse"}
    with pytest.raises(InputError) as caught:
        schema_of(**{"x": sparse, other: {"dtype": "int8"}})
    assert (caught.value.code, caught.value.location.feature) == ("duplicate_feature", other)
    schema_of(**{"x": sparse, "x/indices_1": {"dtype": "int8"}})


@pytest.mark.parametrize(
    ("kind", "advice"), [("dense", "encoding 'raw'"), ("sparse", "Declare another dtype in")]
)
def test_dtype_without_a_list_is_refused_with_a_remedy(kind: str, advice: str) -> None:
    schema = schema_of(x={"dtype": "float64", "shape": [2], "kind": kind})
    with pytest.raises(LossyConversion, match=advice) as caught:
        schema.require_lossless()
    assert caught.value.location.feature == "x"
