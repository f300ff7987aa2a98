import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.messages.protobuf import (
    count_varints,
    fields_of,
    iter_varints,
    parse_varint,
    serialize_varint,
    signed,
)
from app.errors import MalformedInput

UINT64 = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, b"\x00"),
        (1, b"\x01"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (2**64 - 1, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    ],
)
def test_varint_bytes(value: int, data: bytes) -> None:
    assert serialize_varint(value) == data
    assert parse_varint(data, 0, len(data)) == (value, len(data))


def test_negative_numbers_are_64_bits_in_twos_complement() -> None:
    assert signed(2**64 - 1) == -1
    assert signed(2**63 - 1) == 2**63 - 1


@pytest.mark.parametrize(
    ("data", "code", "offset"),
    [
        (b"", "truncated", 7),
        (b"\x80\x80", "truncated", 9),
        (b"\xff" * 9 + b"\x02", "invalid_protobuf", 7),
        (b"\x80" * 10 + b"\x00", "invalid_protobuf", 7),
    ],
)
def test_a_varint_that_is_none(data: bytes, code: str, offset: int) -> None:
    with pytest.raises(MalformedInput) as caught:
        parse_varint(data, 0, len(data), offset=7)
    assert (caught.value.code, caught.value.location.offset) == (code, offset)


def test_fields_of_every_wire_type() -> None:
    data = b"\x08\x96\x01" + b"\x12\x02ab" + b"\x1d\x01\x00\x00\x00" + b"\x21" + b"\x02" * 8
    assert list(fields_of(data, 0, len(data))) == [
        (1, 0, 150, 1, 3),
        (2, 2, 0, 5, 7),
        (3, 5, 0, 8, 12),
        (4, 1, 0, 13, 21),
    ]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x08", "truncated"),  # no value
        (b"\x12", "truncated"),  # no length
        (b"\x12\x03ab", "truncated"),  # a length beyond the end
        (b"\x12\xff\xff\xff\xff\x7f", "truncated"),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "invalid_protobuf"),  # a length of 64 bits
        (b"\x1d\x00\x00\x00", "truncated"),  # 3 of 4 bytes
        (b"\x21\x00", "truncated"),  # 1 of 8 bytes
        (b"\x00\x01", "invalid_protobuf"),  # field 0
        (b"\x0b\x0c", "invalid_protobuf"),  # a group
        (b"\x0c", "invalid_protobuf"),
        (b"\x0e\x00", "invalid_protobuf"),  # wire type 6
        (b"\x88\x80\x80\x80\x80\x00\x01", "invalid_protobuf"),  # a tag of six bytes
        (b"\x88\x80\x80\x80\x70\x01", "invalid_protobuf"),  # a tag of more than 32 bits
    ],
)
def test_a_message_that_is_none(data: bytes, code: str) -> None:
    with pytest.raises(MalformedInput) as caught:
        list(fields_of(data, 0, len(data)))
    assert caught.value.code == code


def test_the_end_of_a_nested_message_holds_even_where_more_bytes_follow() -> None:
    with pytest.raises(MalformedInput) as caught:
        list(fields_of(b"\x12\x03abc", 0, 4, offset=50))
    assert caught.value.location.offset == 50


@given(st.lists(UINT64, max_size=50))
@settings(deadline=None)
def test_packed_varints_round_trip(values: list[int]) -> None:
    packed = b"".join(map(serialize_varint, values))
    assert count_varints(packed) == len(values)
    assert [int(value) for chunk in iter_varints(packed) for value in chunk] == values


def test_packed_varints_longer_than_a_chunk() -> None:
    values = np.arange(100_000, dtype=np.uint64) * np.uint64(977)
    packed = b"".join(serialize_varint(int(value)) for value in values)
    assert count_varints(packed) == len(values)
    np.testing.assert_array_equal(np.concatenate(list(iter_varints(packed))), values)


@pytest.mark.parametrize(
    "packed", [b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x00", b"\x80" * 100_000 + b"\x00"]
)
def test_packed_varints_of_more_than_64_bits(packed: bytes) -> None:
    with pytest.raises(MalformedInput, match="64 bits") as caught:
        list(iter_varints(b"\x01" + packed, offset=3))
    assert caught.value.location.offset == 3


def test_a_packed_field_that_ends_inside_a_varint() -> None:
    with pytest.raises(MalformedInput) as caught:
        count_varints(b"\x01\x80", offset=3)
    assert caught.value.code == "truncated"


@given(st.binary(max_size=40))
@settings(deadline=None)
def test_any_bytes_are_fields_or_malformed(data: bytes) -> None:
    try:
        fields = list(fields_of(data, 0, len(data)))
    except MalformedInput:
        return
    assert not data or fields[-1][4] == len(data)
