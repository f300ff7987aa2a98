"""Pieces of one gzip member or zlib stream, each of which can be inflated alone."""

import gzip
import struct
import subprocess
import sys
import zlib
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.compression import Compression
from app.services.datasets.objects.fingerprint import fingerprint
from app.services.datasets.pieces.pieces import stored_in
from app.services.datasets.pieces.stream import load_piece
from app.services.datasets.publish.shards.seal import Sealed, seal
from app.storage.obstore_store import open_store
from tests.support.shard_readers import inflate_piece

COMPRESSIONS: list[Compression] = ["gzip", "zlib"]


def sealed(pieces: list[bytes], compression: Compression) -> list[Sealed]:
    return list(seal(((data, number) for number, data in enumerate(pieces)), compression))


def stored(pieces: list[bytes], compression: Compression) -> list[bytes]:
    return [bytes(data) for data, _ in sealed(pieces, compression)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@settings(deadline=None, max_examples=50)
@given(pieces=st.lists(st.binary(max_size=500).map(lambda data: data * 7), max_size=6))
def test_together_they_are_one_stream_and_apart_each_inflates(
    compression: Compression, pieces: list[bytes]
) -> None:
    found = sealed(pieces, compression)
    whole = b"".join(bytes(data) for data, _ in found)
    inflater = zlib.decompressobj({"gzip": 31, "zlib": 15}[compression])
    assert inflater.decompress(whole) == b"".join(pieces)
    assert inflater.eof
    assert inflater.unused_data == b""
    store = open_store("memory://")
    store.put("shard", whole)
    apart = list(stored_in("shard", [piece for _, piece in found]))
    expected = pieces or [b""]  # a file without records is one piece, which begins none
    for number, (data, piece) in enumerate(found):
        assert (piece.size, piece.sha256) == (len(data), sha256(data).hexdigest())
        assert (piece.num_records, piece.raw_size) == (number, len(expected[number]))
        assert inflate_piece(bytes(data), compression, first=number == 0) == expected[number]
        assert load_piece(store, apart[number]) == expected[number]


def test_gzip_header_has_no_time_or_system() -> None:
    data = b"".join(stored([b"a", b"b"], "gzip"))
    assert data[:10] == bytes.fromhex("1f8b08000000000000ff")
    assert gzip.decompress(data) == b"ab"


def test_zlibs_own_header_for_such_a_level() -> None:
    assert stored([b"a"], "zlib")[0][:2] == zlib.compress(b"", 4)[:2]


def test_each_piece_but_the_last_ends_in_a_full_flush() -> None:
    for data in stored([b"abc" * 100, b"abc" * 100, b""], "gzip")[:-1]:
        assert data.endswith(bytes.fromhex("0000ffff"))


def test_a_plan_names_the_deflater_by_what_it_makes_of_a_sample() -> None:
    """Forks of zlib go by its version numbers, and write other bytes."""
    sample = b"".join(struct.pack("<Q", value * value % 1_000_003) for value in range(20_000))
    deflater = zlib.compressobj(4, zlib.DEFLATED, -15)
    digest = sha256(deflater.compress(sample) + deflater.flush(zlib.Z_FULL_FLUSH)).hexdigest()
    expected = f"{fingerprint('none')} zlib-{zlib.ZLIB_RUNTIME_VERSION}-4-{digest[:16]}"
    assert [fingerprint(compression) for compression in COMPRESSIONS] == [expected] * 2
    code = "from app.services.datasets.objects.fingerprint import fingerprint; print(fingerprint('gzip'))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == expected
