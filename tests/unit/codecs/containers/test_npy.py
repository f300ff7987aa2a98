import io
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from app.codecs.arrays.array import Array
from app.codecs.arrays.npy_file import read_npy, serialize_npy
from app.domain.dtypes import BYTES, DTYPES, STRING, TEXT, dtype_from_numpy
from app.domain.limits import Limits
from app.errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream

NUMERIC = st.sampled_from(
    ["?", "i1", "<i2", ">i4", "<i8", "u1", ">u2", "<u4", ">u8", "<f2", ">f4", "<f8", "<c8", ">c16"]
)


def saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def read(data: bytes, **kwargs: Any) -> Array:
    return read_npy(MemoryStream(data), Budget(), **kwargs)


def header(descr: str, shape: str, *, fortran_order: bool = False) -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': {fortran_order}, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@given(npst.arrays(NUMERIC, npst.array_shapes(min_dims=0, max_dims=5, min_side=0)), st.booleans())
@settings(deadline=None, max_examples=200)
def test_reads_all_that_numpy_saves(array: np.ndarray[Any, Any], fortran: bool) -> None:
    if fortran:
        array = np.asfortranarray(array)
    found = read(saved(array))
    assert (found.dtype, found.shape) == (dtype_from_numpy(array.dtype), array.shape)
    assert found.values.tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes(order="C")


@given(
    npst.arrays(NUMERIC.map(lambda code: code.replace(">", "<")), npst.array_shapes(min_dims=0, min_side=0))
)
@settings(deadline=None)
def test_writes_the_bytes_of_numpy_save(array: np.ndarray[Any, Any]) -> None:
    array = np.ascontiguousarray(array).reshape(array.shape)
    dtype = dtype_from_numpy(array.dtype)
    assert dtype is not None
    assert b"".join(serialize_npy(dtype, array.shape, [array.reshape(-1)])) == saved(array)


def test_several_chunks_are_one_array() -> None:
    data = b"".join(
        serialize_npy(DTYPES["int16"], (5,), [np.arange(3, dtype="<i2"), np.arange(3, 5, dtype="<i2")])
    )
    assert data == saved(np.arange(5, dtype="<i2"))


def test_bfloat16_is_written_as_numpy_writes_it_and_read_where_declared() -> None:
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    data = saved(array)
    assert b"'<V2'" in data
    assert b"".join(serialize_npy(DTYPES["bfloat16"], (2,), [array])) == data
    found = read(data, declared=DTYPES["bfloat16"])
    assert found.values.dtype == ml_dtypes.bfloat16
    assert found.values.tolist() == [1.5, -2]
    with pytest.raises(UnprocessableInput, match="bfloat16"):
        read(data)


@given(st.lists(st.binary(max_size=6), min_size=1), st.booleans())
@settings(deadline=None)
def test_bytes_lose_the_nuls_at_their_ends_as_in_numpy(strings: list[bytes], fortran: bool) -> None:
    array = np.array([strings, strings], "S")
    if fortran:
        array = np.asfortranarray(array)
    found = read(saved(array))
    assert found.dtype is BYTES
    assert found.shape == (2, len(strings))
    assert found.values.tolist() == [value.rstrip(b"\0") for value in strings] * 2


@given(st.lists(st.text(max_size=6), min_size=1), st.sampled_from("<>"))
@settings(deadline=None)
def test_text_becomes_utf8(strings: list[str], order: str) -> None:
    array = np.array(strings).astype(f"{order}U6")
    found = read(saved(array))
    assert found.dtype is TEXT
    assert found.values.tolist() == [text.rstrip("\0").encode() for text in strings]
    assert found.to_tensor().dtype is STRING


@given(st.lists(st.binary(max_size=6).filter(lambda value: not value.endswith(b"\0"))))
@settings(deadline=None)
def test_bytes_are_written_as_numpy_writes_them(strings: list[bytes]) -> None:
    values = np.empty(len(strings), object)
    values[:] = strings
    data = b"".join(serialize_npy(STRING, (len(strings),), [values]))
    assert data == saved(np.array(strings, "S"))
    assert read(data).values.tolist() == strings


def test_text_is_written_as_numpy_writes_it() -> None:
    texts = ["", "é", "𝄞 clef"]
    values = np.array([text.encode() for text in texts], object)
    assert b"".join(serialize_npy(TEXT, (3,), [values])) == saved(np.array(texts))
    assert b"".join(serialize_npy(TEXT, (0,), [])) == saved(np.array([], "<U1"))


@pytest.mark.parametrize(
    ("dtype", "strings", "code"),
    [
        (STRING, [b"a\0"], "not_expressible"),
        (TEXT, [b"a\0"], "not_expressible"),
        (TEXT, [b"\xff"], "invalid_utf8"),
        (STRING, [b"x" * 2**20, *[b""] * 1024], "not_expressible"),
    ],
)
def test_strings_that_numpy_cannot_hold(dtype: Any, strings: list[bytes], code: str) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        next(serialize_npy(dtype, (len(strings),), [np.array(strings, object)]))
    assert caught.value.code == code


def test_more_axes_than_numpy_holds() -> None:
    values = np.zeros(1, "<f4")
    data = b"".join(serialize_npy(DTYPES["float32"], (1,) * 64, [values]))
    assert np.load(io.BytesIO(data)).shape == (1,) * 64
    with pytest.raises(UnprocessableInput, match="65 dimensions"):
        next(serialize_npy(DTYPES["float32"], (1,) * 65, [values]))


def test_fortran_order_with_more_axes_than_numpy_holds() -> None:
    shape = "(" + "1," * 100 + "2,3)"
    found = read(header("|u1", shape, fortran_order=True) + bytes([0, 1, 2, 3, 4, 5]))
    assert found.shape == (1,) * 100 + (2, 3)
    assert found.values.tolist() == [0, 2, 4, 1, 3, 5]


def test_the_values_are_flat_aligned_and_writable() -> None:
    found = read(saved(np.ones((3, 5))))
    assert found.values.shape == (15,)
    assert found.values.flags.aligned
    assert found.values.flags.writeable


@pytest.mark.parametrize("chunk", [1, 7, 127])
def test_it_does_not_matter_how_the_bytes_arrive(chunk: int) -> None:
    array = np.arange(100, dtype=">i8").reshape(4, 25)
    found = read_npy(MemoryStream(saved(array), chunk=chunk), Budget())
    assert found.values.tolist() == list(range(100))


@pytest.mark.parametrize("missing", [1, 7, 24])
def test_a_short_body(missing: int) -> None:
    data = saved(np.arange(3))
    with pytest.raises(MalformedInput) as caught:
        read(data[:-missing])
    assert caught.value.code == "truncated"
    assert caught.value.location.offset == len(data) - missing


def test_bytes_behind_the_array() -> None:
    data = saved(np.arange(3))
    with pytest.raises(MalformedInput) as caught:
        read(data + b"\0")
    assert caught.value.code == "trailing_bytes"
    assert caught.value.location.offset == len(data)


@pytest.mark.parametrize(
    ("descr", "shape"),
    [
        ("<f4", "(2147483648,)"),
        ("|u1", "(9223372036854775807,)"),
        ("|S0", "(1152921504606846976,)"),
        ("|S2147483647", "(1,)"),
        ("<U999999999", "(9,)"),
    ],
)
def test_a_few_bytes_that_declare_too_much(descr: str, shape: str) -> None:
    budget = Budget()
    with pytest.raises(LimitExceeded) as caught:
        read_npy(MemoryStream(header(descr, shape)), budget)
    assert caught.value.code == "payload_too_large"
    assert budget.peak <= budget.limits.max_decoded_bytes


def test_a_dimension_of_zero_holds_nothing_whatever_the_others() -> None:
    assert read(header("<f4", "(0, 4611686018427387904)")).shape == (0, 2**62)


def test_strings_of_width_zero() -> None:
    assert read(header("|S0", "(3,)")).values.tolist() == [b"", b"", b""]
    assert read(header("<U0", "(2,)")).values.tolist() == [b"", b""]


def test_what_is_held_is_charged() -> None:
    budget = Budget(Limits(max_decoded_bytes=1000))
    read_npy(MemoryStream(saved(np.zeros(125))), budget)
    assert budget.peak == 1000
    with pytest.raises(LimitExceeded):
        read_npy(MemoryStream(saved(np.zeros(125))), budget)


def test_turning_fortran_order_takes_room_for_a_while() -> None:
    budget = Budget()
    read_npy(MemoryStream(saved(np.asfortranarray(np.zeros((10, 10))))), budget)
    assert budget.peak == 1600
    assert budget.limits.max_decoded_bytes - budget.remaining == 800


@pytest.mark.parametrize(
    ("order", "point"), [("<", 0xD800), (">", 0xDFFF), ("<", 0x110000), (">", 0xFFFFFFFF)]
)
def test_code_points_that_are_no_characters(order: str, point: int) -> None:
    content = np.array([0x61, point], f"{order}u4").tobytes()
    head = header(f"{order}U1", "(2,)")
    with pytest.raises(UnprocessableInput, match=hex(point)) as caught:
        read(head + content)
    assert caught.value.code == "invalid_text"
    assert caught.value.location.offset == len(head) + 4


def test_bools_are_zero_or_one() -> None:
    head = header("|b1", "(3,)")
    assert read(head + b"\x00\x01\x00").values.tolist() == [False, True, False]
    with pytest.raises(UnprocessableInput) as caught:
        read(head + b"\x00\x01\x02")
    assert (caught.value.code, caught.value.location.offset) == ("invalid_bool", len(head) + 2)


def test_a_pickle_is_never_loaded() -> None:
    file = io.BytesIO()
    np.save(file, np.array([{}], object), allow_pickle=True)
    with pytest.raises(UnprocessableInput, match="Python objects") as caught:
        read(file.getvalue())
    assert caught.value.code == "unsupported_dtype"


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_mutated_bytes_are_an_array_or_an_input_error(data: st.DataObject) -> None:
    mutated = bytearray(saved(np.arange(6, dtype=">u2").reshape(2, 3)))
    for _ in range(data.draw(st.integers(1, 4))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read(bytes(mutated))
    except InputError:
        return
    expected = np.load(io.BytesIO(bytes(mutated)), allow_pickle=False)
    assert found.shape == expected.shape


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn", "float4_e2m1fn", "int4", "uint2", "qint8"])
def test_dtypes_that_npy_has_no_name_for_are_refused(name: str) -> None:
    dtype = DTYPES[name]
    with pytest.raises(UnprocessableInput, match="'raw'") as caught:
        next(serialize_npy(dtype, (1,), [np.zeros(1, dtype.numpy)]))
    assert caught.value.code == "not_expressible"
