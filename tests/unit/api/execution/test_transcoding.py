"""The content of bodies, and answers, around work that knows of no encoding."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Literal, cast

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request

from app.api.body.content_encoding import AnswerCoding, choose_coding, parse_content_encoding
from app.api.execution.job import Answer, Job, Work
from app.api.execution.transcoding import DecodedBody, encoded_answer, transcoded
from app.api.state import Services
from app.domain.limits import KIB, MIB, Limits
from app.errors import InputError, LimitExceeded, MalformedInput, StreamInterrupted
from app.runtime.budget import Budget
from app.runtime.spool import Spool
from app.runtime.streams import Buffer, ByteStream, MemoryStream
from app.services.deferred import completed
from tests.support.zstandard import zstd

TEXT = b"some text, again and again; " * 1000
Container = Literal["gzip", "zlib", "zstd"]
COMPRESS: dict[Container, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "zstd": zstd.compress,
}
ANY_GZIP = AnswerCoding("gzip", required=False)
ONLY_GZIP = AnswerCoding("gzip", required=True)


def echo(_: Job, body: ByteStream) -> Answer:
    return Answer("text/plain", iter(lambda: body.read(10_000), b""), {"X": "y"}, lambda: {"Late": "z"})


def later(job: Job, body: ByteStream) -> Future[Answer]:
    return completed(echo(job, body))


def transcoded_by(work: Work, headers: Headers) -> Work:
    return transcoded(work, parse_content_encoding(headers), choose_coding(headers))


def job_with(budget: Budget) -> Job:
    services = cast(Services, SimpleNamespace(spool=Spool(None, 0)))  # all that the work here needs
    return Job(Request({"type": "http", "headers": []}), services, budget)


def answer_to(work: Work, body: bytes, **headers: str) -> Answer:
    named = Headers({name.replace("_", "-"): value for name, value in headers.items()})
    answer = transcoded_by(work, named)(job_with(Budget()), MemoryStream(body))
    return answer.result() if isinstance(answer, Future) else answer


def content(answer: Answer) -> bytes:
    return b"".join(answer.chunks)


def test_work_on_plain_bodies_for_plain_answers_is_left_alone() -> None:
    for headers in ({}, {"content-encoding": "identity"}, {"accept-encoding": "identity"}):
        assert transcoded_by(echo, Headers(headers)) is echo


@pytest.mark.parametrize("work", [echo, later])
def test_the_content_goes_in_and_the_answer_comes_out_encoded(work: Work) -> None:
    for coding, body in (
        ("gzip", gzip.compress(TEXT, mtime=0)),
        ("deflate", zlib.compress(TEXT)),
        ("zstd", zstd.compress(TEXT)),
    ):
        assert content(answer_to(work, body, content_encoding=coding)) == TEXT
        answer = answer_to(work, body, content_encoding=coding, accept_encoding="zstd")
        assert answer.headers == {"X": "y", "Content-Encoding": "zstd"}
        assert answer.late_headers() == {"Late": "z"}
        assert zstd.decompress(content(answer)) == TEXT


def test_the_window_of_zstd_is_paid_for_before_it_is_taken() -> None:
    work = transcoded_by(echo, Headers({"content-encoding": "zstd"}))
    with pytest.raises(LimitExceeded):
        work(job_with(Budget(Limits(max_decoded_bytes=8 * MIB - 1))), MemoryStream(zstd.compress(TEXT)))


def test_fault_17_what_is_broken_stays_broken() -> None:
    body = DecodedBody(MemoryStream(gzip.compress(TEXT)[:-1]), "gzip", Budget())
    with pytest.raises(MalformedInput):
        content(Answer("", iter(lambda: body.read(1000), b"")))
    with pytest.raises(MalformedInput) as caught:
        body.read(1)
    assert caught.value.code == "truncated"


@pytest.mark.parametrize("container", ["gzip", "zlib", "zstd"])
def test_fault_14_15_a_body_may_be_no_longer_than_without_its_encoding(container: Container) -> None:
    limits = Limits(max_body_bytes=len(TEXT))

    def size(data: bytes) -> int:
        body = DecodedBody(MemoryStream(COMPRESS[container](data)), container, Budget(limits))
        return sum(map(len, iter(lambda: body.read(1000), b"")))

    assert size(TEXT) == len(TEXT)
    with pytest.raises(LimitExceeded) as caught:
        size(TEXT + b"x")
    assert caught.value.code == "payload_too_large"


def test_disconnect_is_not_a_damaged_body() -> None:
    class Left:
        def read(self, _: int, /) -> bytes:
            raise StreamInterrupted("gone")

    body = DecodedBody(Left(), "gzip", Budget())
    for _ in range(2):
        with pytest.raises(StreamInterrupted):
            body.read(1)


@pytest.mark.parametrize(
    ("answer", "coding", "encoded"),
    [
        (Answer("text/plain", iter([b"x" * KIB])), ANY_GZIP, True),
        (Answer("text/plain", iter([b"x"] * KIB)), ANY_GZIP, True),
        (Answer("application/json", iter([b"x" * (KIB - 1)])), ANY_GZIP, False),
        (Answer("application/json", iter([])), ANY_GZIP, False),
        (Answer("application/x-tfrecord", iter([b"x" * MIB])), ANY_GZIP, False),
        (Answer("application/x-tfrecord", iter([b"x" * MIB])), ONLY_GZIP, True),
        (Answer("application/json", iter([b"x"])), ONLY_GZIP, True),
        (Answer("application/json", iter([])), ONLY_GZIP, True),
        (Answer("", iter([]), status=204), ONLY_GZIP, False),
    ],
)
def test_incompressible_response_is_not_encoded(answer: Answer, coding: AnswerCoding, encoded: bool) -> None:
    chunks = list(answer.chunks)
    found = encoded_answer(replace(answer, chunks=iter(chunks)), coding)
    assert ("Content-Encoding" in found.headers) == encoded
    body = content(found)
    assert (gzip.decompress(body) if encoded else body) == b"".join(bytes(chunk) for chunk in chunks)


def test_no_more_is_drawn_beforehand_than_what_decides() -> None:
    drawn = 0

    def chunks() -> Iterator[Buffer]:
        nonlocal drawn
        for _ in range(1000):
            drawn += 1
            yield b"x" * 600

    found = encoded_answer(Answer("text/csv", chunks()), ANY_GZIP)
    assert drawn == 2
    assert gzip.decompress(content(found)) == b"x" * 600_000


def test_immediate_failure_precedes_the_response() -> None:
    def fail() -> bytes:
        raise InputError("no")

    with pytest.raises(InputError):
        encoded_answer(Answer("text/csv", iter(fail, b"")), ANY_GZIP)


def test_an_encoding_that_breaks_off_has_no_end_marker() -> None:
    def failing() -> Iterator[Buffer]:
        yield TEXT
        raise InputError("no")

    pieces: list[Buffer] = []
    with pytest.raises(InputError):
        pieces.extend(encoded_answer(Answer("text/csv", failing()), ANY_GZIP).chunks)
    inflater = zlib.decompressobj(31)
    inflater.decompress(b"".join(bytes(piece) for piece in pieces))
    assert not inflater.eof
