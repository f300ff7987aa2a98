import struct
from typing import Any

import numpy as np
import pytest

from app.codecs.messages.protobuf import serialize_varint
from app.codecs.messages.tensor_proto_fields import TensorFields, value_field
from app.codecs.messages.tensor_proto_values import typed_values
from app.domain.dtypes import DTYPES
from app.domain.limits import Limits
from app.errors import LimitExceeded, UnprocessableInput
from app.runtime.budget import Budget


def varints(*values: int) -> bytes:
    return b"".join(serialize_varint(value % 2**64) for value in values)


def values_of(name: str, packed: bytes, count: int) -> Any:
    dtype = DTYPES[name]
    fields = TensorFields(shape=(count,), packed={value_field(dtype): bytearray(packed)} if packed else {})
    return typed_values(fields, dtype, Budget(), offset=0)


@pytest.mark.parametrize(
    ("name", "packed", "expected"),
    [
        ("bool", varints(1, 0), [True, False]),
        ("int8", varints(-128, 127), [-128, 127]),
        ("int16", varints(-(2**15), 2**15 - 1), [-(2**15), 2**15 - 1]),
        ("int32", varints(-(2**31), 2**31 - 1), [-(2**31), 2**31 - 1]),
        ("int64", varints(-(2**63), 2**63 - 1), [-(2**63), 2**63 - 1]),
        ("uint8", varints(0, 255), [0, 255]),
        ("uint16", varints(0, 65535), [0, 65535]),
        ("uint32", varints(0, 2**32 - 1), [0, 2**32 - 1]),
        ("uint64", varints(0, 2**64 - 1), [0, 2**64 - 1]),
        ("float16", varints(0x3C00, 0xC000), [1, -2]),
        ("bfloat16", varints(0x3F80, 0xC000), [1, -2]),
        ("float32", struct.pack("<ff", 1, -2), [1, -2]),
        ("float64", struct.pack("<dd", 1, -2), [1, -2]),
        ("complex64", struct.pack("<ffff", 1, 2, 3, 4), [1 + 2j, 3 + 4j]),
        ("complex128", struct.pack("<dddd", 1, 2, 3, 4), [1 + 2j, 3 + 4j]),
    ],
)
def test_values_of_every_dtype_and_the_last_repeated(name: str, packed: bytes, expected: list[Any]) -> None:
    assert values_of(name, packed, 2).tolist() == expected
    assert values_of(name, packed, 5).tolist() == [*expected, *[expected[-1]] * 3]
    assert values_of(name, b"", 2).tolist() == [0, 0]
    with pytest.raises(UnprocessableInput, match="2 values") as caught:
        values_of(name, packed, 1)
    assert caught.value.code == "surplus_values"


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("bool", 2, "invalid_bool"),
        ("bool", -1, "invalid_bool"),
        ("int8", 300, "out_of_range"),
        ("int8", -129, "out_of_range"),
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
    with pytest.raises(
        UnprocessableInput, match=f"Value 1 of this TensorProto is {value}, which {name}"
    ) as caught:
        values_of(name, varints(1, value), 2)
    assert caught.value.code == code


@pytest.mark.parametrize(("name", "packed"), [("complex64", bytes(12)), ("complex128", bytes(8))])
def test_half_a_complex_number(name: str, packed: bytes) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        values_of(name, packed, 3)
    assert caught.value.code == "content_size_mismatch"


def test_more_values_than_a_chunk_of_varints() -> None:
    numbers = [*range(200_000), 7]
    found = values_of("int32", varints(*numbers), len(numbers) + 2)
    np.testing.assert_array_equal(found, [*numbers, 7, 7])


def test_strings_are_repeated_too() -> None:
    fields = TensorFields(shape=(3,), strings=[b"a\0", b"b\0"])
    assert typed_values(fields, DTYPES["string"], Budget(), offset=0).tolist() == [b"a\0", b"b\0", b"b\0"]
    empty = typed_values(TensorFields(shape=(2,)), DTYPES["string"], Budget(), offset=0)
    assert empty.tolist() == [b"", b""]
    with pytest.raises(UnprocessableInput):
        typed_values(TensorFields(shape=(1,), strings=[b"a", b"b"]), DTYPES["string"], Budget(), offset=0)


@pytest.mark.parametrize("name", ["float32", "int32", "string"])
def test_the_size_comes_before_the_values(name: str) -> None:
    budget = Budget(Limits(max_decoded_bytes=1000))
    with pytest.raises(LimitExceeded):
        typed_values(TensorFields(shape=(2**40,)), DTYPES[name], budget, offset=0)
    assert budget.peak == 0
