"""Rows to JSON, in rows, columns and lines: layouts, spellings, pieces; and what is written is read back."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.forms import RECORDS_CODECS, FormName
from app.codecs.options import RecordsEncodeOptions
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.runtime.budget import Budget
from tests.support.format_cases import Refusal, Rows, assert_rows, read, records, schema_of, write
from tests.unit.codecs.cases.kinds import rows_of, schemas

PIECE_BYTES = 256 * 1024
FORMS: list[tuple[FormName, Literal["rows", "columns"]]] = [
    ("json", "rows"),
    ("json", "columns"),
    ("ndjson", "rows"),
    ("ndjson", "columns"),
]


def texts(body: Any, schema: Schema | None = None, **options: Any) -> tuple[str, str, str]:
    """The same rows as rows, columns and lines."""
    found = []
    for form, layout in FORMS[:3]:
        text = write(form, records(body, schema=schema), layout=layout, **options)
        assert isinstance(text, bytes), text
        found.append(text.decode())
    return found[0], found[1], found[2]


def cells(feature: dict[str, Any], values: list[Any], **options: Any) -> str:
    """The values of one column, as columns spell them; rows and lines spell each the same."""
    is_sequence = feature.get("kind") == "sequence"
    schema = schema_of(x={"nullable": True, **feature})
    rows, columns, lines = texts({"columns": {"x": values}}, schema, **options)
    assert columns.startswith('{"x":[')
    opening, closing = ('{"context":{},"feature_lists":{"x":', "}}") if is_sequence else ('{"x":', "}")
    found = [line.removeprefix(opening).removesuffix(closing) for line in lines.split("\n")[:-1]]
    assert "[" + ",".join(found) + "]}" == columns[5:]
    assert rows == "[" + ",\n".join(lines.split("\n")[:-1]) + "]"
    return columns[6:-2]


@pytest.mark.parametrize(
    ("feature", "values"),
    [
        ("bool", [True, None, False]),
        ("int8[2,2]", [[[1, 2], [3, 4]], None, [[5, 6], [7, 8]]]),
        ("float32[2,0]", [[[], []], None]),
        ("float64", [None, 0.1, None]),
        ("bfloat16[1]", [[0.5], None]),
        ("complex64", [[1.0, 2.0], None]),
        ("complex128[2]", [None, [[1.0, 2.0], [3.0, -0.5]]]),
        ("complex64[null]", [None, [[1.0, 2.0], [3.0, -0.5]], []]),
        ("text", ["é", None, ""]),
        ("bytes[1]", [[{"b64": "/w=="}], None]),
        ("int64[null]", [[], None, [1, 2], [3]]),
        ("text[null]", [["a"], None, []]),
        ("int64[null,2]", [[[1, 2], [3, 4]], None, []]),
        ("int64[2,null]", [[[1], [2]], [[], []], None]),
        ("int8[null,null]", [[[1, 2]], None, [[3], [4]], []]),
        ("int8[2]", [None, None]),
        ("int8[null,null]", [None]),
        ("ragged int64[null,null]", [[[1], [], [2, 3]], None, []]),
        ("ragged text[null,2,null]", [[[["a"], []], [[], ["b"]]], None]),
        ("ragged float32[null,null,2]", [[[[1.0, 2.0]], []], None, [[]]]),
        ("sparse float32[3]", [{"values": [1.5], "indices": [[2]], "dense_shape": [3]}, None]),
        ("sparse int8[3,4]", [{"values": [], "indices": [], "dense_shape": [3, 4]}, None]),
        ("sequence int64[null]", [[1, 2], None, []]),
        ("sequence float32[null,2]", [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]], []]),
        ("sequence text[null,null]", [[["a", "b"], []], [[]], None]),
        ("sequence int8[null,null,null]", [[[[1, 2]], []], None]),
    ],
)
def test_values_are_written_as_they_were_sent(feature: str, values: list[Any]) -> None:
    kind, dtype, shape = re.fullmatch(r"(\w+ )?(\w+)(\[.*\])?", feature).groups()  # type: ignore[union-attr]
    declared = {"dtype": dtype, "shape": json.loads(shape or "[]"), "kind": (kind or "dense ").strip()}
    found = cells(declared, values)
    assert found == json.dumps(values, ensure_ascii=False, separators=(",", ":"))[1:-1]


@pytest.mark.parametrize(
    ("feature", "values", "options", "expected"),
    [
        ({"dtype": "int64"}, [1, None, -(2**63)], {"int64": "string"}, '"1",null,"-9223372036854775808"'),
        ({"dtype": "uint64", "shape": [2]}, [[1, 2**64 - 1]], {"int64": "string"},
         '["1","18446744073709551615"]'),
        ({"dtype": "int32"}, [1], {"int64": "string"}, "1"),
        ({"dtype": "float16"}, [1, "NaN", "-Infinity"], {}, '1.0,"NaN","-Infinity"'),
        ({"dtype": "float16", "shape": [2]}, [[1, "NaN"]], {"nonfinite": "null"}, "[1.0,null]"),
        ({"dtype": "float32"}, [0.1, 1e20], {}, "0.1,1e+20"),
        ({"dtype": "float64"}, [0.1, 1 / 3, 5e-324], {}, "0.1,0.3333333333333333,5e-324"),
        ({"dtype": "text"}, ['"é\n\0'], {}, '"\\"é\\n\\u0000"'),
        ({"dtype": "bytes"}, ["a"], {}, '{"b64":"YQ=="}'),
        ({"dtype": "bytes"}, ["a", ""], {"text": "utf8"}, '"a",""'),
        ({"dtype": "bytes"}, [{"b64": "/+++"}], {"b64": "websafe"}, '{"b64":"_---"}'),
        ({"dtype": "text"}, ["a"], {"text": "b64"}, '"a"'),
        ({"dtype": "int64", "shape": [None, None], "kind": "ragged"}, [[[1]]], {"int64": "string"},
         '[["1"]]'),
        # Places are never strings.
        ({"dtype": "int64", "shape": [9], "kind": "sparse"}, [{"values": [1], "indices": [8]}],
         {"int64": "string"}, '{"values":["1"],"indices":[[8]],"dense_shape":[9]}'),
        ({"dtype": "float32", "shape": [None], "kind": "sequence"}, [["NaN"]], {"nonfinite": "null"},
         "[null]"),
        ({"dtype": "int4", "shape": [2]}, [[-8, 7]], {}, "[-8,7]"),
        ({"dtype": "qint32"}, [-1], {}, "-1"),
        ({"dtype": "float8_e4m3fn"}, [0.5, "NaN"], {}, '0.5,"NaN"'),
    ],
)  # fmt: skip
def test_spellings(
    feature: dict[str, Any], values: list[Any], options: dict[str, Any], expected: str
) -> None:
    assert cells(feature, values, **options) == expected


@pytest.mark.parametrize(
    ("body", "schema", "expected"),
    [
        ([{"a": 1, "b": "x"}, {"b": "y"}], None,
         ('[{"a":1,"b":"x"},\n{"a":null,"b":"y"}]', '{"a":[1,null],"b":["x","y"]}',
          '{"a":1,"b":"x"}\n{"a":null,"b":"y"}\n')),
        ([], None, ("[]", "{}", "")),
        ([], schema_of(a="int8"), ("[]", '{"a":[]}', "")),
        ([{"inputs": 1}], None, ('[{"inputs":1}]', '{"columns":{"inputs":[1]}}', '{"inputs":1}\n')),
        ([{}, {"a": None}], schema_of(a={"dtype": "int8", "nullable": True}),
         ('[{"a":null},\n{"a":null}]', '{"a":[null,null]}', '{"a":null}\n{"a":null}\n')),
        ([{'b"': 1, "a": "\N{GRINNING FACE}"}], None,
         ('[{"b\\"":1,"a":"\N{GRINNING FACE}"}]', '{"b\\"":[1],"a":["\N{GRINNING FACE}"]}',
          '{"b\\"":1,"a":"\N{GRINNING FACE}"}\n')),
        # Rows of SequenceExamples; their columns go by flat names.
        ([{"context": {"n": 1}, "feature_lists": {"x": [[1, 2]]}}],
         schema_of(n="int8", x={"dtype": "int8", "shape": [None, 2], "kind": "sequence"}),
         ('[{"context":{"n":1},"feature_lists":{"x":[[1,2]]}}]', '{"n":[1],"x":[[[1,2]]]}',
          '{"context":{"n":1},"feature_lists":{"x":[[1,2]]}}\n')),
        # No name is reserved where the schema declares it.
        ([{"context": [1], "feature_lists": "a"}],
         schema_of(context={"dtype": "int8", "shape": [1]}, feature_lists="text"),
         ('[{"context":[1],"feature_lists":"a"}]', '{"context":[[1]],"feature_lists":["a"]}',
          '{"context":[1],"feature_lists":"a"}\n')),
    ],
)  # fmt: skip
def test_layouts(body: Any, schema: Schema | None, expected: tuple[str, str, str]) -> None:
    assert texts(body, schema) == expected


def test_rows_without_any_feature_are_rows_but_no_columns() -> None:
    assert write("json", records([{}, {}])) == b"[{},\n{}]"
    assert write("ndjson", records([{}, {}])) == b"{}\n{}\n"
    for form in (FORMS[1][0], FORMS[3][0]):
        assert write(form, records([{}, {}]), layout="columns") == Refusal("not_expressible")


def test_lines_of_columns_are_one_for_each_batch() -> None:
    text = write("ndjson", records({"a": list(range(9000))}), layout="columns")
    assert isinstance(text, bytes)
    lines = [json.loads(line)["a"] for line in text.splitlines()]
    assert [number for line in lines for number in line] == list(range(9000))
    assert list(map(len, lines)) == [batch.num_rows for batch in records({"a": list(range(9000))}).batches]


@pytest.mark.parametrize(
    ("feature", "good", "bad"),
    [
        ({"dtype": "float32"}, 0.5, "NaN"),
        ({"dtype": "float32", "shape": [2]}, [1, 2], [1, "NaN"]),
        ({"dtype": "complex64", "shape": [1]}, [[1, 2]], [[1, "NaN"]]),
        ({"dtype": "float32", "shape": [None]}, [], ["NaN"]),
        ({"dtype": "float32", "shape": [None, None]}, [[1, 2]], [[1], ["NaN"]]),
        ({"dtype": "float32", "shape": [None, None, 2], "kind": "ragged"}, [[], [[1, 2]]],
         [[], [[1, 2], [3, "NaN"]]]),
        ({"dtype": "float32", "shape": [3], "kind": "sparse"}, {"values": [1], "indices": [0]},
         {"values": [1, "NaN"], "indices": [0, 1]}),
        ({"dtype": "float32", "shape": [None, 2], "kind": "sequence"}, [[1, 2]], [[1, 2], [3, "NaN"]]),
        ({"dtype": "float32", "shape": [None, None], "kind": "sequence"}, [[], [1]], [[1], [], ["NaN"]]),
        ({"dtype": "bytes"}, "a", {"b64": "/w"}),
        ({"dtype": "bytes", "shape": [None]}, ["a", "b"], ["a", {"b64": "/w"}]),
    ],
)  # fmt: skip
def test_a_value_without_text_names_its_row(feature: dict[str, Any], good: Any, bad: Any) -> None:
    schema = schema_of(x={"nullable": True, **feature}, y="int64")
    code = "invalid_utf8" if feature["dtype"] == "bytes" else "nonfinite_value"
    for before in (2, 9000):
        values = [good, None] * (before // 2) + [good, bad, None, bad]
        body = {"columns": {"x": values, "y": [0] * len(values)}}
        for form, layout in FORMS:
            found = write(form, records(body, schema=schema), layout=layout, nonfinite="error", text="utf8")
            assert found == Refusal(code, row=before + 1, feature="x")


def test_no_shape_amplifies() -> None:
    schema = schema_of(x={"dtype": "int8", "shape": [None, None, 0], "encoding": "tensor"})
    found = write("json", records({"columns": {"x": [[[[]] * 1000] * 66]}}, schema=schema))
    assert isinstance(found, Refusal)
    assert found.code == "shape_too_large"


def test_columns_are_charged_and_rows_are_not() -> None:
    limits = Limits(max_decoded_bytes=50_000)
    body = {"a": [1.5] * 20_000}
    assert write("json", records(body), layout="columns", limits=limits) == Refusal("payload_too_large")
    for form, layout in [FORMS[0], *FORMS[2:]]:
        assert isinstance(write(form, records(body), layout=layout, limits=limits), bytes)


@pytest.mark.parametrize("form", ["json", "ndjson"])
def test_rows_leave_batch_by_batch_in_small_pieces(form: Any) -> None:
    drawn = 0

    def batches(source: Any) -> Any:
        nonlocal drawn
        for batch in source.batches:
            drawn += 1
            yield batch

    source = records({"a": list(range(30_000)), "b": ["x" * 50] * 30_000})
    encode = RECORDS_CODECS[form].encode
    assert encode is not None
    pieces = encode(replace(source, batches=batches(source)), RecordsEncodeOptions(), Budget())
    first = next(pieces)
    assert drawn == 1
    rest = list(pieces)
    assert max(map(len, [first, *rest])) <= PIECE_BYTES
    text = b"".join([first, *rest])
    rows = json.loads(text) if form == "json" else list(map(json.loads, text.splitlines()))
    assert [row["a"] for row in rows] == list(range(30_000))


@pytest.mark.parametrize(
    ("feature", "value"),
    [
        ({"dtype": "int64", "shape": [45_000]}, list(range(45_000))),
        ({"dtype": "int64", "shape": [None, 3]}, [[7, 8, 9]] * 15_000),
        ({"dtype": "int64", "shape": [None, None], "kind": "ragged"}, [[1] * 22_000, [], [2] * 22_000]),
        ({"dtype": "int64", "shape": [9], "kind": "sparse"},
         {"values": [3] * 22_000, "indices": [[8]] * 22_000, "dense_shape": [9]}),
        ({"dtype": "int64", "shape": [None, 3], "kind": "sequence"}, [[1, 2, 3]] * 15_000),
        ({"dtype": "text"}, "é" * 200_000),
    ],
)  # fmt: skip
def test_rows_of_large_values_are_written_a_few_at_a_time(feature: dict[str, Any], value: Any) -> None:
    empty = {"values": [], "indices": [], "dense_shape": [9]} if feature.get("kind") == "sparse" else None
    values = [value, empty, value, value, empty, value]
    text = cells(feature, values, int64="number")
    assert text == ",".join(json.dumps(item, ensure_ascii=False, separators=(",", ":")) for item in values)


def test_thousands_of_features_that_no_row_has_take_no_time_for_each_row() -> None:
    names = [f"f{index}" for index in range(3000)]
    schema = schema_of(**{name: {"dtype": "int8", "nullable": True} for name in names})
    text = write("ndjson", records([{"f7": 1}, {}] * 50, schema=schema))
    assert isinstance(text, bytes)
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines == [{**dict.fromkeys(names), "f7": value} for value in (1, None)] * 50


@settings(deadline=None, max_examples=60)
@given(
    case=schemas().flatmap(lambda schema: st.tuples(st.just(schema), rows_of(schema))),
    nonfinite=st.sampled_from(["string", "null"]),
    int64=st.sampled_from(["number", "string"]),
    b64=st.sampled_from(["standard", "websafe"]),
)
def test_any_rows_are_what_python_would_write(
    case: tuple[Schema, list[dict[str, Any]]], nonfinite: Any, int64: Any, b64: Any
) -> None:
    schema, rows = case
    options = {"nonfinite": nonfinite, "int64": int64, "b64": b64}
    body = {"columns": {name: [row[name] for row in rows] for name in schema.names}}
    found, columns, lines = texts(body, schema, **options)
    respelled = [_respelled(line) for line in lines.split("\n")[:-1]]
    assert respelled == lines.split("\n")[:-1]
    assert found == "[" + ",\n".join(respelled) + "]"
    values = json.loads(columns)
    values = values.get("columns", values)
    flat = [json.loads(line) for line in lines.split("\n")[:-1]]
    if schema.message == "sequence_example":
        flat = [{**row["context"], **row["feature_lists"]} for row in flat]
    assert {name: [row[name] for row in flat] for name in schema.names} == values
    if nonfinite == "string":
        sent = read("json", json.dumps(body).encode(), schema=schema)
        assert isinstance(sent, Rows)
        assert_rows(read("json", found.encode(), schema=schema), sent.rows)
        assert_rows(read("ndjson", lines.encode(), pieces=(None, 7), schema=schema), sent.rows)
    if options == {"nonfinite": "string", "int64": "number", "b64": "standard"}:
        assert json.dumps(values) == json.dumps(body["columns"])


def _respelled(text: str) -> str:
    """As Python writes what it reads there, each float in the digits that it has."""
    value = json.loads(text, parse_float=lambda digits: f"<{digits}>", parse_constant=pytest.fail)
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return re.sub('"<([-+.0-9e]*)>"', r"\1", written)


def test_float32_of_any_bits_reads_back() -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 5000, np.uint32)
    values = np.concatenate([np.array([0x15AE43FD, 0x95AE43FD], np.uint32), bits]).view(np.float32)
    values = values[np.isfinite(values)]
    text = cells({"dtype": "float32"}, values.astype(float).tolist())
    found = np.array(json.loads(f"[{text}]"), np.float64).astype(np.float32)
    assert (found.view(np.uint32) == values.view(np.uint32)).all()
