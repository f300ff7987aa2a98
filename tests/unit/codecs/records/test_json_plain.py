from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.arrow.batches import arrow_schema
from app.codecs.json import ndjson, row_texts
from app.codecs.json.ndjson_lines import LineReader
from app.codecs.json.numbers import NotPlain
from app.codecs.json.plain import PlainRows, plain_rows
from app.codecs.options import RecordsDecodeOptions
from app.codecs.records.lease import Lease
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.errors import InputError
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from tests.arrow_rows import as_arrow


def schema_of(**features: Any) -> Schema:
    return Schema.from_json({"features": features})


def reader_of(schema: Schema, *, declared: bool = True) -> PlainRows:
    reader = plain_rows(schema, declared=declared)
    assert reader is not None
    return reader


def read(
    text: bytes, schema: Schema, *, declared: bool = True, limits: Limits | None = None
) -> pa.RecordBatch:
    budget = Budget(limits)
    [lines] = LineReader(MemoryStream(text), budget, 8192)
    with Lease(budget) as lease:
        return reader_of(schema, declared=declared).read(lines, lease)


def rows_of(text: bytes, **features: Any) -> list[Any] | None:
    """The rows, or None where they are left to the general path."""
    try:
        batch = read(text, schema_of(**features))
    except NotPlain:
        return None
    batch.validate(full=True)
    rows: list[Any] = batch.to_pylist()
    return rows


FLOATS = {"dtype": "float32", "shape": [2]}
MANY = {"dtype": "int64", "shape": [None], "nullable": True}


@pytest.mark.parametrize(
    ("line", "feature", "value"),
    [
        (b'{"a":1}', {"dtype": "int8"}, 1),
        (b'{"a":-128}', {"dtype": "int8"}, -128),
        (b'{"a":-0}', {"dtype": "uint8"}, 0),
        (b'{"a":18446744073709551615}', {"dtype": "uint64", "encoding": "tensor"}, 2**64 - 1),
        (b'{"a":-9223372036854775808}', {"dtype": "int64"}, -(2**63)),
        (b' { "a" : 1.5 } ', {"dtype": "float32"}, 1.5),
        (b'{"a":16777216}', {"dtype": "float32"}, 16777216.0),
        (b'{"a":0.1}', {"dtype": "float64", "encoding": "tensor"}, 0.1),
        (b'{"a":true}\r', {"dtype": "bool"}, 1),
        (b'{"a":false}', {"dtype": "bool"}, 0),
        (b'{"a":[1,2.5]}', FLOATS, [1.0, 2.5]),
        (b'{"a":[ [1,2] , [3,4] ]}', {"dtype": "int32", "shape": [2, 2]}, [1, 2, 3, 4]),
        (b'{"a":[true,false]}', {"dtype": "bool", "shape": [2]}, [1, 0]),
        (b'{"a":[]}', MANY, []),
        (b'{"a":[1,2,3]}', MANY, [1, 2, 3]),
        (b'{"a":null}', MANY, None),
        (b"{}", MANY, None),
        (b'{"a":[[1,2],[3,4],[5,6]]}', {"dtype": "int64", "shape": [None, 2]}, [1, 2, 3, 4, 5, 6]),
        (b'{"a":[]}', {"dtype": "int64", "shape": [None, 2]}, []),
        (b'{"a":null}', {"dtype": "float32", "nullable": True}, None),
        (b'{"a":null}', {**FLOATS, "nullable": True}, None),
        (b'{"a":""}', {"dtype": "text"}, b""),
        ('{"a":"é\N{GRINNING FACE}xyz"}'.encode(), {"dtype": "text"}, "é\N{GRINNING FACE}xyz".encode()),
        (b'{"a":"\\n\\"\\\\\\/\\b\\f\\r\\t"}', {"dtype": "text"}, b'\n"\\/\b\f\r\t'),
        (b'{"a":"\\u0041\\u00e9\\u20AC"}', {"dtype": "text"}, "Aé€".encode()),
        (b'{"a":"\\ud83d\\ude00\\u0000"}', {"dtype": "text"}, "\N{GRINNING FACE}\0".encode()),
        (b'{"a":"x"}', {"dtype": "bytes"}, b"x"),
        (b'{"a":null}', {"dtype": "text", "nullable": True}, None),
    ],
)  # fmt: skip
def test_plain_rows_are_read(line: bytes, feature: Any, value: Any) -> None:
    assert rows_of(line, a=feature) == [{"a": value}]
    assert rows_of(line + b"\n\n" + line + b"\n", a=feature) == [{"a": value}] * 2


@pytest.mark.parametrize(
    ("line", "feature"),
    [
        (b'{"a":128}', {"dtype": "int8"}),
        (b'{"a":-129}', {"dtype": "int8"}),
        (b'{"a":-1}', {"dtype": "uint8"}),
        (b'{"a":1.0}', {"dtype": "int8"}),
        (b'{"a":"1"}', {"dtype": "int8"}),
        (b'{"a":true}', {"dtype": "int8"}),
        (b'{"a":null}', {"dtype": "int8"}),
        (b"{}", {"dtype": "int8"}),
        (b'{"a":1,"a":1}', {"dtype": "int8"}),
        (b'{"a":null,"a":null}', {"dtype": "int8", "nullable": True}),
        (b'{"a":1,"b":1}', {"dtype": "int8"}),
        (b'{"a":1,"b":null}', {"dtype": "int8"}),
        (b'{"\\u0061":1}', {"dtype": "int8"}),
        (b'{"a":1,}', {"dtype": "int8"}),
        (b'{"a":1', {"dtype": "int8"}),
        (b'{"a" 1}', {"dtype": "int8"}),
        (b'{a:1}', {"dtype": "int8"}),
        (b'{"a":1}}', {"dtype": "int8"}),
        (b'{"a":1} {"a":1}', {"dtype": "int8"}),
        (b'{"a":\n1}', {"dtype": "int8"}),
        (b'{"a":1\n}', {"dtype": "int8"}),
        (b"[1]", {"dtype": "int8"}),
        (b'{"a":01}', {"dtype": "int8"}),
        (b'{"a":[1]}', {"dtype": "int8"}),
        (b'{"a":tru}', {"dtype": "bool"}),
        (b'{"a":1}', {"dtype": "bool"}),
        (b'{"a":nul}', MANY),
        (b'{"a":16777217}', {"dtype": "float32"}),
        (b'{"a":1e39}', {"dtype": "float32"}),
        (b'{"a":1e400}', {"dtype": "float64", "encoding": "tensor"}),
        (b'{"a":"NaN"}', {"dtype": "float32"}),
        (b'{"a":NaN}', {"dtype": "float32"}),
        (b'{"a":[1]}', FLOATS),
        (b'{"a":[1,2,3]}', FLOATS),
        (b'{"a":[[1,2]]}', FLOATS),
        (b'{"a":[1,null]}', FLOATS),
        (b'{"a":[1,]}', MANY),
        (b'{"a":[,1]}', MANY),
        (b'{"a":[[]]}', MANY),
        (b'{"a":1}', MANY),
        (b'{"a":[[1,2],[3]]}', {"dtype": "int64", "shape": [None, 2]}),
        (b'{"a":[[]]}', {"dtype": "int64", "shape": [None, 2]}),
        (b'{"a":[1,2]}', {"dtype": "int64", "shape": [None, 2]}),
        (b'{"a":"\xff"}', {"dtype": "text"}),
        (b'{"a":"\xed\xa0\x80"}', {"dtype": "text"}),
        (b'{"a":"\x00"}', {"dtype": "text"}),
        (b'{"a":"\n"}', {"dtype": "text"}),
        (b'{"a":"\\x"}', {"dtype": "text"}),
        (b'{"a":"\\u12"}', {"dtype": "text"}),
        (b'{"a":"\\u12g4"}', {"dtype": "text"}),
        (b'{"a":"\\ud800"}', {"dtype": "text"}),
        (b'{"a":"\\ud800\\u0041"}', {"dtype": "text"}),
        (b'{"a":"\\udc00\\ud800"}', {"dtype": "text"}),
        (b'{"a":"x', {"dtype": "text"}),
        (b'{"a":"x\\', {"dtype": "text"}),
        (b'{"a":{"b64":"AA=="}}', {"dtype": "bytes"}),
        (b'{"a":1}', {"dtype": "text"}),
    ],
)  # fmt: skip
def test_other_rows_are_left_to_the_general_path(line: bytes, feature: Any) -> None:
    assert rows_of(line, a=feature) is None


def test_a_text_that_is_cut_off_is_not_read() -> None:
    line = b'{"a":[[1,2.5e1],[3,-4]],"b":"x\\u00e9y","c":true}'
    features = {"a": {"dtype": "float32", "shape": [2, 2]}, "b": {"dtype": "text"}, "c": {"dtype": "bool"}}
    assert rows_of(line, **features) == [{"a": [1.0, 25.0, 3.0, -4.0], "b": "xéy".encode(), "c": 1}]
    for size in range(1, len(line)):
        assert rows_of(line[:size], **features) is None


@pytest.mark.parametrize(
    ("feature", "declared"),
    [
        ({"dtype": "text", "shape": [2]}, True),
        ({"dtype": "bytes"}, False),
        ({"dtype": "complex64", "encoding": "tensor"}, True),
        ({"dtype": "float32", "shape": [0]}, True),
        ({"dtype": "float32", "shape": [2, None]}, True),
        ({"dtype": "float32", "shape": [None, None], "encoding": "tensor"}, True),
        ({"dtype": "float32", "shape": [None, None], "kind": "ragged"}, True),
        ({"dtype": "float32", "shape": [4], "kind": "sparse"}, True),
        ({"dtype": "float32", "shape": [None], "kind": "sequence"}, True),
    ],
)
def test_other_features_are_left_to_the_general_path(feature: Any, declared: bool) -> None:
    assert plain_rows(schema_of(a=feature, b={"dtype": "int8"}), declared=declared) is None


def test_keys_that_json_escapes_are_left_to_the_general_path() -> None:
    for name in ('"', "\\", "\n"):
        assert plain_rows(schema_of(**{name: {"dtype": "int8"}}), declared=True) is None
    assert plain_rows(Schema(()), declared=True) is None


def test_keys_come_in_any_order() -> None:
    features = {name: {"dtype": "int64"} for name in ("b", "a", "ab", "é")}
    lines = [
        {"b": 1, "a": 2, "ab": 3, "é": 4},
        {"é": 2, "ab": 3, "a": 4, "b": 5},
        {"é": 1, "a": 2, "b": 4, "ab": 5},
    ]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines).encode()
    assert rows_of(text, **features) == lines


def test_the_layouts_are_those_of_columns() -> None:
    schema = schema_of(
        a={"dtype": "bfloat16", "shape": [2]},
        b={"dtype": "text", "nullable": True},
        c={"dtype": "bool"},
        d={"dtype": "float16", "shape": [None]},
        e={"dtype": "uint64", "shape": [2, 1], "encoding": "raw", "nullable": True},
    )
    text = b'{"a":[1,2],"b":"x","c":true,"d":[],"e":[[1],[2]]}\n{"a":[3,4],"c":false,"d":[1]}'
    batch = read(text, schema)
    batch.validate(full=True)
    assert batch.schema == arrow_schema(schema)
    assert batch.column(4).null_count == 1


def test_what_a_batch_takes_is_charged_before() -> None:
    with pytest.raises(InputError):
        read(
            b'{"a":"' + b"x" * 1000 + b'"}',
            schema_of(a={"dtype": "text"}),
            limits=Limits(max_decoded_bytes=2000),
        )
    with pytest.raises(NotPlain):
        # What rows without their wide feature would take is no more than what is held at a time.
        read(b"{}\n" * 5000, schema_of(a={"dtype": "float32", "shape": [1000], "nullable": True}))


# The property: with the fast path and without it, the same batches or the same error.


def outcome(
    text: bytes, schema: Schema | None, nonfinite: Any, *, fast: bool, chunk: int | None = None
) -> Any:
    options = RecordsDecodeOptions(schema=schema, nonfinite=nonfinite)
    budget = Budget(Limits(max_record_bytes=400))
    with pytest.MonkeyPatch.context() as patch:
        if not fast:
            patch.setattr(row_texts, "plain_rows", lambda *_, **__: None)
        batches: list[pa.RecordBatch] = []
        try:
            records = ndjson.decode(MemoryStream(text, chunk=chunk), options, budget)
            batches.extend(as_arrow(records))
        except InputError as error:
            return described(batches), type(error), error.code, error.detail, error.location
    for batch in batches:
        batch.validate(full=True)
    assert budget.remaining == budget.limits.max_decoded_bytes
    return records.schema, described(batches)


def described(batches: list[pa.RecordBatch]) -> list[tuple[pa.Schema, str]]:
    """As text, in which one NaN is like another."""
    return [(batch.schema, str(batch.to_pylist())) for batch in batches]


VALUES = st.one_of(
    st.integers(-300, 300),
    st.sampled_from([-0.0, 0.5, 1e39, 2**24 + 1, 2**63, -(2**63), "NaN", 1.0, {"b64": "AA=="}]),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.booleans(),
    st.none(),
    st.text(max_size=5),
)
PLAIN = st.fixed_dictionaries(
    {
        "x": st.lists(st.floats(-1e6, 1e6) | st.integers(-99, 99), min_size=2, max_size=2),
        "n": st.integers(-(2**63), 2**63 - 1),
        "t": st.text(max_size=8),
        "b": st.booleans(),
    },
    optional={"v": st.lists(st.integers(0, 9), max_size=3) | st.none()},
)
SCHEMA = schema_of(
    x={"dtype": "float32", "shape": [2]},
    n={"dtype": "int64"},
    t={"dtype": "text"},
    b={"dtype": "bool"},
    v={"dtype": "int32", "shape": [None], "nullable": True},
)
LINES = st.one_of(
    PLAIN,
    PLAIN,
    PLAIN,
    st.tuples(PLAIN, st.sampled_from("xntbvz"), VALUES | st.lists(VALUES, max_size=3)).map(
        lambda changed: {**changed[0], changed[1]: changed[2]}
    ),
)
SEPARATORS = st.sampled_from([b"\n", b"\n", b"\r\n", b"\n \n", b"\n\n"])


def joined(rows: list[Any], separators: list[bytes], *, escaped: bool) -> bytes:
    text = b""
    for index, row in enumerate(rows):
        text += json.dumps(row, ensure_ascii=escaped).encode(errors="replace")
        text += separators[index % len(separators)]
    return text


@given(
    st.lists(LINES, max_size=6),
    st.lists(SEPARATORS, min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from([SCHEMA, SCHEMA, None]),
    st.sampled_from(["error", "null", "bare"]),
    st.sampled_from([None, 7]),
)
@settings(deadline=None, max_examples=300)
def test_results_and_errors_are_those_of_the_general_path(
    rows: list[Any],
    separators: list[bytes],
    escaped: bool,
    schema: Schema | None,
    nonfinite: str,
    chunk: int | None,
) -> None:
    text = joined(rows, separators, escaped=escaped)
    expected = outcome(text, schema, nonfinite, fast=False)
    assert outcome(text, schema, nonfinite, fast=True, chunk=chunk) == expected


@given(
    st.lists(PLAIN, min_size=1, max_size=4),
    st.lists(
        st.tuples(
            st.integers(0, 400), st.binary(max_size=2) | st.sampled_from(b'0123456789.e-+,[]{}": \n\\u')
        )
    ),
)
@settings(deadline=None, max_examples=400)
def test_mutated_bytes_have_the_outcome_of_the_general_path(
    rows: list[Any], changes: list[tuple[int, bytes | int]]
) -> None:
    text = bytearray(joined(rows, [b"\n"], escaped=False))
    for position, change in changes:
        at = position % (len(text) + 1)
        text[at : at + 1] = bytes([change]) if isinstance(change, int) else change
    expected = outcome(bytes(text), SCHEMA, "error", fast=False)
    assert outcome(bytes(text), SCHEMA, "error", fast=True) == expected


@pytest.mark.parametrize("bad", [None, 0, 999, 1000, 1001, 9191, 9192, 9193, 17_383, 19_999])
def test_plain_blocks_and_others_follow_one_another(bad: int | None) -> None:
    lines = [b'{"a":%d}' % (index % 100) for index in range(20_000)]
    if bad is not None:
        lines[bad] = b'{"a":1e1}'
    text = b"\n".join(lines)
    schema = schema_of(a={"dtype": "int32"})
    for given_schema in (schema, None):
        expected = outcome(text, given_schema, "error", fast=False)
        assert outcome(text, given_schema, "error", fast=True) == expected


def test_plain_rows_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_texts, "parse_json", None)
    options = RecordsDecodeOptions(schema=SCHEMA)
    text = b'{"x":[1,2],"n":3,"t":"a","b":true}\n' * 10
    records = ndjson.decode(MemoryStream(text), options, Budget())
    assert sum(batch.num_rows for batch in as_arrow(records)) == 10
