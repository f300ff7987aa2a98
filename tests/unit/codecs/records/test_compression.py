from __future__ import annotations

import zlib

import pytest

from app.codecs.compression.tfrecord import compress, detect_compression
from app.domain.compression import Compression
from app.runtime.streams import Buffer, ByteStream, MemoryStream, PrefixedStream


def drained(stream: ByteStream, n: int) -> bytes:
    gathered = b""
    while piece := stream.read(n):
        assert len(piece) <= n
        gathered += piece
    assert stream.read(n) == b""
    return gathered


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_what_is_compressed_is_one_member_and_always_the_same(compression: Compression) -> None:
    chunks: list[Buffer] = [b"a" * 1000, memoryview(b"b" * 1000)]
    once = b"".join(compress(chunks, compression))
    assert once == b"".join(compress([bytes(chunk) for chunk in chunks], compression))
    inflater = zlib.decompressobj(31 if compression == "gzip" else 15)
    assert inflater.decompress(once) == b"a" * 1000 + b"b" * 1000
    assert inflater.eof
    assert not inflater.unused_data
    if compression == "gzip":
        assert once[4:8] == bytes(4)  # no time stamp


def test_without_compression_the_chunks_pass_as_they_are() -> None:
    chunks: list[Buffer] = [b"a", memoryview(b"b")]
    assert list(compress(chunks, "none")) == chunks


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"", None),
        (b"\x1f", None),
        (b"\x1f\x8b\x08", "gzip"),
        (b"\x78\x9c", "zlib"),
        (b"\x78\x01", "zlib"),
        (b"\x78\xda", "zlib"),
        (b"\x78\x9d", None),  # the check bits
        (b"\x78\xbb", None),  # a preset dictionary
        (b"\x88\x1c", None),  # a window that does not exist
        (b"{}", None),
    ],
)
def test_the_container_is_known_by_its_header(head: bytes, expected: Compression | None) -> None:
    assert detect_compression(head) == expected


def test_a_head_that_was_read_is_read_again() -> None:
    assert drained(PrefixedStream(b"abc", MemoryStream(b"def")), 2) == b"abcdef"
