from __future__ import annotations

from typing import Any

import pytest

from app.codecs.json.oip import read_oip_columns
from app.domain.schema import Schema
from app.errors import InputError, LimitExceeded
from app.runtime.budget import Budget


def column(name: str = "x", datatype: str = "INT8", shape: Any = None, data: Any = None) -> dict[str, Any]:
    members = {"name": name, "datatype": datatype, "data": [1, 2] if data is None else data}
    return members if shape is None else members | {"shape": shape}


def refused(*inputs: dict[str, Any], schema: Schema | None = None) -> InputError:
    with pytest.raises(InputError) as caught:
        read_oip_columns(list(inputs), schema, Budget())
    return caught.value


@pytest.mark.parametrize(
    ("item", "cells", "dtype", "row_shape"),
    [
        (column(shape=[2]), [1, 2], "int8", ()),
        (column(shape=[1, 2]), [[1, 2]], "int8", (2,)),
        (column(shape=[2, 1, 1]), [[[1]], [[2]]], "int8", (1, 1)),
        (column(shape=[2, 2], data=[[1, 2], [3, 4]]), [[1, 2], [3, 4]], "int8", (2,)),
        (column(shape=[2, 0], data=[]), [[], []], "int8", (0,)),
        (column(shape=[0, 3], data=[]), [], "int8", (3,)),
        (column(data=[[1], [2]]), [[1], [2]], "int8", (1,)),
        (column(datatype="BYTES", data=["a", "b"]), ["a", "b"], "text", ()),
        (column(datatype="BYTES", data=["a", {"b64": ""}]), ["a", {"b64": ""}], "bytes", ()),
    ],
)
def test_flat_and_nested_data_become_cells(
    item: dict[str, Any], cells: list[Any], dtype: str, row_shape: tuple[int, ...]
) -> None:
    columns, schema = read_oip_columns([item], None, Budget())
    assert columns == {"x": cells}
    assert [(f.name, f.dtype.name, f.shape) for f in schema] == [("x", dtype, row_shape)]


def test_a_declared_schema_stays() -> None:
    schema = Schema.from_json({"features": {"x": {"dtype": "int8", "shape": [None]}}})
    columns, found = read_oip_columns([column(shape=[2, 1]), column("y", "FP32")], schema, Budget())
    assert found == schema
    assert list(columns) == ["x", "y"]


def test_text_may_be_declared_as_bytes() -> None:
    schema = Schema.from_json({"features": {"x": {"dtype": "bytes"}}})
    assert read_oip_columns([column(datatype="BYTES", data=["a"])], schema, Budget())[1] == schema


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ([{"datatype": "INT8", "data": [1]}], "invalid_tensor"),
        ([{"name": "x", "datatype": None, "data": [1]}], "invalid_tensor"),
        ([{"name": "x", "datatype": "INT8"}], "invalid_tensor"),
        ([column(), column()], "duplicate_name"),
        ([column(data=5)], "no_rows"),
        ([column(shape=[], data=[5])], "no_rows"),
        ([column(shape=[3])], "shape_mismatch"),
        ([column(data=[[1], [2, 3]])], "ragged"),
        ([column(name="")], "invalid_feature_name"),
    ],
)
def test_inputs_that_are_no_columns(inputs: list[dict[str, Any]], code: str) -> None:
    assert refused(*inputs).code == code


def test_another_datatype_than_declared_is_refused() -> None:
    schema = Schema.from_json({"features": {"x": {"dtype": "int16"}}})
    error = refused(column(), schema=schema)
    assert (error.code, error.location.feature) == ("schema_conflict", "x")


@pytest.mark.parametrize("shape", [[1, 2**40, 0], [2**40, 0], [2, 3, 2**50, 0, 7]])
def test_empty_data_that_declares_endless_lists(shape: list[int]) -> None:
    assert isinstance(refused(column(shape=shape, data=[])), LimitExceeded)
