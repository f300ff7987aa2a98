"""Encoded bodies, whole, in pieces, damaged and hostile: their content never depends on how they arrive."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.api.execution.transcoding import DecodedBody
from app.domain.limits import KIB, MIB, Limits
from app.errors import InputError, LimitExceeded, MalformedInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream, read_exactly
from tests.support.bodies import stream_of
from tests.support.zstandard import zstd

Container = Literal["gzip", "zlib", "zstd"]
CONTAINERS: tuple[Container, ...] = ("gzip", "zlib", "zstd")
SKIPPABLE = struct.pack("<II", 0x184D2A50, 3) + b"abc"


def compressed(data: bytes, container: Container) -> bytes:
    if container == "zstd":
        return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})
    return gzip.compress(data, mtime=0) if container == "gzip" else zlib.compress(data)


def inflated(body: bytes, container: Container, *, n: int = 64 * KIB, chunk: int | None = None) -> bytes:
    stream = DecodedBody(stream_of(body, chunk), container, Budget())
    gathered = bytearray()
    while piece := stream.read(n):
        assert len(piece) <= n
        gathered += piece
    assert stream.read(n) == b""
    return bytes(gathered)


def refused(body: bytes, container: Container, *, chunk: int | None = None) -> InputError:
    stream = DecodedBody(stream_of(body, chunk), container, Budget())
    pieces: list[bytes] = []
    with pytest.raises(InputError) as caught:
        pieces.extend(iter(lambda: stream.read(64 * KIB), b""))
    if isinstance(caught.value, MalformedInput):
        assert caught.value.location.offset == sum(map(len, pieces))
    return caught.value


@pytest.mark.parametrize("n", [1, 7, 100_000])
@pytest.mark.parametrize("chunk", [1, 50, None])
@pytest.mark.parametrize("container", CONTAINERS)
def test_a_stream_is_inflated_in_pieces_of_any_size(container: Container, chunk: int | None, n: int) -> None:
    data = bytes(range(256)) * 10
    assert inflated(compressed(data, container), container, n=n, chunk=chunk) == data


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_stream_may_be_split_anywhere(container: Container) -> None:
    data = b"".join(b"%d," % (number * number) for number in range(60))
    body = compressed(data, container)
    for split in range(len(body) + 1):
        parts = iter([part for part in (body[:split], body[split:]) if part])

        class Parts:
            def read(self, _: int, /) -> bytes:
                return next(parts, b"")  # noqa: B023  # read up within the turn

        stream = DecodedBody(Parts(), container, Budget())
        assert b"".join(iter(lambda: stream.read(100), b"")) == data  # noqa: B023


@pytest.mark.parametrize("container", CONTAINERS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_bytes_come_back_however_they_are_read(container: Container, data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 5000)), max_size=6))
    raw = b"".join(piece * times for piece, times in pieces)
    n, chunk = data.draw(st.integers(1, 70_000)), data.draw(st.integers(1, 70_000))
    assert inflated(compressed(raw, container), container, n=max(n, len(raw) // 500), chunk=chunk) == raw


@pytest.mark.parametrize("container", CONTAINERS)
def test_large_streams_are_inflated_whole(container: Container) -> None:
    data = b"".join(struct.pack("<Q", number * 2654435761 % 2**61) for number in range(100_000))
    for n in (1000, 10 * MIB):
        assert inflated(compressed(data, container), container, n=n) == data


def test_nothing_is_a_stream_too() -> None:
    for container in CONTAINERS:
        assert inflated(compressed(b"", container), container) == b""


@pytest.mark.parametrize("container", ["gzip", "zstd"])
def test_members_and_frames_that_follow_one_another_are_joined(container: Container) -> None:
    parts = [b"", b"abc", b"", bytes(100_000), b"d"]
    body = b"".join(compressed(part, container) for part in parts)
    for chunk in (1, 30, None):
        assert inflated(body, container, chunk=chunk) == b"".join(parts)
    many = compressed(b"x", container) * 10_000
    assert inflated(many, container) == b"x" * 10_000


@pytest.mark.parametrize(
    ("body", "container"),
    [(gzip.compress(b"", mtime=0), "gzip"), (zstd.compress(b""), "zstd"), (SKIPPABLE, "zstd")],
)
def test_members_are_few_or_hold_something(body: bytes, container: Container) -> None:
    """To begin a member takes far longer than to inflate its few bytes."""
    few = 10_000
    assert inflated(body * few, container) == b""
    assert refused(body * 100_000, container).code == "too_many_members"
    noise = random.Random(3).randbytes(70)
    assert inflated(compressed(noise, container) * 15_000, container) == noise * 15_000


def test_frames_that_hold_nothing_for_the_reader_are_skipped() -> None:
    body = SKIPPABLE + compressed(b"ab", "zstd") + SKIPPABLE + compressed(b"c", "zstd") + SKIPPABLE
    for chunk in (1, 5, None):
        assert inflated(body, "zstd", chunk=chunk) == b"abc"


@pytest.mark.parametrize("chunk", [1, 10, None])
@pytest.mark.parametrize("container", CONTAINERS)
def test_every_body_that_is_cut_short_is_refused(container: Container, chunk: int | None) -> None:
    body = compressed(b"".join(b"%d" % number for number in range(100)), container)
    for end in range(len(body)):
        error = refused(body[:end], container, chunk=chunk)
        assert (type(error), error.code) == (MalformedInput, "truncated"), end


@pytest.mark.parametrize("container", CONTAINERS)
def test_late_damage_is_refused_at_its_offset(container: Container) -> None:
    body = bytearray(compressed(random.Random(5).randbytes(400_000), container))
    body[-1] ^= 1
    error = refused(bytes(body), container)
    assert error.code == "invalid_compression"
    assert (error.location.offset or 0) > 250_000


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_bit_of_the_checksum_counts(container: Container) -> None:
    body = bytearray(compressed(b"some bytes", container))
    for index in range(len(body) - 4, len(body)):
        body[index] ^= 1
        assert refused(bytes(body), container).code == "invalid_compression"
        body[index] ^= 1


@pytest.mark.parametrize("chunk", [1, None])
@pytest.mark.parametrize(
    ("container", "rest", "code"),
    [
        ("gzip", b"x" * 20, "trailing_bytes"),
        ("gzip", b"\0" * 512, "trailing_bytes"),
        ("gzip", b"\x1f", "truncated"),
        ("zlib", b"x", "trailing_bytes"),
        ("zlib", zlib.compress(b"abc"), "trailing_bytes"),
        ("zstd", b"x" * 20, "trailing_bytes"),
        ("zstd", b"\0" * 512, "trailing_bytes"),
        ("zstd", b"\x28", "truncated"),
        ("zstd", gzip.compress(b"abc", mtime=0), "trailing_bytes"),
    ],
)
def test_trailing_bytes_are_refused(container: Container, rest: bytes, code: str, chunk: int | None) -> None:
    stream = DecodedBody(stream_of(compressed(b"abc", container) + rest, chunk), container, Budget())
    assert read_exactly(stream, 3, "the member") == b"abc"
    with pytest.raises(MalformedInput) as caught:
        stream.read(10)
    assert (caught.value.code, caught.value.location.offset) == (code, 3)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("body", [b"x" * 30, b"{}" * 20, bytes(30)])
def test_bytes_of_another_format_are_refused(container: Container, body: bytes) -> None:
    assert refused(body, container).code == "invalid_compression"


def test_deflate_without_its_header_is_refused() -> None:
    raw = zlib.compressobj(wbits=-15)
    body = raw.compress(b"some bytes, which no checksum follows") + raw.flush()
    assert refused(body, "zlib").code == "invalid_compression"


@pytest.mark.parametrize("container", CONTAINERS)
def test_fault_14_15_a_bomb_is_refused_while_it_is_inflated(container: Container) -> None:
    """Not more is inflated than the ratio allows for what has arrived."""
    limits = Limits(max_amplification=100)
    body = compressed(bytes(64 * MIB), container)
    stream = DecodedBody(MemoryStream(body), container, Budget(limits))
    pieces: list[int] = []
    with pytest.raises(LimitExceeded) as caught:
        pieces.extend(iter(lambda: len(stream.read(MIB)), 0))
    assert caught.value.code == "compression_ratio_exceeded"
    assert sum(pieces) <= max(MIB, 100 * len(body))


@pytest.mark.parametrize("container", CONTAINERS)
def test_refusal_does_not_depend_on_chunks(container: Container) -> None:
    """Much from little at the beginning is fine, where enough follows in the next 64 KiB."""
    noise = random.Random(1).randbytes(64 * KIB)
    for chunk in (997, None):
        assert len(inflated(compressed(bytes(8 * MIB) + noise, container), container, chunk=chunk)) > 8 * MIB
    if container == "zstd":
        for chunk in (997, None):
            error = refused(compressed(bytes(8 * MIB) + noise[:1000], container), container, chunk=chunk)
            assert error.code == "compression_ratio_exceeded"


def test_a_small_body_may_be_as_compressible_as_it_likes() -> None:
    for container in CONTAINERS:
        assert inflated(compressed(bytes(MIB), container), container) == bytes(MIB)


def test_fault_15_a_window_beyond_that_of_the_content_coding_is_refused() -> None:
    def framed(window_log: int) -> bytes:
        compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: window_log})
        return compressor.compress(b"abc") + compressor.flush()

    largest = 23  # RFC 9659: 8 MiB
    assert inflated(framed(largest), "zstd") == b"abc"
    for window_log in (largest + 1, 27):
        error = refused(framed(window_log), "zstd")
        assert (type(error), error.code) == (LimitExceeded, "compression_window_exceeded")


def test_a_dictionary_is_not_to_be_had() -> None:
    frame = b"\x28\xb5\x2f\xfd\x01\x58\x05\x01\x00\x00"
    assert refused(frame, "zstd").code == "invalid_compression"
    preset = zlib.compressobj(zdict=b"words")
    assert refused(preset.compress(b"words") + preset.flush(), "zlib").code == "invalid_compression"
