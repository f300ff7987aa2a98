from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import load, save

from app.codecs.arrays.safetensors_records import decode, encode
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.codecs.records.columns import Records, arrow_schema
from app.domain.schema import Schema
from app.errors import SchemaConflict, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile


def schema(**features: Any) -> Schema:
    return Schema.from_json({"features": features})


def decoded(data: bytes, **options: Any) -> tuple[Schema, pa.Table]:
    records = decode(MemoryFile(data), RecordsDecodeOptions(**options), Budget())
    return records.schema, pa.Table.from_batches(list(records.batches), arrow_schema(records.schema))


def encoded(features: Schema, *columns: Any) -> bytes:
    types = arrow_schema(features)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, types, strict=True)]
    records = Records(features, iter([pa.RecordBatch.from_arrays(arrays, schema=types)]))
    return b"".join(bytes(piece) for piece in encode(records, RecordsEncodeOptions(), Budget()))


def test_every_array_is_a_column_and_its_first_axis_counts_the_rows() -> None:
    found, table = decoded(
        save({"x": np.arange(6, dtype="<f4").reshape(2, 3), "label": np.array([7, 8], "<u2")})
    )
    assert {name: item["dtype"] for name, item in found.to_json()["features"].items()} == {
        "x": "float32",
        "label": "uint16",
    }
    assert table.to_pylist() == [{"x": [0, 1, 2], "label": 7}, {"x": [3, 4, 5], "label": 8}]


def test_a_declared_schema_converts_exactly() -> None:
    data = save({"x": np.array([1, 2], "<i8")})
    assert decoded(data, schema=schema(x={"dtype": "uint8"}))[1]["x"].to_pylist() == [1, 2]
    with pytest.raises(SchemaConflict):
        decoded(data, schema=schema(y={"dtype": "uint8"}))


def test_the_bytes_are_the_librarys() -> None:
    features = schema(x={"dtype": "float32", "shape": [2]}, ok={"dtype": "bool"}, h={"dtype": "bfloat16"})
    data = encoded(features, [[1, 2], [3, 4]], [1, 0], [0x3F80, 0x4000])
    loaded = load(encoded(schema(x={"dtype": "float32", "shape": [2]}), [[1, 2], [3, 4]]))
    assert loaded["x"].tolist() == [[1, 2], [3, 4]]
    found, table = decoded(data)
    assert table.select(["x", "ok", "h"]).to_pylist() == [
        {"x": [1, 2], "ok": 1, "h": 0x3F80},
        {"x": [3, 4], "ok": 0, "h": 0x4000},
    ]
    assert found.by_name["h"].dtype.name == "bfloat16"


@pytest.mark.parametrize(
    ("feature", "column", "row"),
    [
        ({"dtype": "text"}, [b"a"], None),
        ({"dtype": "bytes"}, [b"a"], None),
        ({"dtype": "int64", "shape": [None]}, [[1]], None),
        ({"dtype": "int64", "nullable": True}, [1, None], 1),
    ],
)
def test_what_an_array_does_not_hold(feature: dict[str, Any], column: Any, row: int | None) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        encoded(schema(f=feature), column)
    assert caught.value.code == "not_expressible"
    assert (caught.value.location.feature, caught.value.location.row) == ("f", row)
