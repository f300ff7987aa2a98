from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.columns import Records
from app.codecs.json.ndjson import decode as decode_ndjson
from app.codecs.json.records import decode, parse_row
from app.codecs.json.texts import PIECE_BYTES
from app.codecs.json.write_rows import encode, format_row
from app.codecs.json.write_rows import encode_lines as encode_ndjson
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.dtypes import DTYPES, DType, parse_feature_dtype
from app.domain.feature import Feature, FeatureShape, default_encoding
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.errors import (
    AmbiguousInput,
    InputError,
    LimitExceeded,
    MalformedInput,
    SchemaConflict,
    UnprocessableInput,
)
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile, MemoryStream
from tests.arrow_rows import as_arrow, from_arrow

COLUMNS = RecordsEncodeOptions(layout="columns")


def read(body: Any, **options: Any) -> Records:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    records = decode(MemoryFile(text), RecordsDecodeOptions(**options), Budget())
    return from_arrow(records.schema, iter(list(as_arrow(records))))


def written(records: Records, options: RecordsEncodeOptions | None = None) -> Any:
    return json.loads(b"".join(encode(records, options or RecordsEncodeOptions(), Budget())))


def refused(body: Any, **options: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read(body, **options)
    return caught.value


def summary(records: Records) -> list[tuple[str, str, FeatureShape]]:
    return [(feature.name, feature.dtype.name, feature.shape) for feature in records.schema]


def schema_of(**features: Any) -> Schema:
    return Schema.from_json({"features": features})


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ([], []),
        ([{}], [{}]),
        ([{"a": 1}, {"b": "x"}], [{"a": 1, "b": None}, {"a": None, "b": "x"}]),
        ([{"b64": "AA=="}], [{"b64": "AA=="}]),
        ({"instances": [{"instances": 1}], "signature_name": "s"}, [{"instances": 1}]),
        ({"instances": []}, []),
        ({"inputs": {"a": [1, 2], "b": [[1.5], [2]]}, "id": "7"}, [{"a": 1, "b": [1.5]}, {"a": 2, "b": [2]}]),
        ({"columns": {"inputs": [1, None]}}, [{"inputs": 1}, {"inputs": None}]),
        ({"a": [True], "id": ["x"]}, [{"a": True, "id": "x"}]),
        ({}, []),
        ({"a": []}, []),
        ({"inputs": []}, []),
        (
            {
                "inputs": [{"name": "a", "datatype": "FP32", "shape": [2, 1], "data": [1, 2.5]}],
                "model_name": "m",
            },
            [{"a": [1]}, {"a": [2.5]}],
        ),
        (
            {"inputs": [{"name": "a", "datatype": "BYTES", "shape": [2], "data": ["x", {"b64": "/w"}]}]},
            [{"a": {"b64": "eA=="}}, {"a": {"b64": "/w=="}}],
        ),
        ({"instances": [{"a": 1}], "schema": {"features": {"a": {"dtype": "float64"}}}}, [{"a": 1.0}]),
        ({"inputs": {"a": [1]}, "schema": {"features": {"a": {"dtype": "uint8"}}}}, [{"a": 1}]),
        ({"columns": {"a": ["5"]}, "schema": {"features": {"a": {"dtype": "uint64"}}}}, [{"a": 5}]),
    ],
)
def test_every_form_of_the_contract(body: Any, rows: list[Any]) -> None:
    assert written(read(body)) == rows


@pytest.mark.parametrize(
    "body",
    [
        *(5, None, "a", [1], [{"a": 1}, 5]),
        *({"b64": "AA=="}, {"schema": {"features": {}}}, {"outputs": [{"name": "a", "datatype": "FP32"}]}),
        *({"instances": [1]}, {"instances": {"a": [1]}}, {"inputs": [1]}, {"columns": [1]}),
        *({"instances": [], "inputs": {}}, {"instances": [], "a": [1]}, {"columns": {}, "id": "7"}),
    ],
)
def test_other_bodies_are_ambiguous(body: Any) -> None:
    error = refused(body)
    assert isinstance(error, AmbiguousInput)
    assert error.code == "ambiguous_json"
    assert '{"instances": [{...}, ...]}' in error.detail


def test_a_schema_in_the_body_is_read() -> None:
    body = {"instances": [{"a": 1}], "schema": {"features": {"a": {"dtype": "int8", "shape": []}}}}
    assert summary(read(body)) == [("a", "int8", ())]
    assert refused({"instances": [], "schema": []}).code == "invalid_schema"


def test_two_schemas_are_one_too_many() -> None:
    body = {"instances": [{"a": 1}], "schema": {"features": {"a": {"dtype": "int8"}}}}
    error = refused(body, schema=schema_of(a={"dtype": "int8"}))
    assert isinstance(error, MalformedInput)
    assert (error.code, error.location.pointer) == ("schema_twice", "/schema")


def test_the_schema_of_a_dataset_may_be_repeated_but_not_changed() -> None:
    body = {"instances": [{"a": 1}], "schema": {"features": {"a": {"dtype": "int8"}}}}
    same = read(body, schema=schema_of(a={"dtype": "int8"}), schema_of_dataset=True)
    assert written(same) == [{"a": 1}]
    two = {"features": {"a": {"dtype": "int8"}, "b": {"dtype": "int8"}}}
    reordered = schema_of(b={"dtype": "int8"}, a={"dtype": "int8"})
    rows = {"instances": [{"a": 1, "b": 2}], "schema": two}
    assert written(read(rows, schema=reordered, schema_of_dataset=True)) == [{"b": 2, "a": 1}]
    error = refused(body, schema=schema_of(a={"dtype": "int16"}), schema_of_dataset=True)
    assert isinstance(error, SchemaConflict)


@pytest.mark.parametrize(
    ("body", "code", "feature"),
    [
        ({"a": [1, 2], "b": [1]}, "row_count_mismatch", "b"),
        ({"inputs": {"a": [], "b": [1]}}, "row_count_mismatch", "b"),
        ({"a": 1}, "no_rows", "a"),
        ({"columns": {"a": {"b64": ""}}}, "no_rows", "a"),
        (
            {
                "inputs": [
                    {"name": "a", "datatype": "INT8", "shape": [2], "data": [1, 2]},
                    {"name": "b", "datatype": "INT8", "shape": [1], "data": [1]},
                ]
            },
            "row_count_mismatch",
            "b",
        ),
    ],
)
def test_columns_have_equally_many_rows(body: Any, code: str, feature: str) -> None:
    error = refused(body)
    assert isinstance(error, UnprocessableInput)
    assert (error.code, error.location.feature) == (code, feature)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b'[{"a": NaN}]', "nonfinite_token"),
        (b'[{"a": 1e400}]', "out_of_range"),
        (b'[{"a": 9223372036854775808}]', "out_of_range"),
        (b'[{"a": 9007199254740993}, {"a": 1.5}]', "inexact_integer"),
        (b'[{"a": 1, "a": 2}]', "duplicate_key"),
        (b'{"a": [1], "a": [2]}', "duplicate_key"),
        (b'[{"a": ' + b"[" * 100_000, "json_too_deep"),
        (b'[{"a": ' + b"1" * 5000 + b"}]", "integer_too_large"),
        (b'[{"\\udc00": 1}]', "lone_surrogate"),
        (b'[{"a": "\xff"}]', "invalid_utf8"),
        (b'[{"a": "\x00"}]', "invalid_json"),
        (b'[{"a": [[1], 2]}]', "ragged"),
        (b'[{"a": [1, true]}]', "schema_conflict"),
        (b'[{"a": true}, {"a": 0}]', "schema_conflict"),
        (b'[{"a": [1, null]}]', "null_value"),
        (b'[{"": 1}]', "invalid_feature_name"),
    ],
)
def test_faulty_bodies(text: bytes, code: str) -> None:
    assert refused(text).code == code


@pytest.mark.parametrize("body", [b'[{"b":[-0,1.5]}]', b'{"b":[[-0,1.5]]}'], ids=["rows", "columns"])
def test_a_negative_zero_keeps_its_sign_in_a_float(body: bytes) -> None:
    [batch] = as_arrow(read(body))
    assert str(batch.to_pylist()) == "[{'b': [-0.0, 1.5]}]"


def test_a_negative_zero_in_a_schema_is_0() -> None:
    schema = b'{"features":{"x":{"dtype":"int8","shape":[-0]}}}'
    records = read(b'{"schema":' + schema + b',"instances":[{"x":[]}]}')
    assert json.dumps(records.schema.to_json()["features"]["x"]["shape"]) == "[0]"


def test_nonfinite_options() -> None:
    assert written(read(b'[{"a": NaN}, {"a": 1}]', nonfinite="bare")) == [{"a": "NaN"}, {"a": 1}]
    assert written(read([{"a": [None, 1]}], nonfinite="null")) == [{"a": ["NaN", 1]}]
    assert written(read([{"a": None}, {"a": 1.5}], nonfinite="null")) == [{"a": None}, {"a": 1.5}]


def test_columns_out() -> None:
    rows = [{"a": 1, "b": [1.5, 2]}, {"a": None, "b": [3, 4]}]
    assert written(read(rows), COLUMNS) == {"a": [1, None], "b": [[1.5, 2.0], [3.0, 4.0]]}
    assert written(read([]), COLUMNS) == {}
    assert written(read([], schema=schema_of(a={"dtype": "int8"})), COLUMNS) == {"a": []}
    assert written(read([{"inputs": 1}]), COLUMNS) == {"columns": {"inputs": [1]}}


def test_columns_out_are_charged() -> None:
    records = read({"a": [1.5] * 20_000})
    pieces = encode(records, COLUMNS, Budget(Limits(max_decoded_bytes=50_000)))
    with pytest.raises(LimitExceeded):
        list(pieces)


def test_rows_out_come_batch_by_batch_in_small_pieces() -> None:
    drawn = 0

    def batches(source: Records) -> Any:
        nonlocal drawn
        for batch in as_arrow(source):
            drawn += 1
            yield batch

    source = read({"a": list(range(30_000)), "b": ["x" * 50] * 30_000})
    pieces = encode(from_arrow(source.schema, batches(source)), RecordsEncodeOptions(), Budget())
    first = next(pieces)
    assert drawn == 1
    rest = list(pieces)
    assert max(map(len, [first, *rest])) <= PIECE_BYTES
    assert [row["a"] for row in json.loads(b"".join([first, *rest]))] == list(range(30_000))


def test_errors_out_name_the_row_of_the_whole_input() -> None:
    body = {"a": [0.0] * 20_000 + ["NaN"], "b": ["x"] * 20_001}
    options = RecordsEncodeOptions(nonfinite="error")
    schema = schema_of(a={"dtype": "float32"}, b={"dtype": "text"})
    for layout in ("rows", "columns"):
        with pytest.raises(UnprocessableInput) as caught:
            written(
                read(body, schema=schema), RecordsEncodeOptions(layout=layout, nonfinite=options.nonfinite)
            )
        assert (caught.value.code, caught.value.location.row) == ("nonfinite_value", 20_000)


def test_one_row_is_any_object_and_never_an_envelope() -> None:
    text = b'{"instances": [1, 2], "schema": "x", "b64": 1.5}'
    records = parse_row(text, RecordsDecodeOptions(), Budget())
    assert summary(records) == [("instances", "int64", (2,)), ("schema", "text", ()), ("b64", "float64", ())]
    assert json.loads(format_row(records, RecordsEncodeOptions(), Budget())) == json.loads(text)


@pytest.mark.parametrize("text", [b"[]", b"5", b'[{"a": 1}]', b"null"])
def test_what_is_no_object_is_no_row(text: bytes) -> None:
    with pytest.raises(AmbiguousInput):
        parse_row(text, RecordsDecodeOptions(), Budget())


@pytest.mark.parametrize("body", [[], [{"a": 1}, {"a": 2}], {"a": list(range(9000))}])
def test_one_row_is_not_none_and_not_several(body: Any) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        format_row(read(body), RecordsEncodeOptions(), Budget())
    assert caught.value.code == "not_one_row"


# Round trips over every dtype and layout.


def _cells(dtype: DType) -> st.SearchStrategy[Any]:
    if dtype.is_integer:
        return st.integers(*dtype.bounds)
    if dtype.is_string:
        text = st.text(st.characters(codec="utf-8"), max_size=5)
        return text if dtype.name == "text" else st.binary(max_size=5).map(lambda data: data.hex())
    if dtype.kind == "bool":
        return st.booleans()
    width: Literal[16, 32, 64] = (
        16 if dtype.itemsize == 2 else 32 if dtype.name in ("float32", "complex64") else 64
    )
    numbers = st.floats(width=width, allow_nan=False, allow_infinity=False).map(_narrowed(dtype))
    if dtype.itemsize == 1:
        numbers = st.integers(-24, 24).map(lambda value: value / 4).map(_narrowed(dtype))
    words = st.sampled_from(["NaN", "Infinity", "-Infinity"] if dtype.has_infinity else ["NaN"])
    if not dtype.has_nan:
        return numbers
    if dtype.kind == "complex":
        return st.lists(numbers | words, min_size=2, max_size=2)
    return numbers | words


def _narrowed(dtype: DType) -> Callable[[float], float]:
    if dtype.name != "bfloat16" and dtype.itemsize > 1:
        return float
    return lambda value: float(np.array([value]).astype(dtype.numpy).astype(np.float64)[0])


def _feature_cells(feature: Feature) -> st.SearchStrategy[Any]:
    cells = _nested(_cells(feature.dtype), feature.shape)
    return st.none() | cells if feature.nullable else cells


def _nested(cell: st.SearchStrategy[Any], shape: FeatureShape) -> st.SearchStrategy[Any]:
    for dim in reversed(shape):
        low, high = (0, 3) if dim is None else (dim, dim)
        cell = st.lists(cell, min_size=low, max_size=high)
    return cell


NAMES = [*(name for name in DTYPES if name != "string"), "text", "bytes"]
#: Shapes whose cells lists drawn at random are never ragged in.
SHAPES: list[FeatureShape] = [(), (0,), (3,), (2, 2), (1, 2, 1), (None,), (1, None)]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, list[dict[str, Any]]]:
    features = []
    for index in range(draw(st.integers(0, 4))):
        dtype = parse_feature_dtype(draw(st.sampled_from(NAMES)))
        shape = draw(st.sampled_from(SHAPES))
        encoding = default_encoding(dtype, shape)
        features.append(Feature(f"f{index}", dtype, shape, encoding=encoding, nullable=draw(st.booleans())))
    cells = {feature.name: _feature_cells(feature) for feature in features}
    return Schema(tuple(features)), draw(st.lists(st.fixed_dictionaries(cells), max_size=5))


def _tables_of(records: Records) -> list[Any]:
    return [pa.Table.from_batches([batch]).to_pydict() for batch in as_arrow(records)]


@settings(deadline=None, max_examples=150)
@given(table=tables())
def test_rows_columns_and_lines_read_back_the_same(table: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = table
    expected = repr(_tables_of(read(rows, schema=schema)))
    for options in (RecordsEncodeOptions(), RecordsEncodeOptions(int64="string", text="b64")):
        text = b"".join(encode(read(rows, schema=schema), options, Budget()))
        json.loads(text, parse_constant=pytest.fail)
        assert repr(_tables_of(read(text, schema=schema))) == expected
    lines = b"".join(encode_ndjson(read(rows, schema=schema), RecordsEncodeOptions(), Budget()))
    assert lines.count(b"\n") == len(rows)
    again = decode_ndjson(MemoryStream(lines), RecordsDecodeOptions(schema=schema), Budget())
    assert repr(_tables_of(again)) == expected
    if len(schema):
        columns = written(read(rows, schema=schema), COLUMNS)
        assert repr(_tables_of(read(columns, schema=schema))) == expected


@settings(deadline=None, max_examples=100)
@given(table=tables())
def test_what_is_written_is_what_was_sent(table: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = table
    found = written(read(rows, schema=schema), RecordsEncodeOptions(text="utf8"))
    narrow = {feature.name: feature.dtype for feature in schema}
    assert len(found) == len(rows)
    for row, sent in zip(found, rows, strict=True):
        assert {name: _rounded(narrow[name], cell) for name, cell in row.items()} == sent


def _rounded(dtype: DType, cell: Any) -> Any:
    """Shortest digits back to the value that they stand for."""
    if isinstance(cell, list):
        return [_rounded(dtype, item) for item in cell]
    if isinstance(cell, float):
        part = {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)
        return float(np.array([cell]).astype(DTYPES[part].numpy).astype(np.float64)[0])
    return cell


def test_rows_without_any_feature_are_rows_but_no_columns() -> None:
    rows: list[dict[str, Any]] = [{}, {}]
    assert json.loads(b"".join(map(bytes, encode(read(rows), RecordsEncodeOptions(), Budget())))) == rows
    with pytest.raises(UnprocessableInput, match="without any feature") as caught:
        list(encode(read(rows), COLUMNS, Budget()))
    assert caught.value.code == "not_expressible"
    assert b"".join(map(bytes, encode(read([]), COLUMNS, Budget()))) == b"{}"
