"""One row <-> one bare message of either kind."""

from __future__ import annotations

import json

import pytest

from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.schema import Schema
from app.errors import UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.spool import Spool
from app.runtime.streams import MemoryStream
from app.services.examples import RowForm, convert_row

SCHEMA = Schema.from_json({"features": {"x": {"dtype": "int64", "shape": [None], "kind": "sequence"}}})
#: Steps 1 and 2 of the list x.
MESSAGE = bytes.fromhex("1215 0a13 0a0178 120e 0a05 1a03 0a0101 0a05 1a03 0a0102")


def convert(data: bytes, to: RowForm, options: RecordsDecodeOptions) -> bytes:
    row, _ = convert_row(
        MemoryStream(data), "example", to, options, RecordsEncodeOptions(), Budget(), Spool(None, 0)
    )
    return row


@pytest.mark.parametrize(
    "options", [RecordsDecodeOptions(schema=SCHEMA), RecordsDecodeOptions(message="sequence_example")]
)
def test_a_sequence_example_returns_as_it_came(options: RecordsDecodeOptions) -> None:
    assert convert(MESSAGE, "example", options) == MESSAGE
    b64 = convert(MESSAGE, "b64", options)
    again, _ = convert_row(
        MemoryStream(b64), "b64", "example", options, RecordsEncodeOptions(), Budget(), Spool(None, 0)
    )
    assert (list(json.loads(b64)), again) == (["b64"], MESSAGE)


def test_a_row_becomes_the_message_that_was_asked_for() -> None:
    row = MemoryStream(b'{"context": {"c": 1}}')
    options = RecordsDecodeOptions(
        schema=Schema.from_json({"features": {"c": {"dtype": "int64", "nullable": True}}}),
        message="sequence_example",
    )
    written, _ = convert_row(
        row, "json", "example", options, RecordsEncodeOptions(), Budget(), Spool(None, 0)
    )
    assert written == bytes.fromhex("0a0c 0a0a 0a0163 1205 1a03 0a0101")
    assert convert(b"", "example", options) == b"\x0a\x00"


def test_a_sequence_is_no_part_of_an_example() -> None:
    with pytest.raises(UnprocessableInput) as caught:
        convert(MESSAGE, "example", RecordsDecodeOptions(schema=SCHEMA, message="example"))
    assert caught.value.code == "invalid_feature"
    with pytest.raises(UnprocessableInput) as caught:
        convert(MESSAGE, "example", RecordsDecodeOptions())
    assert caught.value.code == "sequence_example"
