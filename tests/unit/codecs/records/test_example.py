from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from app.codecs import kernels
from app.codecs.columns import Records
from app.codecs.messages.example import parse_example, serialize_example
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.schema import Schema
from app.errors import UnprocessableInput
from app.runtime.budget import Budget
from tests.arrow_rows import arrow_schema, as_arrow, from_arrow

# What `tf.train.Example` serializes for one feature "x".
FLOATS = bytes.fromhex("0a13 0a11 0a0178 120c 120a 0a08 0000c03f 000000c0")
INTS = bytes.fromhex("0a18 0a16 0a0178 1211 1a0f 0a0d ffffffffffffffffff01 00 ac02")
BYTES = bytes.fromhex("0a10 0a0e 0a0178 1209 0a07 0a026162 0a0163")
NOTHING = bytes.fromhex("0a00")


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def both_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        plain = kernels.Kernels(lambda function: function)
        monkeypatch.setattr(kernels, "load", lambda: plain)


def schema_of(**features: dict[str, Any]) -> Schema:
    return Schema.from_json({"features": features})


def records_of(schema: Schema, **columns: list[Any]) -> Records:
    arrow = arrow_schema(schema)
    arrays = [pa.array(columns[field.name], field.type) for field in arrow]
    return from_arrow(schema, iter([pa.RecordBatch.from_arrays(arrays, schema=arrow)]))


def serialize(schema: Schema, **columns: list[Any]) -> bytes:
    return serialize_example(records_of(schema, **columns), RecordsEncodeOptions(), Budget())


def parse(data: bytes, schema: Schema | None = None) -> dict[str, Any]:
    records = parse_example(data, RecordsDecodeOptions(schema=schema), Budget())
    (row,) = [row for batch in as_arrow(records) for row in batch.to_pylist()]
    assert isinstance(row, dict)
    return row


@pytest.mark.parametrize(
    ("dtype", "values", "message"),
    [
        ("float32", [1.5, -2.0], FLOATS),
        ("int64", [-1, 0, 300], INTS),
        ("bytes", [b"ab", b"c"], BYTES),
        ("text", [b"ab", b"c"], BYTES),
        ("float32", [], bytes.fromhex("0a09 0a07 0a0178 1202 1200")),
        ("int64", [], bytes.fromhex("0a09 0a07 0a0178 1202 1a00")),
        ("bytes", [], bytes.fromhex("0a09 0a07 0a0178 1202 0a00")),
        ("float32", None, NOTHING),
    ],
)
def test_a_list_is_these_bytes_and_returns(dtype: str, values: list[Any] | None, message: bytes) -> None:
    schema = schema_of(x={"dtype": dtype, "shape": [None], "nullable": True})
    assert serialize(schema, x=[values]) == message
    assert parse(message, schema) == {"x": values}


def test_features_go_by_bytes_but_a_key_before_its_prefixes() -> None:
    names = ["a", "b", "ab", "é", "Z"]
    schema = schema_of(**{name: {"dtype": "int64"} for name in names})
    message = serialize(schema, **{name: [1] for name in names})
    order = sorted(
        names, key=lambda name: message.index(b"\x0a" + bytes([len(name.encode())]) + name.encode() + b"\x12")
    )
    assert order == ["Z", "ab", "a", "b", "é"]


def test_without_a_schema_every_feature_is_a_nullable_list() -> None:
    records = parse_example(FLOATS, RecordsDecodeOptions(), Budget())
    assert records.schema == schema_of(x={"dtype": "float32", "shape": [None], "nullable": True})
    assert [batch.to_pylist() for batch in as_arrow(records)] == [[{"x": [1.5, -2.0]}]]
    assert parse(BYTES) == {"x": [b"ab", b"c"]}


def test_a_message_without_features_is_a_row_without_columns() -> None:
    for message in (b"", NOTHING):
        records = parse_example(message, RecordsDecodeOptions(), Budget())
        assert not records.schema.features
        (batch,) = as_arrow(records)
        assert (batch.num_rows, batch.num_columns) == (1, 0)
    empty: Any = pa.array([{}], pa.struct([]))
    records = from_arrow(Schema(()), iter([pa.RecordBatch.from_struct_array(empty)]))
    assert serialize_example(records, RecordsEncodeOptions(), Budget()) == NOTHING


@pytest.mark.parametrize("rows", [0, 2])
def test_a_message_holds_exactly_one_row(rows: int) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        serialize(schema_of(x={"dtype": "int64"}), x=[1] * rows)
    assert caught.value.code == "not_one_row"


def test_two_batches_of_one_row_are_not_one_row() -> None:
    schema = schema_of(x={"dtype": "int64"})
    batches = [batch for _ in range(2) for batch in as_arrow(records_of(schema, x=[1]))]
    with pytest.raises(UnprocessableInput):
        serialize_example(from_arrow(schema, iter(batches)), RecordsEncodeOptions(), Budget())


def test_raw_and_tensor_store_the_shape_their_way() -> None:
    schema = schema_of(
        r={"dtype": "int16", "shape": [2], "encoding": "raw"},
        t={"dtype": "int16", "shape": [None, 2], "encoding": "tensor"},
    )
    message = serialize(schema, r=[[1, 2]], t=[[3, 4]])
    assert bytes.fromhex("0a0172 1208 0a06 0a04 01000200") in message
    assert bytes.fromhex("0805 1208 12020801 12020802 2204 03000400") in message
    assert parse(message, schema) == {"r": [1, 2], "t": [3, 4]}
