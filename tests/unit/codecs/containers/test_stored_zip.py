import io
import zipfile
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.arrays import stored_zip
from app.codecs.arrays.stored_zip import serialize_stored_zip
from app.runtime.streams import Buffer

LITERAL = bytes.fromhex(
    "504b0304 2d00 0000 0000 0000 2100 c2412435 03000000 03000000 0100 0000 61 616263"
    "504b0102 2d03 2d00 0000 0000 0000 2100 c2412435 03000000 03000000 0100 0000 0000 0000 0000 00008001"
    "00000000 61"
    "504b0506 0000 0000 0100 0100 2f000000 22000000 0000"
)


def archive_of(members: dict[str, bytes]) -> bytes:
    return b"".join(
        serialize_stored_zip([(name, lambda data=data: iter([data])) for name, data in members.items()])  # type: ignore[misc]  # mypy infers no lambda with a default
    )


def test_literal_bytes() -> None:
    assert archive_of({"a": b"abc"}) == LITERAL


@given(st.dictionaries(st.text("abcäé.", min_size=1, max_size=5), st.binary(max_size=30)))
@settings(deadline=None)
def test_zipfile_reads_it(members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(io.BytesIO(archive_of(members))) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == members


def test_a_failing_content_fails_before_the_first_byte() -> None:
    def failing() -> Iterator[Buffer]:
        yield b"x"
        raise LookupError

    with pytest.raises(LookupError):
        next(serialize_stored_zip([("a", lambda: iter([b"fine"])), ("b", failing)]))


def test_content_may_come_in_pieces() -> None:
    pieces = list(serialize_stored_zip([("a", lambda: iter([b"a", b"bc"]))]))
    assert b"".join(pieces) == LITERAL
    assert pieces[1:3] == [b"a", b"bc"]


def test_zip64_where_values_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    # Files of 4 GiB would be needed otherwise; zipfile believes the wide fields wherever they stand.
    monkeypatch.setattr(stored_zip, "_MAX_16", 1)
    assert b"PK\x06\x06" in archive_of({"a": b"abc", "b": b"d"})
    with zipfile.ZipFile(io.BytesIO(archive_of({"a": b"abc", "b": b"d"}))) as archive:
        assert archive.read("b") == b"d"


def test_the_wide_fields_of_a_large_member() -> None:
    size, offset = 2**32 + 5, 2**33
    member = stored_zip._Member(b"a", lambda: iter([]), size, 7, offset)
    local = zipfile.ZipInfo("a")
    local.file_size = local.compress_size = size
    local.CRC = 7
    assert member.local_header() == local.FileHeader(zip64=True)
    entry = member.directory_entry()
    wide = b"\x01\x00\x18\x00" + size.to_bytes(8, "little") * 2 + offset.to_bytes(8, "little")
    assert entry.endswith(b"a" + wide)
    assert entry[20:28] == b"\xff" * 8  # both sizes
    assert entry[42:46] == b"\xff" * 4  # the offset
