import pytest

from app.codecs.messages.tensor_proto_fields import TensorFields, read_tensor_fields, value_field
from app.domain.dtypes import DTYPES
from app.domain.limits import Limits
from app.errors import LimitExceeded
from app.runtime.budget import Budget


def fields(data: bytes, budget: Budget | None = None) -> TensorFields:
    return read_tensor_fields(memoryview(data), budget or Budget(), offset=0)


def test_every_dtype_has_its_field() -> None:
    assert {name: value_field(dtype) for name, dtype in DTYPES.items()} == {
        "bool": "bool",
        "int8": "int",
        "int16": "int",
        "int32": "int",
        "int64": "int64",
        "uint8": "int",
        "uint16": "int",
        "uint32": "uint32",
        "uint64": "uint64",
        "float16": "half",
        "bfloat16": "half",
        "float32": "float",
        "float64": "double",
        "complex64": "scomplex",
        "complex128": "dcomplex",
        "string": "string",
        **dict.fromkeys([name for name in DTYPES if name.startswith(("float8", "float4"))], "float8"),
        **dict.fromkeys(["int4", "uint4", "int2", "uint2"], "int"),
        **dict.fromkeys(["qint8", "quint8", "qint16", "quint16", "qint32"], "int"),
    }


def test_packed_and_single_values_add_up_in_their_order() -> None:
    found = fields(b"\x38\x01" + b"\x3a\x03\x02\xac\x02" + b"\x38\x04")
    assert found.packed == {"int": b"\x01\x02\xac\x02\x04"}
    found = fields(b"\x2d\1\1\1\1" + b"\x2a\x04\2\2\2\2")
    assert found.packed == {"float": b"\1\1\1\1\2\2\2\2"}


def test_a_field_of_another_wire_type_is_none() -> None:
    assert not fields(b"\x29" + bytes(8)).has_values  # float_val as fixed64


def test_values_of_another_dtype_are_named() -> None:
    found = fields(b"\x38\x01" + b"\x2d\0\0\0\0" + b"\x42\x00")
    assert found.values_of(other_than=DTYPES["float32"]) == ["int", "string"]
    assert found.values_of(other_than=DTYPES["string"]) == ["int", "float"]


def test_content_is_found_and_not_copied() -> None:
    assert fields(b"\x22\x03abc").content == (2, 5)
    assert fields(b"\x22\x00").content is None


@pytest.mark.parametrize(
    "data", [b"\x42\x00" * 30, b"\x42\x80\x08" + bytes(1024), b"\x3a\x80\x08" + bytes(1024)]
)
def test_values_are_charged_as_they_are_found(data: bytes) -> None:
    with pytest.raises(LimitExceeded):
        fields(data, Budget(Limits(max_decoded_bytes=1000)))


def test_dimensions_beyond_what_a_shape_holds_are_not_gathered() -> None:
    with pytest.raises(LimitExceeded):
        fields(b"\x12\x80\x80\x01" + b"\x12\x00" * 8192)
