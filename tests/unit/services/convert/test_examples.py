"""One row <-> one bare message of either kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.schema import Schema
from app.errors import AmbiguousInput, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.spool import Spool
from app.runtime.streams import MemoryStream
from app.runtime.workspace import Workspace
from app.services.convert.examples import RowForm, convert_row
from tests.unit.codecs.cases.kinds import rows_of, schemas

SCHEMA = Schema.from_json({"features": {"x": {"dtype": "int64", "shape": [None], "kind": "sequence"}}})
#: Steps 1 and 2 of the list x.
MESSAGE = bytes.fromhex("1215 0a13 0a0178 120e 0a05 1a03 0a0101 0a05 1a03 0a0102")


def convert(data: bytes, to: RowForm, options: RecordsDecodeOptions) -> bytes:
    row, _ = convert_row(
        MemoryStream(data),
        "example",
        to,
        options,
        RecordsEncodeOptions(),
        Workspace(Budget(), Spool(None, 0)),
    )
    return row


@pytest.mark.parametrize(
    "options", [RecordsDecodeOptions(schema=SCHEMA), RecordsDecodeOptions(message="sequence_example")]
)
def test_a_sequence_example_returns_as_it_came(options: RecordsDecodeOptions) -> None:
    assert convert(MESSAGE, "example", options) == MESSAGE
    b64 = convert(MESSAGE, "b64", options)
    again, _ = convert_row(
        MemoryStream(b64),
        "b64",
        "example",
        options,
        RecordsEncodeOptions(),
        Workspace(Budget(), Spool(None, 0)),
    )
    assert (list(json.loads(b64)), again) == (["b64"], MESSAGE)


def test_a_row_becomes_the_message_that_was_asked_for() -> None:
    row = MemoryStream(b'{"context": {"c": 1}}')
    options = RecordsDecodeOptions(
        schema=Schema.from_json({"features": {"c": {"dtype": "int64", "nullable": True}}}),
        message="sequence_example",
    )
    written, _ = convert_row(
        row, "json", "example", options, RecordsEncodeOptions(), Workspace(Budget(), Spool(None, 0))
    )
    assert written == bytes.fromhex("0a0c 0a0a 0a0163 1205 1a03 0a0101")
    assert convert(b"", "example", options) == b"\x0a\x00"


def as_json(row: bytes, options: RecordsDecodeOptions | None = None) -> bytes:
    decode, encode = options or RecordsDecodeOptions(), RecordsEncodeOptions()
    return convert_row(
        MemoryStream(row), "json", "json", decode, encode, Workspace(Budget(), Spool(None, 0))
    )[0]


def test_one_row_is_any_object_and_never_an_envelope() -> None:
    row = b'{"instances":[1,2],"schema":"x","b64":1.5}'
    assert as_json(row) == row


@pytest.mark.parametrize("text", [b"[]", b"5", b'[{"a": 1}]', b"null"])
def test_json_that_is_not_an_object_is_refused(text: bytes) -> None:
    with pytest.raises(AmbiguousInput):
        as_json(text)


@settings(deadline=None, max_examples=25)
@given(case=schemas().flatmap(lambda schema: st.tuples(st.just(schema), rows_of(schema))))
def test_a_row_of_any_kind_returns(case: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = case
    for row in rows[:1]:
        lists = [feature.name for feature in schema if feature.kind == "sequence"]
        shaped: dict[str, Any] = row
        if schema.message == "sequence_example":
            context = {name: cell for name, cell in row.items() if name not in lists}
            shaped = {"context": context, "feature_lists": {name: row[name] for name in lists}}
        text = as_json(json.dumps(shaped).encode(), RecordsDecodeOptions(schema=schema))
        assert json.dumps(json.loads(text), sort_keys=True) == json.dumps(shaped, sort_keys=True)


def test_sequence_feature_in_an_example_is_refused() -> None:
    with pytest.raises(UnprocessableInput) as caught:
        convert(MESSAGE, "example", RecordsDecodeOptions(schema=SCHEMA, message="example"))
    assert caught.value.code == "invalid_feature"
    with pytest.raises(UnprocessableInput) as caught:
        convert(MESSAGE, "example", RecordsDecodeOptions())
    assert caught.value.code == "sequence_example"
