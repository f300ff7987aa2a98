"""Rows as base64 messages in JSON."""

import base64
import json

import pytest

from app.codecs.json import ndjson
from app.codecs.messages import b64, tfrecord
from app.codecs.messages.framing import iter_frames
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.errors import AmbiguousInput, MalformedInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile, MemoryStream

ROWS = b'{"x": 1, "s": "a"}\n{"x": -2, "s": "bc"}\n'


def messages(lines: bytes) -> list[bytes]:
    """What the TFRecord of the same rows holds."""
    records = ndjson.decode(MemoryStream(lines), RecordsDecodeOptions(), Budget())
    encoded = b"".join(tfrecord.encode(records, RecordsEncodeOptions(), Budget()))
    found = []
    for block in iter_frames(MemoryStream(encoded), Budget()):
        for start, size in zip(block.starts, block.sizes, strict=True):
            found.append(bytes(block.data[start : start + size]))
    return found


def encoded(lines: bytes) -> object:
    records = ndjson.decode(MemoryStream(lines), RecordsDecodeOptions(), Budget())
    return json.loads(b"".join(b64.encode(records, RecordsEncodeOptions(), Budget())))


def cell(message: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(message).decode()}


def decoded(body: object) -> list[dict[str, object]]:
    records = b64.decode(MemoryFile(json.dumps(body).encode()), RecordsDecodeOptions(), Budget())
    return [row for batch in records.batches for row in batch.to_pylist()]


def test_one_row_needs_no_envelope() -> None:
    line = ROWS.splitlines(keepends=True)[0]
    assert encoded(line) == cell(messages(line)[0])


@pytest.mark.parametrize("lines", [b"", ROWS])
def test_none_or_several_stand_in_instances(lines: bytes) -> None:
    assert encoded(lines) == {"instances": [cell(message) for message in messages(lines)]}


@pytest.mark.parametrize("several", [False, True])
def test_both_forms_are_read(several: bool) -> None:
    first, second = messages(ROWS)
    body = {"instances": [cell(first), cell(second)]} if several else cell(first)
    expected = [{"s": [b"a"], "x": [1]}, {"s": [b"bc"], "x": [-2]}]
    assert decoded(body) == expected[: 2 if several else 1]


def test_messages_in_the_web_safe_alphabet() -> None:
    line = b'{"s": {"b64": "//++"}}'
    records = ndjson.decode(MemoryStream(line), RecordsDecodeOptions(), Budget())
    found = json.loads(b"".join(b64.encode(records, RecordsEncodeOptions(b64="websafe"), Budget())))
    expected = base64.urlsafe_b64encode(messages(line)[0]).rstrip(b"=").decode()
    assert found == {"b64": expected}
    assert decoded(found) == [{"s": [b"\xff\xff\xbe"]}]


def test_what_is_not_base64_is_named() -> None:
    with pytest.raises(MalformedInput) as caught:
        decoded({"instances": [cell(messages(ROWS)[0]), {"b64": "?"}]})
    assert caught.value.location.pointer == "/instances/1/b64"


@pytest.mark.parametrize("body", [[], {}, {"instances": [{"x": 1}]}, {"b64": "", "x": 1}])
def test_other_json_is_ambiguous(body: object) -> None:
    with pytest.raises(AmbiguousInput):
        decoded(body)
