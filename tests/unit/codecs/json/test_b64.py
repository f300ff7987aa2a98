"""Serialized tensors and rows as base64 in JSON."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.codecs.array import Array
from app.codecs.forms import TENSOR_CODECS
from app.codecs.options import TensorEncodeOptions
from app.domain.dtypes import DTYPES
from app.domain.limits import Limits
from app.errors import AmbiguousInput
from app.runtime.budget import Budget
from tests.support.format_cases import Refusal, Rows, read, read_tensors, records, write, write_tensors
from tests.support.shard_readers import parse_frames
from tests.unit.codecs.cases.tensors import RAGGED, SPARSE, dense, show

#: `tf.io.serialize_tensor(tf.constant([1.0]))`: dtype 1, one dimension of 1, four bytes of content.
ONE = bytes.fromhex("08 01 12 04 12 02 08 01 22 04 00 00 80 3f")
#: 17 bytes that declare 2^23 float32 of the value 1.
REPEATED = bytes.fromhex("08 01 12 07 12 05 08 80 80 80 04 2a 04 00 00 80 3f")
ROWS = [{"x": 1, "s": "a"}, {"x": -2, "s": "bc"}]


def cell(message: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(message).decode()}


def tensors(body: Any, **options: Any) -> list[str] | Refusal:
    found = read_tensors("b64", json.dumps(body).encode(), **options)
    return found if isinstance(found, Refusal) else list(map(show, found))


def written(*items: Any, **options: Any) -> bytes:
    found = write_tensors("b64", [replace(item, name="x") for item in items], **options)
    assert isinstance(found, bytes)
    return found


def rows(body: Any, **options: Any) -> Rows | Refusal:
    return read("b64", json.dumps(body).encode(), **options)


def messages(body: Any) -> list[bytes]:
    found = write("tfrecord", records(body))
    assert isinstance(found, bytes)
    return list(parse_frames(found))


def test_tensors_out() -> None:
    one = dense("float32", (1,), [1])
    assert json.loads(written(one)) == cell(ONE)
    assert json.loads(written(one, one)) == {"instances": [cell(ONE), cell(ONE)]}
    assert json.loads(written()) == {"instances": []}
    infinite = written(dense("float32", (1,), [-np.inf]), b64="websafe")
    assert infinite == b'{"b64":"CAESBBICCAEiBAAAgP8"}'
    assert tensors(json.loads(infinite)) == ["float32[1] [-inf]"]


def test_a_large_message_leaves_in_pieces() -> None:
    values = np.random.default_rng(0).integers(0, 255, 3 * 2**18, np.uint8)
    named = [Array(DTYPES["uint8"], values.shape, values)]
    encode = TENSOR_CODECS["b64"].encode
    assert encode is not None
    pieces = list(map(bytes, encode(named, TensorEncodeOptions(), Budget())))
    assert max(map(len, pieces)) <= 2**18
    assert tensors(json.loads(b"".join(pieces))) == [f"uint8[{len(values)}] {values.tolist()}"]


@pytest.mark.parametrize(
    ("body", "options", "expected"),
    [
        (cell(ONE), {}, ["float32[1] [1.0]"]),
        ({"instances": [cell(ONE)], "signature_name": "serving_default"}, {}, ["float32[1] [1.0]"]),
        ({"instances": [cell(ONE), {"b64": base64.urlsafe_b64encode(ONE).rstrip(b"=").decode()}]}, {},
         ["float32[1] [1.0]"] * 2),
        ({"instances": []}, {}, []),
        (cell(ONE), {"dtype": DTYPES["float32"], "shape": (1,)}, ["float32[1] [1.0]"]),
        (cell(ONE), {"dtype": DTYPES["int64"]}, ("dtype_mismatch", "/b64")),
        (cell(ONE), {"shape": (2,)}, ("shape_mismatch", "/b64")),
        ({"b64": "A"}, {}, ("invalid_base64", "/b64")),
        ({"b64": 5}, {}, ("invalid_base64", "/b64")),
        ({"instances": [cell(ONE), cell(ONE[:-1])]}, {}, ("truncated", "/instances/1/b64")),
        ({"instances": [cell(ONE)] * 3}, {"limits": Limits(max_members=2)}, ("too_many_tensors", None)),
        (cell(REPEATED), {"limits": Limits(max_decoded_bytes=1_000_000)}, ("payload_too_large", "/b64")),
    ],
)  # fmt: skip
def test_tensors_in(body: Any, options: dict[str, Any], expected: Any) -> None:
    found = tensors(body, **options)
    if isinstance(found, Refusal):
        assert (found.code, found.pointer, found.offset) == (*expected, None)
    else:
        assert found == expected


def test_sparse_and_ragged_tensors_are_messages() -> None:
    assert tensors(json.loads(written(SPARSE)), kind="sparse") == [
        "float32[3, 4] [1.0, nan] [[0, 1], [2, 3]]"
    ]
    assert tensors(json.loads(written(RAGGED)), kind="ragged") == ["int64[3] [1, 2, 3] [[0, 2, 2, 3]]"]


@pytest.mark.parametrize(
    "body",
    [
        [], {}, "x", {**cell(ONE), "x": 1}, {"instances": [cell(ONE)["b64"]]}, {"instances": cell(ONE)},
        {"instances": [{"x": 1}]}, {"inputs": []},
    ],
)  # fmt: skip
def test_other_bodies_are_ambiguous(body: Any) -> None:
    for found in (tensors(body), rows(body)):
        assert isinstance(found, Refusal)
        assert found.error is AmbiguousInput


def test_rows_both_ways() -> None:
    one, two = messages(ROWS)
    for body, expected in [(ROWS[:1], cell(one)), (ROWS, {"instances": [cell(one), cell(two)]})]:
        found = write("b64", records(body))
        assert isinstance(found, bytes)
        assert json.loads(found) == expected
        back = rows(expected)
        assert isinstance(back, Rows)
        assert back.rows == [{"s": [row["s"].encode()], "x": [row["x"]]} for row in body]  # type: ignore[attr-defined]
    assert write("b64", records([])) == b'{"instances":[]}'


def test_rows_in_the_web_safe_alphabet() -> None:
    body = [{"s": {"b64": "//++"}}]
    expected = base64.urlsafe_b64encode(messages(body)[0]).rstrip(b"=").decode()
    assert (
        write("b64", records(body), b64="websafe")
        == json.dumps({"b64": expected}, separators=(",", ":")).encode()
    )
    found = rows({"b64": expected})
    assert isinstance(found, Rows)
    assert found.rows == [{"s": [b"\xff\xff\xbe"]}]


def test_row_that_is_not_base64_is_named() -> None:
    found = rows({"instances": [cell(messages(ROWS)[0]), {"b64": "?"}]})
    assert isinstance(found, Refusal)
    assert (found.code, found.pointer) == ("invalid_base64", "/instances/1/b64")
