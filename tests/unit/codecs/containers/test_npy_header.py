import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.arrays.npy_header import NpyHeader, read_npy_header, serialize_npy_header
from app.domain.dtypes import BYTES, DTYPES, TEXT, DType
from app.domain.limits import Limits
from app.errors import InputError, LimitExceeded, MalformedInput, UnknownForm, UnprocessableInput
from app.runtime.streams import MemoryStream

SMALL_SHAPE = st.lists(st.integers(0, 10), max_size=64).map(tuple)


def npy(text: str, version: bytes = b"\x01\x00") -> bytes:
    """An NPY header around `text`, not padded."""
    encoded = text.encode("utf-8" if version == b"\x03\x00" else "latin-1")
    length = len(encoded).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    return b"\x93NUMPY" + version + length + encoded


def header(text: str, **kwargs: Any) -> NpyHeader:
    return read_npy_header(MemoryStream(npy(text)), Limits(), **kwargs)


def of_descr(descr: str, **kwargs: Any) -> NpyHeader:
    return header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': (3,), }}", **kwargs)


def of_shape(shape: str) -> NpyHeader:
    return header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}")


LITERAL = (
    b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }" + b" " * 58 + b"\n"
)


def test_literal_bytes_both_ways() -> None:
    assert serialize_npy_header("<f4", (2, 3)) == LITERAL
    found = read_npy_header(MemoryStream(LITERAL), Limits())
    assert (found.element.dtype, found.element.big_endian) == (DTYPES["float32"], False)
    assert (found.shape, found.fortran_order, found.num_bytes) == ((2, 3), False, 128)


@given(shape=SMALL_SHAPE, descr=st.sampled_from(["<f4", "|b1", "<c16", "<V2", "|S12345"]))
@settings(deadline=None)
def test_header_is_that_of_numpy_save(shape: tuple[int, ...], descr: str) -> None:
    expected = io.BytesIO()
    np.lib.format.write_array_header_1_0(expected, {"descr": descr, "fortran_order": False, "shape": shape})
    assert serialize_npy_header(descr, shape) == expected.getvalue()


@pytest.mark.parametrize("version", [b"\x01\x00", b"\x02\x00", b"\x03\x00"])
@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<i8', 'fortran_order': True, 'shape': (4, 5), }\n",
        '{"shape":(4,5),"fortran_order":True,"descr":"<i8"}',
        "  { 'shape' : ( 4 , 5 , ) , 'descr' : '<i8' , 'fortran_order' : True , }  ",
        "{'descr': '<i8', 'fortran_order': True, 'shape': (4L, 5L), }",  # Python 2
    ],
)
def test_all_spellings_that_numpy_writes_or_evaluates(text: str, version: bytes) -> None:
    found = read_npy_header(MemoryStream(npy(text, version), chunk=1), Limits())
    assert (found.shape, found.fortran_order, found.element.dtype.name) == ((4, 5), True, "int64")


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if not d.is_string and d.in_numpy], ids=str)
@pytest.mark.parametrize("order", ["<", ">", "=", "|", ""])
def test_every_dtype_in_every_byte_order(dtype: DType, order: str) -> None:
    element = of_descr(f"'{order}{dtype.numpy.str[1:]}'").element
    assert (element.dtype, element.itemsize, element.big_endian) == (dtype, dtype.itemsize, order == ">")


@pytest.mark.parametrize(
    ("descr", "dtype", "itemsize"),
    [("|S5", BYTES, 5), ("|S0", BYTES, 0), ("<U3", TEXT, 12), (">U3", TEXT, 12), ("|a5", BYTES, 5)],
)
def test_strings(descr: str, dtype: DType, itemsize: int) -> None:
    element = of_descr(f"'{descr}'").element
    assert (element.dtype, element.itemsize) == (dtype, itemsize)


def test_two_bytes_are_bfloat16_only_where_declared() -> None:
    assert of_descr("'<V2'", declared=DTYPES["bfloat16"]).element.dtype.name == "bfloat16"
    for declared in (None, DTYPES["float16"]):
        with pytest.raises(
            UnprocessableInput, match=r"\?dtype=bfloat16 for tensors, a schema for rows"
        ) as caught:
            of_descr("'<V2'", declared=declared)
        assert caught.value.code == "unsupported_dtype"


@pytest.mark.parametrize(
    ("descr", "error"),
    [
        ("'|O'", UnprocessableInput),
        ("'O'", UnprocessableInput),
        ("[('a', '<f4')]", UnprocessableInput),
        ("[('a', [('b', '|O')])]", UnprocessableInput),
        ("'|V8'", UnprocessableInput),
        ("'V2147483647'", UnprocessableInput),
        ("'<M8[ns]'", UnknownForm),
        ("'<m8[25s]'", UnknownForm),
        ("'<M8'", UnknownForm),
        ("'<f16'", UnknownForm),
        ("'<c32'", UnknownForm),
        ("'<f3'", UnknownForm),
    ],
)
def test_elements_without_an_exact_counterpart(descr: str, error: type[InputError]) -> None:
    with pytest.raises(error) as caught:
        of_descr(descr)
    assert caught.value.code == "unsupported_dtype"


@pytest.mark.parametrize(
    "descr", ["''", "'<i3'", "'float32'", "'<f4,<f4'", "'<f4[s]'", "'S'", "'(2,)f4'", "'x'"]
)
def test_unreadable_descr(descr: str) -> None:
    with pytest.raises((MalformedInput, UnknownForm)) as caught:
        of_descr(descr)
    assert caught.value.code in ("invalid_npy_header", "unsupported_dtype")


@pytest.mark.parametrize(
    ("text", "shape"), [("()", ()), ("(3,)", (3,)), ("(0, 2)", (0, 2)), ("( 3 , )", (3,))]
)
def test_shapes(text: str, shape: tuple[int, ...]) -> None:
    assert of_shape(text).shape == shape


@pytest.mark.parametrize(
    "shape",
    ["(-1,)", "(True,)", "(3)", "(,)", "(3,,)", "(1.0,)", "(0x10,)", "(1_0,)", "(9" + "9" * 5000 + ",)",
     "(18446744073709551616,)", "(9223372036854775808,)", "('3',)", "(1 2,)", "(\xb3,)", "(03,)", "(\v3,)"],
)  # fmt: skip
def test_shapes_that_are_none(shape: str) -> None:
    with pytest.raises(MalformedInput) as caught:
        of_shape(shape)
    assert caught.value.code == "invalid_shape"


@pytest.mark.parametrize("shape", ["(4294967296, 4294967296)", "(0, 4611686018427387904, 4)"])
def test_products_beyond_int64(shape: str) -> None:
    with pytest.raises(LimitExceeded) as caught:
        of_shape(shape)
    assert caught.value.code == "shape_too_large"


def test_more_dimensions_than_tensorflow_holds() -> None:
    assert len(of_shape("(" + "1," * 254 + ")").shape) == 254
    with pytest.raises(LimitExceeded) as caught:
        of_shape("(" + "1," * 255 + ")")
    assert caught.value.code == "rank_too_large"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 'x'}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} + 1",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': '', 'shape': (1,)}",
        "{'descr': True, 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': [1]}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': ((1,),)}",
        "{'descr': __import__('os').system('true'), 'fortran_order': False, 'shape': (1,)}",
        "(" * 4000 + ")" * 4000,
        "-" * 9000 + "1",
        "{" * 9999,
        "'" * 9999,
    ],
)
def test_texts_that_are_no_header(text: str) -> None:
    with pytest.raises(MalformedInput) as caught:
        header(text)
    assert caught.value.code == "invalid_npy_header"


def test_the_length_is_checked_before_anything_is_read() -> None:
    claim = b"\x93NUMPY\x02\x00\xff\xff\xff\xff\x00"
    with pytest.raises(LimitExceeded, match="claims 4294967295 bytes") as caught:
        read_npy_header(MemoryStream(claim), Limits())
    assert caught.value.code == "npy_header_too_large"
    with pytest.raises(LimitExceeded):
        header("{" + " " * 10_000 + "}")


@pytest.mark.parametrize("size", range(len(LITERAL)))
def test_cut_short_anywhere(size: int) -> None:
    with pytest.raises(MalformedInput) as caught:
        read_npy_header(MemoryStream(LITERAL[:size]), Limits())
    assert caught.value.code == "truncated"
    assert caught.value.location.offset == size


def test_not_npy() -> None:
    with pytest.raises(MalformedInput) as caught:
        read_npy_header(MemoryStream(b"PK\x03\x04" + bytes(100)), Limits())
    assert caught.value.code == "not_npy"
    with pytest.raises(MalformedInput, match=r"version 4\.0"):
        read_npy_header(MemoryStream(b"\x93NUMPY\x04\x00" + bytes(100)), Limits())


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_are_a_header_or_an_input_error(body: bytes) -> None:
    data = b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body
    with pytest.raises(InputError):
        read_npy_header(MemoryStream(data), Limits())


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_what_it_reads_of_a_mutated_header_numpy_reads_alike(data: st.DataObject) -> None:
    mutated = bytearray(LITERAL)
    for _ in range(data.draw(st.integers(1, 3))):
        mutated[data.draw(st.integers(10, 70))] = data.draw(st.sampled_from(b"'\"{}(),:0129<>|=bfiuScU L T"))
    try:
        found = read_npy_header(MemoryStream(mutated), Limits())
    except InputError:
        return
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(io.BytesIO(mutated[8:]))
    assert (found.shape, found.fortran_order, found.element.itemsize) == (
        shape,
        fortran_order,
        dtype.itemsize,
    )
