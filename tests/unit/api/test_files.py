"""Ranges of stored files."""

import pytest

from app.api.files import ByteRange, RangeUnsatisfiable, parse_range

SIZE = 100


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-0", ByteRange(0, 1)),
        ("bytes=0-99", ByteRange(0, 100)),
        ("bytes=10-", ByteRange(10, 90)),
        ("bytes=-10", ByteRange(90, 10)),
        ("bytes=-1000", ByteRange(0, 100)),
        ("bytes=90-1000", ByteRange(90, 10)),
        ("BYTES=1-2", ByteRange(1, 2)),
    ],
)
def test_one_range(header: str, expected: ByteRange) -> None:
    assert parse_range(header, SIZE) == expected


@pytest.mark.parametrize(
    "header",
    [None, "", "bytes", "bytes=", "bytes=-", "bytes=5-2", "bytes=a-b", "bytes=0-1,5-6", "rows=0-1",
     "bytes=+1-2", "bytes=1-99999999999999999999999"],
)  # fmt: skip
def test_what_is_not_one_range_is_ignored(header: str | None) -> None:
    assert parse_range(header, SIZE) is None


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_a_range_outside_the_file_is_unsatisfiable(header: str) -> None:
    with pytest.raises(RangeUnsatisfiable):
        parse_range(header, SIZE)


def test_an_empty_file_has_no_range() -> None:
    with pytest.raises(RangeUnsatisfiable):
        parse_range("bytes=-5", 0)
