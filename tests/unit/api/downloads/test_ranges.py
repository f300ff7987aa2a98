"""Ranges of stored files, as RFC 9110 has them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.api.downloads.ranges import ByteRange, RangeUnsatisfiable, parse_ranges

SIZE = 100


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-0", [(0, 1)]),
        ("bytes=0-99", [(0, 100)]),
        ("bytes=10-", [(10, 90)]),
        ("bytes=-10", [(90, 10)]),
        ("bytes=-1000", [(0, 100)]),
        ("bytes=90-1000", [(90, 10)]),
        ("BYTES=1-2", [(1, 2)]),
        ("bytes=0-1,5-6", [(0, 2), (5, 2)]),
        ("bytes=0-1, ,5-6,", [(0, 2), (5, 2)]),
        ("bytes=50-59,0-9", [(50, 10), (0, 10)]),
        ("bytes=0-1,200-300,-1", [(0, 2), (99, 1)]),
    ],
)
def test_range_header_is_parsed(header: str, expected: list[tuple[int, int]]) -> None:
    assert parse_ranges(header, SIZE) == tuple(ByteRange(*part) for part in expected)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-9,10-19", [(0, 20)]),
        ("bytes=0-9,5-19", [(0, 20)]),
        ("bytes=0-,0-,0-", [(0, 100)]),
        ("bytes=0-99,5-6,-1", [(0, 100)]),
        ("bytes=50-59,0-9,55-69", [(50, 20), (0, 10)]),
        ("bytes=40-49,0-9,30-39", [(30, 20), (0, 10)]),
        ("bytes=" + ",".join(["0-"] * 64), [(0, 100)]),
    ],
)
def test_ranges_that_overlap_or_touch_are_one(header: str, expected: list[tuple[int, int]]) -> None:
    assert parse_ranges(header, SIZE) == tuple(ByteRange(*part) for part in expected)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 150), st.integers(0, 150)), min_size=1, max_size=64))
def test_all_asked_for_is_there_once_and_no_more(bounds: list[tuple[int, int]]) -> None:
    wanted = {place for low, high in bounds for place in range(min(low, high), max(low, high) + 1)}
    header = "bytes=" + ",".join(f"{min(pair)}-{max(pair)}" for pair in bounds)
    try:
        found = parse_ranges(header, SIZE) or ()
    except RangeUnsatisfiable:
        found = ()
    places = [place for part in found for place in range(part.offset, part.end)]
    assert sorted(places) == sorted(wanted & set(range(SIZE)))


@pytest.mark.parametrize(
    "header",
    [None, "", "bytes", "bytes=", "bytes=-", "bytes=,", "bytes=5-2", "bytes=a-b", "rows=0-1", "bytes=+1-2",
     "bytes=1-99999999999999999999999", "bytes=0-1;5-6", "bytes=0-1,x", "bytes=1-2-3", "bytes=\u0661-2",
     "bytes=" + ",".join(["0-0"] * 65), "bytes=" + ",".join(f"{i}-{i}" for i in range(0, 5000, 2)),
     "bytes=" + "," * 100_000 + "0-1"],
)  # fmt: skip
def test_bad_or_excessive_range_is_ignored(header: str | None) -> None:
    assert parse_ranges(header, SIZE) is None


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=100-,200-300"])
def test_a_range_outside_the_file_is_unsatisfiable(header: str) -> None:
    with pytest.raises(RangeUnsatisfiable):
        parse_ranges(header, SIZE)


@pytest.mark.parametrize("header", ["bytes=0-", "bytes=-5"])
def test_an_empty_file_has_no_range(header: str) -> None:
    with pytest.raises(RangeUnsatisfiable):
        parse_ranges(header, 0)
