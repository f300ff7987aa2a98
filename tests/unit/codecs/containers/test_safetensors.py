"""safetensors, with the library of that name as the oracle in both directions."""

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize
from safetensors.numpy import load, save

from app.codecs.arrays.array import Array, ChunkedArray
from app.codecs.arrays.safetensors_file import check_dtype, read_safetensors, serialize_safetensors
from app.domain.dtypes import DTYPES, DType, dtype_from_numpy
from app.domain.limits import Limits
from app.errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream


def is_held(dtype: DType) -> bool:
    """Whether the library has a name for the dtype; to numpy, a quantized integer is one like any other."""
    if dtype_from_numpy(dtype.numpy) is not dtype:
        return False
    try:
        save({"x": np.zeros(1, dtype.numpy)})
    except SafetensorError:
        return False
    return True


HELD = [name for name, dtype in DTYPES.items() if not dtype.is_string and is_held(dtype)]


def file_of(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def info(dtype: str = "U8", shape: Any = None, begin: Any = 0, end: Any = 1) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [1] if shape is None else shape, "data_offsets": [begin, end]}


def read(data: bytes, limits: Limits | None = None, chunk: int | None = None) -> dict[str, Array]:
    return read_safetensors(MemoryStream(data, chunk=chunk), Budget(limits))


def described(arrays: dict[str, Array]) -> list[tuple[str, str, tuple[int, ...], bytes]]:
    return [(name, a.dtype.name, a.shape, a.values.tobytes()) for name, a in arrays.items()]


def deserialized(data: bytes) -> dict[str, tuple[tuple[int, ...], bytes]]:
    """Shape and bytes of every array, as the library reads them."""
    found = deserialize(data)  # type: ignore[no-untyped-call]
    return {name: (tuple(item["shape"]), bytes(item["data"])) for name, item in found}


def refused(data: bytes, error: type[InputError], code: str, limits: Limits | None = None) -> InputError:
    with pytest.raises(error) as caught:
        read(data, limits)
    assert caught.value.code == code
    return caught.value


def chunked(name: str, array: Any, dtype: DType | None = None) -> ChunkedArray:
    found = dtype or dtype_from_numpy(array.dtype)
    assert found is not None
    return ChunkedArray(name, found, array.shape, [np.ascontiguousarray(array).reshape(-1)])


def written(*arrays: ChunkedArray) -> bytes:
    return b"".join(bytes(piece) for piece in serialize_safetensors(arrays))


def test_the_literal_bytes_of_one_array() -> None:
    header = b'{"attn0":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}    '
    data = bytes([len(header), 0, 0, 0, 0, 0, 0, 0]) + header + struct.pack("<2f", 0.5, -1)
    assert written(chunked("attn0", np.array([[0.5, -1]], "<f4"))) == data
    assert described(read(data)) == [("attn0", "float32", (1, 2), struct.pack("<2f", 0.5, -1))]


def test_no_arrays() -> None:
    assert written() == save({}) == b"\x08\0\0\0\0\0\0\0{}      "
    assert read(written()) == {}


@pytest.mark.parametrize("name", HELD)
def test_every_dtype_is_written_as_the_library_writes_it_and_read_back(name: str) -> None:
    dtype = DTYPES[name]
    array = np.array([[0, 1], [1, 0]]).astype(dtype.numpy)
    data = written(chunked("x", array, dtype))
    assert data == save({"x": array})
    assert described(read(data)) == [("x", name, (2, 2), array.tobytes())]


NAMES = ["b", "a", "é", "z.0/w", 'q"\\', "\n\x01\x7f", "\u2028", "\U0001f600", "A", ""]


def test_arrays_lie_as_in_the_librarys_files() -> None:
    arrays = {
        name + str(index): np.full(index % 3, index).astype(DTYPES[dtype].numpy)
        for index, (name, dtype) in enumerate(zip(NAMES * 3, HELD, strict=False))
    }
    assert len(arrays) == len(HELD)
    assert written(*(chunked(name, array) for name, array in arrays.items())) == save(arrays)


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=8).filter(lambda name: name != "__metadata__"),
        st.tuples(
            st.sampled_from(["?", "u1", "<i2", "<f2", "<u4", "<f4", "<i8", "<f8", "<c8"]),
            st.lists(st.integers(0, 3), max_size=4),
        ),
        max_size=6,
    )
)
def test_both_libraries_write_the_same_bytes_and_read_the_same_arrays(
    specs: dict[str, tuple[str, list[int]]],
) -> None:
    arrays = {name: np.ones(shape, code) for name, (code, shape) in specs.items()}
    data = save(arrays)
    assert written(*(chunked(name, array) for name, array in arrays.items())) == data
    found = {name: (array.shape, array.values.tobytes()) for name, array in read(data).items()}
    assert found == {name: (array.shape, array.tobytes()) for name, array in load(data).items()}


def test_chunks_of_an_array_follow_one_another() -> None:
    parts = [np.array([1, 2], "<i2"), np.array([], "<i2"), np.array([3], "<i2")]
    data = written(ChunkedArray("x", DTYPES["int16"], (3,), parts))
    assert data == save({"x": np.array([1, 2, 3], "<i2")})


def test_metadata_is_left_out() -> None:
    data = save({"x": np.zeros(2, "<f4")}, metadata={"format": "np", "step": "7"})
    assert list(read(data)) == ["x"]


def test_the_order_is_that_of_the_header_whatever_that_of_the_data() -> None:
    header = {"b": info(begin=1, end=3, shape=[2]), "a": info(), "e": info(shape=[0, 7], begin=1)}
    assert described(read(file_of(header, b"abc"))) == [
        ("b", "uint8", (2,), b"bc"),
        ("a", "uint8", (1,), b"a"),
        ("e", "uint8", (0, 7), b""),
    ]


def test_equal_at_every_split() -> None:
    data = save({"x": np.arange(3, dtype="<i4"), "y": np.ones((2, 2), "<f2"), "z": np.zeros((0,), "u1")})
    whole = described(read(data))
    for chunk in range(1, len(data) + 1):
        assert described(read(data, chunk=chunk)) == whole


def test_every_cut_is_refused_and_so_is_every_byte_more() -> None:
    data = save({"x": np.arange(3, dtype="<i4"), "y": np.ones(2, "<f2")})
    for end in range(len(data)):
        refused(data[:end], MalformedInput, "truncated")
    error = refused(data + b"\0", MalformedInput, "trailing_bytes")
    assert error.location.offset == len(data)


U8 = info()
HOSTILE: list[tuple[bytes, type[InputError], str]] = [
    (struct.pack("<Q", 2**63) + b"{}", LimitExceeded, "safetensors_header_too_large"),
    (struct.pack("<Q", 100_000_001), LimitExceeded, "safetensors_header_too_large"),
    (struct.pack("<Q", 100_000_000) + b"{}", MalformedInput, "truncated"),
    (struct.pack("<Q", 3) + b"{}", MalformedInput, "truncated"),
    (file_of(b""), MalformedInput, "invalid_safetensors"),
    (file_of(b" {}"), MalformedInput, "invalid_safetensors"),
    (file_of(b"[]"), MalformedInput, "invalid_safetensors"),
    (file_of(b"{}\0"), MalformedInput, "invalid_json"),
    (file_of(b'{"a":'), MalformedInput, "invalid_json"),
    (file_of(b'{"\xff":1}'), MalformedInput, "invalid_utf8"),
    (file_of(b'{"\\ud800":1}'), MalformedInput, "lone_surrogate"),
    (file_of(b'{"a":' + b"[" * 100_000), LimitExceeded, "json_too_deep"),
    (
        file_of(b'{"a":{"dtype":"U8","shape":[1' + b"0" * 5000 + b"]}}"),
        UnprocessableInput,
        "integer_too_large",
    ),
    (file_of(b'{"a":NaN}'), MalformedInput, "nonfinite_token"),
    (
        file_of(b'{"a":%b,"a":%b}' % ((json.dumps(U8).encode(),) * 2), b"x"),
        MalformedInput,
        "duplicate_key",
    ),
    (
        file_of(b'{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        MalformedInput,
        "duplicate_key",
    ),
    (file_of({"__metadata__": {"a": 1}}), MalformedInput, "invalid_safetensors"),
    (file_of({"__metadata__": None}), MalformedInput, "invalid_safetensors"),
    (file_of({"__metadata__": ["a"]}), MalformedInput, "invalid_safetensors"),
    (file_of({"a": 1}), MalformedInput, "invalid_safetensors"),
    (file_of({"a": {"dtype": "U8", "shape": []}}, b"x"), MalformedInput, "invalid_safetensors"),
    (file_of({"a": {**U8, "scale": 2}}, b"x"), MalformedInput, "invalid_safetensors"),
    (file_of({"a": {**U8, "dtype": 3}}, b"x"), MalformedInput, "invalid_safetensors"),
    (file_of({"a": {**U8, "shape": "1"}}, b"x"), MalformedInput, "invalid_safetensors"),
    (file_of({"a": info("F4", [2])}, b"x"), UnprocessableInput, "unsupported_dtype"),
    (file_of({"a": info("f32", [0], 0, 0)}), UnprocessableInput, "unsupported_dtype"),
    (file_of({"a": info(shape=[-1])}, b"x"), MalformedInput, "invalid_shape"),
    (file_of({"a": info(shape=[1.0])}, b"x"), MalformedInput, "invalid_shape"),
    (file_of({"a": info(shape=[True])}, b"x"), MalformedInput, "invalid_shape"),
    (file_of({"a": info(shape=[2**63, 0], end=0)}), MalformedInput, "invalid_shape"),
    (file_of({"a": info(shape=[2**62, 4])}, b"x"), LimitExceeded, "shape_too_large"),
    (file_of({"a": info(shape=[2**32, 2**32, 0], end=0)}), LimitExceeded, "shape_too_large"),
    (file_of({"a": info(shape=[1] * 255)}, b"x"), LimitExceeded, "rank_too_large"),
    (file_of({"a": info("F64", [2**60], 0, 2**63)}), LimitExceeded, "payload_too_large"),
    (file_of({"a": info(end=2)}, b"xy"), MalformedInput, "invalid_safetensors"),
    (file_of({"a": info("F32", [1], 0, 1)}, b"x"), MalformedInput, "invalid_safetensors"),
    (file_of({"a": info(begin=1, end=0)}, b"x"), MalformedInput, "invalid_safetensors"),
    (file_of({"a": info(begin=-1, end=0)}), MalformedInput, "invalid_safetensors"),
    (file_of({"a": info(begin=0.0)}, b"x"), MalformedInput, "invalid_safetensors"),
    (file_of({"a": {**U8, "data_offsets": [0]}}, b"x"), MalformedInput, "invalid_safetensors"),
    (file_of({"a": {**U8, "data_offsets": None}}, b"x"), MalformedInput, "invalid_safetensors"),
    (file_of({"a": info(begin=1, end=2)}, b"xy"), MalformedInput, "invalid_safetensors"),
    (file_of({"a": U8, "b": info(begin=2, end=3)}, b"xyz"), MalformedInput, "invalid_safetensors"),
    (file_of({"a": U8, "b": U8}, b"x"), MalformedInput, "invalid_safetensors"),
    (
        file_of({"a": info(shape=[2], end=2), "b": info(begin=1, end=2)}, b"xy"),
        MalformedInput,
        "invalid_safetensors",
    ),
    (file_of({"a": info("BOOL", [2], end=2)}, b"\1\2"), UnprocessableInput, "invalid_bool"),
]


@pytest.mark.parametrize(("data", "error", "code"), HOSTILE)
def test_hostile_files(data: bytes, error: type[InputError], code: str) -> None:
    refused(data, error, code)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (file_of(b" {}"), "README: the header begins with {"),
        (file_of(b'{"a":%b,"a":%b}' % ((json.dumps(U8).encode(),) * 2), b"x"), "README: no duplicate keys"),
        (file_of({"__metadata__": None}), "README: a map of text"),
        (file_of({"a": {**U8, "scale": 2}}, b"x"), "what it means is not known"),
        (file_of({"a": info("F4", [2])}, b"x"), "not in the table"),
        (file_of({"a": info("BOOL", [2], end=2)}, b"\1\2"), "only 0 and 1 are bools"),
        (file_of({"a": info(shape=[2**63, 0], end=0)}), "no int64"),
    ],
)
def test_what_only_the_library_reads_is_refused_on_purpose(data: bytes, why: str) -> None:
    deserialized(data)
    with pytest.raises(InputError):
        read(data)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_mutated_bytes_are_read_as_the_library_reads_them_or_refused(data: st.DataObject) -> None:
    original = save({"x": np.arange(3, dtype="<i4"), "y": np.ones((2, 1), "?")}, metadata={"a": "b"})
    mutated = bytearray(original)
    for _ in range(data.draw(st.integers(1, 3))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read(bytes(mutated))
    except InputError:
        return
    expected = deserialized(bytes(mutated))
    assert {name: (array.shape, array.values.tobytes()) for name, array in found.items()} == expected


def test_an_error_names_array_and_offset() -> None:
    header = {"a": U8, "b": info("BOOL", [2], 1, 3)}
    data = file_of(header, b"x\0\7")
    error = refused(data, UnprocessableInput, "invalid_bool")
    assert (error.location.feature, error.location.offset) == ("b", len(data) - 1)
    error = refused(data[:-1], MalformedInput, "truncated")
    assert (error.location.feature, error.location.offset) == ("b", len(data) - 1)
    error = refused(file_of(b'{"a" 1}'), MalformedInput, "invalid_json")
    assert error.location.offset == 8 + 5


def test_limits() -> None:
    data = save({"x": np.zeros(100, "u1"), "y": np.zeros(0, "u1")})
    refused(data, LimitExceeded, "too_many_members", Limits(max_members=1))
    refused(data, LimitExceeded, "payload_too_large", Limits(max_decoded_bytes=50))
    refused(save({"x" * 11: np.zeros(0)}), LimitExceeded, "name_too_long", Limits(max_name_bytes=10))


def test_only_the_arrays_stay_charged() -> None:
    budget = Budget()
    read_safetensors(MemoryStream(save({"x": np.zeros(100, "<f8")})), budget)
    assert budget.limits.max_decoded_bytes - budget.remaining == 800


@pytest.mark.parametrize("name", sorted(DTYPES.keys() - set(HELD)))
def test_dtypes_without_a_name_are_not_written(name: str) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        check_dtype("x", DTYPES[name])
    assert (caught.value.code, caught.value.location.feature) == ("not_expressible", "x")
    with pytest.raises(UnprocessableInput):
        serialize_safetensors([ChunkedArray("x", DTYPES[name], (0,), [])])


def test_names_that_cannot_be_written() -> None:
    with pytest.raises(UnprocessableInput) as caught:
        written(chunked("x", np.zeros(1)), chunked("x", np.zeros(1)))
    assert caught.value.code == "duplicate_name"
    with pytest.raises(UnprocessableInput) as caught:
        written(chunked("__metadata__", np.zeros(1)))
    assert caught.value.code == "not_expressible"
