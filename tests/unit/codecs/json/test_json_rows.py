"""Rows as JSON and NDJSON, through the form table."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, get_args

import numpy as np
import pytest

from app.codecs.columns import MAX_BATCH_ROWS
from app.codecs.forms import RECORDS_CODECS, FormName
from app.codecs.options import RecordsDecodeOptions
from app.domain.limits import KIB, MIB, Limits
from app.errors import AmbiguousInput, LimitExceeded, LossyConversion, MalformedInput, SchemaConflict
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from tests.support.format_cases import PIECES, Refusal, Rows, assert_rows, decode, read, rows_of, schema_of
from tests.support.peak_memory import peak_bytes
from tests.unit.codecs.cases.json_rows import CASES

TABLE = [
    pytest.param(form, features, options, body, outcome, id=f"{title}-{form}-{number}")
    for title, groups in CASES.items()
    for number, (form, features, options, cases) in enumerate(groups)
    for body, outcome in cases
]
INT8 = schema_of(a="int8")


def outcome_of(found: Rows | Refusal, *, declared: bool) -> Any:
    if isinstance(found, Refusal):
        return found.code, found.row, found.feature, found.offset
    assert found.left == 0
    rows = [list(row.values()) for row in found.rows]
    return rows if declared else (found.features, rows)


@pytest.mark.parametrize(("form", "features", "options", "body", "outcome"), TABLE)
def test_a_body_is_read_or_refused(
    form: FormName, features: dict[str, Any] | None, options: dict[str, Any], body: bytes, outcome: Any
) -> None:
    assert form in get_args(FormName)
    if features is not None:
        options = {**options, "schema": schema_of(**features)}
    found = read(form, body, pieces=PIECES, **options)
    # By `repr`, which tells 1 from 1.0, -0.0 from 0.0, and finds NaN equal to itself.
    assert repr(outcome_of(found, declared=features is not None)) == repr(outcome)


@pytest.mark.parametrize(
    ("body", "error", "hint"),
    [
        (b"[1]", AmbiguousInput, "one JSON object"),
        (b"{", MalformedInput, "Not JSON"),
        (b'{"a":1,"z":1}', SchemaConflict, "undeclared=drop"),
        (b'{"a":1.5}', LossyConversion, "declare a float dtype"),
        (b"{}", SchemaConflict, "declare the feature nullable"),
    ],
)
def test_an_error_says_what_to_do(body: bytes, error: type[Exception], hint: str) -> None:
    found = read("ndjson", body, schema=INT8)
    assert isinstance(found, Refusal)
    assert found.error is error
    assert hint in found.detail


def test_body_without_rows_names_the_accepted_bodies() -> None:
    found = read("json", b"5")
    assert isinstance(found, Refusal)
    assert found.error is AmbiguousInput
    assert '{"instances": [{...}, ...]}' in found.detail


def test_lines_in_one_json_text_are_named_as_ndjson() -> None:
    found = read("json", b'{"a":1}\n{"a":2}')
    assert isinstance(found, Refusal)
    assert "from=ndjson" in found.detail


# Which rows decide, and where the input is cut.


def lines(*parts: tuple[str, int]) -> bytes:
    return "".join(f"{line}\n" * count for line, count in parts).encode()


@pytest.mark.parametrize("form", ["ndjson", "json"])
@pytest.mark.parametrize(
    ("parts", "options", "outcome"),
    [
        ([('{"a":1}', 999), ('{"a":1.5}', 1), ('{"a":2}', 1)], {}, {"a": "float64"}),
        ([('{"a":1}', 1000), ('{"a":1.5}', 1)], {}, ("schema_conflict", 1000, "a")),
        ([('{"a":1}', 1000), ('{"a":1,"b":2}', 1)], {}, ("schema_conflict", 1000, "b")),
        ([('{"a":1}', 1000), ('{"a":1,"b":null}', 1)], {}, {"a": "int64"}),
        ([('{"a":1}', 1000), ("{}", 1)], {}, ("schema_conflict", 1000, "a")),
        ([('{"a":[1]}', 1000), ('{"a":[1,2]}', 1)], {}, ("schema_conflict", 1000, "a")),
        ([('{"a":[],"b":1}', 1000), ('{"a":[3],"b":1}', 1)], {}, ("schema_conflict", 1000, "a")),
        (
            [('{"a":[],"b":1}', 1000), ('{"a":["x"],"b":1}', 1)],
            {"infer": "all"},
            {"a": "text[null]", "b": "int64"},
        ),
        (
            [('{"b":1}', 1000), ('{"a":[],"b":1}', 1), ('{"a":[3],"b":1}', 1)],
            {},
            ("schema_conflict", 1001, "a"),
        ),
        ([('{"b":1}', 1000), ('{"a":[],"b":1}', 9)], {}, {"b": "int64"}),
        ([('{"a":[[],[]],"b":1}', 1001)], {}, {"b": "int64"}),
        ([('{"a":0.5}', 1000), ('{"a":-0}', 1)], {}, {"a": "float64"}),
        ([('{"a":1}', 20_000), ('{"b":[1.5]}', 1)], {"infer": "all"}, {"a": "int64?", "b": "float64[1]?"}),
        ([('{"a":1}', 9192), ('{"a":"x"}', 1), ('{"a":1}', 9000)], {}, ("schema_conflict", 9192, "a")),
        ([('{"a":1}', 9191), ('{"a":9223372036854775808}', 1)], {}, ("out_of_range", 9191, "a")),
    ],
)
def test_the_first_thousand_rows_decide(
    form: FormName, parts: list[tuple[str, int]], options: dict[str, Any], outcome: Any
) -> None:
    body = lines(*parts)
    if form == "json":
        body = b"[" + body.rstrip().replace(b"\n", b",\n") + b"]"
    found = read(form, body, pieces=(None, 1000), **options)
    if isinstance(found, Refusal):
        assert (found.code, found.row, found.feature) == outcome
    else:
        assert found.features == outcome
        assert len(found.rows) == sum(count for _, count in parts)
        assert (found.left, max(found.batches)) == (0, min(MAX_BATCH_ROWS, max(found.batches)))


@cache
def many_rows() -> list[str]:
    row = {"x": 1.5, "s": 'a[]{}"\\', "t": [[1, 2], [3]], "n": None, "id": 0}
    return [json.dumps({**row, "id": index}) for index in range(24_000)]


@pytest.mark.parametrize(
    ("wrapped", "faulty"),
    [
        *((False, faulty) for faulty in (None, 0, 999, 1000, 1001, 9191, 9192, 19_999, 23_999)),
        *((True, faulty) for faulty in (None, 9192)),
    ],
)
def test_rows_of_a_large_array_are_read_some_at_a_time(wrapped: bool, faulty: int | None) -> None:
    texts = [*many_rows()]
    if faulty is not None:
        texts[faulty] = '{"x": 1, "x": 2}'
    before = '{"signature_name": "s", "instances": [' if wrapped else " ["
    body = (before + " ,\n".join(texts) + ("] }" if wrapped else "]\n")).encode()
    found = read("json", body, infer="head")
    if faulty is None:
        assert isinstance(found, Rows)
        assert [row["id"] for row in found.rows] == list(range(24_000))
        assert found.rows[7] == {"x": 1.5, "s": b'a[]{}"\\', "t": [[1, 2], [3]], "id": 7}
        assert (found.dropped, found.left) == (("n",), 0)
        assert found.peak < 20 * MIB
        assert read("json", body[:-3]) == Refusal("invalid_json", offset=len(body) - 3)
    else:
        offset = len(before) + sum(len(text) + 3 for text in texts[:faulty]) + 9
        assert found == Refusal("duplicate_key", faulty, None, offset)


def test_a_row_that_is_longer_than_what_is_read_ahead() -> None:
    rows = ['{"a": 1}', '{"a": "[' + "x" * (3 * MIB) + '"}', '{"a": "}"}']
    found = read("json", f"[{','.join(rows[1:])}]".encode())
    assert isinstance(found, Rows)
    assert [len(row["a"]) for row in found.rows] == [3 * MIB + 1, 1]
    assert read("json", f"[{','.join(rows)}]".encode()) == Refusal("schema_conflict", 1, "a")


@pytest.mark.parametrize("end", ["", "]]", ", ", ", {]", '] "', ", 1]", "}"])
def test_a_large_array_that_does_not_end_well_is_refused_before_its_rows(end: str) -> None:
    body = ("[" + ", ".join(many_rows()) + end).encode()
    found = read("json", body)
    assert isinstance(found, Refusal)
    assert (found.code, found.row) == ("ambiguous_json" if end == ", 1]" else "invalid_json", None)


def test_schema_after_the_rows_of_a_large_body_is_used() -> None:
    rows = ",".join('{"a": 5, "pad": "' + "x" * 90 + '"}' for _ in range(20_000))
    schema = '{"features": {"a": {"dtype": "uint8"}, "pad": {"dtype": "bytes"}}}'
    found = read("json", f'{{"instances": [{rows}], "schema": {schema}}}'.encode())
    assert isinstance(found, Rows)
    assert (found.features, found.is_declared, len(found.rows)) == (
        {"a": "uint8", "pad": "bytes"}, True, 20_000,
    )  # fmt: skip


def test_a_schema_is_given_once() -> None:
    body = b'{"instances":[{"a":1}],"schema":{"features":{"a":{"dtype":"int8"}}}}'
    twice = read("json", body, schema=INT8)
    assert twice == Refusal("schema_twice")
    assert isinstance(twice, Refusal)
    assert twice.pointer == "/schema"
    assert_rows(read("json", body, schema=INT8, schema_of_dataset=True), [{"a": 1}])
    other = read("json", body, schema=schema_of(a="int16"), schema_of_dataset=True)
    assert other == Refusal("schema_conflict")
    two = b'{"instances":[{"a":1,"b":2}],"schema":{"features":{"a":{"dtype":"int8"},"b":{"dtype":"int8"}}}}'
    reordered = read("json", two, schema=schema_of(b="int8", a="int8"), schema_of_dataset=True)
    assert_rows(reordered, [{"b": 2, "a": 1}])


@pytest.mark.parametrize("known", [schema_of(a={"dtype": "float32", "shape": [None]}, b="text")])
def test_known_features_are_not_inferred(known: Any) -> None:
    found = read("ndjson", b'{"a":[1],"c":true}\n{"b":"x","c":false}', known=known)
    assert isinstance(found, Rows)
    assert found.features == {"a": "float32[null]?", "c": "bool", "b": "text?"}


def test_many_features_of_which_each_row_has_one() -> None:
    body = b"".join(b'{"f%d":%d}\n' % (row % 1500, row) for row in range(3000))
    found = read("ndjson", body, infer="all")
    assert isinstance(found, Rows)
    assert len(found.schema) == 1500
    assert all(row[f"f{index % 1500}"] == index for index, row in enumerate(found.rows))
    assert sum(value is not None for value in found.rows[1].values()) == 1


# Limits.


@pytest.mark.parametrize("ending", ["", "\n", "x" * 50])
@pytest.mark.parametrize("line", [" " * 20 + '{"a":' + "1" * 20, " " * 50])
def test_a_line_that_is_too_long_is_refused(line: str, ending: str) -> None:
    body = f'{{"a":1}}\n{line}{ending}'.encode()
    for chunk in (None, 10):
        found = read("ndjson", body, pieces=(chunk,), limits=Limits(max_record_bytes=40))
        assert isinstance(found, Refusal)
        assert (found.code, found.row) == ("record_too_large", 1)
        assert found.offset == 8 or not line.strip()


def test_a_fault_before_a_line_that_is_too_long_is_named_first() -> None:
    body = b'{"a":1}\n{"a":}\n{"a":' + b" " * 50 + b"1}"
    assert read("ndjson", body, limits=Limits(max_record_bytes=40)) == Refusal("invalid_json", 1, None, 13)


@pytest.mark.parametrize(
    ("form", "body", "options", "limits", "code"),
    [
        ("ndjson", b'{"a":1}\n' * 200_000, {"infer": "all"}, Limits(max_decoded_bytes=20 * MIB),
         "payload_too_large"),
        ("json", b'[{"a":' + b"[1,2]," * 9 + b"1]}]", {}, Limits(max_decoded_bytes=400), "payload_too_large"),
        ("ndjson", b'{"a":1,"b":2,"c":3}', {}, Limits(max_features=2), "too_many_features"),
        ("json", b'[{"a":[[[1]]]}]', {}, Limits(max_json_depth=4), "json_too_deep"),
        ("ndjson", b'{"a":[[[1]]]}', {}, Limits(max_json_depth=3), "json_too_deep"),
        ("ndjson", b'{"' + b"n" * 5000 + b'":1}', {}, Limits(), "invalid_feature_name"),
        ("json", b'{"inputs":[{"name":"a","datatype":"INT8","shape":[100000000,0,1],"data":[]}]}', {},
         Limits(), "payload_too_large"),
    ],
    ids=lambda value: None if isinstance(value, bytes | Limits) else str(value),
)  # fmt: skip
def test_bounds(form: FormName, body: bytes, options: dict[str, Any], limits: Limits, code: str) -> None:
    found = read(form, body, limits=limits, **options)
    assert isinstance(found, Refusal)
    assert found.code == code


def test_rows_stream_within_little_memory() -> None:
    class Counted(MemoryStream):
        taken = 0

        def read(self, n: int, /) -> bytes:
            piece = super().read(n)
            self.taken += len(piece)
            return piece

    source = Counted(b'{"a":1}\n' * 1_000_000)
    budget = Budget()
    codec: Any = RECORDS_CODECS["ndjson"]
    found = codec.decode(source, RecordsDecodeOptions(schema=INT8), budget)
    assert source.taken == 0
    assert next(found.batches).num_rows == MAX_BATCH_ROWS
    assert source.taken == 256 * KIB
    assert sum(batch.num_rows for batch in found.batches) == 1_000_000 - MAX_BATCH_ROWS
    assert budget.peak < 10 * MIB


@pytest.mark.parametrize(
    ("form", "body", "most"),
    [
        ("json", b"[" + b",".join([b'{"a":1}'] * 200_000) + b"]", 1500 * KIB),
        ("ndjson", b'{"a":"","b":[1,2,3]}\n' * 1000 + (b'{"a":"' + b"x" * 3000 + b'","b":[1,2,3]}\n') * 700,
         5 * MIB),
    ],
    ids=["where many rows lie is not kept", "long strings behind many numbers"],
)  # fmt: skip
def test_large_bodies_are_read_in_little_memory(form: FormName, body: bytes, most: int) -> None:
    budget = Budget(Limits(max_decoded_bytes=most))
    batches = list(decode(form, body, budget).batches)
    assert sum(batch.num_rows for batch in batches) == body.count(b'{"a"')


def test_where_short_rows_lie_is_charged_while_all_are_looked_at() -> None:
    body = b'{"a":1}\n' * 1_000_000

    def refuse() -> None:
        with pytest.raises(LimitExceeded):
            decode("ndjson", body, Budget(Limits(max_decoded_bytes=24 * MIB)), infer="all")

    assert peak_bytes(refuse) < 32 * MIB


def test_a_batch_of_large_rows_ends_early() -> None:
    body = (b'{"a":"' + b"x" * (MIB // 4) + b'"}\n') * 10
    found = read("ndjson", body, schema=schema_of(a="text"))
    assert isinstance(found, Rows)
    assert found.batches == [2, 2, 2, 2, 2]


def test_batches_stay_as_they_were_while_others_are_drawn() -> None:
    schema = schema_of(
        text="text",
        texts={"dtype": "text", "shape": [None]},
        floats={"dtype": "float64", "shape": [None]},
        ints={"dtype": "int64", "shape": [None]},
        sparse={"dtype": "int64", "shape": [9, 99], "kind": "sparse"},
    )
    rows: list[dict[str, Any]] = [
        {
            "text": chr(97 + index) * MIB,
            "texts": [f"{index}-{item}" for item in range(index)],
            "floats": [index / 8],
            "ints": [index],
            "sparse": {"values": [index], "indices": [[index, 9 * index]]},
        }
        for index in range(9)
    ]
    body = "".join(json.dumps(row) + "\n" for row in rows).encode()
    found = decode("ndjson", body, Budget(), schema=schema)
    batches = list(found.batches)
    assert len(batches) == len(rows)
    for row, values in zip(rows, rows_of(batches, schema), strict=True):
        values["text"] = values["text"].decode()
        values["texts"] = [text.decode() for text in values["texts"]]
        assert values == row


@pytest.mark.parametrize("blank", [b"\n", b" \n", b" \t\r\n"])
def test_blank_lines_are_let_go_of(blank: bytes) -> None:
    body = blank * (12 * MIB // len(blank)) + b'{"a":1}'
    found = read("ndjson", body, limits=Limits(max_decoded_bytes=8 * MIB))
    assert isinstance(found, Rows)
    assert (found.rows, found.left) == ([{"a": 1}], 0)


def test_a_long_line_is_copied_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied whenever a piece of it arrived, it took the square of the time."""
    taken = [0]
    empty = np.empty

    def counted(*arguments: Any, **options: Any) -> Any:
        made = empty(*arguments, **options)
        taken[0] += made.nbytes
        return made

    body = b'{"a":"' + b"x" * (16 * MIB) + b'"}\n{"a":"y"}\n'
    monkeypatch.setattr(np, "empty", counted)
    found = read("ndjson", body)
    assert isinstance(found, Rows)
    assert [len(row["a"]) for row in found.rows] == [16 * MIB, 1]
    assert 2 * len(body) < taken[0] < 12 * len(body)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_byte_order_mark_in_front_is_passed_over(mark: bytes) -> None:
    assert_rows(read("ndjson", mark + b'{"a":1}\n{"a":2}\n', pieces=PIECES), [{"a": 1}, {"a": 2}])
    found = read("ndjson", mark + b'{"a":1}\n{"a":1,}\n', pieces=PIECES)
    assert found == Refusal("invalid_json", 1, None, len(mark) + 15)
    assert read("ndjson", b"\xef\xbb" + b'{"a":1}', pieces=PIECES) == Refusal("invalid_utf8", 0, None, 0)


def test_many_texts_of_every_size_need_no_more_room_than_they_have() -> None:
    rows: list[Any] = [
        {"a": "x" * size, "b": list(range(size % 7)), f"k{size % 50}": size} for size in range(300)
    ]
    rows += [{"a": "", "b": [], f"{'k' * (size % 90)}{size}": None} for size in range(2000)]
    body = "\n".join(map(json.dumps, rows)).encode()
    found = read("ndjson", body, infer="all")
    assert isinstance(found, Rows)
    names = found.schema.names
    expected = [{name: row.get(name) for name in names} for row in rows]
    assert [{**row, "a": (row["a"] or b"").decode()} for row in found.rows] == expected


def test_records_are_not_read_before_they_are_drawn() -> None:
    budget = Budget()
    records = decode("ndjson", b'{"a":1}\n' * 100_000, budget)
    assert budget.peak < 2 * MIB
    assert sum(batch.num_rows for batch in records.batches) == 100_000
