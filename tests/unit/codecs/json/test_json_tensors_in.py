"""Tensors from JSON: which ones a body holds, what their elements may be, where a fault is found."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from app.codecs.array import Array
from app.codecs.forms import TENSOR_CODECS
from app.codecs.options import TensorDecodeOptions
from app.domain.dtypes import DTYPES, DType
from app.domain.limits import MIB, Limits
from app.errors import AmbiguousInput, InputError, LimitExceeded, LossyConversion, MalformedInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile
from tests.support.format_cases import Refusal, read_tensors
from tests.support.peak_memory import peak_bytes
from tests.unit.codecs.cases.tensors import RAGGED_JSON, SPARSE_JSON, SPARSE_SHOWN, read, refused, show_dense

NUMERIC = [dtype for dtype in DTYPES.values() if dtype.is_integer or dtype.is_float]
#: More than the readers of small bodies take at once.
PADDING = b" " * (4 * MIB)


# Which tensors a body holds.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # One value, or one array of them.
        ('{"b64": "AAE"}', ["string[] [b'\\x00\\x01']"]),
        ("5", ["int64[] [5]"]),
        ("-0.5e1", ["float64[] [-5.0]"]),
        ("true", ["bool[] [True]"]),
        ('"AA=="', ["string[] [b'AA==']"]),
        ("[1, 2.5]", ["float64[2] [1.0, 2.5]"]),
        (" [[1],\r\n\t[2]] \n", ["int64[2, 1] [1, 2]"]),
        ("[1,2e0]", ["float64[2] [1.0, 2.0]"]),
        ("[]", ["float32[0] []"]),
        ("[[],[]]", ["float32[2, 0] []"]),
        ("[[1, 2], [3, 4]]", ["int64[2, 2] [1, 2, 3, 4]"]),
        ("[true, false]", ["bool[2] [True, False]"]),
        ('[{"b64": "AA"}, "x", "\\u0000\\ud83d\\ude00"]',
         ["string[3] [b'\\x00', b'x', b'\\x00\\xf0\\x9f\\x98\\x80']"]),
        ("[18446744073709551616, 1.0]", ["float64[2] [1.8446744073709552e+19, 1.0]"]),  # a power of two
        # An object of one array.
        ('{"data": [1]}', ["int64[1] [1]"]),
        ('{"data": 1, "dtype": null, "shape": null, "name": null}', ["int64[] [1]"]),
        ('{"name": "x", "dtype": "int8", "shape": [2, 1], "data": [1, 2]}', ["x: int8[2, 1] [1, 2]"]),
        ('{"data":[1,2],"shape":[1,2],"dtype":"int8","name":"x\\n"}', ["x\n: int8[1, 2] [1, 2]"]),
        ('{"dat\\u0061": [1], "dtype": "text"}', "type_mismatch"),
        ('{"datatype": "FP64", "shape": [], "data": 1, "parameters": {}}', ["float64[] [1.0]"]),
        ('{"dtype": "string", "data": ["a", {"b64": "/w"}]}', ["string[2] [b'a', b'\\xff']"]),
        ('{"dtype": "complex64", "shape": [2], "data": [[1, 0], [0, -1]]}', ["complex64[2] [(1+0j), -1j]"]),
        ('{"dtype": "complex128", "data": [1, 2]}', ["complex128[] [(1+2j)]"]),
        ('{"dtype": "complex64", "data": [["NaN", -0], [-0.0, 16777216]]}',
         ["complex64[2] [(nan-0j), (-0+16777216j)]"]),
        ('{"dtype": "complex64", "shape": [2, 0], "data": []}', ["complex64[2, 0] []"]),
        ('{"shape": [2, 0, 3], "data": [[], []]}', ["float32[2, 0, 3] []"]),
        ('{"dtype": "int8", "shape": [0, 1099511627776], "data": []}', ["int8[0, 1099511627776] []"]),
        # Envelopes.
        ('{"tensors": [{"name": "a", "data": [1]}, 2.5, {"b64": ""}]}',
         ["a: int64[1] [1]", "float64[] [2.5]", "string[] [b'']"]),
        ('{"tensors": []}', []),
        ('{"inputs": [{"name": "a", "datatype": "BYTES", "shape": [1], "data": ["x"]}], "id": "7"}',
         ["a: string[1] [b'x']"]),
        ('{"outputs": [{"name": "a", "datatype": "BOOL", "shape": [1], "data": [true]}], "model_name": "m"}',
         ["a: bool[1] [True]"]),
        ('{"instances": [[1], [2]], "signature_name": "s"}', ["int64[2, 1] [1, 2]"]),
        ('{"instances": [{"b64": "AA=="}]}', ["string[1] [b'\\x00']"]),
        ('{"id":7,"inputs":[0.5]}', ["float64[1] [0.5]"]),
        ('{"inputs": []}', ["float32[0] []"]),
        ('{"inputs": {"b": [1], "a": "x", "data": 2.5}, "parameters": {}}',
         ["b: int64[1] [1]", "a: string[] [b'x']", "data: float64[] [2.5]"]),
        ('{"columns": {"inputs": {"dtype": "int8", "data": [1]}}}', ["inputs: int8[1] [1]"]),
        # The integer token -0 is 0 among integers, and -0.0 among floats.
        ("[-0]", ["int64[1] [0]"]),
        ("[-0, 1.5]", ["float64[2] [-0.0, 1.5]"]),
        ('{"dtype":"uint8","data":[-0]}', ["uint8[1] [0]"]),
        ('{"dtype":"bfloat16","data":[[-0],[0]]}', ["bfloat16[2, 1] [-0.0, 0.0]"]),
        ('{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[-0]}]}', ["x: float32[1] [-0.0]"]),
        ('{"dtype":"float32","shape":[-0],"data":[]}', ["float32[0] []"]),
        # None of these.
        *[(text, "ambiguous_json") for text in [
            "{}", '{"x": [1]}', '{"b64": "AA==", "x": 1}', '{"tensors": [1], "id": "7"}',
            '{"columns": {"a": [1]}, "id": "7"}',
            '{"instances": {"a": [1]}}', '{"instances": [1], "inputs": [1]}',
            '{"outputs": [1]}', '{"outputs": {"a": [1]}}', '{"inputs": 5}', '{"tensors": {"a": [1]}}',
            '{"tensors": [{"tensors": [1]}]}', '{"inputs": [{"datatype": "FP32", "data": 1}, {}], "x": 1}',
            '{"inputs": {"a": {"x": 1}}}',
        ]],
    ],
)  # fmt: skip
def test_the_tensors_of_a_body(text: str, expected: list[str] | str) -> None:
    if isinstance(expected, list):
        assert read(text.encode()) == expected
    else:
        found = refused(text.encode())
        assert (found.code, found.error is AmbiguousInput) == (expected, expected == "ambiguous_json")


def test_large_texts_are_read_as_small_ones_are() -> None:
    for text in (
        b"[true, false]",
        b'{"x": [1, -0, 2.5, "a"]}',
        b'["NaN", 1]',
        b"[1, 2, 9223372036854775808]",
    ):
        assert repr(read_tensors("json", text + PADDING)) == repr(read_tensors("json", text))


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        # Not JSON: where in the text.
        ("", "invalid_json", 0),
        ("[1,]", "invalid_json", 3),
        ("[1] [2]", "invalid_json", 4),
        ("[1]]", "invalid_json", 3),
        ("[01]", "invalid_json", 2),
        ("[1.]", "invalid_json", 2),
        ("[-]", "invalid_json", 1),
        ('{"instances":[1]', "invalid_json", 16),
        ("\x0b[1]", "invalid_json", 0),
        ("[1]\x0b", "invalid_json", 3),
        ('["é", "\x00"]', "invalid_json", 8),
        ("\ufeff[1]", "byte_order_mark", 0),
        ("[NaN]", "nonfinite_token", 1),
        ("[1.5, -Infinity]", "nonfinite_token", 6),
        ('{"data": [1,2], "data": [3]}', "duplicate_key", 16),
        ('{"data":[1,2],"dat\\u0061":[3]}', "duplicate_key", 14),
        ('{"data": {"a": 1, "a": 1}}', "duplicate_key", 18),
        ("[" * 100_000, "json_too_deep", 512),
        ("[" + "1" * 5000 + "]", "integer_too_large", 1),
        ("[1.5, -" + "1" * 5000 + "]", "integer_too_large", 6),
        ('["a", "\\ud800"]', "lone_surrogate", 7),
        # The members of a tensor.
        ('{"data": [1], "dtpye": "int8"}', "invalid_tensor", ""),
        ('{"datatype": "FP32"}', "ambiguous_json", ""),
        ('{"tensors": [{"datatype": "FP32"}]}', "invalid_tensor", "/tensors/0"),
        ('{"data": 1, "dtype": "int8", "datatype": "INT8"}', "invalid_tensor", ""),
        ('{"data": 1, "dtype": 5}', "invalid_tensor", ""),
        ('{"data": 1, "dtype": "float99"}', "unknown_dtype", ""),
        ('{"data": 1, "name": 5}', "invalid_tensor", "/name"),
        ('{"data": 1, "shape": 5}', "invalid_tensor", "/shape"),
        ('{"data": 1, "shape": [2.0]}', "invalid_shape", "/shape"),
        ('{"data": 1, "shape": [true]}', "invalid_shape", "/shape"),
        ('{"data": 1, "shape": [-1]}', "invalid_shape", "/shape"),
        ('{"data": 1, "shape": [9223372036854775808]}', "invalid_shape", "/shape"),
        ('{"data": [1], "shape": [4294967296, 4294967296]}', "shape_too_large", "/shape"),
        (f'{{"data": [1], "shape": {[1] * 255}}}', "rank_too_large", "/shape"),
        ('{"inputs": {"a": {"name": "b", "data": 1}}}', "name_mismatch", "/inputs/a/data"),
        ('{"tensors": [{"name": "a", "data": 1}, {"name": "a", "data": 2}]}', "duplicate_name", None),
        # Their values.
        ("null", "null_value", ""),
        ("[1, null]", "null_value", "/1"),
        ("[1, [2]]", "ragged", "/1"),
        ("[[1], 2]", "ragged", "/1"),
        ("[[1, 2], [3]]", "ragged", "/1"),
        ("[[1, 2], [3, [4]]]", "ragged", "/1/1"),
        ("[[[1], [2]], [[3], [4, 5]]]", "ragged", "/1/1"),
        ("[[], [1]]", "ragged", "/1"),
        ('{"instances": [[1], [2, 3]]}', "ragged", "/instances/1"),
        ("[true, 1]", "mixed_types", "/1"),
        ('[1, "NaN", "nan"]', "mixed_types", "/1"),
        ('[true, "NaN"]', "mixed_types", "/1"),
        ("[[1, 2], [3, true]]", "mixed_types", "/1/1"),
        ('[true, {"b64": ""}]', "mixed_types", "/1"),
        ('{"inputs": {"a/b~": [1, "x"]}}', "mixed_types", "/inputs/a~1b~0/1"),
        ('[{"x": 1}]', "type_mismatch", "/0"),
        ('[{"values": [], "row_splits": []}]', "unsupported_kind", "/0"),
        ('{"dtype": "bool", "data": 1}', "type_mismatch", "/data"),
        ('{"dtype": "bool", "data": ["true"]}', "type_mismatch", "/data/0"),
        ('{"dtype": "float32", "data": [1, true]}', "type_mismatch", "/data/1"),
        ('{"dtype": "float32", "data": [1, {"b64": "AA=="}]}', "type_mismatch", "/data/1"),
        ('{"dtype": "float32", "data": [1, "nan"]}', "type_mismatch", "/data/1"),
        ('{"dtype": "string", "data": [-0]}', "type_mismatch", "/data/0"),
        ('{"dtype": "complex64", "data": [1, 2, 3]}', "type_mismatch", "/data/0"),
        ('{"dtype": "complex64", "data": 1}', "type_mismatch", "/data"),
        ('{"dtype": "complex64", "data": [[[1, 2], [3, "x"]]]}', "type_mismatch", "/data/0/1/1"),
        ('{"dtype": "complex64", "data": [[0, 16777217]]}', "inexact_integer", "/data/0/1"),
        ("[9223372036854775808]", "out_of_range", "/0"),
        ("[9223372036854775808, -1]", "out_of_range", "/0"),
        ("[-9223372036854775809]", "out_of_range", "/0"),
        ("[" + "1" * 4000 + "]", "out_of_range", "/0"),
        ("[[1.0, 2], [9007199254740993, 1]]", "inexact_integer", "/1/0"),
        ("[1e400]", "out_of_range", "/0"),
        ('{"dtype": "float64", "data": [-1e400]}', "out_of_range", "/data/0"),
        (f'{{"dtype": "float64", "data": [0.5, {2**1024 - 2**970}]}}', "out_of_range", "/data/1"),
        ('{"dtype": "int8", "shape": [2, 2], "data": [1, 2, 3, 300]}', "out_of_range", "/data/3"),
        ('{"inputs": [{"datatype": "INT8", "data": ["x"]}]}', "inexact_integer", "/inputs/0/data/0"),
        ('{"tensors": [[1], {"data": [{"b64": "A"}]}]}', "invalid_base64", "/tensors/1/data/0"),
        # Their shape.
        ('{"shape": [3], "data": [1, 2]}', "shape_mismatch", "/data"),
        ('{"shape": [3, 2], "data": [[1, 2, 3], [4, 5, 6]]}', "shape_mismatch", "/data"),
        ('{"shape": [1], "data": 1}', "shape_mismatch", "/data"),
        ('{"shape": [2], "data": [[1], [2]]}', "shape_mismatch", "/data"),
        ('{"shape": [3, 0, 3], "data": [[], []]}', "shape_mismatch", "/data"),
        ('{"shape": [1099511627776], "data": [1]}', "shape_mismatch", "/data"),
        ("[" * 255 + "1" + "]" * 255, "rank_too_large", ""),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_faulty_bodies(text: str, code: str, place: int | str | None) -> None:
    for before in ("", " " * 4000) if code != "byte_order_mark" else ("",):
        found = refused((before + text).encode())
        at = (found.offset, None) if isinstance(place, int) else (None, found.pointer)
        expected = (len(before) + place, None) if isinstance(place, int) else (None, place)
        assert (found.code, at) == (code, expected)


def test_invalid_utf8_and_late_faults_have_their_offset() -> None:
    many = b"[" + b"1.5," * 500_000
    for text, code, offset in [
        (b'["a\xff"]', "invalid_utf8", 3),
        (many + b"NaN]", "nonfinite_token", len(many)),
        (many + b"1", "invalid_json", len(many) + 1),
        (many + b"1}", "invalid_json", len(many) + 1),
    ]:
        assert (refused(text).code, refused(text).offset) == (code, offset)
    for tail, code in [(b"null]", "null_value"), (b"[1]]", "ragged"), (b"1e999]", "out_of_range")]:
        assert (refused(many + tail).code, refused(many + tail).pointer) == (code, "/500000")


# What the elements of each dtype may be.


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES.values() if dtype.is_integer], ids=str)
def test_integers_reach_to_the_ends_of_their_dtype_and_no_further(dtype: DType) -> None:
    low, high = dtype.bounds
    text = f'[{low}, {high}, -0, 1.0, -0.0, "1"]'
    assert read(text.encode(), dtype=dtype) == [f"{dtype}[6] {[low, high, 0, 1, 0, 1]}"]
    for beyond in (low - 1, high + 1, 10**40):
        for text in (f"[0, {beyond}]", f"[[0], [{beyond}]]", f'["0", {beyond}]'):
            assert refused(text.encode(), dtype=dtype).code == "out_of_range"


@pytest.mark.parametrize(
    ("dtype", "data", "expected"),
    [
        ("int64", '["9007199254740993", "-1", 0]', "[9007199254740993, -1, 0]"),
        ("uint64",
         '["18446744073709551615", 18446744073709551615]', "[18446744073709551615, 18446744073709551615]"),
        ("int64", "[9007199254740991.0, -9007199254740991.0]", "[9007199254740991, -9007199254740991]"),
        # From there on a decimal does not say which integer it was.
        *[("int64", f"[1, {item}]", "inexact_integer") for item in [
            "1.5", "9007199254740992.0", "-9007199254740993.0", "1e300", '""', '"1.0"', '"+1"', '" 1"',
            '"1e3"',
            '"01"', '"\\u0661"', f'"{10**20}"', '"NaN"',
        ]],
        # A float takes an integer that it holds, and any decimal in its range.
        *[(name, f"[{exact}, -{exact}, {3 * exact}, {exact}.25, 0.5]",
           f"[{exact}.0, -{exact}.0, {3 * exact}.0, {exact}.0, 0.5]")
          for name, exact in [("bfloat16", 2**8), ("float16", 2**11), ("float32", 2**24)]],
        *[(name, f"[{first}, {sign}{exact + 1}]", "inexact_integer")
          for first in (0, 0.5, '"NaN"')
          for sign in ("", "-")
          for name, exact in [("bfloat16", 2**8), ("float16", 2**11), ("float32", 2**24), ("float64",
          2**53)]],
        ("float32", "[33554433.0, 33554432, 0.1]", "[33554432.0, 33554432.0, 0.10000000149011612]"),
        ("float64", "[9223372036854775808, 2.5]", "[9.223372036854776e+18, 2.5]"),
        ("float64", "[9223372036854775808, -1]", "[9.223372036854776e+18, -1.0]"),
        *[(name, f"[0.5, {item}]", "out_of_range") for name, item in [
            ("float16", 65520.0), ("float16", 70000), ("bfloat16", 3.4e38), ("float32", 1e39), ("float32",
            10**39),
            ("float32", 3.4028235677973366e38), ("float64", 10**309), ("float64", "1e309"),
            ("float8_e4m3fn", 1e4),
        ]],
        ("float16", "[65519.0]", "[65504.0]"),
        ("float64", f"[{int(np.finfo(np.float64).max)}]", f"[{np.finfo(np.float64).max}]"),
        *[(name, '["NaN", "Infinity", "-Infinity", 1]', "[nan, inf, -inf, 1.0]")
          for name in ("float16", "bfloat16", "float32", "float64")],
        ("float32", '["NaN", -0, 0.1]', "[nan, -0.0, 0.10000000149011612]"),
        ("float8_e4m3fn", '["Infinity"]', "out_of_range"),
        ("bool", "[true, false]", "[True, False]"),
        ("bool", "[1]", "type_mismatch"),
        ("int8", "[true]", "type_mismatch"),
        ("int8", "[null]", "null_value"),
        ("int8", "[[]]", "[]"),
        ("int8", "[{}]", "type_mismatch"),
        ("string", '["AA==", "\u00e9", {"b64": "AA"}]', "[b'AA==', b'\\xc3\\xa9', b'\\x00']"),
    ],
)  # fmt: skip
def test_elements_of_a_declared_dtype(dtype: str, data: str, expected: str) -> None:
    """`expected` are the values, or the code."""
    body = f'{{"dtype": "{dtype}", "data": {data}}}'.encode()
    if expected.startswith("["):
        for found in (read(body), read(data.encode(), dtype=dtype)):
            assert found[0].startswith(dtype)
            assert found[0].endswith("] " + expected)
        return
    for error in (refused(body), refused(data.encode(), dtype=dtype)):
        assert (error.code, error.error is LossyConversion) == (expected, expected == "inexact_integer")


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES.values() if dtype.is_float], ids=str)
def test_a_negative_zero_keeps_its_sign_in_a_float(dtype: DType) -> None:
    zero = "0.0" if dtype.name.endswith("uz") else "-0.0"
    for text in (b"[-0, 0, 3, 0.5]", b"[-0.0, 0, 3, 0.5]"):
        assert read(text, dtype=dtype) == [f"{dtype}[4] [{zero}, 0.0, 3.0, 0.5]"]


@pytest.mark.parametrize(
    ("nonfinite", "text", "expected"),
    [
        ("null", b"[null, 1]", "float64[2] [nan, 1.0]"),
        ("null", b"[null]", "float64[1] [nan]"),
        ("null", b'{"dtype": "float16", "data": [[null], [1]]}', "float16[2, 1] [nan, 1.0]"),
        ("null", b"[true, null]", "null_value"),
        ("null", b'["a", null]', "null_value"),
        ("null", b'{"dtype": "int8", "data": [null]}', "null_value"),
        ("null", b"[NaN]", "nonfinite_token"),
        ("bare", b"[NaN, -Infinity, 1]", "float64[3] [nan, -inf, 1.0]"),
        ("bare", b'{"dtype": "float32", "data": [Infinity, 1]}', "float32[2] [inf, 1.0]"),
        ("bare", b'{"dtype": "int8", "data": [NaN]}', "type_mismatch"),
        ("bare", b"[1e400]", "out_of_range"),
        ("bare", b"[null]", "null_value"),
        ("error", b'["NaN", 1.5]', "float64[2] [nan, 1.5]"),
        ("error", b'["NaN", "Infinity"]', "float64[2] [nan, inf]"),
        ("error", b'["NaN", "Infinity", ""]', "string[3] [b'NaN', b'Infinity', b'']"),
    ],
)
def test_nonfinite_values_as_asked_for(nonfinite: Any, text: bytes, expected: str) -> None:
    if "[" in expected:
        assert read(text, nonfinite=nonfinite) == [expected]
    else:
        assert refused(text, nonfinite=nonfinite).code == expected


@settings(deadline=None, max_examples=100)
@given(
    items=st.lists(st.integers(-300, 300) | st.floats(-1e6, 1e6) | st.integers(-(2**65), 2**65), min_size=1),
    dtype=st.sampled_from([*NUMERIC, None]),
    indent=st.sampled_from([None, 1]),
)
def test_numbers_are_rounded_once_as_numpy_does_or_refused(
    items: list[Any], dtype: DType | None, indent: int | None
) -> None:
    """By Python's own numbers, one at a time."""
    text = json.dumps(items, indent=indent).encode()
    wanted = dtype or DTYPES["float64" if float in map(type, items) else "int64"]
    values = [_held(item, wanted, declared=dtype is not None) for item in items]
    if None in values:
        assert refused(text, dtype=dtype).code in {"out_of_range", "inexact_integer"}
    else:
        expected = Array(wanted, (len(items),), np.array(values, wanted.numpy))
        assert read(text, dtype=dtype) == [show_dense(expected)]


def _held(item: Any, dtype: DType, *, declared: bool) -> Any:
    if dtype.is_integer:
        low, high = dtype.bounds
        exact = isinstance(item, int) or (item.is_integer() and abs(item) < 2**53 and declared)
        return int(item) if exact and low <= item <= high else None
    with np.errstate(over="ignore"):
        value = np.array([item], np.float64).astype(dtype.numpy)[0]
    if isinstance(item, int) and (not np.isfinite(np.float64(value)) or int(np.float64(value)) != item):
        return None
    overflows = not np.isfinite(np.float64(value)) or abs(item) > _largest(dtype)
    return None if overflows else value


def _largest(dtype: DType) -> float:
    """Beyond it, nearest is an infinity, or a NaN where the dtype has none."""
    info: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]  # it has no annotations
    return float(info.max) + (float(info.max) - float(np.nextafter(info.max, dtype.numpy.type(0)))) / 2


@settings(deadline=None, max_examples=100)
@given(bits=npst.arrays(np.uint64, st.integers(1, 50)), single=st.booleans())
def test_doubles_of_seventeen_digits_are_the_nearest(bits: Any, single: bool) -> None:
    values = bits.view(np.float64)
    values = values[np.isfinite(values) & (np.abs(values) < 3e38 if single else True)]
    text = json.dumps(values.tolist()).encode()
    dtype = DTYPES["float32" if single else "float64"]
    expected = Array(dtype, values.shape, values.astype(dtype.numpy))
    assert read(text, dtype=dtype) == [show_dense(expected)]


@settings(deadline=None, max_examples=100)
@given(data=st.binary(max_size=40), url_safe=st.booleans(), padded=st.booleans())
def test_base64_of_either_alphabet_with_or_without_padding(data: bytes, url_safe: bool, padded: bool) -> None:
    text = (base64.urlsafe_b64encode(data) if url_safe else base64.b64encode(data)).decode()
    body = json.dumps([{"b64": text if padded else text.rstrip("=")}]).encode()
    assert read(body) == [f"string[1] {[data]}"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        *[
            (text, "alphabet")
            for text in ("aG Vs", "!", "a-b+", "+_AA", "é===", "AA==AA==", "A A=", "AA\n", "A*AA")
        ],
        *[(text, "ends inside a byte") for text in ("A", "AB==", "AAB=", "AAAAA")],
        *[(text, "padding") for text in ("AA=", "AAA==", "AAAA=", "=")],
        (5, "takes a string"),
    ],
)
def test_fault_in_base64_is_named(text: object, what: str) -> None:
    found = refused(json.dumps(["a", {"b64": text}]).encode())
    assert (found.error, found.code, found.pointer) == (MalformedInput, "invalid_base64", "/1")
    assert what in found.detail


# What is declared beside the body.


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        *[(text, {"dtype": "float64", "shape": (2, 2)}, "float64[2, 2] [1.0, 2.0, 3.0, 4.0]") for text in [
            "[1, 2, 3, 4]", '{"data": [1, 2, 3, 4]}', '{"instances": [[1, 2], [3, 4]]}',
            '{"tensors": [[1, 2, 3, 4]]}',
        ]],
        ("[]", {"shape": (0, 3)}, "float32[0, 3] []"),
        ("5", {"shape": ()}, "int64[] [5]"),
        ("[5]", {"shape": ()}, "int64[] [5]"),
        ("[1, 2]", {"shape": (3,)}, "shape_mismatch"),
        ("[[1], [2]]", {"shape": (2,)}, "shape_mismatch"),
        ('{"dtype": "float32", "shape": [1], "data": [1]}',
         {"dtype": "float32", "shape": (1,)}, "float32[1] [1.0]"),
        ('{"dtype": "float32", "data": [1]}', {"dtype": "int64"}, "dtype_mismatch"),
        ('{"shape": [1], "data": [1]}', {"shape": (2,)}, "shape_mismatch"),
        ('{"tensors": [[1], [2]]}', {"dtype": "float32"}, "several_tensors"),
        ('{"tensors": []}', {"shape": (1,)}, "several_tensors"),
        ("[1]", {"kind": "dense"}, "int64[1] [1]"),
        ("[1, 2]", {"kind": "ragged"}, "kind_mismatch"),
        ("[1, 2]", {"kind": "sparse"}, "kind_mismatch"),
    ],
)  # fmt: skip
def test_declared_dtype_and_shape_are_used(text: str, options: dict[str, Any], expected: str) -> None:
    if "[" in expected:
        assert read(text.encode(), **options) == [expected]
    else:
        assert refused(text.encode(), **options).code == expected


# Sparse and ragged tensors.


@pytest.mark.parametrize(
    ("body", "options", "expected"),
    [
        ('{"values": [1, 2.5], "indices": [[0], [1]], "dense_shape": [2]}',
         {}, "float64[2] [1.0, 2.5] [[0], [1]]"),
        ('{"values": [1], "indices": [[0]], "dense_shape": [2]}',
         {"dtype": "float16"}, "float16[2] [1.0] [[0]]"),
        ('{"values": ["a"], "row_splits": [[0, 1]]}', {}, "string[1] [b'a'] [[0, 1]]"),
        ('{"values": [7], "indices": [[]], "dense_shape": []}', {}, "int64[] [7] [[]]"),
        ('{"values": [], "indices": [], "dense_shape": [0, 4]}', {}, "float32[0, 4] [] []"),
        ('{"shape": [0, 2], "values": [], "row_splits": [[0, 0]]}', {}, "float32[0, 2] [] [[0, 0]]"),
        ('{"values": [[1, 2], [3, 4]], "row_splits": [["0", "2"]]}', {}, "int64[2, 2] [1, 2, 3, 4] [[0, 2]]"),
        # Nested arrays of any length, where the kind is declared.
        ("[[1, 2], [3]]", {"kind": "ragged"}, "int64[3] [1, 2, 3] [[0, 2, 3]]"),
        ("[[1, 2], [3, 4]]", {"kind": "ragged"}, "int64[4] [1, 2, 3, 4] [[0, 2, 4]]"),
        ("[[[1], []], [], [[2, 3]]]", {"kind": "ragged"}, "int64[3] [1, 2, 3] [[0, 2, 2, 3], [0, 1, 1, 3]]"),
        ("[[], []]", {"kind": "ragged"}, "float32[0] [] [[0, 0, 0]]"),
        ("[[], [[1]]]", {"kind": "ragged"}, "int64[1] [1] [[0, 0, 1], [0, 1]]"),
        ('{"instances": [[1], [2, 3]]}', {"kind": "ragged"}, "int64[3] [1, 2, 3] [[0, 1, 3]]"),
        ('{"data": [[1], []], "dtype": "int8"}', {"kind": "ragged"}, "int8[1] [1] [[0, 1, 1]]"),
        ('{"data": [[[1, 0]], []], "dtype": "complex64"}',
         {"kind": "ragged"}, "complex64[1] [(1+0j)] [[0, 1, 1]]"),
        ('[["a"], [{"b64": "/w"}]]', {"kind": "ragged"}, "string[2] [b'a', b'\\xff'] [[0, 1, 2]]"),
        ('[["NaN"], []]', {"kind": "ragged", "dtype": "float32"}, "float32[1] [nan] [[0, 1, 1]]"),
        # What does not fit: the code, and where.
        ("[[1, 2], 3]", {"kind": "ragged"}, ("ragged", "/1")),
        ("[[[1], 2]]", {"kind": "ragged"}, ("ragged", "/0/1")),
        ('[[1], [2, "a"]]', {"kind": "ragged"}, ("mixed_types", "/1/1")),
        ("[[], [1, 300]]", {"kind": "ragged", "dtype": "int8"}, ("out_of_range", "/1/1")),
        ("[[1, 2], [3]]", {"kind": "ragged", "dtype": "complex64"}, ("type_mismatch", "/1/0")),
        ("[[1], [2, 3]]", {"kind": "ragged", "shape": (3,)}, ("shape_mismatch", "")),
        (json.dumps(RAGGED_JSON), {"kind": "sparse"}, ("kind_mismatch", None)),
        (json.dumps(RAGGED_JSON), {"shape": (3,)}, ("shape_mismatch", "")),
        (json.dumps(SPARSE_JSON), {"kind": "dense"}, ("kind_mismatch", None)),
        (json.dumps(SPARSE_JSON), {"dtype": "int64"}, ("dtype_mismatch", "")),
        (json.dumps(SPARSE_JSON), {"shape": (3, 5)}, ("shape_mismatch", "")),
        (json.dumps(SPARSE_JSON), {"shape": (3, 4)}, SPARSE_SHOWN),
        (json.dumps({"data": [1], **SPARSE_JSON}), {}, ("invalid_tensor", "")),
    ],
)  # fmt: skip
def test_sparse_and_ragged_bodies(body: str, options: dict[str, Any], expected: Any) -> None:
    if isinstance(expected, str):
        assert read(body.encode(), **options) == [expected]
    else:
        found = refused(body.encode(), **options)
        assert (found.code, found.pointer) == expected


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"values": [1, "x"]}, "type_mismatch", "/values/1"),
        ({"indices": [[0, 1]]}, "shape_mismatch", ""),
        ({"indices": [0, 1]}, "shape_mismatch", ""),
        ({"indices": [[0, 1], [2]]}, "ragged", "/indices/1"),
        ({"indices": [[0, 1], [2, 4]]}, "index_out_of_bounds", ""),
        ({"indices": [[0, 1], [2, -1]]}, "index_out_of_bounds", ""),
        ({"indices": [[0, 1], [2, 2**63]]}, "out_of_range", "/indices/1/1"),
        ({"dense_shape": 3}, "shape_mismatch", ""),
        ({"dense_shape": [3, -4]}, "invalid_shape", ""),
        ({"dense_shape": [3, 2.5]}, "inexact_integer", "/dense_shape/1"),
        ({"shape": [2]}, "invalid_tensor", ""),
        ({"dtype": 5}, "invalid_tensor", ""),
        ({"name": 5}, "invalid_tensor", "/name"),
        ({"row_splits": []}, "invalid_tensor", ""),
        ({"more": 1}, "invalid_tensor", ""),
    ],
)
def test_sparse_members_that_do_not_fit(change: dict[str, Any], code: str, pointer: str) -> None:
    for body, prefix in [
        ({**SPARSE_JSON, **change}, ""),
        ({"tensors": [{**SPARSE_JSON, **change}]}, "/tensors/0"),
    ]:
        found = refused(json.dumps(body).encode())
        assert (found.code, found.pointer) == (code, prefix + pointer)


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"row_splits": [0, 2, 3]}, "invalid_tensor", "/row_splits"),
        ({"row_splits": []}, "invalid_tensor", "/row_splits"),
        ({"row_splits": {"a": 1}}, "invalid_tensor", "/row_splits"),
        ({"row_splits": [[0, 2.5, 3]]}, "inexact_integer", "/row_splits/0/1"),
        ({"row_splits": [[0, 2]]}, "invalid_row_splits", ""),
        ({"row_splits": [[0, 3, 2, 3]]}, "invalid_row_splits", ""),
        ({"values": 1}, "invalid_row_splits", ""),
        ({"values": [1, None, 3]}, "null_value", "/values/1"),
        ({"shape": [2]}, "shape_mismatch", "/values"),
    ],
)
def test_ragged_members_that_do_not_fit(change: dict[str, Any], code: str, pointer: str) -> None:
    found = refused(json.dumps({**RAGGED_JSON, **change}).encode())
    assert (found.code, found.pointer) == (code, pointer)


def test_ragged_arrays_without_the_kind_name_it() -> None:
    assert "kind=ragged" in refused(b"[[1, 2], [3]]").detail


# Limits, and what is charged.


def decode(text: bytes, budget: Budget) -> None:
    call: Any = TENSOR_CODECS["json"].decode
    with contextlib.suppress(InputError):
        call(MemoryFile(text), TensorDecodeOptions(), budget)


def test_limits() -> None:
    assert read(b"[" * 254 + b"7" + b"]" * 254) == [f"int64{[1] * 254} [7]"]
    for text, limits, code in [
        (b'{"tensors": [1, 2, 3]}', Limits(max_members=2), "too_many_tensors"),
        (b'{"inputs": {"abc": 1}}', Limits(max_name_bytes=2), "name_too_long"),
        ('{"inputs": {"éé": 1}}'.encode(), Limits(max_name_bytes=3), "name_too_long"),
        (b"[[[1]]]", Limits(max_json_depth=2), "json_too_deep"),
        (b'{"data": [[1]]}', Limits(max_json_depth=2), "json_too_deep"),
        (b"[" + b"1," * 100_000 + b"1]", Limits(max_decoded_bytes=10**6), "payload_too_large"),
        (b'["' + b"a" * 10**6 + b'"]', Limits(max_decoded_bytes=10**6), "payload_too_large"),
        (b"[" + b"[[]]," * 10**5 + b"[[]]]", Limits(max_decoded_bytes=10**6), "payload_too_large"),
    ]:
        found = refused(text, limits=limits)
        assert (found.error, found.code) == (LimitExceeded, code)
    assert read(b"[[1]]", limits=Limits(max_json_depth=2))


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        (b'{"tensors": [[1.5, 2], ["abc"]]}', 16 + 3 + 41),
        (b'{"dtype":"float32","data":[1,2,3]}', 12),
        (json.dumps(SPARSE_JSON).encode(), 8 + 32),
        (json.dumps(RAGGED_JSON).encode(), 24 + 32),
    ],
)
def test_only_the_tensors_stay_charged(text: bytes, num_bytes: int) -> None:
    budget = Budget()
    decode(text, budget)
    assert Limits().max_decoded_bytes - budget.remaining == num_bytes
    assert budget.peak > num_bytes


@pytest.mark.parametrize(
    "text",
    [
        "[" + ",".join(["0.5"] * 50_000) + "]",
        "[" + ",".join(["[]"] * 50_000) + "]",
        "[" + ",".join(f'"{i:x}"' for i in range(50_000)) + "]",
        "[" + ",".join(f'"é{i:x}"' for i in range(50_000)) + "]",
        "[" + ",".join(['{"b64":"AA"}'] * 50_000) + "]",
        '["' + "a" * 500_000 + '\\ud83d\\ude00"]',
        '["' + "a" * 500_000 + '\N{GRINNING FACE}"]',
        "[true," + "1," * 50_000 + "1]",
        '{"a":1,"x":[' + '"",' * 50_000 + '""]}',
    ],
    ids=["floats", "lists", "strings", "latin", "cells", "escape", "wide", "mixed", "ambiguous"],
)
def test_the_charge_covers_what_is_taken(text: str) -> None:
    encoded, budget = text.encode(), Budget()
    decode(encoded, Budget())
    assert peak_bytes(lambda: decode(encoded, budget)) <= budget.peak + 100_000


# Any body at all.

NUMBERS = st.one_of(
    st.integers(-300, 300), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**65), 2**65)
)
ARRAYS: st.SearchStrategy[Any] = st.one_of(
    st.lists(NUMBERS, max_size=6),
    st.lists(st.lists(NUMBERS, min_size=2, max_size=2), max_size=4),
    st.lists(st.one_of(NUMBERS, st.booleans(), st.none(), st.just("NaN"), st.just([])), max_size=4),
)
MEMBERS = st.one_of(ARRAYS, st.sampled_from(list(DTYPES)), st.just([2]), st.integers(0, 3))
BODIES = st.one_of(
    ARRAYS,
    st.builds(lambda data, dtype: {"dtype": dtype, "data": data}, ARRAYS, st.sampled_from(list(DTYPES))),
    st.dictionaries(
        st.sampled_from(["data", "instances", "inputs", "dtype", "shape", "name", "id", "x"]),
        MEMBERS,
        max_size=4,
    ),
)


@given(
    BODIES,
    st.sampled_from([None, None, *DTYPES.values()]),
    st.sampled_from([None, None, (2,), (1, 2)]),
    st.lists(
        st.tuples(st.integers(0, 200), st.binary(max_size=2) | st.sampled_from(list(b'019.e-+,[]{}": '))),
        max_size=2,
    ),
)
@settings(deadline=None, max_examples=300)
def test_any_text_is_refused_where_python_refuses_it_and_space_changes_nothing(
    body: Any, dtype: DType | None, shape: Any, changes: list[tuple[int, bytes | int]]
) -> None:
    text = bytearray(json.dumps(body).encode())
    for position, change in changes:
        at = position % (len(text) + 1)
        text[at : at + 1] = bytes([change]) if isinstance(change, int) else change
    found, spaced = (
        read_tensors("json", body, dtype=dtype, shape=shape)
        for body in (bytes(text), b"\n " + bytes(text) + b"\t")
    )
    code = found.code if isinstance(found, Refusal) else ""
    assert code not in {"invalid_input", "malformed_input", "unprocessable_input"}
    if isinstance(spaced, Refusal):
        assert (spaced.code, spaced.pointer) == (code, found.pointer if isinstance(found, Refusal) else None)
    else:
        assert repr(spaced) == repr(found)
    try:
        json.loads(text)
    except (ValueError, UnicodeDecodeError):
        assert code in {"invalid_json", "invalid_utf8", "byte_order_mark", "nonfinite_token", "duplicate_key"}
    else:
        assert code != "invalid_json"
