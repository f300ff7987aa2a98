"""Tensors as TensorProtos, through the form table: alone, framed as TFRecord, and as base64 in JSON."""

import base64
import gzip
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.array import Array, RaggedTensor, SparseTensor
from app.codecs.columns import Strings
from app.codecs.forms import TENSOR_CODECS, FormName
from app.codecs.options import TensorDecodeOptions, TensorEncodeOptions
from app.domain.dtypes import BOOL, DTYPES, FLOAT32, INT64, STRING
from app.domain.limits import KIB, MIB, Limits
from app.domain.tensor import num_elements
from app.errors import InputError
from app.runtime.budget import Budget
from tests.support.bodies import stream_of
from tests.support.feature_values import varint
from tests.support.format_cases import PIECES, Refusal, Values, read_tensors, tensors_of, write_tensors
from tests.support.peak_memory import peak_bytes
from tests.support.random_elements import element_bytes, numpy_values
from tests.support.tfrecord_frames import frame

FORMS: tuple[FormName, ...] = ("tensorproto", "tfrecord", "b64")
FRAME_HEADER = 12


def field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def proto(dtype: str, shape: Sequence[int], rest: bytes = b"") -> bytes:
    """A TensorProto: dtype, shape, and what follows."""
    dims = b"".join(field(2, b"\x08" + varint(dim) if dim else b"") for dim in shape)
    return b"\x08" + varint(DTYPES[dtype].tf_enum) + field(2, dims) + rest


def as_body(form: FormName, *messages: bytes) -> bytes:
    """The messages, as a form holds them."""
    if form == "tensorproto":
        (message,) = messages
        return message
    if form == "tfrecord":
        return b"".join(map(frame, messages))
    cells = [{"b64": base64.b64encode(message).decode()} for message in messages]
    return json.dumps(cells[0] if len(cells) == 1 else {"instances": cells}, separators=(",", ":")).encode()


def strings(*values: bytes) -> Strings:
    return Strings.pack(values)


def floats(*values: float) -> Array:
    return Array.of(np.array(values, "<f4"), FLOAT32)


def written(form: FormName, *tensors: Any, **options: Any) -> bytes:
    found = write_tensors(form, [replace(tensor, name="ignored") for tensor in tensors], **options)
    assert isinstance(found, bytes), found
    return found


def read_one(message: bytes, **options: Any) -> Values | Refusal:
    found = read_tensors("tensorproto", message, **options)
    return found if isinstance(found, Refusal) else found[0]


def parsed(message: bytes) -> tuple[str, tuple[int, ...], list[Any]]:
    found = read_one(message)
    assert isinstance(found, Values), found
    return found.dtype, found.shape, found.values


def code_of(found: object) -> str:
    assert isinstance(found, Refusal), found
    return found.code


# What is written, byte for byte.

WRITTEN: dict[str, tuple[Array, str]] = {
    "float32": (
        Array(FLOAT32, (1, 2), np.array([1, -2], "<f4")),
        "0801 1208 12020801 12020802 2208 0000803f 000000c0",
    ),
    "scalar": (Array(DTYPES["int8"], (), np.array([-1], "i1")), "0806 1200 2201 ff"),
    "no elements": (Array(DTYPES["uint64"], (3, 0), np.zeros(0, "<u8")), "0817 1206 12020803 1200"),
    "bool": (Array(BOOL, (2,), np.array([True, False])), "080a 1204 12020802 2202 0100"),
    "bfloat16": (
        Array(DTYPES["bfloat16"], (1,), np.array([1], DTYPES["bfloat16"].numpy)),
        "080e 1204 12020801 2202 803f",
    ),
    "int4, upper bits unset": (
        Array(DTYPES["int4"], (2,), np.array([0xFF, 7], "u1").view(DTYPES["int4"].numpy)),
        "081d 1204 12020802 2202 0f07",
    ),
    "strings": (
        Array(STRING, (3,), strings(b"a", b"", b"\xff\0")),
        "0807 1204 12020803 420161 4200 4202ff00",
    ),
    "no strings": (Array(STRING, (0,), strings()), "0807 1202 1200"),
    "long dimension": (
        Array(DTYPES["uint8"], (200,), np.zeros(200, "u1")),
        "0804 1205 120308c801 22c801" + "00" * 200,
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("tensor", "message"), WRITTEN.values(), ids=WRITTEN)
def test_literal_bytes_both_ways(form: FormName, tensor: Array, message: str) -> None:
    body = as_body(form, bytes.fromhex(message))
    assert written(form, tensor) == body
    [found] = read_tensors(form, body, pieces=PIECES)  # type: ignore[misc]  # a refusal fails too
    assert (found.dtype, found.shape, found.name) == (tensor.dtype.name, tensor.shape, None)
    assert found.values == numpy_values(tensor).astype(object).tolist()


def test_a_frame_is_that_of_tensorflows_writer() -> None:
    assert written("tfrecord", floats()) == bytes.fromhex("0600000000000000 7369d537 080112021200 7a0851b8")


@pytest.mark.parametrize("count", [1, 1000])
@pytest.mark.parametrize("length", [0, 127, 128, 4095, 4096, 16_383, 16_384])
def test_strings_of_any_length(count: int, length: int) -> None:
    values = [bytes([65 + index % 20]) * length for index in range(count)]
    tensor = Array(STRING, (count,), strings(*values))
    message = proto("string", [count], b"".join(field(8, value) for value in values))
    assert written("tensorproto", tensor) == message
    assert written("tfrecord", tensor) == frame(message)  # which says the length beforehand
    assert parsed(message) == ("string", (count,), values)


def pieces_of(tensor: Any, **options: Any) -> list[Any]:
    encode = TENSOR_CODECS["tensorproto"].encode
    return list(encode([tensor], TensorEncodeOptions(**options), Budget()))


def test_numbers_and_long_strings_leave_without_a_copy() -> None:
    tensor = Array(FLOAT32, (4,), np.zeros(4, "<f4"))
    assert np.shares_memory(np.frombuffer(pieces_of(tensor)[1], np.uint8), tensor.values)
    packed = Strings.pack([b"a", b"x" * 5000, b"b"])
    header, first, prefix, long, last = pieces_of(Array(STRING, (3,), packed))
    assert np.shares_memory(np.frombuffer(long, np.uint8), packed.data)
    assert (bytes(first), bytes(prefix), len(long), bytes(last)) == (b"B\1a", b"B\x88\x27", 5000, b"B\1b")
    assert header == proto("string", [3])


def test_strings_come_in_the_order_of_their_fields() -> None:
    values = [b"%d" % index for index in range(300)]
    fields = [field(8, value) for value in values]
    fields[100:200] = [b"\xc2\0" + encoded[1:] for encoded in fields[100:200]]  # a tag of two bytes
    fields[20:80] = [encoded + b"\x18\7" for encoded in fields[20:80]]
    message = proto("string", [len(values)])
    assert parsed(message + b"".join(fields)) == ("string", (300,), values)
    assert parsed(b"".join(fields) + message) == ("string", (300,), values)
    long = [b"x" * 5000, *values, b"y" * 5000]
    assert parsed(proto("string", [302], b"".join(field(8, value) for value in long)))[2] == long


@pytest.mark.parametrize(
    ("rest", "code"),
    [(b"\x42\x7f", "truncated"), (b"\x42\xff\xff\xff\xff\xff\1", "invalid_protobuf"), (b"\x42", "truncated")],
)
def test_a_malformed_string_among_many(rest: bytes, code: str) -> None:
    message = proto("string", [300], b"".join(field(8, b"some value") for _ in range(300)))
    found = read_one(message + rest)
    assert isinstance(found, Refusal)
    assert (found.code, found.offset) == (code, len(message) + (len(rest) if len(rest) == 1 else 0))


def test_the_last_of_many_strings_is_repeated() -> None:
    values = [b"%d" % index for index in range(300)]
    fields = b"".join(field(8, value) for value in values)
    assert parsed(proto("string", [305], fields))[2] == [*values, *[b"299"] * 5]
    assert code_of(read_one(proto("string", [299], fields))) == "surplus_values"


def test_strings_leave_in_bounded_pieces() -> None:
    assert max(map(len, pieces_of(Array(STRING, (5000,), strings(*[bytes(4000)] * 5000))))) < MIB


def test_rows_of_nothing_are_written_without_being_held() -> None:
    """A short body asks for a million of them: all at once they would keep everything else waiting."""
    tensor = SparseTensor((2**20, 2), np.array([[5000, 1]]), Array.of(np.ones(1), FLOAT32))
    encode = TENSOR_CODECS["tfrecord"].encode
    chunks = encode([tensor], TensorEncodeOptions(sparse="many"), Budget())
    sizes: list[int] = []
    peak = peak_bytes(lambda: sizes.extend(len(piece) for piece in chunks))
    assert sum(sizes) > 40 * 2**20
    assert max(sizes) < 2**16
    assert peak < 2**20


@pytest.mark.soak
def test_strings_that_protobuf_cannot_hold_are_refused() -> None:
    shared = bytes(2**20)
    found = write_tensors("tensorproto", [Array(STRING, (2048,), strings(*[shared] * 2048))])
    assert code_of(found) == "tensor_too_large"


def test_numbers_that_protobuf_cannot_hold_are_refused() -> None:
    many = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (2**31 - 1,), (0,))
    found = write_tensors("tensorproto", [Array(DTYPES["uint8"], many.shape, many)])
    assert code_of(found) == "tensor_too_large"


@pytest.mark.parametrize(("count", "code"), [(0, "no_tensors"), (2, "several_tensors")])
def test_a_tensor_proto_holds_one_tensor(count: int, code: str) -> None:
    assert code_of(write_tensors("tensorproto", [floats(1)] * count)) == code


# What is read: in each form, whole and as it arrives.

V = proto("float32", [1])
ONE = b"\x2d" + struct.pack("<f", 1)
SHAPE_2 = field(2, field(2, b"\x08\x02"))
READ: dict[str, tuple[bytes, tuple[str, tuple[int, ...], list[Any]]]] = {
    "float_val": (V + ONE, ("float32", (1,), [1.0])),
    "shape first": (V[2:] + V[:2] + ONE, ("float32", (1,), [1.0])),
    "no shape": (b"\x08\x01" + ONE, ("float32", (), [1.0])),
    "rank that is not unknown": (b"\x08\x01\x12\x02\x18\x00" + ONE, ("float32", (), [1.0])),
    "no values are zeros": (proto("int32", [2]), ("int32", (2,), [0, 0])),
    "no strings are empty": (proto("string", [2]), ("string", (2,), [b"", b""])),
    "strings are repeated": (
        proto("string", [3], b"\x42\x02a\0\x42\x02b\0"),
        ("string", (3,), [b"a\0", b"b\0", b"b\0"]),
    ),
    "strings in content": (
        proto("string", [2], b"\x22\x05\x01\x02abc"),
        ("string", (2,), [b"a", b"bc"]),
    ),
    "the last dtype holds": (b"\x08\x02" + V + ONE, ("float32", (1,), [1.0])),
    "shapes add up": (V + SHAPE_2 + ONE, ("float32", (1, 2), [1.0, 1.0])),
    "the last size of a dimension": (
        b"\x08\x01\x12\x06\x12\x04\x08\x05\x08\x01" + ONE,
        ("float32", (1,), [1.0]),
    ),
    "the last content": (V + b"\x22\x01x" + b"\x22\x04" + ONE[1:], ("float32", (1,), [1.0])),
    "single and packed add up": (
        proto("int32", [4], b"\x38\x01" + b"\x3a\x03\x02\xac\x02" + b"\x38\x04"),
        ("int32", (4,), [1, 2, 300, 4]),
    ),
    "floats, single and packed": (
        proto("float32", [2], ONE + field(5, struct.pack("<f", 2))),
        ("float32", (2,), [1.0, 2.0]),
    ),
    "the last float8_val": (
        proto("float8_e5m2", [2], field(18, b"\x3c") + field(18, b"\x40\x3c")),
        ("float8_e5m2", (2,), [2.0, 1.0]),
    ),
    "the last float8_val, of nothing": (
        proto("float8_e5m2", [1], field(18, b"\x3c") + field(18, b"")),
        ("float8_e5m2", (1,), [0.0]),
    ),
    "a large dimension of nothing": (proto("float32", [0, 2**62]), ("float32", (0, 2**62), [])),
    "254 dimensions": (proto("float32", [1] * 254, ONE), ("float32", (1,) * 254, [1.0])),
    "content last": (
        proto("float32", [2], field(1000, b"unknown") + b"\x18\x07" + field(4, 2 * ONE[1:])),
        ("float32", (2,), [1.0, 1.0]),
    ),
    "content, then unknown": (V + field(4, ONE[1:]) + field(1000, b"x"), ("float32", (1,), [1.0])),
    "content, then its dtype again": (V + field(4, ONE[1:]) + b"\x08\x03", ("int32", (1,), [0x3F800000])),
    "content, then another shape": (V + field(4, 2 * ONE[1:]) + SHAPE_2, ("float32", (1, 2), [1.0, 1.0])),
    **{
        f"ignored: {extra.hex()}": (V + ONE + extra, ("float32", (1,), [1.0]))
        for extra in (
            b"\x18\x07",  # version_number
            b"\xfa\x01\x03abc",  # field 31
            b"\xf9\x01" + bytes(8),
            b"\xfd\x01" + bytes(4),
            b"\xf8\x01\x05",
            b"\x0d\0\0\0\0",  # dtype as fixed32
            b"\x29" + bytes(8),  # float_val as fixed64
            b"\x22\x00",  # empty content is no content
            b"\x3a\x00",  # no values
        )
    },
}


def place(form: FormName, offset: int) -> tuple[int | None, int | None, str | None]:
    """Row, offset, and pointer of an error at `offset` of the message."""
    if form == "b64":
        return None, None, "/b64"
    if form == "tfrecord":
        return 0, offset + FRAME_HEADER, None
    return None, offset, None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("message", "expected"), READ.values(), ids=READ)
def test_messages_that_are_read(form: FormName, message: bytes, expected: Any) -> None:
    [found] = read_tensors(form, as_body(form, message), pieces=PIECES)  # type: ignore[misc]
    assert repr((found.dtype, found.shape, found.values)) == repr(expected)


HUGE = b"\x08" + varint(2**63 - 1)
#: code, offset; an offset of -1 is not looked at.
REFUSED: dict[str, tuple[bytes, str, int]] = {
    "empty": (b"", "missing_dtype", 0),
    "no dtype": (b"\x12\x00" + ONE, "missing_dtype", 0),
    "cut in dtype": (b"\x08", "truncated", 1),
    "cut in shape": (b"\x08\x01\x12\x05\x12", "truncated", 2),
    "cut in content": (V + b"\x22\x05\0\0\x80?", "truncated", 8),
    "cut in a value": (V + b"\x2d\0\0\x80", "truncated", 8),
    "packed values of half a float": (V + b"\x2a\x05\0\0\x80?\0", "truncated", 15),
    "values that end inside a varint": (proto("int32", [1], field(7, b"\x80")), "truncated", -1),
    "values that end inside another varint": (proto("int32", [2], field(7, b"\1\x80")), "truncated", -1),
    "packed values of half a varint": (V + b"\x3a\x01\x80", "truncated", 11),
    "a dimension longer than its shape": (b"\x08\x01\x12\x03\x12\x02\x08", "truncated", 4),
    "field 0": (V + b"\x00\x01", "invalid_protobuf", 8),
    "a tag of six bytes": (V + b"\x88\x80\x80\x80\x80\x00\x01", "invalid_protobuf", 8),
    "a tag of more than 32 bits": (V + b"\x88\x80\x80\x80\x70\x01", "invalid_protobuf", 8),
    "wire type 6": (V + b"\x0e\x00", "invalid_protobuf", 8),
    "a varint of more than 64 bits": (V + b"\x18" + b"\xff" * 9 + b"\x02", "invalid_protobuf", 9),
    "the least dimension": (proto("float32", [2**63]), "invalid_shape", 0),
    "a group": (V + b"\x7b\x7c", "invalid_protobuf", 8),
    "a dimension of -1": (proto("float32", [2**64 - 1]), "invalid_shape", 0),
    "a name that is not UTF-8": (b"\x08\x01\x12\x07\x12\x05\x08\x01\x12\x01\xff", "invalid_protobuf", 10),
    "a packed varint of 65 bits": (
        proto("int32", [1], field(7, b"\xff" * 9 + b"\x02")),
        "invalid_protobuf",
        -1,
    ),
    "a varint of 11 bytes": (proto("int32", [1], field(7, b"\x80" * 10 + b"\0")), "invalid_protobuf", -1),
    **{
        f"dtype {enum}": (b"\x08" + varint(enum) + b"\x12\x00", "unsupported_dtype", 0)
        for enum in (20, 21, 34, 99, 101, 2**31, 2**64 - 1)
    },
    "content too short": (V + b"\x22\x03\0\0\0", "content_size_mismatch", -1),
    "content too long": (V + b"\x22\x08" + bytes(8), "content_size_mismatch", -1),
    "content and values": (V + b"\x22\x04\0\0\x80?" + ONE, "conflicting_values", 0),
    "values and content": (V + ONE + b"\x22\x04\0\0\x80?", "conflicting_values", 0),
    "int_val": (V + b"\x38\x01", "conflicting_values", 0),
    "string_val": (V + b"\x42\x00", "conflicting_values", 0),
    "float_val and int_val": (V + ONE + b"\x38\x01", "conflicting_values", 0),
    "two packed values": (V + field(5, bytes(8)), "surplus_values", 0),
    "two values": (V + ONE * 2, "surplus_values", 0),
    "two strings": (proto("string", [1], b"\x42\0\x42\0"), "surplus_values", 0),
    "resource_handle_val": (V + b"\x72\x00", "unsupported_dtype", 10),
    "variant_val": (V + b"\x7a\x00", "unsupported_dtype", 10),
    "unknown rank": (b"\x08\x01\x12\x02\x18\x01" + ONE, "unknown_rank", 4),
    "a bool of 2": (proto("bool", [1], field(4, b"\x02")), "invalid_bool", 10),
    "half a complex64": (proto("complex64", [3], field(9, bytes(12))), "content_size_mismatch", -1),
    "half a complex128": (proto("complex128", [3], field(12, bytes(8))), "content_size_mismatch", -1),
    **{
        f"strings in content of {content!r}": (
            proto("string", [2], field(4, content)),
            "content_size_mismatch",
            10,
        )
        for content in (b"\x01\x02ab", b"\x01\x02abcd", b"\x01", b"\x05\x05")
    },
    "half a length": (proto("string", [2], field(4, b"\x80\x80")), "truncated", -1),
    "2^126 elements": (b"\x08\x01" + field(2, field(2, HUGE) * 2), "shape_too_large", -1),
    "2^63 strings": (b"\x08\x07" + field(2, field(2, HUGE)), "payload_too_large", -1),
    "255 dimensions": (proto("float32", [1] * 255), "rank_too_large", -1),
    "many more dimensions": (b"\x08\x01" + field(2, b"\x12\0" * 8192), "rank_too_large", -1),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("message", "code", "offset"), REFUSED.values(), ids=REFUSED)
def test_messages_that_are_refused(form: FormName, message: bytes, code: str, offset: int) -> None:
    found = read_tensors(form, as_body(form, message), pieces=PIECES)
    assert isinstance(found, Refusal)
    row, at, pointer = place(form, offset)
    assert (found.code, found.row, found.pointer) == (code, row, pointer)
    if offset >= 0 or form == "b64":
        assert found.offset == at


#: dtype: field of its values, those packed as bytes, and what they are.
TYPED: dict[str, tuple[int, bytes, list[Any]]] = {
    "bool": (11, b"\1\0", [True, False]),
    **{
        name: (number, varint(low % 2**64) + varint(high), [low, high])
        for name, number, low, high in (
            ("int8", 7, -128, 127),
            ("int16", 7, -(2**15), 2**15 - 1),
            ("int32", 7, -(2**31), 2**31 - 1),
            ("qint8", 7, -128, 127),
            ("int4", 7, -8, 7),
            ("uint2", 7, 0, 3),
            ("int64", 10, -(2**63), 2**63 - 1),
            ("uint8", 7, 0, 255),
            ("uint16", 7, 0, 65535),
            ("uint32", 16, 0, 2**32 - 1),
            ("uint64", 17, 0, 2**64 - 1),
        )
    },
    "float16": (13, varint(0x3C00) + varint(0xC000), [1.0, -2.0]),
    "bfloat16": (13, varint(0x3F80) + varint(0xC000), [1.0, -2.0]),
    "float32": (5, struct.pack("<ff", 1, -2), [1.0, -2.0]),
    "float64": (6, struct.pack("<dd", 1, -2), [1.0, -2.0]),
    "complex64": (9, struct.pack("<ffff", 1, 2, 3, 4), [1 + 2j, 3 + 4j]),
    "complex128": (12, struct.pack("<dddd", 1, 2, 3, 4), [1 + 2j, 3 + 4j]),
    "float8_e4m3fn": (18, b"\x38\xc0", [1.0, -2.0]),
    "float4_e2m1fn": (18, b"\x02\x0c", [1.0, -2.0]),
}


@pytest.mark.parametrize("name", TYPED)
def test_typed_values_of_every_dtype_and_the_last_repeated(name: str) -> None:
    number, packed, expected = TYPED[name]
    values = field(number, packed)
    assert parsed(proto(name, [2], values)) == (name, (2,), expected)
    assert parsed(proto(name, [5], values))[2] == [*expected, *[expected[-1]] * 3]
    assert parsed(proto(name, [2]))[2] == [0, 0]
    found = read_one(proto(name, [1], values))
    assert code_of(found) == "surplus_values"
    assert "2 values" in found.detail  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("bool", 2, "invalid_bool"),
        ("bool", -1, "invalid_bool"),
        ("int8", 300, "out_of_range"),
        ("int8", -129, "out_of_range"),
        ("int4", 8, "out_of_range"),
        ("int16", 2**15, "out_of_range"),
        ("int32", 2**31, "out_of_range"),
        ("int32", 2**32 + 1, "out_of_range"),
        ("uint8", 256, "out_of_range"),
        ("uint8", -1, "out_of_range"),
        ("uint16", 65536, "out_of_range"),
        ("uint32", 2**32, "out_of_range"),
        ("uint32", -1, "out_of_range"),
        ("float16", 65536, "out_of_range"),
        ("bfloat16", -1, "out_of_range"),
    ],
)
def test_values_that_the_dtype_does_not_hold(name: str, value: int, code: str) -> None:
    found = read_one(proto(name, [2], field(TYPED[name][0], b"\1" + varint(value % 2**64))))
    assert code_of(found) == code
    assert f"Value 1 of this TensorProto is {value}, which {name}" in found.detail  # type: ignore[union-attr]


def test_very_many_varints() -> None:
    numbers = [*range(200_000), 7]
    message = proto("int32", [len(numbers) + 2], field(7, b"".join(map(varint, numbers))))
    assert parsed(message)[2] == [*numbers, 7, 7]


@given(
    st.sampled_from([dtype for dtype in DTYPES.values() if not dtype.is_string]),
    st.lists(st.integers(0, 4), max_size=5).map(tuple),
    st.integers(0, 255),
)
@settings(deadline=None, max_examples=60)
def test_numbers_round_trip(dtype: Any, shape: tuple[int, ...], byte: int) -> None:
    content = element_bytes(bytes([byte]), dtype) * (num_elements(shape) * dtype.itemsize)
    data = written("tfrecord", Array(dtype, shape, np.frombuffer(content, dtype.numpy)))
    [found] = tensors_of("tfrecord", data)
    assert (found.dtype, found.shape, found.values.tobytes()) == (dtype, shape, content)


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_any_bytes_are_a_tensor_or_refused(data: bytes) -> None:
    found = read_one(data, limits=Limits(max_decoded_bytes=2**16))
    if isinstance(found, Values):
        assert len(found.values) == num_elements(found.shape)


# Bounds.


@pytest.mark.parametrize(
    ("message", "needs"),
    [
        (proto("float32", [2**18], ONE), MIB),  # 17 bytes
        (proto("string", [2**12]), 8 * 2**12),
        (proto("string", [30], b"\x42\x00" * 30), 1000),
        (proto("string", [1], field(8, bytes(1024))), 1024),
        (proto("int32", [1024], field(7, bytes(1024))), 1024),
    ],
)
def test_values_are_charged_before_they_are_made(message: bytes, needs: int) -> None:
    for form in FORMS:
        found = read_tensors(form, as_body(form, message), limits=Limits(max_decoded_bytes=needs))
        assert code_of(found) == "payload_too_large"
    assert isinstance(read_one(message), Values)


def test_no_more_is_held_than_the_elements() -> None:
    message = proto("complex128", [1000], field(4, bytes(16_000)))
    for chunk in PIECES:
        budget = Budget()
        source: Any = stream_of(message, chunk)
        [found] = TENSOR_CODECS["tensorproto"].decode(source, TensorDecodeOptions(held=True), budget)
        assert isinstance(found, Array)
        assert found.values.flags.aligned
        assert budget.peak < len(message) + 16
    [found] = tensors_of("b64", as_body("b64", message))
    assert found.values.flags.aligned


def test_tensors_share_no_memory_with_the_file() -> None:
    """A view would keep a whole block of records, which is no longer charged."""
    [found] = tensors_of("tfrecord", written("tfrecord", floats(*range(1000))))
    assert found.values.base is None


@pytest.mark.parametrize("form", ["tfrecord", "b64"])
def test_the_number_of_tensors_is_bounded(form: FormName) -> None:
    body = as_body(form, *[V + ONE] * 3)
    assert len(read_tensors(form, body, limits=Limits(max_members=3))) == 3  # type: ignore[arg-type]
    assert code_of(read_tensors(form, body, limits=Limits(max_members=2))) == "too_many_tensors"


# Several messages.


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_records_come_back_in_their_order(compression: Any) -> None:
    plain = written("tfrecord", floats(1, 2), floats(), floats(3))
    body = written("tfrecord", floats(1, 2), floats(), floats(3), compression=compression)
    inflate: Any = {"none": bytes, "gzip": gzip.decompress, "zlib": zlib.decompress}[compression]
    assert inflate(body) == plain
    for declared in ({}, {"compression": compression}):
        found = read_tensors("tfrecord", body, pieces=PIECES, **declared)
        assert [item.values for item in found] == [[1, 2], [], [3]]  # type: ignore[union-attr]
    assert read_tensors("tfrecord", b"") == []


def test_a_fault_names_its_record_and_its_place() -> None:
    good, bad = frame(V + field(4, ONE[1:])), (V + field(4, ONE[1:]))[:-1]
    found = read_tensors("tfrecord", 2 * good + frame(bad), pieces=PIECES)
    assert found == Refusal("truncated", row=2, offset=2 * len(good) + FRAME_HEADER + 8)
    body = as_body("b64", V + ONE, bad)
    found = read_tensors("b64", body)
    assert isinstance(found, Refusal)
    assert (found.code, found.pointer) == ("truncated", "/instances/1/b64")


@pytest.mark.parametrize("form", FORMS)
def test_a_declaration_holds_for_every_tensor(form: FormName) -> None:
    two = proto("float32", [2], ONE)
    body = as_body(form, two) if form == "tensorproto" else as_body(form, V + ONE, two)
    assert isinstance(read_tensors(form, body, dtype=FLOAT32), list)
    assert code_of(read_tensors(form, body, dtype=INT64)) == "dtype_mismatch"
    assert code_of(read_tensors(form, body, shape=(1,))) == "shape_mismatch"


# Base64 in JSON.


def test_the_web_safe_alphabet_has_no_padding() -> None:
    body = written("b64", floats(-np.inf), b64="websafe")
    assert body == b'{"b64":"CAESBBICCAEiBAAAgP8"}'
    assert read_tensors("b64", body) == [Values("float32", (1,), [-np.inf])]
    assert written("b64") == b'{"instances":[]}'


def test_instance_next_to_signature_name_is_read() -> None:
    text = base64.b64encode(V + ONE).decode().rstrip("=")
    body: Any = {"instances": [{"b64": text}], "signature_name": "serving_default"}
    assert read_tensors("b64", json.dumps(body).encode()) == [Values("float32", (1,), [1.0])]


AMBIGUOUS: list[Any] = [
    [],
    {},
    "x",
    {"b64": "", "x": 1},
    {"instances": [""]},
    {"instances": {}},
    {"inputs": []},
]


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        *[(body, "ambiguous_json", None) for body in AMBIGUOUS],
        ({"b64": "A"}, "invalid_base64", "/b64"),
        ({"b64": 5}, "invalid_base64", "/b64"),
    ],
)
def test_other_json_is_refused(body: Any, code: str, pointer: str | None) -> None:
    found = read_tensors("b64", json.dumps(body).encode())
    assert isinstance(found, Refusal)
    assert (found.code, found.pointer) == (code, pointer)


def test_a_large_message_leaves_as_base64_in_pieces() -> None:
    values = np.random.default_rng(0).integers(0, 255, 300_000, np.uint8)
    tensor = Array(DTYPES["uint8"], values.shape, values)
    pieces = list(TENSOR_CODECS["b64"].encode([tensor], TensorEncodeOptions(), Budget()))
    assert max(map(len, pieces)) <= 256 * KIB
    assert json.loads(b"".join(pieces)) == {"b64": base64.b64encode(written("tensorproto", tensor)).decode()}


# Sparse and ragged tensors.


def sparse(indices: Any, values: Any, shape: tuple[int, ...], dtype: str = "float32") -> SparseTensor:
    coordinates = np.array(indices, np.int64).reshape(-1, len(shape))
    array = np.array(values, DTYPES[dtype].numpy)
    return SparseTensor(shape, coordinates, Array.of(array, DTYPES[dtype]))


SPARSE = sparse([[0, 1], [2, 3]], [1, 2], (3, 4))
#: `tf.io.serialize_sparse` of it, and `tf.io.serialize_many_sparse`.
SINGLE = [
    bytes.fromhex("0809120812020802120208022220" + "".join(f"{i:02x}" + "00" * 7 for i in (0, 1, 2, 3))),
    bytes.fromhex("080112041202080222080000803f00000040"),
    bytes.fromhex("0809120412020802221003000000000000000400000000000000"),
]
MANY = list(
    map(
        bytes.fromhex,
        [
            "08091208120208011202080122080100000000000000",
            "080112041202080122040000803f",
            "080912041202080122080400000000000000",
            "08091206120012020801",
            "080112021200",
            "080912041202080122080400000000000000",
            "08091208120208011202080122080300000000000000",
            "0801120412020801220400000040",
            "080912041202080122080400000000000000",
        ],
    )
)


def string_proto(values: Sequence[bytes], shape: Sequence[int]) -> bytes:
    return proto("string", shape, b"".join(field(8, value) for value in values))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("option", "values", "shape"), [("single", SINGLE, [3]), ("many", MANY, [3, 3])])
def test_the_literal_bytes_of_sparse_tensors(
    form: FormName, option: str, values: list[bytes], shape: list[int]
) -> None:
    body = as_body(form, string_proto(values, shape))
    assert written(form, SPARSE, sparse=option) == body
    expected = Values("float32", (3, 4), [1.0, 2.0], None, [[0, 1], [2, 3]])
    assert read_sparse(form, body) == [expected]
    assert read_tensors(form, body) == [Values("string", tuple(shape), list(values))]


def components(count: int, values: bytes) -> bytes:
    """A TFRecord of the components of a sparse tensor; the one index is repeated for all values."""
    indices = proto("int64", [count, 1], field(10, b"\x00"))
    return as_body(
        "tfrecord", indices, proto("string", [count], values), proto("int64", [1], field(10, b"\x01"))
    )


def test_a_string_that_is_repeated_in_a_sparse_tensor_is_charged_as_often_as_it_is_there() -> None:
    count = 200_000
    body = components(count, field(8, b"first") + field(8, b"last"))
    tensors = tensors_of("tfrecord", body, kind="sparse")  # kernels are compiled now
    tensors.clear()
    budget = Budget()
    taken = peak_bytes(lambda: tensors.extend(tensors_of("tfrecord", body, budget, kind="sparse")))
    strings = tensors[0].values.strings
    assert strings.data.tobytes() == b"first" + b"last" * (count - 1)
    assert strings.offsets.tolist() == [0, *range(5, 4 * count + 2, 4)]
    assert taken < budget.peak + MIB


def read_sparse(form: FormName, body: bytes, limits: Limits | None = None, kind: str = "sparse") -> Any:
    return read_tensors(form, body, limits=limits, kind=kind)


def test_component_strings_are_in_tensor_content() -> None:
    tensor = sparse([[0], [2]], [b"a", b""], (3,), "string")
    message = written("tensorproto", tensor)
    assert parsed(message)[2][1] == bytes.fromhex("08071204120208022203010061")
    assert read_sparse("tensorproto", message) == [Values("string", (3,), [b"a", b""], None, [[0], [2]])]


def test_rows_are_as_long_as_the_longest() -> None:
    rows = [parsed(written("tensorproto", sparse([[at]], [at], (size,))))[2] for at, size in ((1, 3), (6, 9))]
    message = string_proto([*rows[0], *rows[1]], [2, 3])
    assert read_sparse("tensorproto", message) == [
        Values("float32", (2, 9), [1.0, 6.0], None, [[0, 1], [1, 6]])
    ]


@pytest.mark.parametrize(
    ("tensor", "code"),
    [
        *[
            (sparse(indices, [1, 2], (3, 4)), "unsorted_indices")
            for indices in ([[2, 0], [0, 1]], [[0, 3], [0, 1]], [[0, 1], [0, 1]])
        ],
        (sparse([[0]], [1], (3,)), "invalid_shape"),
        (sparse([[0, 0]], [1], (2**40, 1)), "too_many_rows"),
    ],
)
def test_sparse_tensors_that_have_no_rows_to_write(tensor: SparseTensor, code: str) -> None:
    assert code_of(write_tensors("tensorproto", [tensor], sparse="many")) == code


@pytest.mark.parametrize(
    ("values", "shape", "code"),
    [
        ([SINGLE[0], SINGLE[1], b"\x08"], [3], "truncated"),
        ([SINGLE[0], SINGLE[1], b""], [3], "missing_dtype"),
        ([SINGLE[1], SINGLE[1], SINGLE[2]], [3], "shape_mismatch"),
        ([SINGLE[0], SINGLE[2], SINGLE[1]], [3], "dtype_mismatch"),
        ([MANY[0], SINGLE[1], SINGLE[2]], [3], "shape_mismatch"),
        ([SINGLE[0], SINGLE[1], MANY[2]], [3], "shape_mismatch"),
        ([*MANY[:3], *SINGLE], [2, 3], "invalid_serialized_sparse"),
        ([*MANY[:4], proto("float64", [0]), MANY[5]], [2, 3], "invalid_serialized_sparse"),
        ([], [0, 3], "invalid_serialized_sparse"),
        ([SINGLE[0], SINGLE[1], proto("int64", [2], b"\x50\x03\x50\x03")], [3], "index_out_of_bounds"),
        ([SINGLE[0], proto("float64", [2**28]), SINGLE[2]], [3], "payload_too_large"),
        (SINGLE, [3, 1], "missing_component"),
        (MANY, [1, 3, 3], "missing_component"),
    ],
)
def test_hostile_sparse_tensors(values: list[bytes], shape: list[int], code: str) -> None:
    limits = Limits(max_decoded_bytes=2**20)
    assert code_of(read_sparse("tensorproto", string_proto(values, shape), limits)) == code


def test_an_error_in_a_row_of_a_sparse_tensor_names_it() -> None:
    found = read_sparse("tensorproto", string_proto([*MANY[:3], b"\x08", *MANY[4:6]], [2, 3]))
    assert found.feature == "row 1 of the sparse tensor"


def test_a_ragged_tensor_is_several_messages() -> None:
    ragged = RaggedTensor(floats(1, 2, 3), (np.array([0, 2, 2, 3]),))
    body = written("tfrecord", floats(1, 2, 3), Array.of(np.array([0, 2, 2, 3]), INT64))
    assert written("tfrecord", ragged) == body
    assert read_sparse("tfrecord", body, kind="ragged") == [
        Values("float32", (3,), [1.0, 2.0, 3.0], None, [[0, 2, 2, 3]])
    ]


# Tensors that arrive.

#: Longer than what is read at once.
LONG = np.arange(200_000, dtype="<f4")
LONG_MESSAGE = proto("float32", [len(LONG)], field(4, LONG.tobytes()))


def arriving(
    form: FormName,
    body: bytes,
    num_bytes: int | None = None,
    chunk: int | None = None,
    most: int = 300_000,
    *,
    held: bool = False,
) -> Any:
    """The tensors, with less memory than one of them takes."""
    budget = Budget(Limits(max_decoded_bytes=most))
    options = TensorDecodeOptions(body_bytes=num_bytes, held=held)
    return TENSOR_CODECS[form].decode(stream_of(body, chunk), options, budget)


def drawn(found: Any) -> list[bytes]:
    return [b"".join(map(bytes, item.content)) for item in found]


@pytest.mark.parametrize("form", ["tensorproto", "tfrecord"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("chunk", [None, 999])
def test_arriving_tensor_takes_no_memory(form: FormName, known: bool, chunk: int | None) -> None:
    body = as_body(form, LONG_MESSAGE)
    assert drawn(arriving(form, body, len(body) if known else None, chunk)) == [LONG.tobytes()]


@pytest.mark.parametrize("form", ["tensorproto", "tfrecord"])
def test_long_messages_are_read_alike_whole_and_as_they_arrive(form: FormName) -> None:
    for tail in (b"", field(1000, b"x"), b"\x08\x03"):
        body = as_body(form, LONG_MESSAGE + tail)
        assert isinstance(read_tensors(form, body, pieces=(None, 70_000)), list)
        assert isinstance(read_tensors(form, body[:-1], pieces=(None, 70_000)), Refusal)
        assert isinstance(read_tensors(form, body + b"\x08", pieces=(None, 70_000)), Refusal)


@pytest.mark.parametrize(
    "late", [b"\x08\x09", SHAPE_2, field(4, bytes(4)), ONE, field(1000, bytes(5000))], ids=bytes.hex
)
def test_field_after_the_elements_is_refused(late: bytes) -> None:
    with pytest.raises(InputError) as caught:
        drawn(arriving("tensorproto", LONG_MESSAGE + late))
    assert caught.value.code == "late_field"
    assert drawn(arriving("tensorproto", LONG_MESSAGE + field(1000, b"x"))) == [LONG.tobytes()]


@pytest.mark.parametrize("at", [3, 9, 500_000, -2])
def test_a_flipped_bit_in_a_long_record(at: int) -> None:
    body = bytearray(as_body("tfrecord", LONG_MESSAGE, LONG_MESSAGE))
    body[at] ^= 16
    found = read_tensors("tfrecord", bytes(body), pieces=(None, 70_000))
    assert isinstance(found, Refusal)
    assert (found.code, found.row) == ("corrupt_record", 0 if at >= 0 else 1)


def test_a_long_record_that_is_cut() -> None:
    body = as_body("tfrecord", LONG_MESSAGE)
    for end in (len(body) - 1, len(body) - 4, len(body) // 2, 20, 11):
        found = read_tensors("tfrecord", body + body[:end], pieces=(None, 70_000))
        assert found == Refusal("truncated", row=1, offset=len(body))


def test_a_length_that_is_not_that_of_the_body() -> None:
    body = as_body("tfrecord", LONG_MESSAGE)
    with pytest.raises(InputError) as caught:
        drawn(arriving("tfrecord", 2 * body, len(body)))
    assert caught.value.code == "trailing_bytes"


def test_two_gib_are_refused_by_what_is_declared() -> None:
    with pytest.raises(InputError) as caught:
        arriving("tensorproto", LONG_MESSAGE, 2**32)
    assert caught.value.code == "payload_too_large"
    for length in (2**31, 2**40, 2**63 - 1):
        header = struct.pack("<Q", length)
        with pytest.raises(InputError) as caught:
            drawn(arriving("tfrecord", header + frame(header)[-4:] + bytes(40)))
        assert caught.value.code == "record_too_large"


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_records_leave_one_by_one_as_they_arrive(compression: Any) -> None:
    text = Array(STRING, (1,), strings(b"x" * 100))
    long = Array(FLOAT32, LONG.shape, LONG)
    plain = written("tfrecord", long, text, long, text)
    body = written("tfrecord", long, text, long, text, compression=compression)
    records = arriving("tfrecord", body, chunk=70_000)
    encode = TENSOR_CODECS["tfrecord"].encode
    assert b"".join(encode(records, TensorEncodeOptions(), Budget())) == plain


@pytest.mark.parametrize("first", [LONG[:10], LONG])
def test_written_tensor_is_no_longer_charged(first: Any) -> None:
    text = Array(STRING, (1,), strings(b"x" * 5000))
    body = written("tfrecord", Array.of(first, FLOAT32), *[text] * 400)
    encode = TENSOR_CODECS["tfrecord"].encode

    def records(*, held: bool) -> Any:
        return arriving("tfrecord", body, most=MIB + 200_000, held=held)

    assert len(b"".join(encode(records(held=False), TensorEncodeOptions(), Budget()))) == len(body)
    with pytest.raises(InputError) as caught:
        list(map(drawn_or_held, records(held=True)))
    assert caught.value.code == "payload_too_large"


def drawn_or_held(named: Any) -> Any:
    return drawn([named]) if named.is_arriving else named
