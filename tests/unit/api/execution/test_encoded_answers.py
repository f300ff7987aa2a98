"""Answers compressed as they are sent: what any reader makes of them, and how much is held back."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.api.body.content_encoding import AnswerCoding
from app.api.execution.job import Answer
from app.api.execution.transcoding import encoded_answer
from app.domain.limits import KIB, MIB
from app.runtime.streams import Buffer
from tests.support.zstandard import zstd

Coding = Literal["gzip", "zstd"]
CODINGS: tuple[Coding, ...] = ("gzip", "zstd")


def encoded(chunks: Iterable[Buffer], coding: Coding) -> Iterator[Buffer]:
    return encoded_answer(Answer("", iter(chunks)), AnswerCoding(coding, required=True)).chunks


def inflated_by_others(body: bytes, coding: Coding) -> bytes:
    """As a library reads it that is told nothing, to the end of the one member or frame."""
    if coding == "gzip":
        inflater = zlib.decompressobj(31)
        data = inflater.decompress(body)
        assert inflater.eof
        assert not inflater.unused_data
        return data
    decompressor = zstd.ZstdDecompressor()
    data = decompressor.decompress(body)
    assert decompressor.eof
    assert not decompressor.unused_data
    return data


@pytest.mark.parametrize("coding", CODINGS)
@settings(max_examples=30, deadline=None)
@given(chunks=st.lists(st.binary(max_size=300), max_size=8))
def test_others_read_what_was_written(coding: Coding, chunks: list[bytes]) -> None:
    body = b"".join(encoded(chunks, coding))
    assert inflated_by_others(body, coding) == b"".join(chunks)


@pytest.mark.parametrize("coding", CODINGS)
def test_any_buffer_of_any_size_is_taken(coding: Coding) -> None:
    numbers = np.arange(500_000, dtype=np.float64)
    chunks: list[Buffer] = [b"", bytearray(b"abc"), numbers.data, memoryview(b"d")]
    body = b"".join(encoded(chunks, coding))
    assert inflated_by_others(body, coding) == b"abc" + numbers.tobytes() + b"d"


@pytest.mark.parametrize("coding", CODINGS)
def test_equal_bytes_in_equal_chunks_give_equal_bytes(coding: Coding) -> None:
    once, again = (b"".join(encoded([b"abc" * 1000], coding)) for _ in range(2))
    assert once == again
    if coding == "gzip":
        assert once[4:8] == bytes(4)  # no time stamp


@pytest.mark.parametrize("coding", CODINGS)
def test_less_than_a_block_is_held_back_while_more_is_drawn(coding: Coding) -> None:
    drawn = seen = 0

    def chunks() -> Iterator[bytes]:
        nonlocal drawn
        for number in range(200):
            assert drawn - seen < 128 * KIB
            drawn += 5000
            yield (b"%d " % number * 5000)[:5000]

    reader = zlib.decompressobj(31) if coding == "gzip" else zstd.ZstdDecompressor()
    for piece in encoded(chunks(), coding):
        seen += len(reader.decompress(piece))
    assert seen == drawn


@pytest.mark.parametrize("coding", CODINGS)
def test_a_large_chunk_comes_out_in_pieces(coding: Coding) -> None:
    noise = np.random.default_rng(1).bytes(4 * MIB)
    for chunk in (noise, np.frombuffer(noise, np.int64).data):
        assert max(map(len, encoded([chunk], coding))) < 512 * KIB


def test_every_decoder_of_the_coding_has_the_window() -> None:
    """RFC 9659: the window of what a server sends is 8 MiB at most."""
    body = b"".join(encoded([bytes(100)] * 3, "zstd"))
    assert body[4] & 0x20 == 0  # no single segment, so that the next byte is that of the window
    assert 1 << (10 + (body[5] >> 3)) <= 8 * MIB


def test_a_flipped_bit_does_not_pass() -> None:
    body = bytearray(b"".join(encoded([b"some bytes"], "zstd")))
    body[-1] ^= 1
    with pytest.raises(zstd.ZstdError, match="checksum"):
        zstd.decompress(bytes(body))
    body = bytearray(b"".join(encoded([b"some bytes"], "gzip")))
    body[-5] ^= 1
    with pytest.raises(gzip.BadGzipFile):
        gzip.decompress(bytes(body))
