"""Pieces of one gzip member or zlib stream, each of which can be inflated alone."""

import gzip
import subprocess
import sys
import zlib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.compression import deflated_pieces
from app.codecs.compression.deflated_pieces import StreamFrame, deflate_piece, deflater_name, inflate_piece
from app.domain.compression import Compression
from tests.readers import inflate_piece as inflated_apart

COMPRESSIONS: list[Compression] = ["gzip", "zlib"]


def stored(pieces: list[bytes], compression: Compression) -> list[bytes]:
    frame = StreamFrame(compression)
    deflated = []
    for piece in pieces:
        frame.add(piece)
        deflated.append(deflate_piece(piece))
    if not deflated:
        return [frame.header + frame.trailer]
    deflated[0] = frame.header + deflated[0]
    deflated[-1] += frame.trailer
    return deflated


@pytest.mark.parametrize("compression", COMPRESSIONS)
@settings(deadline=None, max_examples=50)
@given(pieces=st.lists(st.binary(max_size=500).map(lambda data: data * 7), max_size=6))
def test_together_they_are_one_stream_and_apart_each_inflates(
    compression: Compression, pieces: list[bytes]
) -> None:
    deflated = stored(pieces, compression)
    inflater = zlib.decompressobj({"gzip": 31, "zlib": 15}[compression])
    assert inflater.decompress(b"".join(deflated)) == b"".join(pieces)
    assert inflater.eof
    assert inflater.unused_data == b""
    for number, (piece, data) in enumerate(zip(pieces or [b""], deflated, strict=True)):
        assert inflated_apart(data, compression, first=number == 0) == piece
        assert inflate_piece(data, len(piece), is_first=number == 0) == piece


def test_no_time_and_no_system_stands_in_the_header() -> None:
    data = b"".join(stored([b"a", b"b"], "gzip"))
    assert data[:10] == bytes.fromhex("1f8b08000000000000ff")
    assert gzip.decompress(data) == b"ab"


def test_zlibs_own_header_for_such_a_level() -> None:
    assert zlib.compress(b"", deflated_pieces.DEFLATE_LEVEL)[:2] == StreamFrame("zlib").header


def test_each_piece_but_the_last_ends_in_a_full_flush() -> None:
    for data in stored([b"abc" * 100, b"abc" * 100, b""], "gzip")[:-1]:
        assert data.endswith(bytes.fromhex("0000ffff"))


def test_the_name_of_the_deflater_is_the_same_in_every_process_and_tells_levels_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = "from app.codecs.compression.deflated_pieces import deflater_name; print(deflater_name())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    name = deflater_name()
    assert ran.stdout.strip() == name
    assert zlib.ZLIB_RUNTIME_VERSION in name
    names = [name]
    for level in (1, 9):
        monkeypatch.setattr(deflated_pieces, "DEFLATE_LEVEL", level)
        names.append(deflater_name.__wrapped__())
    assert all(one.rpartition("-")[2] != other.rpartition("-")[2] for one, other in pairwise(names))
