"""TensorProto against TensorFlow: equal bytes out, and every message read alike or refused on purpose."""

import importlib
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.array import Array
from app.codecs.columns import Strings
from app.domain.dtypes import DTYPES, STRING, DType, dtype_from_tf_enum
from app.domain.limits import Limits
from app.errors import InputError, UnprocessableInput
from app.runtime.budget import Budget
from tests.support.format_cases import serialize, tensors_of
from tests.support.random_elements import element_bytes, numpy_values

tf = importlib.import_module("tensorflow")
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2  # noqa: E402 (TensorFlow itself comes first)

WITH_KERNEL = [dtype for dtype in DTYPES.values() if dtype.has_kernel]
BEYOND = [dtype for dtype in DTYPES.values() if not dtype.has_kernel]
SHAPES = st.lists(st.integers(0, 4), max_size=5).map(tuple)


def tf_dtype(dtype: DType) -> Any:
    return tf.dtypes.as_dtype(dtype.tf_enum)


def tf_tensor(tensor: Array) -> Any:
    return tf.reshape(tf.constant(numpy_values(tensor), tf_dtype(tensor.dtype)), list(tensor.shape))


def serialized(tensor: Array) -> bytes:
    return serialize("tensorproto", tensor)


def parsed(message: bytes, limits: Limits | None = None) -> Array:
    [found] = tensors_of("tensorproto", message, Budget(limits))
    assert isinstance(found, Array)
    return found


def elements(tensor: Any) -> list[bytes]:
    """The elements of TensorFlow's tensor as bytes each, so that NaNs compare."""
    flat = tf.reshape(tensor, [-1]).numpy()
    return [value if isinstance(value, bytes) else value.tobytes() for value in flat]


def assert_same(ours: Array, theirs: Any) -> None:
    assert ours.dtype.tf_enum == theirs.dtype.as_datatype_enum
    assert ours.shape == tuple(theirs.shape)
    if ours.dtype.is_narrow and ours.dtype.is_integer:  # what lies in their upper bits means nothing
        assert ours.values.tolist() == tf.reshape(theirs, [-1]).numpy().tolist()
        return
    assert [
        value if isinstance(value, bytes) else value.tobytes() for value in numpy_values(ours)
    ] == elements(theirs)


def draw_tensor(data: st.DataObject, dtype: DType, shape: tuple[int, ...]) -> Array:
    count = int(np.prod(shape))
    if dtype.is_string:
        values = data.draw(st.lists(st.binary(max_size=8), min_size=count, max_size=count))
        return Array(dtype, shape, Strings.pack(values))
    pattern = data.draw(st.binary(min_size=16, max_size=64)) * (count * dtype.itemsize // 16 + 1)
    content = element_bytes(pattern[: count * dtype.itemsize], dtype)
    return Array(dtype, shape, np.frombuffer(content, dtype.numpy))


@pytest.mark.parametrize("dtype", WITH_KERNEL, ids=str)
@given(data=st.data(), shape=SHAPES)
@settings(deadline=None, max_examples=20)
def test_equal_bytes_and_each_reads_the_other(
    dtype: DType, data: st.DataObject, shape: tuple[int, ...]
) -> None:
    assert_interchangeable(draw_tensor(data, dtype, shape))


@pytest.mark.parametrize("dtype", WITH_KERNEL, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (300,)])
def test_scalars_and_no_elements(dtype: DType, shape: tuple[int, ...]) -> None:
    values: Any = np.ones(int(np.prod(shape)), "i1").astype(bytes if dtype.is_string else dtype.numpy)
    assert_interchangeable(Array.of(values.astype(dtype.numpy).reshape(shape), dtype))


def assert_interchangeable(tensor: Array) -> None:
    theirs = tf.io.serialize_tensor(tf_tensor(tensor)).numpy()
    assert serialized(tensor) == theirs
    assert_same(tensor, tf.io.parse_tensor(serialized(tensor), tf_dtype(tensor.dtype)))
    assert_same(parsed(theirs), tf_tensor(tensor))


@pytest.mark.parametrize("rank", [64, 65, 254])
@pytest.mark.parametrize("dim", [0, 1])
def test_as_many_dimensions_as_tensorflow_holds(rank: int, dim: int) -> None:
    shape = (1,) * (rank - 1) + (dim,)
    theirs = tf.io.serialize_tensor(tf.fill(shape, 2.0)).numpy()
    ours = parsed(theirs)
    assert ours.shape == shape
    assert serialized(ours) == theirs


def test_one_dimension_more_is_refused_by_both() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.fill([1] * 255, 2.0)
    proto = tensor_pb2.TensorProto(dtype=1, tensor_shape=shape_proto(*[1] * 255)).SerializeToString()
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.parse_tensor(proto, tf.float32)
    with pytest.raises(InputError):
        parsed(proto)


def shape_proto(*dims: int) -> Any:
    return tensor_shape_pb2.TensorShapeProto(
        dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=dim) for dim in dims]
    )


FLOATS = st.floats(width=32)
#: dtype -> a `*_val` field and values that it may hold.
TYPED: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "bool": ("bool_val", st.booleans()),
    "int8": ("int_val", st.integers(-128, 127)),
    "int16": ("int_val", st.integers(-(2**15), 2**15 - 1)),
    "int32": ("int_val", st.integers(-(2**31), 2**31 - 1)),
    "int64": ("int64_val", st.integers(-(2**63), 2**63 - 1)),
    "uint8": ("int_val", st.integers(0, 255)),
    "uint16": ("int_val", st.integers(0, 65535)),
    "uint32": ("uint32_val", st.integers(0, 2**32 - 1)),
    "uint64": ("uint64_val", st.integers(0, 2**64 - 1)),
    "float16": ("half_val", st.integers(0, 65535)),
    "bfloat16": ("half_val", st.integers(0, 65535)),
    "float32": ("float_val", FLOATS),
    "float64": ("double_val", st.floats()),
    "complex64": ("scomplex_val", FLOATS),
    "complex128": ("dcomplex_val", st.floats()),
    "string": ("string_val", st.binary(max_size=5)),
    "int4": ("int_val", st.integers(-8, 7)),
    "uint4": ("int_val", st.integers(0, 15)),
    "int2": ("int_val", st.integers(-2, 1)),
    "uint2": ("int_val", st.integers(0, 3)),
    "qint8": ("int_val", st.integers(-128, 127)),
    "quint8": ("int_val", st.integers(0, 255)),
    "qint16": ("int_val", st.integers(-(2**15), 2**15 - 1)),
    "quint16": ("int_val", st.integers(0, 65535)),
    "qint32": ("int_val", st.integers(-(2**31), 2**31 - 1)),
    **{name: ("float8_val", st.integers(0, 255)) for name in DTYPES if name.startswith("float8")},
    "float4_e2m1fn": ("float8_val", st.integers(0, 15)),
}


@pytest.mark.parametrize("name", TYPED)
@given(data=st.data(), shape=SHAPES)
@settings(deadline=None, max_examples=15)
def test_typed_values_and_their_repetition(name: str, data: st.DataObject, shape: tuple[int, ...]) -> None:
    field, numbers = TYPED[name]
    dtype = DTYPES[name]
    given_count = data.draw(st.integers(0, int(np.prod(shape))))
    parts = 2 if dtype.kind == "complex" else 1
    values = data.draw(st.lists(numbers, min_size=given_count * parts, max_size=given_count * parts))
    given_values = bytes(values) if field == "float8_val" else values
    proto = tensor_pb2.TensorProto(
        dtype=dtype.tf_enum, tensor_shape=shape_proto(*shape), **{field: given_values}
    )
    message = proto.SerializeToString()
    assert_same(parsed(message), tf.io.parse_tensor(message, tf_dtype(dtype)))


@pytest.mark.parametrize("dtype", BEYOND, ids=str)
@given(data=st.data(), shape=SHAPES)
@settings(deadline=None, max_examples=10)
def test_dtypes_without_a_kernel_are_read_back_by_both_readers(
    dtype: DType, data: st.DataObject, shape: tuple[int, ...]
) -> None:
    ours = draw_tensor(data, dtype, shape)
    assert_same(ours, tf.io.parse_tensor(serialized(ours), tf_dtype(dtype)))
    assert parsed(serialized(ours)).values.tobytes() == ours.values.tobytes()
    if dtype.name.endswith("fnuz") and 0 in shape:
        return  # make_ndarray reads the content of these, and nothing else
    array = tf.make_ndarray(tensor_pb2.TensorProto.FromString(serialized(ours)))
    assert (array.shape, array.tobytes()) == (shape, ours.values.tobytes())


@pytest.mark.parametrize("dtype", [dtype for dtype in BEYOND if dtype.numpy.isbuiltin != 1], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_make_tensor_proto_is_read_and_where_it_writes_content_equalled(
    dtype: DType, shape: tuple[int, ...]
) -> None:
    if dtype.name.endswith("fnuz") and shape != (2, 3):
        return  # it writes the content of these, and nothing else
    values = np.resize(np.arange(16, dtype=np.uint8) & (1 << dtype.num_bits) - 1, shape).view(dtype.numpy)
    message = tf.make_tensor_proto(values, dtype=tf_dtype(dtype), shape=shape).SerializeToString()
    ours = parsed(message)
    assert ours.values.tolist() == values.reshape(-1).tolist()
    if dtype.is_float and shape:
        assert serialized(ours) == message


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES.values() if dtype.name[0] == "q"], ids=str)
def test_quantized_tensors_are_those_of_tensorflow(dtype: DType) -> None:
    ours = Array(dtype, (3,), np.array([*dtype.bounds, 1], dtype.numpy))
    theirs = tf.io.parse_tensor(serialized(ours), tf_dtype(dtype))
    integers = tf.bitcast(theirs, tf.dtypes.as_dtype(dtype.name[1:]))
    assert integers.numpy().tolist() == ours.values.tolist()


@pytest.mark.parametrize("dtype", WITH_KERNEL, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_output_of_make_tensor_proto_is_read(dtype: DType, shape: tuple[int, ...]) -> None:
    values: Any = np.full(shape, b"ab", object) if dtype.is_string else np.ones(shape, dtype.numpy)
    proto = tf.make_tensor_proto(values, dtype=tf_dtype(dtype), shape=shape)
    ours = parsed(proto.SerializeToString())
    assert_same(ours, tf.io.parse_tensor(proto.SerializeToString(), tf_dtype(dtype)))
    assert numpy_values(ours).tolist() == values.reshape(-1).tolist()


VECTOR = b"\x08\x01\x12\x04\x12\x02\x08\x01"
ONE = b"\x2d\0\0\x80?"


@pytest.mark.parametrize(
    "message",
    [
        b"\x08\x01" + ONE,  # no shape
        VECTOR + ONE + b"\x18\x07",  # version_number
        VECTOR + ONE + b"\x22\x00",  # empty content
        VECTOR + ONE + b"\x3a\x00",  # no values in another field
        VECTOR + b"\x12\x04\x12\x02\x08\x02" + ONE * 2,  # a shape in two pieces
        b"\x08\x02" + VECTOR + ONE,  # two dtypes
        b"\x0d\0\0\0\0" + VECTOR + ONE,  # dtype of another wire type
        VECTOR + ONE + b"\xfa\x01\x03abc",  # an unknown field
        b"\x08\x81\x80\x80\x80\x80\x80\x80\x80\x80\x00\x12\x00" + ONE,  # an overlong varint
        b"\x08\x07\x12\x04\x12\x02\x08\x02\x22\x05\x01\x02abc",  # strings in tensor_content
        b"\x08\x01\x12\x07\x12\x05\x08\x01\x12\x01a" + ONE,  # a dimension's name
    ],
)
def test_unusual_messages_are_read_alike(message: bytes) -> None:
    ours = parsed(message)
    assert_same(ours, tf.io.parse_tensor(message, tf_dtype(ours.dtype)))


#: What TensorFlow reads, each as something it need not mean, and we refuse.
DELIBERATE: dict[str, tuple[int, bytes, str]] = {
    "values in the field of another dtype": (1, VECTOR + b"\x38\x01", "conflicting_values"),
    "content and values": (1, VECTOR + ONE + b"\x22\x04\0\0\0@", "conflicting_values"),
    "more values than the shape takes": (1, VECTOR + ONE * 2, "surplus_values"),
    "values although the shape takes none": (1, b"\x08\x01\x12\x02\x12\x00" + ONE, "surplus_values"),
    "content although the shape takes none": (
        1,
        b"\x08\x01\x12\x02\x12\x00\x22\x04\0\0\0@",
        "content_size_mismatch",
    ),
    "an int8 of 300": (6, b"\x08\x06\x12\x00\x38\xac\x02", "out_of_range"),
    "a uint8 of -1": (4, b"\x08\x04\x12\x00\x38" + b"\xff" * 9 + b"\x01", "out_of_range"),
    "an int32 of 2^32 + 1": (3, b"\x08\x03\x12\x00\x38\x81\x80\x80\x80\x10", "out_of_range"),
    "a half of -1": (19, b"\x08\x13\x12\x00\x68" + b"\xff" * 9 + b"\x01", "out_of_range"),
    "a bool of 2": (10, b"\x08\x0a\x12\x00\x58\x02", "invalid_bool"),
    "half a complex number": (
        8,
        b"\x08\x08\x12\x00\x4a\x0c" + struct.pack("<fff", 1, 2, 3),
        "content_size_mismatch",
    ),
    "an unknown rank": (1, b"\x08\x01\x12\x02\x18\x01" + ONE, "unknown_rank"),
    "a dtype cut off at 32 bits": (1, b"\x08\x81\x80\x80\x80\x10" + VECTOR[2:] + ONE, "unsupported_dtype"),
    "a varint cut off at 64 bits": (
        1,
        b"\x08\x81\x80\x80\x80\x80\x80\x80\x80\x80\x7e" + VECTOR[2:] + ONE,
        "invalid_protobuf",
    ),
    "a tag cut off at 32 bits": (1, b"\x88\x80\x80\x80\x70\x01" + VECTOR[2:] + ONE, "invalid_protobuf"),
    "a group": (1, VECTOR + ONE + b"\xfb\x01\xfc\x01", "invalid_protobuf"),
    "an int4 of 16": (29, b"\x08\x1d\x12\x00\x38\x10", "out_of_range"),
    "an int4 of 16 in a byte": (29, b"\x08\x1d\x12\x00\x22\x01\x10", "out_of_range"),
    "a float4 of eight bits": (33, b"\x08\x21\x12\x00\x92\x01\x01\x10", "out_of_range"),
    "more float8 than the shape takes": (24, b"\x08\x18\x12\x00\x92\x01\x02\0\0", "surplus_values"),
    "float8 beside float32": (1, VECTOR + ONE + b"\x92\x01\x01\0", "conflicting_values"),
    "a resource beside the values": (1, VECTOR + ONE + b"\x72\x00", "unsupported_dtype"),
}


@pytest.mark.parametrize(("enum", "message", "code"), DELIBERATE.values(), ids=DELIBERATE)
def test_deliberate_refusals(enum: int, message: bytes, code: str) -> None:
    tf.io.parse_tensor(message, tf.dtypes.as_dtype(enum))
    with pytest.raises(InputError) as caught:
        parsed(message)
    assert caught.value.code == code


BASES: list[bytes] = [
    serialized(Array(DTYPES["float32"], (2, 1), np.array([1, 2], "<f4"))),
    serialized(Array(DTYPES["int8"], (3,), np.array([1, 2, 3], "i1"))),
    serialized(Array(STRING, (2,), Strings.pack([b"ab", b"c"]))),
    b"\x08\x03\x12\x04\x12\x02\x08\x03\x3a\x03\x01\xac\x02",
    b"\x08\x08\x12\x04\x12\x02\x08\x02\x4a\x08" + struct.pack("<ff", 1, 2),
    b"\x08\x07\x12\x04\x12\x02\x08\x02\x22\x05\x01\x02abc",
    b"\x08\x0a\x12\x04\x12\x02\x08\x03\x5a\x02\x01\x00",
    b"\x08\x19\x12\x04\x12\x02\x08\x03\x92\x01\x02\x38\x7f",
    b"\x08\x1d\x12\x04\x12\x02\x08\x03\x3a\x02\x07\x00",
    b"\x08\x1d\x12\x04\x12\x02\x08\x03\x22\x03\x07\xff\x0f",
]
MUTATIONS: list[Callable[[bytearray, int, int], None]] = [
    lambda data, at, byte: data.__setitem__(at, byte),
    lambda data, at, byte: data.insert(at, byte),
    lambda data, at, _: data.__delitem__(at),
    lambda data, at, byte: data.__setitem__(at, data[at] ^ 1 << byte % 8),
]


MUTATION = st.tuples(st.sampled_from(MUTATIONS), st.integers(0), st.integers(0, 255))


@given(st.sampled_from(BASES), st.lists(MUTATION, min_size=1, max_size=3))
@settings(deadline=None, max_examples=1500)
def test_accepted_mutated_messages_equal_tensorflow(base: bytes, mutations: Any) -> None:
    message = bytearray(base)
    for mutate, at, byte in mutations:
        if message:
            mutate(message, at % len(message), byte)
    try:
        ours = parsed(bytes(message), Limits(max_decoded_bytes=2**20))
    except InputError:
        return
    assert_same(ours, tf.io.parse_tensor(bytes(message), tf_dtype(ours.dtype)))


@pytest.mark.parametrize("enum", [*range(1, 35)])
def test_dtypes_are_those_that_tensorflow_reads_and_a_kernel_those_it_serializes(enum: int) -> None:
    dtype = dtype_from_tf_enum(enum)
    message = bytes([8, enum]) + b"\x12\x00"
    try:
        zero = tf.io.parse_tensor(message, tf.dtypes.as_dtype(enum))
    except (tf.errors.OpError, TypeError, ValueError):
        zero = None
    if zero is None or enum in (20, 21):  # resource and variant: handles without a value
        assert dtype is None
        with pytest.raises(UnprocessableInput) as caught:
            parsed(message)
        assert caught.value.code == "unsupported_dtype"
        return
    assert dtype is not None
    assert tf.dtypes.as_dtype(enum).name == dtype.name
    try:
        theirs = tf.io.serialize_tensor(zero).numpy()
    except tf.errors.NotFoundError:
        assert not dtype.has_kernel
        return
    assert dtype.has_kernel
    assert serialized(parsed(theirs)) == theirs
