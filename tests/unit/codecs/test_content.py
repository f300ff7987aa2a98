import numpy as np
import pytest

from app.codecs.content import (
    CHUNK_BYTES,
    check_content,
    column_major,
    content_view,
    in_low_bits,
    narrow_faults,
    num_axes,
    read_content,
    row_major,
    sign_extended,
    swapped_chunks,
    to_little_endian,
)
from app.domain.dtypes import BOOL, DTYPES, INT64
from app.errors import MalformedInput, UnprocessableInput
from app.runtime.streams import MemoryStream


@pytest.mark.parametrize("chunk", [1, 3, None])
def test_reads_exactly_so_many_bytes_however_they_arrive(chunk: int | None) -> None:
    stream = MemoryStream(b"0123456789", chunk=chunk)
    assert read_content(stream, 7, "the digits") == b"0123456"
    assert stream.read(1) == b"7"


def test_what_it_reads_can_be_written_to() -> None:
    content = read_content(MemoryStream(b"\1\2"), 2, "the bytes")
    content[0] = 9
    assert content == b"\x09\2"


def test_a_short_stream_names_what_is_missing_and_where() -> None:
    with pytest.raises(MalformedInput, match="inside the digits: 5 bytes expected, 3 found") as caught:
        read_content(MemoryStream(b"123"), 5, "the digits", offset=100)
    assert caught.value.code == "truncated"
    assert caught.value.location.offset == 103


def test_an_enormous_claim_allocates_no_more_than_arrives() -> None:
    with pytest.raises(MalformedInput):
        read_content(MemoryStream(b"123"), 2**62, "the digits")


@pytest.mark.parametrize(
    ("name", "big"),
    [
        ("int16", b"\x01\x02\x03\x04"),
        ("bfloat16", b"\x01\x02\x03\x04"),
        ("complex64", b"\x00\x00\x00\x01\x00\x00\x00\x02"),
        ("uint8", b"\x01\x02"),
    ],
)
def test_byte_order_is_turned_per_number(name: str, big: bytes) -> None:
    little = {
        "int16": b"\x02\x01\x04\x03",
        "bfloat16": b"\x02\x01\x04\x03",
        "complex64": b"\x01\x00\x00\x00\x02\x00\x00\x00",
        "uint8": b"\x01\x02",
    }[name]
    content = bytearray(big)
    to_little_endian(content, DTYPES[name])
    assert content == little
    values = np.frombuffer(little, DTYPES[name].numpy)
    assert b"".join(swapped_chunks(values, DTYPES[name])) == big


def test_big_endian_output_comes_in_bounded_pieces() -> None:
    values = np.arange(CHUNK_BYTES // 8 * 2 + 1)
    pieces = list(swapped_chunks(values, INT64))
    assert [len(piece) for piece in pieces] == [CHUNK_BYTES, CHUNK_BYTES, 8]
    assert b"".join(pieces) == values.astype(">i8").tobytes()


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES.values() if not dtype.is_string], ids=str)
def test_the_view_of_numbers_shares_their_memory(dtype) -> None:  # type: ignore[no-untyped-def]  # any dtype
    values = np.zeros(3, dtype.numpy)
    view = content_view(values)
    assert len(view) == 3 * dtype.itemsize
    view[0] = 1
    assert values.tobytes()[0] == 1


def test_the_view_of_nothing_is_empty() -> None:
    assert bytes(content_view(np.zeros(0, "<f4"))) == b""


def test_a_bool_is_zero_or_one() -> None:
    check_content(b"\x00\x01", BOOL)
    check_content(b"", BOOL)
    check_content(b"\x02", DTYPES["int8"])
    with pytest.raises(UnprocessableInput, match=r"Element 2 .* 255; only 0 and 1 are bool") as caught:
        check_content(b"\x00\x01\xff\x02", BOOL, offset=10)
    assert caught.value.code == "invalid_bool"
    assert caught.value.location.offset == 12


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("int4", b"\x00\x0f\xf8\xff"),
        ("int2", b"\x03\xfe\xff"),
        ("uint4", b"\x0f"),
        ("float4_e2m1fn", b"\x0f"),
    ],
)
def test_few_bits_may_be_sign_extended(name: str, content: bytes) -> None:
    check_content(content, DTYPES[name])


@pytest.mark.parametrize(
    ("name", "byte"),
    [
        ("int4", 0x10),
        ("int4", 0xF7),
        ("int2", 0x04),
        ("int2", 0xFD),
        ("uint4", 0xFF),
        ("uint2", 4),
        ("float4_e2m1fn", 0xFF),
    ],
)
def test_bits_that_an_element_does_not_have_are_refused(name: str, byte: int) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        check_content(bytes([0, byte]), DTYPES[name], offset=10)
    assert (caught.value.code, caught.value.location.offset) == ("out_of_range", 11)


def test_few_bits_have_two_forms_that_mean_the_same() -> None:
    for name in ("int4", "int2", "uint4", "uint2", "float4_e2m1fn"):
        dtype = DTYPES[name]
        low = np.arange(1 << dtype.num_bits, dtype=np.uint8)
        values = low.view(dtype.numpy)
        extended = sign_extended(values, dtype)
        assert extended.view(dtype.numpy).tolist() == values.tolist()
        assert in_low_bits(extended.view(np.uint8), dtype).tolist() == low.tolist()
        assert not narrow_faults(extended.view(np.uint8), dtype).any()


@pytest.mark.parametrize("shape", [(), (5,), (1, 5), (2, 3), (2, 1, 3, 2), (0, 3), (2,) + (1,) * 70 + (3,)])
def test_column_major_order_and_back(shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape, dtype=int))
    turned = column_major(values, shape)
    if len(shape) < 64:
        assert turned.tolist() == values.reshape(shape).ravel(order="F").tolist()
    if num_axes(shape) > 1:
        assert row_major(turned, shape).tolist() == values.tolist()
    else:
        assert turned is values
