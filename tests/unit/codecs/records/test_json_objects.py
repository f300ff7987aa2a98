"""Large bodies of rows are read some rows at a time, with the outcome that they have when parsed whole."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.json import objects as json_objects
from app.codecs.json import records as records_json
from app.codecs.json.objects import find_rows
from app.codecs.options import RecordsDecodeOptions
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.errors import InputError, StreamInterrupted
from app.runtime.budget import Budget
from app.runtime.memory import MemoryPool
from app.runtime.streams import MemoryFile
from tests.arrow_rows import as_arrow
from tests.memory import peak_bytes

SCHEMA = {"features": {"n": {"dtype": "int64", "nullable": True}, "x": {"dtype": "float32", "shape": [2]}}}


def outcome(
    text: bytes, *, at_once: bool, limits: Limits | None = None, block: int = 100, **options: Any
) -> Any:
    """The schema and the rows, or the error."""
    budget = Budget(limits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records_json, "_WHOLE_UP_TO", 1 << 60 if at_once else 0)
        patch.setattr(json_objects, "_MAX_TEXT", block)
        try:
            records = records_json.decode(MemoryFile(text), RecordsDecodeOptions(**options), budget)
            rows: list[Any] = []
            for batch in as_arrow(records):
                rows += pa.RecordBatch.to_pylist(batch)
            # Nothing of the text stays charged.
            assert budget.remaining == budget.limits.max_decoded_bytes or at_once
            return records.schema, records.is_declared, rows
        except InputError as error:
            return type(error), error.code


def same(text: bytes, **options: Any) -> Any:
    whole, split = (outcome(text, at_once=at_once, **options) for at_once in (True, False))
    assert split == whole
    return whole


ROWS = [{"n": index % 7, "x": [0.5, index], "t": 'é"]}' * (index % 3)} for index in range(2500)]


@pytest.mark.parametrize("block", [1, 3000, 1 << 20])
@pytest.mark.parametrize("indent", [None, 1])
def test_rows_are_those_of_the_whole_body(indent: int | None, block: int) -> None:
    for body in (ROWS, {"instances": ROWS}, {"id": "a", "instances": ROWS, "model_name": "m"}):
        _, _, rows = same(json.dumps(body, indent=indent).encode(), block=block)
        assert len(rows) == len(ROWS)


def test_all_rows_may_be_looked_at_for_the_schema() -> None:
    rows = [{"n": 1}] * 1500 + [{"n": 1.5, "late": "x"}]
    text = json.dumps(rows).encode()
    assert same(text)[1] == "schema_conflict"
    assert len(same(text, infer="all")[0].features) == 2


@pytest.mark.parametrize("behind", [False, True])
def test_a_schema_may_stand_on_either_side(behind: bool) -> None:
    rows = [{"n": None, "x": [1, 2]}, {"x": [3, 4]}]
    body = {"instances": rows, "schema": SCHEMA} if behind else {"schema": SCHEMA, "instances": rows}
    schema, is_declared, found = same(json.dumps(body).encode())
    assert (schema, is_declared) == (Schema.from_json(SCHEMA), True)
    assert found == [{"n": None, "x": [1, 2]}, {"n": None, "x": [3, 4]}]
    assert same(json.dumps(body).encode(), schema=Schema.from_json(SCHEMA))[1] == "schema_twice"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"[]",
        b"{}",
        b"{",
        b"null",
        b"[1]",
        b'[{"a":1},]',
        b'[{"a":1}] x',
        b'[{"a":1}]]',
        b'{"instances":[]}',
        b'{"instances":[{"a":1}]',
        b'{"instances":[{"a":1}],}',
        b'{"instances":[{"a":1}],"instances":[{"a":1}]}',
        b'{"instances":[{"a":1}],"inputs":{}}',
        b'{"inputs":{"a":[1]}}',
        b'{"instances":{}}',
        b'{"instances":[{"a":1}],"schema":1}',
        b'{"a":[{"b64":""}]}',
        b'{1:2,"instances":[{"a":1}]}',
        b'{"x" "instances":[{"a":1}]}',
        b'{"x":1 "instances":[{"a":1}]}',
        b'{"x":' + b"[" * 2000 + b',"instances":[{"a":1}]}',
        b'\xef\xbb\xbf[{"a":1}]',
        b'[{"a":1,"a":2}]',
        b'[{"a":NaN}]',
        b'[{"a":1},{"b":"\xff"}]',
        b'[{"a":"\\ud800"}]',
        b'[{"a":1},{"a":"x"}]',
        b'[{"context":{"a":1},"feature_lists":{}}]',
    ],
)
def test_bodies_of_other_forms_and_broken_ones_have_one_outcome(text: bytes) -> None:
    same(text)
    same(text, message="sequence_example")


def test_depth_counts_what_is_around_a_row() -> None:
    limits = Limits(max_json_depth=4)
    rows = b'[{"a":[[1]]},{"a":[[2]]}]'
    assert same(rows, limits=limits)[2] == [{"a": [1]}, {"a": [2]}]
    assert same(b'[{"a":[[[1]]]}]', limits=limits)[1] == "json_too_deep"
    assert same(b'{"instances":' + rows + b"}", limits=limits)[1] == "json_too_deep"


def test_an_error_names_row_and_offset() -> None:
    text = b'{"instances": [{"a": 1},\n  {"a": 2}, {"a": tru}]}'
    for block in (1, 1000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(records_json, "_WHOLE_UP_TO", 0)
            patch.setattr(json_objects, "_MAX_TEXT", block)
            with pytest.raises(InputError) as caught:
                records_json.decode(MemoryFile(text), RecordsDecodeOptions(), Budget())
        assert (caught.value.code, caught.value.location.row) == ("invalid_json", 2)
        assert caught.value.location.offset == text.index(b"tru")


CHANGES = st.one_of(st.integers(0, 255), st.sampled_from(list(b'{}[]",:\\ ')))


@settings(deadline=None, max_examples=50)
@given(
    position=st.integers(0, 10_000),
    change=CHANGES,
    envelope=st.booleans(),
    block=st.sampled_from([1, 50]),
    drop=st.booleans(),
)
def test_mutated_bytes_are_refused_or_read_alike(
    position: int, change: int, envelope: bool, block: int, drop: bool
) -> None:
    rows = [{"n": 1, "t": 'a"b'}, {"n": -2, "t": "]}"}, {"n": 3, "t": "\N{GRINNING FACE}"}]
    text = bytearray(json.dumps({"instances": rows} if envelope else rows, ensure_ascii=False).encode())
    at = position % len(text)
    text[at : at + 1] = b"" if drop else bytes([change])
    whole, split = (outcome(bytes(text), at_once=at_once, block=block) for at_once in (True, False))
    assert split == whole or (isinstance(whole[0], type) and isinstance(split[0], type))


def test_no_more_is_taken_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the body is blank: within rows, and between them."""
    monkeypatch.setattr(json_objects, "_MAX_TEXT", 1 << 14)
    monkeypatch.setattr(records_json, "_WHOLE_UP_TO", 1 << 14)
    row = b'{"n": 1,' + b" " * 600 + b'"t": "a"}'
    text = b"[" + (b"," + b"\n" * 600).join([row] * 400) + b"]"
    budget = Budget()
    schema = Schema.from_json({"features": {"n": {"dtype": "int64"}, "t": {"dtype": "text"}}})

    def decode() -> None:
        records = records_json.decode(MemoryFile(text), RecordsDecodeOptions(schema=schema), budget)
        assert sum(batch.num_rows for batch in as_arrow(records)) == 400

    decode()  # kernels are loaded
    # Of a block: its text, and room for as many characters, twice. Beside it the places of 8192 rows.
    assert peak_bytes(decode) < 5 * (1 << 14) + 2 * 8192 * 8 < len(text)
    assert budget.peak < 5 * (1 << 14)


def test_where_the_array_lies() -> None:
    text = memoryview(b' {"id": "a", "instances" : [{"a": 1}, {}], "schema": {}} ')
    found = find_rows(text, Budget())
    assert found is not None
    assert bytes(text[found.begin : found.end]) == b'[{"a": 1}, {}]'
    assert found.around == b' {"id": "a", "instances" : [], "schema": {}} '


def test_much_around_the_array_is_left_to_the_general_parser() -> None:
    assert find_rows(memoryview(b'[{"a": 1}]' + b" " * (1 << 20)), Budget()) is not None
    assert find_rows(memoryview(b'[{"a": 1}]' + b" " * (1 << 20) + b" "), Budget()) is None
    assert (
        find_rows(memoryview(b'{"id": "' + b"a" * (1 << 16) + b'", "instances": [{"a": 1}]}'), Budget())
        is None
    )


def test_a_request_that_is_given_up_is_not_walked_on() -> None:
    share = MemoryPool(1 << 30).share()
    share.give_up()
    with pytest.raises(StreamInterrupted):
        find_rows(memoryview(b"[{}]"), Budget(Limits(), share))
