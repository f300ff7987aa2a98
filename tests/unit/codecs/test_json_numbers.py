from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.json.convert import convert_items
from app.codecs.json.numbers import NotPlain, NumberArray, read_number_array
from app.codecs.json.text import parse_json
from app.codecs.json.values import ItemError, Reading, flatten, infer_dtype
from app.domain.dtypes import BOOL, DTYPES, FLOAT64, INT64, STRING, DType
from app.domain.limits import Limits
from app.errors import LimitExceeded
from app.runtime.budget import Budget

NUMERIC = [dtype for dtype in DTYPES.values() if dtype.has_kernel and (dtype.is_integer or dtype.is_float)]


def read(text: bytes) -> NumberArray:
    return read_number_array(np.frombuffer(text, np.uint8), 0, Budget())


def values(text: bytes, dtype: DType) -> list[Any] | None:
    try:
        found = read(text).values_as(dtype)
    except NotPlain:
        return None
    assert found.dtype == dtype.numpy
    items: list[Any] = found.astype(object).tolist()
    return items


@pytest.mark.parametrize(
    ("text", "dtype", "expected"),
    [
        (b"[1,2]", "int8", [1, 2]),
        (b"[127,-128]", "int8", [127, -128]),
        (b"[128]", "int8", None),
        (b"[-1]", "uint8", None),
        (b"[18446744073709551615,0]", "uint64", [2**64 - 1, 0]),
        (b"[9223372036854775808]", "int64", None),
        (b"[9223372036854775808,-1]", "float64", None),
        (b"[1.0]", "int64", None),
        (b"[-0]", "int64", None),
        (b"[-0]", "float32", [-0.0]),
        (b"[1,2]", "float32", [1.0, 2.0]),
        (b"[16777216,-16777216]", "float32", [16777216.0, -16777216.0]),
        (b"[16777217]", "float32", None),
        (b"[33554432]", "float32", None),
        (b"[33554432,0.5]", "float32", [33554432.0, 0.5]),
        (b"[33554433,0.5]", "float32", None),
        (b"[33554433.0]", "float32", [33554432.0]),
        (b"[0.1]", "float32", [float(np.float32(0.1))]),
        (b"[3.4028235677973366e38]", "float32", None),
        (b"[65504,0.5]", "float16", [65504.0, 0.5]),
        (b"[65520.0]", "float16", None),
        (b"[65536,0.5]", "float16", None),
        (b"[256,3.0]", "bfloat16", [256.0, 3.0]),
        (b"[1]", "bool", None),
        (b"[1]", "complex64", None),
        (b"[1]", "string", None),
    ],
)
def test_values_are_of_the_dtype_or_left_to_others(
    text: bytes, dtype: str, expected: list[Any] | None
) -> None:
    assert str(values(text, DTYPES[dtype])) == str(expected)


def test_a_point_makes_floats_of_all() -> None:
    assert read(b"[1,2]").infer_dtype() is INT64
    assert read(b"[1,2.0]").infer_dtype() is FLOAT64
    assert read(b"[1,2e0]").infer_dtype() is FLOAT64
    assert read(b"[1,-0]").infer_dtype() is INT64


def test_shape_and_end_are_told() -> None:
    found = read(b"[[1,2],[3,4]] x")
    assert (found.shape, found.end) == ((2, 2), 13)


def test_memory_is_charged_before_it_is_taken() -> None:
    budget = Budget(Limits(max_decoded_bytes=100))
    with pytest.raises(LimitExceeded):
        read_number_array(np.frombuffer(b"[" + b"1," * 20 + b"1]", np.uint8), 0, budget)
    budget = Budget()
    read_number_array(np.frombuffer(b"[1,2,3]", np.uint8), 0, budget)
    assert Limits().max_decoded_bytes - budget.remaining >= 3 * 8 + 3 * 8


def test_nesting_is_bounded_by_the_limits() -> None:
    budget = Budget(Limits(max_json_depth=3))
    assert read_number_array(np.frombuffer(b"[[1]]", np.uint8), 0, budget).shape == (1, 1)
    with pytest.raises(NotPlain):
        read_number_array(np.frombuffer(b"[[[1]]]", np.uint8), 0, budget)


TOKENS = st.one_of(
    st.integers(-(2**66), 2**66).map(str),
    st.integers(-300, 300).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        ["-0", "-0.0", "1e400", "1E5", "16777217", "0.1", "[1]", "null", "true", '"1"', "01", ""]
    ),
)


@given(st.lists(TOKENS, min_size=1, max_size=5), st.sampled_from([*NUMERIC, BOOL, STRING, None]))
@settings(deadline=None, max_examples=400)
def test_what_is_read_is_what_the_general_path_reads(tokens: list[str], dtype: DType | None) -> None:
    text = f"[{','.join(tokens)}]".encode()
    try:
        found = read(text)
        wanted = dtype or found.infer_dtype()
        array = found.values_as(wanted)
    except NotPlain:
        return
    items, shape = flatten(parse_json(text, Budget()).value)
    assert shape == found.shape
    reading = Reading(declared=dtype is not None)
    assert wanted is (dtype or infer_dtype(items, reading))
    assert array.tobytes() == convert_items(items, wanted, reading).tobytes()


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES.values() if not dtype.has_kernel], ids=str)
def test_dtypes_beyond_the_kernels_are_left_to_the_general_path(dtype: DType) -> None:
    assert values(b"[0,1]", dtype) is None


@given(st.lists(st.integers(-300, 300) | st.floats(-1e6, 1e6), min_size=1), st.sampled_from(NUMERIC))
@settings(deadline=None, max_examples=100)
def test_plain_numbers_are_read_wherever_they_fit(items: list[Any], dtype: DType) -> None:
    text = json.dumps(items).encode()
    try:
        expected = convert_items(parse_json(text, Budget()).value, dtype, Reading())
    except ItemError:
        assert values(text, dtype) is None
        return
    if dtype.is_float or all(type(item) is int for item in items):
        assert read(text).values_as(dtype).tobytes() == expected.tobytes()
