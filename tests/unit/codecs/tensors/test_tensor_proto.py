from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.messages.tensor_proto import (
    decode,
    encode,
    parse_tensor_proto,
    serialize_tensor_proto,
    tensor_proto_header,
)
from app.codecs.options import TensorDecodeOptions, TensorEncodeOptions
from app.domain.dtypes import BOOL, DTYPES, STRING
from app.domain.limits import Limits
from app.domain.tensor import Tensor
from app.errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from tests.elements import element_bytes

FLOAT32 = DTYPES["float32"]
#: A vector of one float32; what follows gives its value.
VECTOR = b"\x08\x01\x12\x04\x12\x02\x08\x01"


def strings(*values: bytes) -> Any:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def parse(data: bytes, **kwargs: Any) -> Tensor:
    return parse_tensor_proto(data, Budget(), **kwargs)


def refused(data: bytes, error: type[InputError], code: str, offset: int | None = None) -> None:
    with pytest.raises(error) as caught:
        parse(data, offset=1000)
    assert caught.value.code == code
    assert caught.value.location.offset is not None
    if offset is not None:
        assert caught.value.location.offset == 1000 + offset


CASES = {
    "float32 matrix": (
        Tensor(FLOAT32, (1, 2), np.array([1, -2], "<f4")),
        "0801 1208 12020801 12020802 2208 0000803f 000000c0",
    ),
    "scalar": (Tensor(DTYPES["int8"], (), np.array([-1], "i1")), "0806 1200 2201 ff"),
    "no elements": (Tensor(DTYPES["uint64"], (3, 0), np.zeros(0, "<u8")), "0817 1206 12020803 1200"),
    "bool": (Tensor(BOOL, (2,), np.array([True, False])), "080a 1204 12020802 2202 0100"),
    "bfloat16": (
        Tensor(DTYPES["bfloat16"], (1,), np.array([1], DTYPES["bfloat16"].numpy)),
        "080e 1204 12020801 2202 803f",
    ),
    "strings": (
        Tensor(STRING, (3,), strings(b"a", b"", b"\xff\0")),
        "0807 1204 12020803 420161 4200 4202ff00",
    ),
    "long dimension": (
        Tensor(DTYPES["uint8"], (200,), np.zeros(200, "u1")),
        "0804 1205 120308c801 22c801" + "00" * 200,
    ),
}


@pytest.mark.parametrize(("tensor", "expected"), CASES.values(), ids=CASES)
def test_literal_bytes_both_ways(tensor: Tensor, expected: str) -> None:
    data = bytes.fromhex(expected)
    assert b"".join(encode([serialize_tensor_proto(tensor)], TensorEncodeOptions())) == data
    [named] = decode(MemoryStream(data), TensorDecodeOptions(), Budget())
    assert (named.tensor.dtype, named.tensor.shape) == (tensor.dtype, tensor.shape)
    assert named.tensor.values.tolist() == tensor.values.tolist()


def test_the_header_is_all_that_stands_before_the_elements() -> None:
    assert tensor_proto_header(FLOAT32, (1, 2)).hex() == "0801120812020801120208022208"
    assert tensor_proto_header(FLOAT32, (0,)).hex() == "080112021200"
    assert tensor_proto_header(STRING, (2,)).hex() == "0807120412020802"


def test_output_is_the_tensors_own_memory() -> None:
    tensor = Tensor(FLOAT32, (4,), np.zeros(4, "<f4"))
    header, content = serialize_tensor_proto(tensor)
    assert header == tensor_proto_header(FLOAT32, (4,))
    assert np.shares_memory(np.frombuffer(content, np.uint8), tensor.values)


def test_long_strings_are_not_copied() -> None:
    long = b"x" * 5000
    pieces = list(serialize_tensor_proto(Tensor(STRING, (3,), strings(b"a", long, b"b"))))
    assert any(piece is long for piece in pieces)
    assert b"".join(pieces).hex().startswith("0807 1204 12020803 420161 428827".replace(" ", ""))
    assert parse(b"".join(pieces)).values.tolist() == [b"a", long, b"b"]


@pytest.mark.parametrize("count", [1, 1000])
@pytest.mark.parametrize("length", [0, 127, 128, 4095, 4096, 16_383, 16_384])
def test_the_length_of_strings_is_known_beforehand(count: int, length: int) -> None:
    message = serialize_tensor_proto(Tensor(STRING, (count,), strings(*[bytes(length)] * count)))
    assert message.num_bytes == len(b"".join(message))


def test_what_protobuf_cannot_hold_is_refused() -> None:
    tensor_proto_header(DTYPES["uint8"], (2**31 - 1 - 30,))
    with pytest.raises(UnprocessableInput) as caught:
        tensor_proto_header(DTYPES["uint8"], (2**31 - 1,))
    assert caught.value.code == "tensor_too_large"
    shared = b"x" * 2**20
    with pytest.raises(UnprocessableInput):
        serialize_tensor_proto(Tensor(STRING, (2048,), strings(*[shared] * 2048)))


def test_aligned_content_is_not_copied() -> None:
    header = tensor_proto_header(DTYPES["int64"], (1, 1, 300))
    padding = -len(header) % 8
    padded = bytearray(padding) + header + bytes(2400)
    view = memoryview(padded)[padding:]
    tensor = parse_tensor_proto(view, Budget())
    assert np.shares_memory(tensor.values, np.frombuffer(padded, np.uint8))
    copied = parse_tensor_proto(view, Budget(), copy=True)
    assert not np.shares_memory(copied.values, np.frombuffer(padded, np.uint8))


def test_content_that_is_not_aligned_is_copied_and_charged() -> None:
    budget = Budget()
    tensor = parse_tensor_proto(VECTOR + b"\x22\x04\0\0\x80?", budget)
    assert tensor.values.flags.aligned
    assert budget.peak in (0, 4)  # where the bytes object happens to lie decides


@pytest.mark.parametrize("chunk", [1, 5, 4096, None])
def test_a_body_is_read_so_that_nothing_is_copied(chunk: int | None) -> None:
    data = tensor_proto_header(DTYPES["complex128"], (1000,)) + bytes(16_000)
    budget = Budget()
    [named] = decode(MemoryStream(data, chunk=chunk), TensorDecodeOptions(), budget)
    assert named.tensor.values.flags.aligned
    assert budget.peak < len(data) + 16


def test_a_declaration_must_agree() -> None:
    data = VECTOR + b"\x22\x04\0\0\x80?"
    for wrong in (TensorDecodeOptions(dtype=BOOL), TensorDecodeOptions(shape=(2,))):
        with pytest.raises(UnprocessableInput):
            decode(MemoryStream(data), wrong, Budget())


def test_several_tensors_are_refused() -> None:
    message = serialize_tensor_proto(Tensor(FLOAT32, (0,), np.zeros(0, "<f4")))
    with pytest.raises(UnprocessableInput) as caught:
        encode([message, message], TensorEncodeOptions())
    assert caught.value.code == "several_tensors"


def test_a_few_bytes_that_declare_too_much() -> None:
    budget = Budget(Limits(max_decoded_bytes=2**20))
    data = b"\x08\x01\x12\x07\x12\x05\x08\x80\x80\x80\x04\x2d\0\0\x80?"  # 2^23 times 1.0: 32 MiB
    with pytest.raises(LimitExceeded) as caught:
        parse_tensor_proto(data, budget)
    assert caught.value.code == "payload_too_large"
    assert budget.peak <= 2**20
    assert len(parse(data).values) == 2**23


def test_huge_shapes() -> None:
    size = b"\x12\x0a\x08" + b"\xff" * 8 + b"\x7f"  # 2^63 - 1
    refused(b"\x08\x01\x12\x18" + size * 2, LimitExceeded, "shape_too_large")
    with pytest.raises(LimitExceeded):
        parse(b"\x08\x07\x12\x0c" + size)
    rank_255 = b"\x12\x02\x08\x01" * 255
    refused(b"\x08\x01\x12\xfc\x07" + rank_255, LimitExceeded, "rank_too_large")
    assert len(parse(b"\x08\x01\x12\xf8\x07" + rank_255[4:]).shape) == 254


@pytest.mark.parametrize(
    ("data", "code", "offset"),
    [
        (b"", "missing_dtype", 0),
        (b"\x12\x00\x2d\0\0\x80?", "missing_dtype", 0),
        (b"\x08", "truncated", 1),
        (b"\x08\x01\x12\x05\x12", "truncated", 2),
        (VECTOR + b"\x22\x05\0\0\x80?", "truncated", 8),
        (VECTOR + b"\x2d\0\0\x80", "truncated", 8),
        (VECTOR + b"\x2a\x05\0\0\x80?\0", "truncated", 15),
        (VECTOR + b"\x3a\x01\x80", "truncated", 11),
        (b"\x08\x01\x12\x03\x12\x02\x08", "truncated", 4),  # a dimension longer than its shape
        (VECTOR + b"\x00\x01", "invalid_protobuf", 8),
        (VECTOR + b"\x7b\x7c", "invalid_protobuf", 8),
        (b"\x08\x01\x12\x0d\x12\x0b\x08" + b"\xff" * 9 + b"\x01", "invalid_shape", None),  # -1
        (b"\x08\x01\x12\x07\x12\x05\x08\x01\x12\x01\xff", "invalid_protobuf", 10),  # a name
        (b"\x08\x03\x12\x04\x12\x02\x08\x01\x3a\x0b" + b"\x80" * 10 + b"\0", "invalid_protobuf", None),
    ],
)
def test_messages_that_cannot_be_read(data: bytes, code: str, offset: int | None) -> None:
    refused(data, MalformedInput, code, offset)


@pytest.mark.parametrize("enum", [20, 21, 34, 99, 101, 2**31, 2**64 - 1])
def test_dtypes_that_are_not_read(enum: int) -> None:
    encoded = bytearray()
    while enum > 0x7F:
        encoded.append(enum & 0x7F | 0x80)
        enum >>= 7
    refused(b"\x08" + bytes([*encoded, enum]) + b"\x12\x00", UnprocessableInput, "unsupported_dtype", 0)


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        (b"\x22\x03\0\0\0", "content_size_mismatch"),
        (b"\x22\x08" + bytes(8), "content_size_mismatch"),
        (b"\x22\x04\0\0\x80?\x2d\0\0\x80?", "conflicting_values"),
        (b"\x38\x01", "conflicting_values"),  # int_val
        (b"\x42\x00", "conflicting_values"),  # string_val
        (b"\x2d\0\0\x80?\x38\x01", "conflicting_values"),
        (b"\x2a\x08" + bytes(8), "surplus_values"),
        (b"\x2d\0\0\x80?" * 2, "surplus_values"),
        (b"\x72\x00", "unsupported_dtype"),  # resource_handle_val
        (b"\x7a\x00", "unsupported_dtype"),  # variant_val
        (b"\x12\x02\x18\x01", "unknown_rank"),
    ],
)
def test_messages_that_contradict_themselves(rest: bytes, code: str) -> None:
    refused(VECTOR + rest, UnprocessableInput, code)


def test_unknown_rank_is_refused_with_values_too() -> None:
    refused(b"\x08\x01\x12\x02\x18\x01\x2d\0\0\x80?", UnprocessableInput, "unknown_rank", 4)
    assert parse(b"\x08\x01\x12\x02\x18\x00\x2d\0\0\x80?").shape == ()


def test_bool_content_is_zero_or_one() -> None:
    refused(b"\x08\x0a\x12\x04\x12\x02\x08\x01\x22\x01\x02", UnprocessableInput, "invalid_bool", 10)


@pytest.mark.parametrize(
    "extra",
    [
        b"\x18\x07",  # version_number
        b"\xfa\x01\x03abc",  # field 31
        b"\xf9\x01" + bytes(8),
        b"\xfd\x01" + bytes(4),
        b"\xf8\x01\x05",
        b"\x0d\0\0\0\0",  # dtype as fixed32
        b"\x22\x00",  # empty content is no content
        b"\x3a\x00",  # no values
    ],
)
def test_what_protobuf_ignores_is_ignored(extra: bytes) -> None:
    for data in (extra + VECTOR + b"\x2d\0\0\x80?", VECTOR + b"\x2d\0\0\x80?" + extra):
        assert parse(data).values.tolist() == [1]


def test_the_last_scalar_holds_and_the_pieces_of_a_shape_add_up() -> None:
    tensor = parse(b"\x08\x02" + VECTOR + b"\x12\x04\x12\x02\x08\x02" + b"\x22\x08" + b"\0\0\x80?" * 2)
    assert (tensor.dtype, tensor.shape) == (FLOAT32, (1, 2))
    assert parse(b"\x08\x01\x12\x06\x12\x04\x08\x05\x08\x01\x2d\0\0\x80?").shape == (1,)
    assert parse(VECTOR + b"\x22\x01x\x22\x04\0\0\x80?").values.tolist() == [1]


def test_without_a_shape_it_is_a_scalar() -> None:
    assert parse(b"\x08\x01\x2d\0\0\x80?").shape == ()


def test_strings_in_tensor_content() -> None:
    head = b"\x08\x07\x12\x04\x12\x02\x08\x02"
    assert parse(head + b"\x22\x05\x01\x02abc").values.tolist() == [b"a", b"bc"]
    for content in (b"\x01\x02abcd", b"\x01\x02ab", b"\x01", b"\x05\x05"):
        refused(
            head + b"\x22" + bytes([len(content)]) + content, UnprocessableInput, "content_size_mismatch", 10
        )
    refused(head + b"\x22\x02\x80\x80", MalformedInput, "truncated")


@given(
    st.sampled_from([dtype for dtype in DTYPES.values() if not dtype.is_string]),
    st.lists(st.integers(0, 4), max_size=5).map(tuple),
    st.integers(0, 255),
)
@settings(deadline=None)
def test_numbers_round_trip(dtype: Any, shape: tuple[int, ...], byte: int) -> None:
    size = int(np.prod(shape)) * dtype.itemsize
    content = element_bytes(bytes([byte]), dtype) * size
    tensor = Tensor(dtype, shape, np.frombuffer(content, dtype.numpy))
    found = parse(b"".join(serialize_tensor_proto(tensor)))
    assert (found.dtype, found.shape, found.values.tobytes()) == (dtype, shape, content)


@given(st.lists(st.binary(max_size=10)))
@settings(deadline=None)
def test_strings_round_trip(values: list[bytes]) -> None:
    found = parse(b"".join(serialize_tensor_proto(Tensor(STRING, (len(values),), strings(*values)))))
    assert found.values.tolist() == values


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_any_bytes_are_a_tensor_or_an_input_error(data: bytes) -> None:
    budget = Budget(Limits(max_decoded_bytes=2**16))
    try:
        tensor = parse_tensor_proto(data, budget)
    except InputError:
        return
    assert len(tensor.values) == np.prod(tensor.shape)
