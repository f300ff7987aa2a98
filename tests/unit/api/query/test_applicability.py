"""A parameter that speaks of a form is refused where that form is neither read nor written."""

from typing import Any

import pytest
from pydantic import BaseModel

from app.api.query.applicability import refuse_inapplicable
from app.api.query.datasets import AppendQuery, RowsQuery
from app.api.query.rows import ExamplesQuery, RecordsQuery
from app.api.query.tensors import DescribeTensorsQuery, TensorsQuery
from app.errors import MalformedInput

PARAMETERS: list[tuple[type[BaseModel], str, str, list[tuple[str | None, str | None]]]] = [
    (TensorsQuery, "order", "F", [("raw", "json"), ("npy", "raw")]),
    (TensorsQuery, "byte_order", "big", [("raw", "json"), ("npy", "raw")]),
    (TensorsQuery, "sparse", "many", [("json", "tensorproto"), ("json", "tfrecord"), ("npz", "b64")]),
    (TensorsQuery, "b64", "websafe", [("npy", "json"), ("npy", "b64")]),
    (TensorsQuery, "layout", "nested", [("npy", "json")]),
    (TensorsQuery, "int64", "string", [("npy", "json")]),
    (TensorsQuery, "bytes", "utf8", [("npy", "json")]),
    (TensorsQuery, "compression", "gzip", [("tfrecord", "json"), ("npy", "tfrecord")]),
    (TensorsQuery, "channels", "3", [("jpeg", "npy"), ("png", "json"), ("bmp", "tensorproto")]),
    (TensorsQuery, "quality", "50", [("npy", "jpeg")]),
    (DescribeTensorsQuery, "channels", "1", [("gif", None)]),
    (TensorsQuery, "nonfinite", "null", [("json", "npy"), ("oip", "npy"), ("npy", "json")]),
    (TensorsQuery, "nonfinite", "bare", [("json", "npy")]),
    (TensorsQuery, "nonfinite", "error", [("npy", "json")]),
    (DescribeTensorsQuery, "order", "F", [("raw", None)]),
    (RecordsQuery, "int64", "string", [("npz", "json"), ("npz", "ndjson")]),
    (RecordsQuery, "layout", "columns", [("npz", "json")]),
    (RecordsQuery, "nonfinite", "bare", [("csv", "arrow"), ("ndjson", "tfrecord")]),
    (RecordsQuery, "delimiter", "tab", [("csv", "arrow")]),
    (RecordsQuery, "archive", "folders", [("tar", "tfrecord"), ("zip", "json")]),
    (AppendQuery, "labels", "cat,dog", [("zip", None), ("multipart", None)]),
    (RecordsQuery, "null", "NA", [("csv", "arrow")]),
    (AppendQuery, "delimiter", "tab", [("csv", None)]),
    (ExamplesQuery, "b64", "websafe", [("json", "b64"), ("example", "json")]),
    (AppendQuery, "compression", "gzip", [("tfrecord", None)]),
    (RowsQuery, "bytes", "utf8", [(None, "json"), (None, "ndjson")]),
]


@pytest.mark.parametrize(("model", "name", "value", "pairs"), PARAMETERS)
def test_where_it_applies_and_where_not(
    model: type[BaseModel], name: str, value: str, pairs: list[tuple[str | None, str | None]]
) -> None:
    query = model.model_validate({name: value})
    for read, written in pairs:
        refuse_inapplicable(query, read=read, written=written)
    read, written = pairs[0]
    with pytest.raises(MalformedInput, match=rf"\?{name}={value} ") as caught:
        refuse_inapplicable(query, read=read and "npz", written=written and "parquet")
    assert caught.value.code == "inapplicable_parameter"
    assert caught.value.extra["parameter"] == name


@pytest.mark.parametrize("value", ["bare", "null", "error"])
def test_each_value_of_nonfinite_has_its_direction(value: str) -> None:
    query = TensorsQuery.model_validate({"nonfinite": value})
    with pytest.raises(MalformedInput):
        refuse_inapplicable(query, read="npy" if value != "error" else "json", written="npz")


def test_defaults_and_parameters_of_all_forms_are_let_through() -> None:
    given: dict[str, Any] = {
        "order": "C",
        "b64": "standard",
        "int64": "number",
        "dtype": "int8",
        "kind": "dense",
    }
    refuse_inapplicable(TensorsQuery.model_validate(given), read="npy", written="npz")
    given = {"lossy": "allow", "infer": "all", "undeclared": "drop", "message": "example"}
    refuse_inapplicable(RecordsQuery.model_validate(given), read="npz", written="parquet")
