import json
import struct
from typing import Any

import pyarrow as pa
import pytest

from app.codecs.arrays.oip_records import decode, encode
from app.codecs.compression.encoded import headers_of
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.codecs.records.columns import Records, arrow_schema
from app.domain.schema import Schema
from app.errors import InputError, MalformedInput, SchemaConflict, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile


def schema(**features: Any) -> Schema:
    return Schema.from_json({"features": features})


def sized(name: str | None, datatype: str, shape: list[int], size: int) -> dict[str, Any]:
    named = {} if name is None else {"name": name}
    return {**named, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}


def request_of(*inputs: dict[str, Any], data: bytes = b"", **members: Any) -> tuple[bytes, int]:
    text = json.dumps({"inputs": inputs, **members}).encode()
    return text + data, len(text)


def decoded(data: bytes, json_bytes: int | None, **options: Any) -> tuple[Schema, pa.Table]:
    given = RecordsDecodeOptions(json_bytes=json_bytes, **options)
    records = decode(MemoryFile(data), given, Budget())
    return records.schema, pa.Table.from_batches(list(records.batches), arrow_schema(records.schema))


def refused(body: tuple[bytes, int | None], error: type[InputError], code: str, **options: Any) -> InputError:
    with pytest.raises(error) as caught:
        decoded(*body, **options)
    assert caught.value.code == code
    return caught.value


def encoded(features: Schema, *columns: Any) -> tuple[bytes, int]:
    types = arrow_schema(features)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, types, strict=True)]
    records = Records(features, iter([pa.RecordBatch.from_arrays(arrays, schema=types)]))
    chunks = encode(records, RecordsEncodeOptions(), Budget())
    length = int(headers_of(chunks)["Inference-Header-Content-Length"])
    return b"".join(bytes(piece) for piece in chunks), length


BYTES_AB = struct.pack("<I1sI1s", 1, b"a", 1, b"\xff")


def test_every_input_is_a_column_and_its_first_axis_counts_the_rows() -> None:
    body = request_of(
        sized("x", "FP32", [2, 2], 16),
        sized("s", "BYTES", [2], 10),
        data=struct.pack("<4f", 1, 2, 3, 4) + BYTES_AB,
    )
    found, table = decoded(*body)
    assert [(f.name, f.dtype.name, f.shape) for f in found] == [("x", "float32", (2,)), ("s", "bytes", ())]
    assert table.to_pylist() == [{"x": [1, 2], "s": b"a"}, {"x": [3, 4], "s": b"\xff"}]


def test_strings_in_the_json_are_text_and_those_behind_it_are_bytes() -> None:
    text = {"name": "t", "datatype": "BYTES", "shape": [2], "data": ["é", "b"]}
    mixed = {"name": "m", "datatype": "BYTES", "shape": [2], "data": ["a", {"b64": "/w=="}]}
    body = request_of(text, sized("b", "BYTES", [2], 10), mixed, data=BYTES_AB)
    found, table = decoded(*body)
    assert [feature.dtype.name for feature in found] == ["text", "bytes", "bytes"]
    assert table["t"].to_pylist() == ["é".encode(), b"b"]
    assert table["m"].to_pylist() == [b"a", b"\xff"]


def test_a_schema_says_what_is_text() -> None:
    body = request_of(sized("s", "BYTES", [1], 5), data=BYTES_AB[:5])
    assert decoded(*body, schema=schema(s={"dtype": "text"}))[1]["s"].to_pylist() == [b"a"]
    refused(
        request_of(sized("s", "BYTES", [2], 10), data=BYTES_AB),
        UnprocessableInput,
        "invalid_utf8",
        schema=schema(s={"dtype": "text"}),
    )


def test_the_schema_may_stand_beside_the_inputs() -> None:
    declared = schema(x={"dtype": "int64"})
    body = request_of(sized("x", "INT8", [2], 2), data=b"\1\2", schema=declared.to_json())
    assert decoded(*body)[0] == declared
    refused(body, MalformedInput, "schema_twice", schema=declared)
    assert decoded(*body, schema=declared, schema_of_dataset=True)[0] == declared
    refused(
        body, SchemaConflict, "schema_conflict", schema=schema(x={"dtype": "int8"}), schema_of_dataset=True
    )


@pytest.mark.parametrize(
    ("body", "error", "code"),
    [
        (request_of(sized("x", "INT8", [], 1), data=b"\1"), UnprocessableInput, "no_rows"),
        (request_of(sized(None, "INT8", [1], 1), data=b"\1"), MalformedInput, "invalid_tensor"),
        (request_of(sized("", "INT8", [1], 1), data=b"\1"), UnprocessableInput, "invalid_feature_name"),
        (
            request_of(sized("x", "INT8", [1], 1), sized("y", "INT8", [2], 2), data=b"\1\2\3"),
            UnprocessableInput,
            "row_count_mismatch",
        ),
        (
            request_of({"name": "x", "datatype": "INT8", "shape": [2], "data": [1, None]}),
            UnprocessableInput,
            "null_value",
        ),
        ((request_of()[0], None), MalformedInput, "missing_json_length"),
        ((b"\1\2", 0), UnprocessableInput, "no_rows"),
    ],
)
def test_what_is_no_table_of_rows(body: tuple[bytes, int | None], error: type[InputError], code: str) -> None:
    refused(body, error, code)


def test_rows_go_out_as_outputs_and_come_back() -> None:
    features = schema(
        x={"dtype": "float16", "shape": [2]},
        t={"dtype": "text"},
        b={"dtype": "bytes", "shape": [1]},
        ok={"dtype": "bool"},
    )
    body = encoded(features, [[1, 2], [3, 4]], ["é".encode(), b""], [[b"\xff"], [b"a"]], [1, 0])
    outputs = json.loads(body[0][: body[1]])["outputs"]
    assert [(item["name"], item["datatype"], item["shape"]) for item in outputs] == [
        ("x", "FP16", [2, 2]),
        ("t", "BYTES", [2]),
        ("b", "BYTES", [2, 1]),
        ("ok", "BOOL", [2]),
    ]
    assert decoded(*body, schema=features)[1].to_pylist() == [
        {"x": [1, 2], "t": "é".encode(), "b": [b"\xff"], "ok": 1},
        {"x": [3, 4], "t": b"", "b": [b"a"], "ok": 0},
    ]


@pytest.mark.parametrize(
    ("feature", "column", "row"),
    [
        ({"dtype": "complex64"}, [bytes(8)], None),
        ({"dtype": "int64", "shape": [None]}, [[1]], None),
        ({"dtype": "int64", "nullable": True}, [1, None], 1),
    ],
)
def test_what_an_output_does_not_hold(feature: dict[str, Any], column: Any, row: int | None) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        encoded(schema(f=feature), column)
    assert caught.value.code == "not_expressible"
    assert (caught.value.location.feature, caught.value.location.row) == ("f", row)
