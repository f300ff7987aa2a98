from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.kernels import varint


def data_of(encoded: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(encoded, np.uint8)


def read(encoded: bytes, position: int) -> tuple[int, int]:
    value, after = varint.read_varint(data_of(encoded), position, len(encoded))
    return int(value), after


def written(value: int) -> bytes:
    out = np.zeros(12, np.uint8)
    end = varint.write_varint(out, 1, np.uint64(value))
    assert not out[0]
    assert not out[end:].any()
    return out[1:end].tobytes()


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (2**63, b"\x80" * 9 + b"\x01"),
        (2**64 - 1, b"\xff" * 9 + b"\x01"),
    ],
)
def test_values_are_written_and_read_as_the_specification_says(value: int, encoded: bytes) -> None:
    assert written(value) == encoded
    assert varint.varint_size(np.uint64(value)) == len(encoded)
    assert read(b"\0" + encoded, 1) == (value, 1 + len(encoded))


@given(st.integers(0, 2**64 - 1))
def test_every_value_returns_and_has_the_size_it_is_said_to_have(value: int) -> None:
    encoded = written(value)
    assert varint.varint_size(np.uint64(value)) == len(encoded)
    assert read(encoded, 0) == (value, len(encoded))


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\xff" * 10 + b"\x01", b"\xff" * 9])
def test_a_cut_or_overlong_varint_is_refused_where_it_begins(encoded: bytes) -> None:
    assert read(b"\0" + encoded, 1)[1] == ~1


def test_bits_beyond_the_64th_are_dropped() -> None:
    assert read(b"\xff" * 9 + b"\x7f", 0) == (2**64 - 1, 10)


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (b"\x0a", (10, 1)),
        (b"\x8a\x80\x80\x80\x00", (10, 5)),
        (b"\x8a\x80\x80\x80\x80\x00", (0, ~0)),  # six bytes
        (b"\x8a\x80\x80\x80\x10", (2**32 + 10, ~0)),  # more than 32 bits
        (b"\x02", (2, ~0)),  # field 0
    ],
)
def test_tags_have_32_bits_and_a_field(encoded: bytes, expected: tuple[int, int]) -> None:
    assert varint.read_tag(data_of(encoded), 0, len(encoded)) == expected


@pytest.mark.parametrize(
    ("encoded", "after"), [(b"\x02xy", 1), (b"\x02x", ~0), (b"\x80\x80\x80\x80\x80\x00", ~0), (b"\x00", 1)]
)
def test_a_length_must_fit_what_encloses_it(encoded: bytes, after: int) -> None:
    assert varint.read_length(data_of(encoded), 0, len(encoded))[1] == after


@pytest.mark.parametrize(
    ("tag", "content", "after"),
    [
        (0x18, b"\x80\x01", 2),
        (0x19, b"12345678", 8),
        (0x19, b"1234567", ~0),
        (0x1A, b"\x02xy", 3),
        (0x1A, b"\x03xy", ~0),
        (0x1D, b"1234", 4),
        (0x1D, b"123", ~0),
        (0x1B, b"\x1c", ~0),  # a group
        (0x1E, b"\x00", ~0),  # no such wire type
    ],
)
def test_fields_are_skipped_by_wire_type(tag: int, content: bytes, after: int) -> None:
    assert varint.skip_field(data_of(content), 0, len(content), tag) == after


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 300)))
def test_varints_are_counted_a_word_at_a_time(values: list[int]) -> None:
    encoded = b"".join(map(written, values))
    assert varint.count_varints(data_of(b"\0" + encoded), 1, 1 + len(encoded)) == len(values)
    if encoded:
        assert varint.count_varints(data_of(encoded + b"\x80"), 0, len(encoded) + 1) < 0


@pytest.mark.parametrize("before", range(17))
def test_an_overlong_varint_is_found_wherever_it_lies(before: int) -> None:
    encoded = b"\x01" * before + b"\x80" * 10 + b"\x00" + b"\x01" * 9
    assert varint.count_varints(data_of(encoded), 0, len(encoded)) == ~before


def test_a_length_delimited_field_is_written_with_its_size() -> None:
    out = np.zeros(3, np.uint8)
    assert varint.write_length(out, 0, 0x0A, 300) == 3
    assert out.tobytes() == b"\x0a\xac\x02"
    assert varint.field_size(300) == 303


@given(st.integers(0, 2**56 - 1))
def test_bits_are_spread_over_bytes_and_gathered_again(value: int) -> None:
    word = varint.spread_bits(np.uint64(value))
    assert int(word).to_bytes(8, "little").rstrip(b"\0") == written(value).rstrip(b"\0")
    assert int(varint.gather_bits(word)) == value


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 2**21), max_size=12))
def test_packed_varints_are_written_and_read_like_single_ones(values: list[int]) -> None:
    expected = b"".join(map(written, values))
    out = np.full(len(expected) + 8, 7, np.uint8)
    at = 0
    for value in values:
        at = varint.write_packed_varint(out, at, np.uint64(value), len(expected))
    assert at == len(expected)
    assert out[:at].tobytes() == expected
    assert (out[at:] == 7).all()
    position = 0
    for value in values:
        found, position = varint.read_packed_varint(out, position, at)
        assert found == value
    assert position == at


@pytest.mark.parametrize("after", [b"", b"\x01" * 8])
def test_a_packed_varint_that_is_cut_or_overlong_is_refused(after: bytes) -> None:
    for encoded in (b"\x80" * 10 + b"\x01", b"\x80" * 7):
        data = b"\0" + encoded + (after if len(encoded) > 10 else b"")
        assert varint.read_packed_varint(data_of(data), 1, len(data))[1] == ~1


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 2**21), min_size=1, max_size=4))
def test_two_varints_are_read_where_both_lie_in_eight_bytes(values: list[int]) -> None:
    encoded = b"".join(written(value) for value in values)
    data = data_of(encoded + bytes(8))
    sizes = [len(written(value)) for value in values]
    first, second, after = varint.read_two_varints(data, 0, len(encoded))
    if len(values) > 1 and sum(sizes[:2]) <= 8 <= len(encoded):
        assert (int(first), int(second), after) == (*values[:2], sum(sizes[:2]))
    else:
        assert after == -1
