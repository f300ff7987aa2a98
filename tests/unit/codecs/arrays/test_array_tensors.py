"""Tensors as NPY, NPZ, safetensors, the binary form of Open Inference, and raw bytes."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from safetensors import SafetensorError, deserialize
from safetensors.numpy import load, save

from app.codecs.forms import FormName
from app.domain.dtypes import DTYPES, DType
from app.domain.limits import MIB, Limits
from app.errors import (
    AmbiguousInput,
    InputError,
    LimitExceeded,
    MalformedInput,
    UnknownForm,
    UnprocessableInput,
)
from app.runtime.budget import Budget
from tests.support.format_cases import (
    PIECES,
    Pieces,
    Refusal,
    Values,
    read_tensors,
    tensors_of,
    write_tensors,
)
from tests.support.random_elements import element_bytes

NUMBERS = [dtype for dtype in DTYPES.values() if not dtype.is_string]
CODES = ["?", "i1", "<i2", ">i4", "<i8", "u1", ">u2", "<u4", ">u8", "<f2", ">f4", "<f8", "<c8", ">c16"]
FEW = settings(deadline=None, max_examples=50)


def npy(array: Any) -> bytes:
    sink = io.BytesIO()
    np.save(sink, array, allow_pickle=False)
    return sink.getvalue()


def header(text: str, version: bytes = b"\x01\x00") -> bytes:
    """An NPY header around `text`, not padded."""
    encoded = text.encode("utf-8" if version == b"\x03\x00" else "latin-1")
    return (
        b"\x93NUMPY" + version + len(encoded).to_bytes(2 if version == b"\x01\x00" else 4, "little") + encoded
    )


def head(descr: str, shape: str = "(1,)", order: object = False) -> bytes:
    return header(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}")


def npz(*, compressed: bool = False, **arrays: Any) -> bytes:
    sink = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(sink, **arrays)
    return sink.getvalue()


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return sink.getvalue()


def tensor(dtype: str, shape: tuple[int, ...], values: list[Any], name: str | None = None) -> Values:
    return Values(dtype, shape, values, name)


def read(form: FormName, body: bytes, pieces: Pieces = PIECES, **options: Any) -> Any:
    return read_tensors(form, body, pieces=pieces, **options)


def refused(
    found: Any,
    code: str,
    *,
    offset: int | None = None,
    feature: str | None = None,
    pointer: str | None = None,
    error: type[InputError] = InputError,
) -> Refusal:
    assert isinstance(found, Refusal), found
    assert (found.code, issubclass(found.error, error)) == (code, True), found.detail
    assert offset in (None, found.offset)
    assert feature in (None, found.feature)
    assert pointer in (None, found.pointer)
    return found


def held(form: FormName, body: bytes, limits: Limits | None = None, **options: Any) -> tuple[int, int]:
    """Bytes that are charged in the end, and at most, where the tensors are in memory."""
    budget = Budget(limits)
    tensors_of(form, body, budget, **options)
    return budget.limits.max_decoded_bytes - budget.remaining, budget.peak


# NPY.


@given(
    npst.arrays(st.sampled_from(CODES), npst.array_shapes(min_dims=0, max_dims=5, min_side=0)), st.booleans()
)
@settings(deadline=None, max_examples=100)
def test_npy_reads_all_that_numpy_saves(array: Any, fortran: bool) -> None:
    array = np.asfortranarray(array) if fortran else array
    [found] = tensors_of("npy", npy(array))
    assert (found.dtype, found.shape) == (DTYPES[array.dtype.name], array.shape)
    little = array.astype(array.dtype.newbyteorder("<"))
    assert found.values.tobytes() == little.tobytes(order="C")
    assert write_tensors("npy", [found]) == npy(np.ascontiguousarray(little).reshape(array.shape))


@pytest.mark.parametrize("code", [">c16", ">i2", "<f4", "?", "<U2", "S3", ">U2"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 4)])
def test_npy_is_the_same_however_it_arrives(code: str, order: Any, shape: tuple[int, ...]) -> None:
    array = np.asarray(np.arange(24).reshape(shape) % 5 % 2, order=order).astype(code)
    [found] = read("npy", npy(array))
    expected = array.ravel().tolist()
    if array.dtype.kind == "U":
        expected = [text.encode() for text in expected]
    assert (found.shape, found.values) == (shape, expected)


LITERAL = header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }" + " " * 58 + "\n")


@pytest.mark.parametrize("version", [b"\x01\x00", b"\x02\x00", b"\x03\x00"])
@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<i8', 'fortran_order': True, 'shape': (2, 1), }\n",
        '{"shape":(2,1),"fortran_order":True,"descr":"<i8"}',
        "  { 'shape' : ( 2 , 1 , ) , 'descr' : '<i8' , 'fortran_order' : True , }  ",
    ],
)
def test_npy_headers_that_numpy_writes_or_evaluates(text: str, version: bytes) -> None:
    body = header(text, version) + struct.pack("<2q", 5, -6)
    assert read("npy", body) == [tensor("int64", (2, 1), [5, -6])]


@pytest.mark.parametrize(
    ("descr", "dtype"),
    [
        (f"{order}{dtype.numpy.str[1:]}", dtype)
        for dtype in NUMBERS
        if dtype.in_numpy
        for order in ("<", ">", "=", "|", "")
    ],
)
def test_npy_has_every_dtype_in_every_byte_order(descr: str, dtype: DType) -> None:
    one = np.ones(1, dtype.numpy)
    content = one.view(f"u{dtype.itemsize // (2 if dtype.kind == 'complex' else 1)}")
    content = content.byteswap() if descr[0] == ">" else content
    assert read("npy", head(f"'{descr}'") + content.tobytes()) == [tensor(dtype.name, (1,), [1])]


@pytest.mark.parametrize(
    ("descr", "content", "values"),
    [
        ("|S5", b"ab\0c\0x\0\0\0\0", [b"ab\0c", b"x"]),
        ("|a2", b"ab\0\0", [b"ab", b""]),
        ("|S0", b"", [b"", b""]),
        ("<U0", b"", [b"", b""]),
        ("<U2", "a\0é𝄞".encode("utf-32-le"), [b"a", "é𝄞".encode()]),
        (">U2", "\0a\0\0".encode("utf-32-be"), [b"\0a", b""]),
        ("<U1", "\uffff\u0800".encode("utf-32-le"), ["\uffff".encode(), "\u0800".encode()]),
    ],
)
def test_npy_strings_lose_the_nuls_at_their_ends(descr: str, content: bytes, values: list[bytes]) -> None:
    assert read("npy", head(f"'{descr}'", "(2,)") + content) == [tensor("string", (2,), values)]


@given(st.lists(st.text(max_size=6), min_size=1), st.sampled_from("<>"))
@FEW
def test_npy_text_becomes_utf8(strings: list[str], order: str) -> None:
    [found] = read("npy", npy(np.array(strings).astype(f"{order}U6")), (None,))
    assert found.values == [text.rstrip("\0").encode() for text in strings]


@pytest.mark.parametrize("form", ["npy", "npz"])
@pytest.mark.parametrize("array", [np.array(["é", "abc"]), np.array([b"\xc3\xa9", b"abc"])], ids=["U", "S"])
def test_strings_of_tensors_leave_numpys_forms_as_bytes(form: FormName, array: Any) -> None:
    body = io.BytesIO()
    np.save(body, array) if form == "npy" else np.savez(body, x=array)
    written = write_tensors(form, tensors_of(form, body.getvalue()))
    assert isinstance(written, bytes)
    loaded = np.load(io.BytesIO(written))
    found = loaded if form == "npy" else loaded["x"]
    assert (found.dtype, found.tolist()) == (np.dtype("S3"), ["é".encode(), b"abc"])


@pytest.mark.parametrize("shape", ["()", "(3,)", "(0, 2)", "( 3 , )", "(0, 4611686018427387904)"])
def test_npy_shapes(shape: str) -> None:
    dims = tuple(map(int, filter(None, shape.strip("( )").replace(" ", "").split(","))))
    count = int(np.prod([float(dim) for dim in dims]))
    assert read("npy", head("'|u1'", shape) + bytes(count)) == [tensor("uint8", dims, [0] * count)]


DTYPE, INVALID, SHAPE = "unsupported_dtype", "invalid_npy_header", "invalid_shape"
NPY_REFUSED: list[tuple[bytes, str, type[InputError]]] = [
    *((head(f"'{descr}'"), DTYPE, UnprocessableInput) for descr in ("|O", "O", "|V8", "V2147483647", "<V2")),
    (head("[('a', '<f4')]"), DTYPE, UnprocessableInput),
    (head("[('a', [('b', '|O')])]"), DTYPE, UnprocessableInput),
    *(
        (head(f"'{descr}'"), DTYPE, UnknownForm)
        for descr in ("<M8[ns]", "<m8[25s]", "<M8", "<f16", "<c32", "<f3")
    ),
    *(
        (head(f"'{descr}'"), INVALID, MalformedInput)
        for descr in ("", "<i3", "float32", "<i4,<i4", "S", "(2,)f4", "x")
    ),
    *((head("'<f4'", shape), SHAPE, MalformedInput) for shape in ("(-1,)", "(True,)", "(1.0,)", "('3',)")),
    *((head("'<f4'", f"({dim},)"), SHAPE, MalformedInput) for dim in (2**63, 2**64)),
    (head("'<f4'", "(4294967296, 4294967296)"), "shape_too_large", LimitExceeded),
    (head("'<f4'", "(0, 4611686018427387904, 4)"), "shape_too_large", LimitExceeded),
    (head("'<f4'", "(" + "1," * 255 + ")"), "rank_too_large", LimitExceeded),
    *(
        (header(text), INVALID, MalformedInput)
        for text in (
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
            "{'descr': __import__('os').system('true'), 'fortran_order': False, 'shape': (1,)}",
            "(" * 4000 + ")" * 4000,
            "-" * 9000 + "1",
            "{" * 9999,
            "'" * 9999,
        )
    ),
    *(
        (head("'<f4'", shape), "", MalformedInput)
        for shape in ("(3)", "((1,),)", "(,)", "(3,,)", "(1 2,)", "(\xb3,)", "(03,)")
    ),
    (head("'<f4'", "(9" + "9" * 5000 + ",)"), "", MalformedInput),
    (b"\x93NUMPY\x02\x00\xff\xff\xff\xff\x00", "npy_header_too_large", LimitExceeded),
    (header("{" + " " * 10_000 + "}"), "npy_header_too_large", LimitExceeded),
    (b"PK\x03\x04" + bytes(100), "not_npy", MalformedInput),
    (b"\x93NUMPY\x04\x00" + bytes(100), INVALID, MalformedInput),
    (head("'<f4'", "(2147483648,)"), "payload_too_large", LimitExceeded),
    (head("'|u1'", "(9223372036854775807,)"), "payload_too_large", LimitExceeded),
    (head("'|S0'", "(1152921504606846976,)"), "payload_too_large", LimitExceeded),
    (head("'|S2147483647'"), "payload_too_large", LimitExceeded),
    (head("'<U999999999'", "(9,)"), "payload_too_large", LimitExceeded),
]


@pytest.mark.parametrize(("body", "code", "error"), NPY_REFUSED)
def test_npy_that_is_refused(body: bytes, code: str, error: type[InputError]) -> None:
    with pytest.raises(error) as caught:
        tensors_of("npy", body)
    assert caught.value.code in ([code] if code else [SHAPE, INVALID])


@pytest.mark.parametrize(
    ("body", "code", "behind"),
    [
        (npy(np.arange(3)) + b"\0", "trailing_bytes", -1),
        (head("'|b1'", "(3,)") + b"\0\1\2", "invalid_bool", -1),
        (head("'<U1'", "(2,)") + struct.pack("<2I", 0x61, 0xD800), "invalid_text", -4),
        (head("'>U1'", "(2,)") + struct.pack(">2I", 0x61, 0xDFFF), "invalid_text", -4),
        (head("'<U1'", "(2,)") + struct.pack("<2I", 0x61, 0x110000), "invalid_text", -4),
        (head("'>U1'", "(2,)") + struct.pack(">2I", 0x61, 0xFFFFFFFF), "invalid_text", -4),
        (npy(np.arange(9))[:-1], "truncated", 0),
        (npy(np.array(["abc"]))[:-1], "truncated", 0),
    ],
)
def test_npy_faults_in_the_content_have_an_offset(body: bytes, code: str, behind: int) -> None:
    refused(read("npy", body), code, offset=len(body) + behind)


@pytest.mark.parametrize("size", range(len(LITERAL)))
def test_an_npy_header_cut_anywhere(size: int) -> None:
    refused(read("npy", LITERAL[:size], (None, 1)), "truncated", offset=size, error=MalformedInput)


def test_an_npy_pickle_is_never_loaded() -> None:
    sink = io.BytesIO()
    np.save(sink, np.array([{}], object), allow_pickle=True)
    assert "Python objects" in refused(read("npy", sink.getvalue()), DTYPE, error=UnprocessableInput).detail


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_a_mutated_npy_is_what_numpy_reads_or_refused(data: st.DataObject) -> None:
    mutated = bytearray(npy(np.arange(6, dtype=">u2").reshape(2, 3)))
    for _ in range(data.draw(st.integers(1, 3))):
        texts = st.sampled_from(b"'\"{}(),:0129<>|=bfiuScU L T")
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(texts | st.integers(0, 255))
    found = read("npy", bytes(mutated), (None,))
    if not isinstance(found, Refusal):
        assert found[0].shape == np.load(io.BytesIO(bytes(mutated)), allow_pickle=False).shape


def test_npy_bfloat16_is_read_where_declared_and_written_as_numpy_writes_it() -> None:
    body = npy(np.array([1.5, -2], ml_dtypes.bfloat16))
    assert b"'<V2'" in body
    hint = r"dtype=bfloat16 for tensors, a schema for rows"
    assert hint in refused(read("npy", body), DTYPE, error=UnprocessableInput).detail
    refused(read("npy", body, dtype=DTYPES["float16"]), DTYPE)
    found = tensors_of("npy", body, dtype=DTYPES["bfloat16"])
    assert read("npy", body, dtype=DTYPES["bfloat16"]) == [tensor("bfloat16", (2,), [1.5, -2])]
    assert write_tensors("npy", found) == body


def test_npy_in_memory_is_charged() -> None:
    assert held("npy", npy(np.zeros(125)), Limits(max_decoded_bytes=1000)) == (1000, 1000)
    with pytest.raises(LimitExceeded):
        held("npy", npy(np.zeros(126)), Limits(max_decoded_bytes=1000))
    # Turning Fortran order takes room for a while.
    assert held("npy", npy(np.asfortranarray(np.zeros((10, 10))))) == (800, 1600)


def test_npy_fortran_order_may_have_more_axes_than_numpy_holds() -> None:
    body = head("'|u1'", "(" + "1," * 100 + "2,3)", True) + bytes([0, 1, 2, 3, 4, 5])
    assert read("npy", body) == [tensor("uint8", (1,) * 100 + (2, 3), [0, 2, 4, 1, 3, 5])]


def json_tensors(*items: dict[str, Any]) -> Any:
    """Tensors made of JSON; `y=x` gets the name `x`, which JSON would refuse where it stands twice."""
    body = items[0] if len(items) == 1 else {"tensors": list(items)}
    found = tensors_of("json", json.dumps(body).encode())
    return [replace(item, name="x") if item.name == "y=x" else item for item in found]


def of(dtype: str, data: Any, shape: Any = None, name: str | None = None) -> dict[str, Any]:
    shape = shape_of(data) if shape is None else shape
    return {"dtype": dtype, "shape": shape, "data": data, **({} if name is None else {"name": name})}


def shape_of(data: Any) -> list[int]:
    """That of nested lists; numpy's takes memory for the longest of the strings times their number."""
    return [len(data), *(shape_of(data[0]) if data else [])] if isinstance(data, list) else []


@pytest.mark.parametrize(
    ("items", "code"),
    [
        ([of("string", ["a\0"])], "not_expressible"),
        ([of("string", ["x" * 2**20, *[""] * 1024])], "not_expressible"),
        ([of("float32", [0], [1] * 65)], "not_expressible"),
        *(([of(name, [1])], "not_expressible") for name in ("float8_e5m2", "int4", "uint2")),
        ([of("int8", [1]), of("int8", [2])], "several_tensors"),
    ],
)
def test_tensor_without_an_npy_form_is_refused(items: list[Any], code: str) -> None:
    refused(write_tensors("npy", json_tensors(*items)), code, error=UnprocessableInput)


def test_npy_holds_as_many_axes_as_numpy() -> None:
    body = write_tensors("npy", json_tensors(of("float32", [0], [1] * 64)))
    assert isinstance(body, bytes)
    assert np.load(io.BytesIO(body)).shape == (1,) * 64


@given(st.lists(st.binary(max_size=6).map(lambda value: value.rstrip(b"\0"))))
@FEW
def test_npy_bytes_are_written_as_numpy_writes_them(strings: list[bytes]) -> None:
    body = npy(np.array(strings, "S"))
    assert write_tensors("npy", tensors_of("npy", body)) == body


# NPZ.


@pytest.mark.parametrize("compressed", [False, True])
def test_npz_reads_what_numpy_saves(compressed: bool) -> None:
    body = npz(
        compressed=compressed,
        x=np.arange(6.0).reshape(2, 3),
        ключ=np.array(["a", "\N{GRINNING FACE}"]),
        empty=np.zeros((0, 2), "i2"),
        big=np.arange(2, dtype=">i8"),
        fortran=np.asfortranarray(np.arange(6).reshape(2, 3)),
        flag=np.array([True, False]),
    )
    assert read("npz", body) == [
        tensor("float64", (2, 3), [0, 1, 2, 3, 4, 5], "x"),
        tensor("string", (2,), [b"a", "\N{GRINNING FACE}".encode()], "ключ"),
        tensor("int16", (0, 2), [], "empty"),
        tensor("int64", (2,), [0, 1], "big"),
        tensor("int64", (2, 3), [0, 1, 2, 3, 4, 5], "fortran"),
        tensor("bool", (2,), [True, False], "flag"),
    ]
    assert read("npz", npz(compressed=compressed)) == []


def test_numpy_loads_the_npz_that_is_written_and_so_do_we() -> None:
    tensors = json_tensors(
        of("int32", [[1, 2]], name="a/b"), of("string", ["s"], name="β"), of("bool", [True])
    )
    body = write_tensors("npz", tensors)
    assert isinstance(body, bytes)
    assert body == write_tensors("npz", tensors)
    with np.load(io.BytesIO(body), allow_pickle=False) as loaded:
        assert {name: loaded[name].tolist() for name in loaded.files} == {
            "a/b": [[1, 2]],
            "β": [b"s"],
            "arr_2": [True],
        }
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        assert archive.testzip() is None
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert [found.name for found in read("npz", body)] == ["a/b", "β", "arr_2"]
    empty = write_tensors("npz", [])
    assert isinstance(empty, bytes)
    assert read("npz", empty) == []


ONE = npy(np.zeros(1))


def changed(body: bytes, at: int, value: bytes) -> bytes:
    """The archive with these bytes in its first directory entry."""
    entry = body.index(b"PK\x01\x02") + at
    return body[:entry] + value + body[entry + len(value) :]


def commented(body: bytes, comment: bytes) -> bytes:
    sink = io.BytesIO(body)
    with zipfile.ZipFile(sink, "a") as archive:
        archive.comment = comment
    return sink.getvalue()


def long_directory() -> bytes:
    directory = (b"PK\x01\x02" + bytes(42)) * 30_000
    return (
        b"PK\x03\x04" + directory + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(directory), 4, 0)
    )


BAD_NAMES = ["../x", "/x", "a//b", "a/../b", "a/", "a\\b", "", ".", ".."]
X = npz(x=np.zeros(3))
NPZ_REFUSED: list[tuple[bytes, str, str | None]] = [
    *((zipped((f"{name}.npy", ONE)), "invalid_member_name", f"{name}.npy") for name in BAD_NAMES),
    *((zipped((name, ONE)), "invalid_member_name", name) for name in ("x.txt", "x", "x.npy/")),
    (zipped(("xQ.npy", ONE)).replace(b"xQ.npy", b"x\0.npy"), "invalid_member_name", None),
    (zipped(("x.npy", ONE), ("y.npy", ONE)).replace(b"y.npy", b"x.npy"), "duplicate_member", "x.npy"),
    (changed(zipped(("x.npy", ONE)), 8, b"\1"), "encrypted_member", None),
    (zipped(("x.npy", ONE), method=zipfile.ZIP_BZIP2), "unsupported_compression", None),
    (zipped(("x.npy", ONE), method=zipfile.ZIP_LZMA), "unsupported_compression", None),
    (zipped(("good.npy", ONE), ("bad.npy", ONE[:-1])), "truncated", "bad"),
    (zipped(("good.npy", ONE), ("bad.npy", ONE + b"!")), "trailing_bytes", "bad"),
    (zipped(("bad.npy", b"x")), "truncated", "bad"),
    (zipped(("bad.npy", bytes(100))), "not_npy", "bad"),
    (long_directory(), "too_many_members", None),
    (b"", "invalid_npz", None),
    (b"PK", "invalid_npz", None),
    (b"PK\x03\x04", "invalid_npz", None),
    (b"PK\x05\x06" + bytes(10), "invalid_npz", None),
    (ONE, "invalid_npz", None),
    *(
        (X + behind, "invalid_npz", None)
        for behind in (npz(), npz(y=np.ones(2)), commented(npz(y=ONE), b"c"))
    ),
]


@pytest.mark.parametrize(("body", "code", "feature"), NPZ_REFUSED)
def test_npz_that_is_refused(body: bytes, code: str, feature: str | None) -> None:
    refused(read("npz", body), code, feature=feature)


@pytest.mark.parametrize("rest", [b"xx", b"\0", b"PK\5", bytes(65_000), b"x" * 22])
@pytest.mark.parametrize("body", [X, commented(X, b"made by hand"), npz(), npz(x=np.zeros(20_000))])
def test_bytes_after_an_npz(body: bytes, rest: bytes) -> None:
    refused(read("npz", body + rest), "trailing_bytes", offset=len(body))


@pytest.mark.parametrize("comment", [b"c", b"PK\1\2", b"x" * 65_535])
def test_a_comment_belongs_to_the_npz(comment: bytes) -> None:
    assert len(read("npz", commented(X, comment))) == 1


@pytest.mark.parametrize("at", [20, 24], ids=["compressed size", "size"])
@pytest.mark.parametrize("lie", [0, 1, 135, 137, 2**31, 2**32 - 2])
def test_an_npz_that_lies_about_sizes(at: int, lie: int) -> None:
    refused(read("npz", changed(zipped(("x.npy", ONE)), at, lie.to_bytes(4, "little"))), "invalid_npz")


@pytest.mark.parametrize("lie", [0, 2**32, 2**62, 2**64 - 1])
def test_an_npz_that_lies_in_zip64_fields(lie: int) -> None:
    body = zipped(("x.npy", ONE))
    entry, end = body.index(b"PK\x01\x02"), body.index(b"PK\x05\x06")
    extra = struct.pack("<HHQQ", 1, 16, lie, lie)
    directory = bytearray(body[entry:end] + extra)
    directory[20:28] = b"\xff" * 8
    directory[30:32] = len(extra).to_bytes(2, "little")
    tail = bytearray(body[end:])
    tail[12:16] = len(directory).to_bytes(4, "little")
    assert isinstance(read("npz", body[:entry] + bytes(directory) + bytes(tail)), Refusal)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_broken_npz_has_one_outcome(compressed: bool) -> None:
    body = npz(compressed=compressed, x=np.arange(3), flag=np.array([True, False]))
    for size in range(0, len(body), 5):
        assert isinstance(outcome("npz", body[:size]), (Refusal, str))
    for at in range(0, len(body), 3):
        outcome("npz", body[:at] + bytes([body[at] ^ 0x11]) + body[at + 1 :])


def outcome(form: FormName, body: bytes, **options: Any) -> object:
    """As `read`; where a body is refused, whole or as it arrives, which fault is found first may differ."""
    try:
        return read(form, body, **options)
    except AssertionError:
        with pytest.raises(InputError):
            tensors_of(form, body, **options)
        return "refused"


def test_names_of_an_npz_have_a_limit() -> None:
    body = zipped(("abc.npy", ONE))
    assert len(read("npz", body, limits=Limits(max_name_bytes=3))) == 1
    refused(read("npz", body, limits=Limits(max_name_bytes=2)), "invalid_member_name")
    refused(read("npz", npz(a=ONE, b=ONE), limits=Limits(max_members=1)), "too_many_members")


@pytest.mark.parametrize(
    ("items", "code", "feature"),
    [
        *(
            ([of("int8", [1], name=name)], "invalid_member_name", None)
            for name in ["/a", "a/", "a/../b", "..", ""]
        ),
        ([of("int8", [1], name="x"), of("int8", [1], name="y=x")], "duplicate_member", None),
        ([of("int8", [1], name="x"), of("string", ["a\0"], name="s")], "not_expressible", "s"),
        ([of("int4", [1], name="x")], "not_expressible", "x"),
    ],
)
def test_tensor_without_an_npz_form_is_refused(items: list[Any], code: str, feature: str | None) -> None:
    refused(write_tensors("npz", json_tensors(*items)), code, feature=feature)


def test_npz_bombs_are_stopped() -> None:
    bomb = npz(compressed=True, x=np.zeros(64 * MIB, np.uint8))
    assert len(bomb) < MIB
    budget = Budget(Limits(max_decoded_bytes=8 * MIB))
    with pytest.raises(LimitExceeded):
        tensors_of("npz", bomb, budget)
    assert budget.peak <= 8 * MIB
    # What one member honestly inflates to counts again for each that points at the same bytes.
    several = npz(compressed=True, **{f"x{index}": np.zeros(2 * MIB, np.uint8) for index in range(4)})
    assert len(tensors_of("npz", several)) == 4
    with pytest.raises(LimitExceeded) as caught:
        tensors_of("npz", several, Budget(Limits(max_amplification=500)))
    assert caught.value.code == "compression_ratio_exceeded"


def test_the_directory_of_an_npz_is_given_back() -> None:
    assert held("npz", npz(x=np.zeros(125)))[0] == 1000


# safetensors, with the library of that name as the oracle in both directions.


def is_held(dtype: DType) -> bool:
    """Whether the library has a name for the dtype; to numpy, a quantized integer is one like any other."""
    if DTYPES.get(dtype.numpy.name) is not dtype:
        return False
    try:
        save({"x": np.zeros(1, dtype.numpy)})
    except SafetensorError:
        return False
    return True


HELD = [dtype.name for dtype in NUMBERS if is_held(dtype)]
OIP_HELD = [dtype.name for dtype in NUMBERS if dtype.oip is not None]


def file_of(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def info(dtype: str = "U8", shape: Any = None, begin: Any = 0, end: Any = 1) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [1] if shape is None else shape, "data_offsets": [begin, end]}


def test_the_literal_bytes_of_safetensors() -> None:
    text = b'{"attn0":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}    '
    body = bytes([len(text), 0, 0, 0, 0, 0, 0, 0]) + text + struct.pack("<2f", 0.5, -1)
    assert write_tensors("safetensors", json_tensors(of("float32", [[0.5, -1]], name="attn0"))) == body
    assert read("safetensors", body) == [tensor("float32", (1, 2), [0.5, -1], "attn0")]
    assert write_tensors("safetensors", []) == save({}) == b"\x08\0\0\0\0\0\0\0{}      "
    assert read("safetensors", save({})) == []


@pytest.mark.parametrize("name", HELD)
def test_safetensors_has_the_bytes_of_the_library(name: str) -> None:
    array = np.array([[0, 1], [1, 0]]).astype(DTYPES[name].numpy)
    body = save({"x": array})
    assert read("safetensors", body) == [tensor(name, (2, 2), [0, 1, 1, 0], "x")]
    assert write_tensors("safetensors", tensors_of("safetensors", body)) == body


NAMES = ["b", "a", "é", "z.0/w", 'q"\\', "\n\x01\x7f", "\u2028", "\U0001f600", "A", ""]


def test_arrays_lie_as_in_files_of_the_library() -> None:
    arrays = {
        name + str(index): np.full(index % 3, 1).astype(DTYPES[dtype].numpy)
        for index, (name, dtype) in enumerate(zip(NAMES * 3, HELD, strict=False))
    }
    tensors = json_tensors(
        *(
            of(dtype, array.astype(np.float64).tolist(), name=name)
            for dtype, (name, array) in zip(HELD, arrays.items(), strict=True)
            if not dtype.startswith(("complex", "bool"))
        )
    )
    plain = {name: array for name, array in arrays.items() if array.dtype.kind not in "cb"}
    body = write_tensors("safetensors", tensors)
    assert body == save(plain)


@FEW
@given(
    st.dictionaries(
        st.text(max_size=8).filter(lambda name: name != "__metadata__"),
        st.tuples(
            st.sampled_from(["?", "u1", "<i2", "<f2", "<u4", "<f4", "<i8", "<c8"]),
            st.lists(st.integers(0, 3), max_size=4),
        ),
        max_size=6,
    )
)
def test_both_libraries_write_and_read_the_same(specs: dict[str, tuple[str, list[int]]]) -> None:
    arrays = {name: np.ones(shape, code) for name, (code, shape) in specs.items()}
    body = save(arrays)
    tensors = tensors_of("safetensors", body)
    assert write_tensors("safetensors", list(reversed(tensors))) == body
    found = {item.name: (item.shape, item.values.tobytes()) for item in tensors}
    assert found == {name: (array.shape, array.tobytes()) for name, array in load(body).items()}


def test_safetensors_have_the_order_of_the_header_and_no_metadata() -> None:
    entries = {"b": info(begin=1, end=3, shape=[2]), "a": info(), "e": info(shape=[0, 7], begin=1)}
    assert read("safetensors", file_of({"__metadata__": {"step": "7"}} | entries, b"abc")) == [
        tensor("uint8", (2,), [98, 99], "b"),
        tensor("uint8", (1,), [97], "a"),
        tensor("uint8", (0, 7), [], "e"),
    ]


def test_tensors_without_a_name_are_counted() -> None:
    tensors = json_tensors(of("int8", [1]), of("int8", [2], name="x"), of("int8", [3]))
    for form, names in (("safetensors", ["tensor_0", "tensor_2", "x"]), ("npz", ["arr_0", "x", "arr_2"])):
        body = write_tensors(form, tensors)  # type: ignore[arg-type]  # a FormName
        assert isinstance(body, bytes)
        assert [found.name for found in read(form, body)] == names  # type: ignore[arg-type]  # a FormName
    body, length = oip_answer(tensors)
    assert [found.name for found in read("oip", body, json_bytes=length)] == ["output_0", "x", "output_2"]


U8 = info()
ENCODED = json.dumps(U8).encode()
SAFETENSORS_REFUSED: list[tuple[bytes, type[InputError], str]] = [
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
    (file_of(b'{"a":%b,"a":%b}' % (ENCODED, ENCODED), b"x"), MalformedInput, "duplicate_key"),
    (
        file_of(b'{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        MalformedInput,
        "duplicate_key",
    ),
    *(
        (file_of(found, b"x"), MalformedInput, "invalid_safetensors")
        for found in (
            {"__metadata__": {"a": 1}},
            {"__metadata__": None},
            {"__metadata__": ["a"]},
            {"a": 1},
            {"a": {"dtype": "U8", "shape": []}},
            {"a": {**U8, "scale": 2}},
            {"a": {**U8, "dtype": 3}},
            {"a": {**U8, "shape": "1"}},
            {"a": info("F32", [1], 0, 1)},
            {"a": info(begin=1, end=0)},
            {"a": {**U8, "data_offsets": [0, 1, 2]}},
            {"a": {**U8, "data_offsets": [0, 1.0]}},
            {"a": {**U8, "data_offsets": [0, True]}},
            {"a": {**U8, "data_offsets": "01"}},
            {"a": {**U8, "data_offsets": [-1, 0]}},
            {"a": U8, "b": U8},
        )
    ),
    (file_of({"a": info("F4", [2])}, b"x"), UnprocessableInput, "unsupported_dtype"),
    (file_of({"a": info("f32", [0], 0, 0)}), UnprocessableInput, "unsupported_dtype"),
    *((file_of({"a": info(shape=[dim])}, b"x"), MalformedInput, "invalid_shape") for dim in (-1, 1.0, True)),
    (file_of({"a": info(shape=[2**63, 0], end=0)}), MalformedInput, "invalid_shape"),
    (file_of({"a": info(shape=[2**62, 4])}, b"x"), LimitExceeded, "shape_too_large"),
    (file_of({"a": info(shape=[2**32, 2**32, 0], end=0)}), LimitExceeded, "shape_too_large"),
    (file_of({"a": info(shape=[1] * 255)}, b"x"), LimitExceeded, "rank_too_large"),
    (file_of({"a": info("F64", [2**60], 0, 2**63)}), LimitExceeded, "payload_too_large"),
    (file_of({"a": info(end=2)}, b"xy"), MalformedInput, "invalid_safetensors"),
    (file_of({"a": info(begin=1, end=2)}, b"xy"), MalformedInput, "invalid_safetensors"),
    (file_of({"a": U8, "b": info(begin=2, end=3)}, b"xyz"), MalformedInput, "invalid_safetensors"),
    (
        file_of({"a": info(shape=[2], end=2), "b": info(begin=1, end=2)}, b"xy"),
        MalformedInput,
        "invalid_safetensors",
    ),
    (file_of({"a": info("BOOL", [2], end=2)}, b"\1\2"), UnprocessableInput, "invalid_bool"),
]


@pytest.mark.parametrize(("body", "error", "code"), SAFETENSORS_REFUSED)
def test_safetensors_that_are_refused(body: bytes, error: type[InputError], code: str) -> None:
    with pytest.raises(error) as caught:
        tensors_of("safetensors", body)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "body",
    [
        file_of(b" {}"),
        file_of(b'{"a":%b,"a":%b}' % (ENCODED, ENCODED), b"x"),
        file_of({"__metadata__": None}),
        file_of({"a": {**U8, "scale": 2}}, b"x"),
        file_of({"a": info("F4", [2])}, b"x"),
        file_of({"a": info("BOOL", [2], end=2)}, b"\1\2"),
        file_of({"a": info(shape=[2**63, 0], end=0)}),
    ],
)
def test_safetensors_that_only_the_library_reads_is_refused(body: bytes) -> None:
    deserialize(body)  # type: ignore[no-untyped-call]
    assert isinstance(outcome("safetensors", body), (Refusal, str))


@FEW
@given(st.data())
def test_mutated_safetensors_are_what_the_library_reads_or_refused(data: st.DataObject) -> None:
    mutated = bytearray(
        save({"x": np.arange(3, dtype="<i4"), "y": np.ones((2, 1), "?")}, metadata={"a": "b"})
    )
    for _ in range(data.draw(st.integers(1, 3))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = tensors_of("safetensors", bytes(mutated))
    except InputError:
        return
    expected = deserialize(bytes(mutated))  # type: ignore[no-untyped-call]
    assert {item.name: (item.shape, item.values.tobytes()) for item in found} == {
        name: (tuple(entry["shape"]), bytes(entry["data"])) for name, entry in expected
    }


def test_faults_of_safetensors_name_array_and_offset() -> None:
    body = file_of({"a": U8, "b": info("BOOL", [2], 1, 3)}, b"x\0\7")
    refused(read("safetensors", body), "invalid_bool", feature="b", offset=len(body) - 1)
    refused(read("safetensors", body[:-1]), "truncated", feature="b", offset=len(body) - 1)
    refused(read("safetensors", file_of(b'{"a" 1}')), "invalid_json", offset=8 + 5)
    plain = save({"x": np.arange(3, dtype="<i4"), "y": np.ones(2, "<f2")})
    for end in range(len(plain)):
        refused(read("safetensors", plain[:end], (None, 7)), "truncated", offset=end)
    refused(read("safetensors", plain + b"\0"), "trailing_bytes", offset=len(plain))


def test_limits_of_safetensors() -> None:
    body = save({"x": np.zeros(100, "u1"), "y": np.zeros(0, "u1")})
    refused(read("safetensors", body, limits=Limits(max_members=1)), "too_many_members")
    refused(
        read("safetensors", save({"x" * 11: np.zeros(0)}), limits=Limits(max_name_bytes=10)), "name_too_long"
    )
    with pytest.raises(LimitExceeded):
        held("safetensors", body, Limits(max_decoded_bytes=50))
    assert held("safetensors", save({"x": np.zeros(100, "<f8")}))[0] == 800


@pytest.mark.parametrize(
    ("form", "items", "code", "feature"),
    [
        *(("safetensors", [of(name, ["a"], name="s")], "not_expressible", "s") for name in ("string",)),
        ("safetensors", [of("complex128", [[0, 1]], [1], name="s")], "not_expressible", "s"),
        *(("safetensors", [of(dtype, [1], name="s")], "not_expressible", "s") for dtype in ("int4", "qint8")),
        ("safetensors", [of("int8", [1], name="__metadata__")], "not_expressible", "__metadata__"),
        ("safetensors", [of("int8", [1], name="x"), of("int8", [1], name="y=x")], "duplicate_name", "x"),
        ("oip", [of("int8", [1], name="x"), of("int8", [1], name="y=x")], "duplicate_name", "x"),
        ("oip", [of("complex64", [[0, 1]], [1], name="c")], "not_expressible", "c"),
        ("oip", [of("complex128", [[0, 1]], [1], name="c")], "not_expressible", "c"),
    ],
)
def test_tensor_without_a_named_array_form_is_refused(
    form: FormName, items: list[Any], code: str, feature: str
) -> None:
    refused(write_tensors(form, json_tensors(*items)), code, feature=feature, error=UnprocessableInput)


# Open Inference with binary tensors: JSON, then the elements of the tensors.


def item(
    name: str | None = "x", datatype: str = "UINT8", shape: Any = None, size: Any = 1, **members: Any
) -> dict[str, Any]:
    named = {} if name is None else {"name": name}
    sized = {"parameters": {"binary_data_size": size}}
    return {**named, "datatype": datatype, "shape": [1] if shape is None else shape, **sized, **members}


def body_of(
    *items: dict[str, Any], data: bytes = b"", key: str = "inputs", **members: Any
) -> tuple[bytes, int]:
    text = json.dumps({key: items, **members}).encode()
    return text + data, len(text)


def strings(*values: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def read_oip(body: tuple[bytes, int | None], **options: Any) -> Any:
    return read("oip", body[0], json_bytes=body[1], **options)


def oip_answer(tensors: Any) -> tuple[bytes, int]:
    body = write_tensors("oip", tensors)
    assert isinstance(body, bytes)
    return body, body.index(b"]}") + 2


# The example of the specification.
EXAMPLE = b"""\
{
  "model_name" : "mymodel",
  "inputs" : [
    {"name" : "input0", "shape" : [ 2, 2 ], "datatype" : "UINT32", "parameters" : {"binary_data_size" : 16}},
    {"name" : "input1", "shape" : [ 3 ], "datatype" : "BOOL", "parameters" : {"binary_data_size" : 3}}
  ],
  "outputs" : [
    {"name" : "output0", "parameters" : {"binary_data" : true}}
  ]
}
"""


def test_the_example_of_the_oip_specification() -> None:
    assert read_oip((EXAMPLE + struct.pack("<4I", 1, 2, 3, 4) + b"\1\0\1", len(EXAMPLE))) == [
        tensor("uint32", (2, 2), [1, 2, 3, 4], "input0"),
        tensor("bool", (3,), [True, False, True], "input1"),
    ]


def test_the_literal_bytes_of_an_oip_answer() -> None:
    text = (
        b'{"model_name":"shardsmith","outputs":['
        b'{"name":"a","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}},'
        b'{"name":"\xc3\xa9\\"","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":11}}]}'
    )
    tensors = json_tensors(of("float32", [[0.5, -1]], name="a"), of("string", ["", "abc"], name='é"'))
    found = oip_answer(tensors)
    assert found == (text + struct.pack("<2f", 0.5, -1) + b"\0\0\0\0\3\0\0\0abc", len(text))
    assert read_oip(found) == [
        tensor("float32", (1, 2), [0.5, -1], "a"),
        tensor("string", (2,), [b"", b"abc"], 'é"'),
    ]
    assert oip_answer([])[0] == b'{"model_name":"shardsmith","outputs":[]}'


@pytest.mark.parametrize("name", OIP_HELD)
def test_oip_has_every_datatype(name: str) -> None:
    dtype = DTYPES[name]
    content = np.array([0, 1, 1]).astype(dtype.numpy).tobytes()
    body = body_of(item("x", str(dtype.oip), [3, 1], len(content)), data=content)
    assert read_oip(body) == [tensor(name, (3, 1), [0, 1, 1], "x")]
    again, length = oip_answer(tensors_of("oip", body[0], json_bytes=body[1]))
    assert (json.loads(again[:length])["outputs"][0]["datatype"], again[length:]) == (dtype.oip, content)


@FEW
@given(st.lists(st.lists(st.binary(max_size=9), max_size=5), max_size=4), st.integers(1, 50))
def test_strings_of_oip_come_back_at_any_split(columns: list[list[bytes]], chunk: int) -> None:
    items = [
        item(str(at), "BYTES", [len(column)], len(strings(*column))) for at, column in enumerate(columns)
    ]
    body = body_of(*items, data=b"".join(strings(*column) for column in columns))
    found = read("oip", body[0], (None, chunk), json_bytes=body[1])
    assert [entry.values for entry in found] == columns
    again, length = oip_answer(tensors_of("oip", body[0], json_bytes=body[1]))
    assert again[length:] == body[0][body[1] :]


IN_JSON = {"name": "j", "datatype": "INT8", "shape": [2], "data": [1, -2], "parameters": {"a": 1}}
TEXT = {"name": "t", "datatype": "BYTES", "shape": [2], "data": ["é", {"b64": "/w=="}]}


def test_oip_tensors_in_json_and_binary_mix() -> None:
    body = body_of(item("a"), IN_JSON, TEXT, item("b", "INT16", [2], 4), data=b"\1\2\0\3\0")
    assert read_oip(body) == [
        tensor("uint8", (1,), [1], "a"),
        tensor("int8", (2,), [1, -2], "j"),
        tensor("string", (2,), ["é".encode(), b"\xff"], "t"),
        tensor("int16", (2,), [2, 3], "b"),
    ]
    assert read_oip(body_of()) == []
    assert read_oip(body_of(IN_JSON)) == [tensor("int8", (2,), [1, -2], "j")]
    answer = body_of(
        item(None), data=b"\7", key="outputs", model_name="m", model_version="1", id="i", parameters={}
    )
    assert read_oip(answer) == [tensor("uint8", (1,), [7])]
    bare = b'{"inputs":[{"name":"j","datatype":"FP32","shape":[1],"data":[NaN]}]}'
    [found] = read_oip((bare, len(bare)), nonfinite="bare")
    assert np.isnan(found.values[0])


MISMATCH = "binary_data_size_mismatch"
OIP_REFUSED: list[tuple[tuple[bytes, int | None], type[InputError], str]] = [
    ((b"{}", None), MalformedInput, "missing_json_length"),
    ((b"{}", 2**62), LimitExceeded, "payload_too_large"),
    ((b"{}", 3), MalformedInput, "truncated"),
    ((b"", 1), MalformedInput, "truncated"),
    ((b"\xff", 1), MalformedInput, "invalid_utf8"),
    ((b"[" * 100_000, 100_000), LimitExceeded, "json_too_deep"),
    ((b'{"inputs":[],"inputs":[]}', 25), MalformedInput, "duplicate_key"),
    ((b'{"inputs":[NaN]}', 16), MalformedInput, "nonfinite_token"),
    *(
        ((text, len(text)), AmbiguousInput, "ambiguous_json")
        for text in (b"[]", b"{}", b'{"inputs":{}}', b'{"inputs":[1]}', b'{"inputs":[{}]}', b'{"columns":[]}')
    ),
    (body_of(item(), data=b"x", instances=[]), AmbiguousInput, "ambiguous_json"),
    (body_of(item(), data=b"x", schema={"features": {}}), AmbiguousInput, "ambiguous_json"),
    (body_of(item(), data=b"x", outputs=[item()]), AmbiguousInput, "ambiguous_json"),
    (body_of(item(), data=b"x", outputs={}), AmbiguousInput, "ambiguous_json"),
    (body_of(item(), data=b"x", outputs=[1]), AmbiguousInput, "ambiguous_json"),
    (body_of({"name": "x", "datatype": "UINT8", "shape": [1]}), MalformedInput, "invalid_tensor"),
    *(
        (body_of({**item(), **members}, data=b"x"), MalformedInput, "invalid_tensor")
        for members in (
            {"data": [1]},
            {"extra": 1},
            {"parameters": [1]},
            {"shape": None},
            {"datatype": None},
            {"name": 3},
        )
    ),
    *(
        (body_of(item(size=size), data=b"x"), MalformedInput, "invalid_tensor")
        for size in ("1", 1.0, True, -1)
    ),
    (body_of(item(datatype="FP8"), data=b"x"), MalformedInput, "unknown_dtype"),
    (body_of(item(datatype="complex64", size=8), data=b"12345678"), MalformedInput, "unknown_dtype"),
    (body_of(item(shape=[-1]), data=b"x"), MalformedInput, "invalid_shape"),
    (body_of(item(shape=[1.0]), data=b"x"), MalformedInput, "invalid_shape"),
    (body_of(item(shape=[2**63, 0], size=0)), MalformedInput, "invalid_shape"),
    (body_of(item(shape=[2**62, 4])), LimitExceeded, "shape_too_large"),
    (body_of(item(shape=[1] * 255), data=b"x"), LimitExceeded, "rank_too_large"),
    (body_of(item(datatype="FP64", shape=[2**60], size=2**63)), LimitExceeded, "payload_too_large"),
    (body_of(item(datatype="BYTES", shape=[2**60], size=2**62)), LimitExceeded, "payload_too_large"),
    (body_of(item(size=2), data=b"xy"), MalformedInput, MISMATCH),
    (body_of(item(shape=[0]), data=b"x"), MalformedInput, MISMATCH),
    (body_of(item("s", "BYTES", [0], 4), data=b"\0\0\0\0"), MalformedInput, MISMATCH),
    (body_of(item("s", "BYTES", [2], 7), data=strings(b"abc")), MalformedInput, MISMATCH),
    (body_of(item("s", "BYTES", [2], 9), data=strings(b"abcde")), MalformedInput, MISMATCH),
    (body_of(item("s", "BYTES", [1], 8), data=strings(b"abc") + b"x"), MalformedInput, MISMATCH),
    (body_of(item("s", "BYTES", [1], 7), data=b"\xff\xff\xff\xffabc"), MalformedInput, MISMATCH),
    (body_of(item("s", "BYTES", [1], 7), data=b"\4\0\0\0abc"), MalformedInput, MISMATCH),
    (body_of(item(datatype="BOOL"), data=b"\2"), UnprocessableInput, "invalid_bool"),
    (body_of(item(), item(), data=b"xy"), UnprocessableInput, "duplicate_name"),
    (body_of({**IN_JSON, "data": [1, 300]}), InputError, "out_of_range"),
    (body_of({**IN_JSON, "data": [1, None]}), UnprocessableInput, "null_value"),
    (body_of({**IN_JSON, "shape": [3]}), UnprocessableInput, "shape_mismatch"),
    (body_of({**IN_JSON, "data": [[1], 2]}), UnprocessableInput, "ragged"),
]


@pytest.mark.parametrize(("body", "error", "code"), OIP_REFUSED)
def test_oip_that_is_refused(body: tuple[bytes, int | None], error: type[InputError], code: str) -> None:
    refused(read_oip(body), code, error=error)


def test_faults_of_oip_have_pointer_feature_and_offset() -> None:
    body = body_of(item("a"), item("s", "BYTES", [2], 12), data=b"x" + strings(b"abc") + b"\2\0\0\0y")
    refused(read_oip(body), MISMATCH, pointer="/inputs/1", feature="s", offset=body[1] + 8)
    body = body_of(item("a"), item("b", size=3), data=b"xyzw", key="outputs")
    refused(read_oip(body), MISMATCH, pointer="/outputs/1/parameters/binary_data_size")
    body = body_of(item("a"), item("b", "BOOL", [2], 2), data=b"x\0\7")
    refused(read_oip(body), "invalid_bool", pointer="/inputs/1", offset=len(body[0]) - 1)
    body = body_of(item("a"), {**IN_JSON, "data": [1, None]}, data=b"x")
    assert str(refused(read_oip(body), "null_value").pointer).startswith("/inputs/1/data")


def test_oip_cut_anywhere_and_every_byte_more() -> None:
    body, length = body_of(
        item("s", "BYTES", [1], 7), item("x", "FP16", [2], 4), data=strings(b"abc") + b"\0<\0@"
    )
    for end in range(len(body)):
        refused(read("oip", body[:end], (None, 7), json_bytes=length), "truncated", offset=end)
    refused(read("oip", body + b"\0", json_bytes=length), "trailing_bytes", offset=len(body))
    # A length that is too short or too long leaves no JSON.
    refused(read("oip", body, json_bytes=length - 1), "invalid_json")
    refused(read("oip", body, json_bytes=length + 1), "invalid_json")


def test_limits_of_oip() -> None:
    body = body_of(item("a"), item("b"), data=b"xy")
    refused(read_oip(body, limits=Limits(max_members=1)), "too_many_tensors")
    refused(read_oip(body_of(item("a" * 9), data=b"x"), limits=Limits(max_name_bytes=8)), "name_too_long")
    many = body_of(item("s", "BYTES", [100_000], 400_000), data=bytes(400_000))
    refused(read_oip(many, limits=Limits(max_decoded_bytes=1_000_000)), "payload_too_large")
    text, length = body_of(item("x", "FP64", [100], 800), IN_JSON, item("s", "BYTES", [1], 7))
    left, _ = held("oip", text + bytes(800) + strings(b"abc"), json_bytes=length)
    assert left == 800 + 2 + (3 + 2 * 8)


@FEW
@given(st.data())
def test_mutated_oip_raises_nothing_undocumented(data: st.DataObject) -> None:
    original, length = body_of(
        item("s", "BYTES", [2], 11), item("x", "FP16", [2], 4), data=strings(b"abc", b"") + b"\0<\0@"
    )
    mutated = bytearray(original)
    for _ in range(data.draw(st.integers(1, 4))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    read("oip", bytes(mutated), (None, 7), json_bytes=length + data.draw(st.integers(-1, 1)))


def test_oip_whose_json_has_no_length_is_one_raw_tensor() -> None:
    body = struct.pack("<2h", 1, -2)
    options: dict[str, Any] = {"dtype": DTYPES["int16"], "shape": (2, 1)}
    assert read("oip", body, json_bytes=0, **options) == [tensor("int16", (2, 1), [1, -2])]
    refused(read("oip", body, json_bytes=0), "missing_dtype")


# Raw bytes.


@pytest.mark.parametrize(("order", "body"), [("little", b"\1\2\3\4"), ("big", b"\2\1\4\3")])
def test_the_literal_bytes_of_raw(order: str, body: bytes) -> None:
    options: dict[str, Any] = {"dtype": DTYPES["int16"], "shape": (2, 1), "byte_order": order}
    assert read("raw", body, **options) == [tensor("int16", (2, 1), [0x0201, 0x0403])]
    assert write_tensors("raw", tensors_of("raw", body, **options), byte_order=order) == body


@given(st.data(), st.sampled_from(NUMBERS), st.sampled_from(["little", "big"]), st.sampled_from("CF"))
@settings(deadline=None, max_examples=100)
def test_raw_goes_in_and_out(data: st.DataObject, dtype: Any, byte_order: Any, order: Any) -> None:
    shape = data.draw(npst.array_shapes(min_dims=0, max_dims=4, min_side=0))
    size = int(np.prod(shape)) * dtype.itemsize
    body = element_bytes(data.draw(st.binary(min_size=size, max_size=size)), dtype)
    options: dict[str, Any] = {"dtype": dtype, "shape": shape, "byte_order": byte_order, "order": order}
    [found] = read("raw", body, (None, 3), **options)
    assert (found.dtype, found.shape) == (dtype.name, shape)
    tensors = tensors_of("raw", body, **options)
    written = write_tensors("raw", tensors, byte_order=byte_order, order=order)
    assert isinstance(written, bytes)
    if dtype.is_narrow:  # leaves as the int8 or uint8 of the same value
        assert tensors_of("raw", written, **options)[0].values.tolist() == tensors[0].values.tolist()
    else:
        assert written == body


@pytest.mark.parametrize(
    ("order", "byte_order", "code"),
    [("F", "little", "<c16"), ("F", "big", ">c16"), ("C", "big", ">c8"), ("F", "big", ">i4")],
)
def test_orders_of_raw_are_those_of_numpy(order: Any, byte_order: Any, code: str) -> None:
    array = (np.arange(24) - 3).reshape(2, 3, 4).astype(code)
    options: dict[str, Any] = {"byte_order": byte_order, "order": order}
    body = array.tobytes(order=order)
    tensors = tensors_of("raw", body, dtype=DTYPES[array.dtype.name], shape=(2, 3, 4), **options)
    assert tensors[0].values.tolist() == array.reshape(-1).tolist()
    assert write_tensors("raw", tensors, **options) == body


@pytest.mark.parametrize(
    ("name", "body", "values"),
    [
        ("int4", b"\x00\x0f\xf8\xff", [0, -1, -8, -1]),
        ("int2", b"\x03\xfe\xff", [-1, -2, -1]),
        ("uint4", b"\x0f", [15]),
        ("uint2", b"\x03", [3]),
        ("bool", b"\0\1", [False, True]),
    ],
)
def test_few_bits_may_be_sign_extended(name: str, body: bytes, values: list[Any]) -> None:
    assert read("raw", body, dtype=DTYPES[name]) == [tensor(name, (len(body),), values)]
    if name != "bool":
        written = write_tensors("raw", tensors_of("raw", body, dtype=DTYPES[name]))
        assert written == bytes(value & 0xFF for value in values)


@pytest.mark.parametrize(
    ("name", "byte", "code"),
    [
        *(
            (name, byte, "out_of_range")
            for name, byte in (("int4", 0x10), ("int4", 0xF7), ("int2", 4), ("int2", 0xFD))
        ),
        *(
            (name, byte, "out_of_range")
            for name, byte in (("uint4", 0xFF), ("uint2", 4), ("float4_e2m1fn", 0xFF))
        ),
        ("bool", 2, "invalid_bool"),
        ("bool", 255, "invalid_bool"),
    ],
)
def test_bits_that_an_element_does_not_have_are_refused(name: str, byte: int, code: str) -> None:
    found = refused(
        read("raw", bytes([0, 1, byte, 0]), dtype=DTYPES[name]), code, offset=2, error=UnprocessableInput
    )
    assert found.detail.startswith("Element 2 ")


@pytest.mark.parametrize(
    ("body", "options", "code"),
    [
        *(
            (bytes(size), {"dtype": "int16", "shape": shape}, "content_size_mismatch")
            for size, shape in ((5, None), (5, (2,)), (3, (2,)), (6, (2,)), (2, (0,)), (0, ()))
        ),
        (bytes(4), {}, "missing_dtype"),
        (b"x", {"dtype": "string"}, "no_raw_form"),
    ],
)
def test_raw_that_is_refused(body: bytes, options: dict[str, Any], code: str) -> None:
    given: Any = {name: DTYPES[value] if name == "dtype" else value for name, value in options.items()}
    with pytest.raises(InputError) as caught:
        tensors_of("raw", body, **given)
    assert caught.value.code == code


def test_raw_without_a_shape_has_one_dimension() -> None:
    for size, shape in ((6, None), (0, None), (2, ())):
        [found] = read("raw", bytes(size), dtype=DTYPES["int16"], shape=shape)
        assert found.shape == ((size // 2,) if shape is None else shape)


def test_tensor_without_a_raw_form_is_refused() -> None:
    refused(write_tensors("raw", json_tensors(of("string", ["x"]))), "no_raw_form")
    refused(write_tensors("raw", json_tensors(of("int8", [1]), of("int8", [1]))), "several_tensors")
    refused(write_tensors("raw", []), "no_tensors")


@pytest.mark.parametrize(
    ("limit", "options"),
    [
        (100, {"dtype": "uint8", "shape": None}),
        (99, {"dtype": "int16", "shape": None, "byte_order": "big"}),
        (150, {"dtype": "uint8", "shape": (10, 10), "order": "F"}),
    ],
)
def test_raw_in_memory_is_charged(limit: int, options: dict[str, Any]) -> None:
    given: Any = {**options, "dtype": DTYPES[options["dtype"]]}
    body = bytes(101 if limit == 100 else 100)
    with pytest.raises(LimitExceeded):
        held("raw", body, Limits(max_decoded_bytes=limit), **given)


# What all of them have in common.


def declared(form: FormName) -> tuple[bytes, dict[str, Any]]:
    tensors = json_tensors(of("float32", [[1, 2, 3], [4, 5, 6]], name="x"))
    body = write_tensors(form, tensors)
    assert isinstance(body, bytes)
    return body, {"json_bytes": body.index(b"]}") + 2} if form == "oip" else {}


@pytest.mark.parametrize("form", ["npy", "npz", "safetensors", "oip"])
def test_declared_dtype_and_shape_must_match(form: FormName) -> None:
    body, options = declared(form)
    assert len(read(form, body, dtype=DTYPES["float32"], shape=(2, 3), **options)) == 1
    refused(read(form, body, dtype=DTYPES["int32"], **options), "dtype_mismatch")
    refused(read(form, body, shape=(6,), **options), "shape_mismatch")
    refused(read(form, body, shape=(3, 2), **options), "shape_mismatch")


@pytest.mark.parametrize(
    ("form", "body"),
    [
        ("npz", npz(x=np.zeros(2, "<f4"), y=np.zeros(2))),
        ("safetensors", save({"x": np.zeros(2), "y": np.zeros(2, "<f4")})),
    ],
)
def test_a_declaration_holds_for_every_array(form: FormName, body: bytes) -> None:
    refused(
        read(form, body, dtype=DTYPES["float32"]), "dtype_mismatch", feature="y" if form == "npz" else None
    )


# Sparse and ragged tensors as their components.

INDICES, SPLITS = of("int64", [[0, 1], [2, 3]]), of("int64", [0, 2, 2])
VALUES, SHAPE34 = of("float32", [1, 2]), of("int64", [3, 4])
RAGGED = [of("float32", [1, 2, 3]), SPLITS, of("int64", [0, 1, 3])]
SPARSE_FOUND = Values("float32", (3, 4), [1, 2], None, [[0, 1], [2, 3]])
RAGGED_FOUND = Values("float32", (3,), [1, 2, 3], None, [[0, 2, 2], [0, 1, 3]])


def components(form: FormName, **items: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """A body of tensors that have these names."""
    body = write_tensors(form, json_tensors(*({**value, "name": name} for name, value in items.items())))
    assert isinstance(body, bytes)
    return body, {"json_bytes": body.index(b"]}") + 2} if form == "oip" else {}


def by_position(*items: dict[str, Any]) -> bytes:
    body = write_tensors("tfrecord", json_tensors(*items))
    assert isinstance(body, bytes)
    return body


@pytest.mark.parametrize("form", ["npz", "safetensors", "oip"])
@pytest.mark.parametrize("prefix", ["", "x/", "a/b/"])
def test_components_are_put_together_and_taken_apart(form: FormName, prefix: str) -> None:
    name = prefix.removesuffix("/") or None
    dense = of("int8", [7])
    parts = {"indices": INDICES, "values": VALUES, "dense_shape": SHAPE34}
    body, options = components(form, **{prefix + label: part for label, part in parts.items()}, d=dense)
    found = read(form, body, kind="sparse", **options)
    assert found == [replace(SPARSE_FOUND, name=name), tensor("int8", (1,), [7], "d")]
    tensors = tensors_of(form, body, kind="sparse", **options)
    again, options = reread(form, write_tensors(form, tensors))
    assert {item.name: item for item in read(form, again, **options)}.keys() == {
        *(prefix + label for label in parts),
        "d",
    }
    assert read(form, again, kind="sparse", **options) == found
    parts = {"values": RAGGED[0], "row_splits_0": RAGGED[1], "row_splits_1": RAGGED[2]}
    body, options = components(form, **{prefix + label: part for label, part in parts.items()}, d=dense)
    found = read(form, body, kind="ragged", **options)
    assert found == [replace(RAGGED_FOUND, name=name), tensor("int8", (1,), [7], "d")]
    again, options = reread(form, write_tensors(form, tensors_of(form, body, kind="ragged", **options)))
    assert read(form, again, kind="ragged", **options) == found


@pytest.mark.parametrize("form", ["oip", "arrow"])
def test_serialized_sparse_tensors_are_read_in_forms_of_names(form: FormName) -> None:
    sparse = tensors_of("tfrecord", by_position(INDICES, VALUES, SHAPE34), kind="sparse")
    message = write_tensors("tensorproto", sparse)
    assert isinstance(message, bytes)
    (strings,) = tensors_of("tensorproto", message)
    names = ["x", "y"]
    body, options = reread(form, write_tensors(form, [replace(strings, name=name) for name in names]))
    found = read(form, body, kind="sparse", **options)
    assert found == [replace(SPARSE_FOUND, name=name) for name in names]
    body, options = reread(form, write_tensors(form, [replace(strings, name="x"), *json_tensors(VALUES)]))
    refused(read(form, body, kind="sparse", **options), "missing_component")


def reread(form: FormName, body: Any) -> tuple[bytes, dict[str, Any]]:
    assert isinstance(body, bytes)
    return body, {"json_bytes": body.index(b"]}") + 2} if form == "oip" else {}


def test_components_without_names_go_by_position() -> None:
    parts = [INDICES, VALUES, SHAPE34]
    assert read("tfrecord", by_position(*parts, *parts), kind="sparse") == [SPARSE_FOUND] * 2
    assert read("tfrecord", by_position(*RAGGED), kind="ragged") == [RAGGED_FOUND]
    small = [of("int32", [[0, 1]]), of("float64", [1.5]), of("uint8", [3, 4])]
    assert read("tfrecord", by_position(*small), kind="sparse") == [
        Values("float64", (3, 4), [1.5], None, [[0, 1]])
    ]
    none = [of("int64", []), of("float32", []), SHAPE34]
    assert read("tfrecord", by_position(*none), kind="sparse") == [Values("float32", (3, 4), [], None, [])]


@pytest.mark.parametrize(
    ("parts", "kind", "code"),
    [
        ([[[0]], [1]], "sparse", "missing_component"),
        ([[1]], "ragged", "missing_component"),
        ([[[0.5]], [1], [1]], "sparse", "dtype_mismatch"),
        ([[[0]], [1], [1.5]], "sparse", "dtype_mismatch"),
        ([[0], [1], [1]], "sparse", "shape_mismatch"),
        ([[[0]], [[1]], [1]], "sparse", "shape_mismatch"),
        ([[[0]], [1], [[1]]], "sparse", "shape_mismatch"),
        ([[[0]], [1, 2], [1]], "sparse", "shape_mismatch"),
        ([[[0]], [1], [-1]], "sparse", "invalid_shape"),
        ([[[2**63]], [1], [5]], "sparse", "index_out_of_bounds"),
        ([[[-1]], [1], [5]], "sparse", "index_out_of_bounds"),
        ([[[0]], [1], [0] * 255], "sparse", "rank_too_large"),
        ([[1], [0.0, 1.5]], "ragged", "dtype_mismatch"),
        ([[1], [[0, 1]]], "ragged", "shape_mismatch"),
        ([[1], [0, 2]], "ragged", "invalid_row_splits"),
        ([[1], [1, 1]], "ragged", "invalid_row_splits"),
        ([[1, 2], [0, 2, 1, 2]], "ragged", "invalid_row_splits"),
        ([1, [0, 1]], "ragged", "invalid_row_splits"),
    ],
)
def test_components_that_make_no_tensor(parts: list[Any], kind: str, code: str) -> None:
    def dtype(data: Any) -> str:
        kinds = {"f": "float32", "i": "int64", "u": "uint64"}
        return kinds[np.array(data).dtype.kind]

    body = by_position(*(of(dtype(part), part) for part in parts))
    refused(read("tfrecord", body, kind=kind), code)


@pytest.mark.parametrize(
    ("names", "kind", "missing"),
    [
        (["a/indices", "a/values", "a/shape"], "sparse", "a/dense_shape"),
        (["indices", "values", "b/dense_shape"], "sparse", "'dense_shape'"),
        (["a/values", "a/row_splits_1"], "ragged", "a/row_splits_0"),
        (["a/values", "b"], "ragged", "a/row_splits_0"),
        (["a/row_splits_0", "b"], "ragged", "a/values"),
        (["a", "b", "c"], "sparse", "none of the tensors"),
    ],
)
def test_a_component_that_is_missing_is_named(names: list[str], kind: str, missing: str) -> None:
    body, _ = components("npz", **{name: of("int64", [0]) for name in names})
    assert missing in refused(read("npz", body, kind=kind), "missing_component").detail


def test_faults_of_components_name_the_tensor() -> None:
    parts = {"x/indices": of("int64", [[9]]), "x/values": of("int8", [1]), "x/dense_shape": of("int64", [3])}
    refused(read("npz", components("npz", **parts)[0], kind="sparse"), "index_out_of_bounds", feature="x")


def test_declared_shape_covers_the_whole_sparse_tensor() -> None:
    body, _ = components("npz", indices=INDICES, values=VALUES, dense_shape=SHAPE34)
    assert len(read("npz", body, kind="sparse", dtype=DTYPES["float32"], shape=(3, 4))) == 1
    refused(read("npz", body, kind="sparse", dtype=DTYPES["int64"]), "dtype_mismatch")
    refused(read("npz", body, kind="sparse", shape=(2,)), "shape_mismatch")
    assert len(read("npz", body, kind="dense")) == 3
    ragged, _ = components("npz", values=RAGGED[0], row_splits_0=of("int64", [0, 3]))
    refused(read("npz", ragged, kind="ragged", shape=(3,)), "shape_mismatch")


@pytest.mark.parametrize("form", ["npz", "oip", "safetensors"])
def test_several_without_a_name_are_refused(form: FormName) -> None:
    sparse = tensors_of("tfrecord", by_position(INDICES, VALUES, SHAPE34), kind="sparse")
    detail = refused(write_tensors(form, sparse * 2), "duplicate_name").detail
    assert "Give each tensor a name" in detail
    assert isinstance(
        write_tensors(form, [*sparse, replace(sparse[0], name="r"), *json_tensors(VALUES)]), bytes
    )


@pytest.mark.parametrize("form", ["npy", "raw"])
def test_forms_of_one_dense_tensor_refuse_others(form: FormName) -> None:
    sparse = tensors_of("tfrecord", by_position(INDICES, VALUES, SHAPE34), kind="sparse")
    ragged = tensors_of("tfrecord", by_position(*RAGGED), kind="ragged")
    for tensors, kind in ((sparse, "sparse"), (ragged, "ragged")):
        assert "'npz'" in refused(write_tensors(form, tensors), "unsupported_kind").detail
        with pytest.raises(InputError) as caught:
            tensors_of(form, b"", kind=kind)
        assert caught.value.code == "unsupported_kind"
