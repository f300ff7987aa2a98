from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.columns import MAX_BATCH_ROWS, Records
from app.codecs.json.ndjson import decode
from app.codecs.json.write_rows import encode_lines as encode
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.limits import MIB, Limits
from app.domain.schema import Schema
from app.errors import AmbiguousInput, InputError, LimitExceeded, MalformedInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from tests.arrow_rows import as_arrow

INT8 = Schema.from_json({"features": {"a": {"dtype": "int8"}}})


def read(text: bytes, chunk: int | None = None, limits: Limits | None = None, **options: Any) -> Records:
    return decode(MemoryStream(text, chunk=chunk), RecordsDecodeOptions(**options), Budget(limits))


def rows_of(text: bytes, chunk: int | None = None, **options: Any) -> list[dict[str, Any]]:
    return [row for batch in as_arrow(read(text, chunk, **options)) for row in batch.to_pylist()]


def refused(
    text: bytes, chunk: int | None = None, limits: Limits | None = None, **options: Any
) -> InputError:
    with pytest.raises(InputError) as caught:
        list(read(text, chunk, limits, **options).batches)
    return caught.value


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (b"", []),
        (b"\n \t\r\n\n", []),
        (b'{"a":1}', [{"a": 1}]),
        (b'{"a":1}\n{"a":2}\n', [{"a": 1}, {"a": 2}]),
        (b'{"a":1}\r\n\r\n {"a":2} \r\n', [{"a": 1}, {"a": 2}]),
        (b'{}\n{"a":1}\n{"a":null}', [{"a": None}, {"a": 1}, {"a": None}]),
        ('{"é":"\N{GRINNING FACE}"}'.encode(), [{"é": "\N{GRINNING FACE}".encode()}]),
        (b'{"instances":[1,2],"schema":"x"}', [{"instances": [1, 2], "schema": b"x"}]),
        (b'{"a":"\\n"}\n', [{"a": b"\n"}]),
    ],
)
def test_lines_are_rows_however_they_are_chunked(text: bytes, rows: list[Any]) -> None:
    for chunk in (None, *range(1, len(text) + 1)):
        assert rows_of(text, chunk) == rows


LINES = [b'{"a":1}', b'{"a":2,"b":"x"}', b"", b'{"a":1.5}', b"[1]", b'{"a":', b'{"b":[]}']


@settings(deadline=None, max_examples=100)
@given(
    lines=st.lists(
        st.sampled_from([b'{"a":1}', b'{"a":2,"b":"x"}', b"", b'{"a":1.5}', b"[1]", b'{"a":', b'{"b":[]}'])
    ),
    ending=st.sampled_from([b"\n", b"\r\n"]),
    chunk=st.integers(1, 40),
)
def test_every_split_gives_the_same_rows_or_the_same_error(
    lines: list[bytes], ending: bytes, chunk: int
) -> None:
    def outcome(size: int | None) -> Any:
        try:
            return rows_of(ending.join(lines), size)
        except InputError as error:
            return error.code, error.location, error.detail

    assert outcome(chunk) == outcome(None)


@pytest.mark.parametrize(
    ("line", "code", "inside"),
    [
        (b'{"a":1,}', "invalid_json", 7),
        (b'{"a":1} {"a":2}', "invalid_json", 8),
        (b'{"a":NaN}', "nonfinite_token", 5),
        (b'{"a":1,"a":2}', "duplicate_key", 7),
        (b'{"a":"\xff"}', "invalid_utf8", 6),
        (b'{"a":"\\ud800"}', "lone_surrogate", 6),
        (b'{"a":"\x00"}', "invalid_json", 6),
        (b"\xef\xbb\xbf{}", "byte_order_mark", 0),  # not in front of all
        (b'{"a":' + b"1" * 5000 + b"}", "integer_too_large", 5),
        (b'{"a":' + b"[" * 100_000, "json_too_deep", 516),
        (b"[1]", "ambiguous_json", 0),
        (b"5", "ambiguous_json", 0),
    ],
)
def test_a_faulty_line_is_named_by_row_and_offset(line: bytes, code: str, inside: int) -> None:
    before = b'{"a":1}\n\n{"a":2}\r\n'
    for chunk in (None, 3):
        error = refused(before + line + b'\n{"a":3}\n', chunk)
        location = error.location
        assert (error.code, location.row, location.offset) == (code, 2, len(before) + inside)


def test_what_is_no_object_is_ambiguous() -> None:
    error = refused(b"[1]")
    assert isinstance(error, AmbiguousInput)
    assert "one JSON object" in error.detail


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"a":1e400}', "inexact_integer"),
        (b'{"a":300}', "out_of_range"),
        (b'{"a":true}', "schema_conflict"),
        (b'{"a":[1]}', "schema_conflict"),
        (b'{"b":1}', "schema_conflict"),
        (b"{}", "schema_conflict"),
        (b'{"a":1.5}', "inexact_integer"),
    ],
)
def test_a_row_that_does_not_fit_is_named(line: bytes, code: str) -> None:
    error = refused(b'{"a":1}\n' + line, schema=INT8)
    assert (error.code, error.location.row) == (code, 1)


@pytest.mark.parametrize("chunk", [None, 1000, 7])
def test_exactly_a_thousand_rows_decide(chunk: int | None) -> None:
    head = b'{"a":1}\n' * 999
    assert read(head + b'{"a":1.5}\n{"a":2}\n', chunk).schema.features[0].dtype.name == "float64"
    error = refused(head + b'{"a":2}\n{"a":1.5}\n', chunk)
    assert (error.code, error.location.row, error.location.feature) == ("schema_conflict", 1000, "a")


def test_all_rows_decide_when_asked_for() -> None:
    found = read(b'{"a":1}\n' * 20_000 + b'{"b":[1.5]}\n', infer="all")
    assert [(f.name, f.dtype.name, f.nullable) for f in found.schema] == [
        ("a", "int64", True),
        ("b", "float64", True),
    ]
    assert sum(batch.num_rows for batch in as_arrow(found)) == 20_001


@pytest.mark.parametrize("chunk", [None, 10])
@pytest.mark.parametrize("ending", [b"", b"\n", b"x" * 50])
def test_a_line_that_is_too_long_is_refused(chunk: int | None, ending: bytes) -> None:
    limits = Limits(max_record_bytes=40)
    text = b'{"a":1}\n' + b" " * 20 + b'{"a":' + b"1" * 20 + ending
    error = refused(text, chunk, limits)
    assert isinstance(error, LimitExceeded)
    assert (error.code, error.location.row, error.location.offset) == ("record_too_large", 1, 8)


def test_an_endless_line_is_not_read_to_its_end() -> None:
    class Endless:
        taken = 0

        def read(self, n: int, /) -> bytes:
            self.taken += n
            return b"1" * n

    source = Endless()
    with pytest.raises(LimitExceeded):
        decode(source, RecordsDecodeOptions(), Budget(Limits(max_record_bytes=5 * MIB)))
    assert source.taken <= 7 * MIB


def test_rows_stream_with_a_declared_schema() -> None:
    class Counted(MemoryStream):
        taken = 0

        def read(self, n: int, /) -> bytes:
            piece = super().read(n)
            self.taken += len(piece)
            return piece

    source = Counted(b'{"a":1}\n' * 1_000_000)
    budget = Budget()
    records = decode(source, RecordsDecodeOptions(schema=INT8), budget)
    assert source.taken == 0
    assert next(as_arrow(records)).num_rows == MAX_BATCH_ROWS
    assert source.taken == MIB
    for batch in as_arrow(records):
        assert batch.num_rows <= MAX_BATCH_ROWS
        if source.taken > 5 * MIB:
            break
    assert budget.peak < 10 * MIB


def test_a_batch_of_large_rows_ends_early() -> None:
    line = b'{"a":"' + b"x" * MIB + b'"}\n'
    records = read(line * 10, schema=Schema.from_json({"features": {"a": {"dtype": "text"}}}))
    assert [batch.num_rows for batch in as_arrow(records)] == [4, 4, 2]


def test_nothing_stays_charged() -> None:
    budget = Budget()
    text = b'{"a":1}\n\n' * 3000
    records = decode(MemoryStream(text), RecordsDecodeOptions(), budget)
    assert sum(batch.num_rows for batch in as_arrow(records)) == 3000
    assert budget.remaining == Limits().max_decoded_bytes
    assert budget.peak > len(text)


@pytest.mark.parametrize("blank", [b"\n", b" \n", b" \t\r\n"])
def test_blank_lines_are_let_go_of_before_any_row(blank: bytes) -> None:
    budget = Budget(Limits(max_decoded_bytes=8 * MIB))
    text = blank * (12 * MIB // len(blank)) + b'{"a":1}'
    records = decode(MemoryStream(text), RecordsDecodeOptions(), budget)
    assert sum(batch.num_rows for batch in as_arrow(records)) == 1
    assert budget.remaining == 8 * MIB


def test_a_blank_line_that_is_too_long_is_refused() -> None:
    limits = Limits(max_record_bytes=40)
    error = refused(b'{"a":1}\n' + b" " * 50 + b"\n", None, limits)
    assert (error.code, error.location.row) == ("record_too_large", 1)


def test_many_rows_over_the_budget_are_refused_only_where_they_are_held() -> None:
    text = b'{"a":1}\n' * 200_000
    limits = Limits(max_decoded_bytes=20 * MIB)
    assert sum(batch.num_rows for batch in read(text, limits=limits).batches) == 200_000
    with pytest.raises(LimitExceeded) as caught:
        read(text, limits=limits, infer="all")
    assert caught.value.code == "payload_too_large"


def test_bare_tokens_are_read_when_asked_for() -> None:
    [row] = rows_of(b'{"a":-Infinity}', nonfinite="bare")
    assert row == {"a": float("-inf")}


def test_a_negative_zero_keeps_its_sign_where_the_feature_is_a_float() -> None:
    text = b'{"b":[-0,1.5],"n":-0}\n{"b":[1,-0],"n":2}\n'
    found = read(text)
    assert [(feature.name, feature.dtype.name) for feature in found.schema] == [
        ("b", "float64"),
        ("n", "int64"),
    ]
    rows = [row for batch in as_arrow(found) for row in batch.to_pylist()]
    assert str(rows) == "[{'b': [-0.0, 1.5], 'n': 0}, {'b': [1.0, -0.0], 'n': 2}]"
    # Once inferred to be floats, an integer token further down keeps its sign as well.
    late = b'{"x":0.5}\n' * 1000 + b'{"x":-0}\n'
    assert str(rows_of(late)[-1]) == "{'x': -0.0}"


def test_lines_out() -> None:
    records = read(b'{"a":1,"b":"x"}\n{"b":"y"}')
    text = b"".join(encode(records, RecordsEncodeOptions(), Budget()))
    assert text == b'{"a":1,"b":"x"}\n{"a":null,"b":"y"}\n'
    assert b"".join(encode(read(b""), RecordsEncodeOptions(), Budget())) == b""


def test_lines_out_name_the_row_of_the_whole_input() -> None:
    records = read(b'{"a":0.5}\n' * 10_000 + b'{"a":NaN}\n', nonfinite="bare")
    with pytest.raises(InputError) as caught:
        list(encode(records, RecordsEncodeOptions(nonfinite="error"), Budget()))
    assert caught.value.location.row == 10_000


def test_malformed_lines_are_malformed_input() -> None:
    assert isinstance(refused(b"{"), MalformedInput)
    assert json.loads(b"".join(encode(read(b"{}"), RecordsEncodeOptions(), Budget()))) == {}


@pytest.mark.parametrize("chunk", [None, 1, 3, 4])
def test_a_byte_order_mark_in_front_is_passed_over(chunk: int | None) -> None:
    mark = b"\xef\xbb\xbf"
    assert rows_of(mark + b'{"a":1}\n{"a":2}\n', chunk) == [{"a": 1}, {"a": 2}]
    assert rows_of(mark, chunk) == rows_of(mark[:0], chunk) == []
    error = refused(mark + b'{"a":1}\n{"a":1,}\n', chunk)
    assert (error.location.row, error.location.offset) == (1, len(mark) + 15)
    assert refused(mark[:2] + b'{"a":1}', chunk).code == "invalid_utf8"
