from __future__ import annotations

from typing import Literal

import pytest
from starlette.datastructures import Headers

from app.api.body.content_encoding import (
    AnswerCoding,
    choose_coding,
    is_compressible,
    parse_content_encoding,
    require_identity,
)
from app.errors import MalformedInput, NotAcceptable, UnknownEncoding


def headers(name: str, *lines: str) -> Headers:
    return Headers(raw=[(name.encode(), line.encode()) for line in lines])


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], None),
        ([""], None),
        (["identity"], None),
        (["gzip"], "gzip"),
        (["GZip "], "gzip"),
        (["x-gzip"], "gzip"),
        (["deflate"], "zlib"),
        (["zstd"], "zstd"),
        (["identity, gzip"], "gzip"),
        (["", "zstd"], "zstd"),
    ],
)
def test_a_body_is_encoded_once_or_not_at_all(lines: list[str], expected: str | None) -> None:
    assert parse_content_encoding(headers("content-encoding", *lines)) == expected


@pytest.mark.parametrize(
    "lines",
    [["br"], ["gzip, gzip"], ["gzip, deflate"], ["gzip", "gzip"], ["identity", "br"], ["gzip;q=1"], ["*"]],
)
def test_fault_16_stacked_and_unknown_codings_are_refused(lines: list[str]) -> None:
    with pytest.raises(UnknownEncoding) as caught:
        parse_content_encoding(headers("content-encoding", *lines))
    assert caught.value.code == "unsupported_content_encoding"
    assert caught.value.extra["accepted"] == ["gzip", "deflate", "zstd"]


@pytest.mark.parametrize(
    ("line", "coding", "required"),
    [
        ("gzip", "gzip", False),
        ("gzip, deflate, br", "gzip", False),
        ("gzip, deflate, br, zstd", "zstd", False),
        ("zstd;q=0.9, gzip", "gzip", False),
        ("zstd;q=0.9, gzip;q=0.8", "zstd", False),
        ("x-gzip", "gzip", False),
        ("*", "gzip", False),
        ("gzip;q=0, *", None, False),
        ("zstd, *;q=0.5", "zstd", False),
        ("identity, gzip", "gzip", False),
        ("identity, gzip;q=0.5", None, False),
        ("gzip;q=1.0,deflate;q=0.6,identity;q=0.3", "gzip", False),  # Ruby's
        ("gzip, identity;q=0", "gzip", True),
        ("zstd, *;q=0", "zstd", True),
        ("*, identity;q=0", "gzip", True),
        ("gzip;q=0.5, *;q=0, identity;q=0.1", "gzip", False),
        ("", None, False),
        ("identity", None, False),
        ("br", None, False),
        ("deflate", None, False),
        ("gzip;q=0", None, False),
        ("*;q=0.5, identity", None, False),
        ("GZIP;Q=0.5", "gzip", False),
        ("gzip;q=0, gzip;q=1", None, False),
    ],
)
def test_the_client_chooses_how_its_answer_is_encoded(
    line: str, coding: Literal["gzip", "zstd"] | None, required: bool
) -> None:
    expected = None if coding is None else AnswerCoding(coding, required)
    assert choose_coding(headers("accept-encoding", line)) == expected
    assert choose_coding(headers("accept-encoding", *line.split(","))) == expected


def test_who_says_nothing_gets_it_as_it_is() -> None:
    assert choose_coding(Headers(raw=[])) is None


@pytest.mark.parametrize(
    "line", ["identity;q=0", "*;q=0", "br, identity;q=0", "gzip;q=0, *;q=0", "br, *;q=0"]
)
def test_refusing_every_coding_is_406(line: str) -> None:
    with pytest.raises(NotAcceptable) as caught:
        choose_coding(headers("accept-encoding", line))
    assert caught.value.extra["served"] == ["zstd", "gzip", "identity"]


@pytest.mark.parametrize("line", ["gzip;q=2", "gzip;q=x", "gzip;q=-1", "gzip;q=nan"])
def test_a_quality_is_a_number_from_0_to_1(line: str) -> None:
    with pytest.raises(MalformedInput) as caught:
        choose_coding(headers("accept-encoding", line))
    assert caught.value.code == "invalid_accept"


def test_who_refuses_identity_gets_no_file() -> None:
    require_identity(Headers(raw=[]))
    require_identity(headers("accept-encoding", "gzip"))
    with pytest.raises(NotAcceptable) as caught:
        require_identity(headers("accept-encoding", "gzip, identity;q=0"))
    assert caught.value.extra["served"] == ["identity"]


@pytest.mark.parametrize(
    ("media_type", "expected"),
    [
        ("application/json", True),
        ("application/x-ndjson", True),
        ("application/jsonl", True),
        ("text/csv", True),
        ("text/x-python; charset=utf-8", True),
        ("application/octet-stream", False),
        ("application/x-tfrecord", False),
        ("application/protobuf", False),
        ("application/vnd.apache.arrow.stream", False),
        ("application/vnd.apache.parquet", False),
        ("application/x-npz", False),
    ],
)
def test_text_is_worth_encoding(media_type: str, expected: bool) -> None:
    assert is_compressible(media_type) == expected


def test_where_no_answer_is_encoded_who_refuses_identity_gets_none() -> None:
    for line in ("gzip", "gzip, zstd;q=0.5", "*", "identity"):
        assert choose_coding(headers("accept-encoding", line), encodes=False) is None
    assert choose_coding(Headers(raw=[]), encodes=False) is None
    with pytest.raises(NotAcceptable) as caught:
        choose_coding(headers("accept-encoding", "gzip, identity;q=0"), encodes=False)
    assert caught.value.extra["served"] == ["identity"]
