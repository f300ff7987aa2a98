from __future__ import annotations

import base64
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.json.convert import convert_items, decode_b64
from app.codecs.json.text import NegativeZero, NonFinite
from app.codecs.json.values import ItemError, Reading
from app.domain.dtypes import BYTES, DTYPES, STRING, TEXT, DType, parse_feature_dtype
from app.errors import LossyConversion, MalformedInput, UnprocessableInput

INTEGERS = [dtype for dtype in DTYPES.values() if dtype.is_integer]
FLOATS = [dtype for dtype in DTYPES.values() if dtype.is_float]
DECLARED, INFERRED = Reading(declared=True), Reading(declared=False)


def convert(name: str, *items: Any, reading: Reading = DECLARED) -> list[Any]:
    dtype = parse_feature_dtype(name)
    values = convert_items(list(items), dtype, reading)
    assert values.dtype == dtype.numpy
    assert values.ndim == 1
    found: list[Any] = values.tolist()
    return found


def refused(name: str, *items: Any, reading: Reading = DECLARED) -> ItemError:
    with pytest.raises(ItemError) as caught:
        convert_items(list(items), parse_feature_dtype(name), reading)
    return caught.value


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_reach_to_the_ends_of_their_dtype_and_no_further(dtype: DType) -> None:
    low, high = dtype.bounds
    assert convert(dtype.name, low, high) == [low, high]
    for beyond in (low - 1, high + 1, 10**400, -(10**400)):
        error = refused(dtype.name, 0, beyond)
        assert (error.index, error.code, error.error) == (1, "out_of_range", UnprocessableInput)
        if abs(beyond) < 10**20:
            assert refused(dtype.name, 0, str(beyond)).code == "out_of_range"


def test_declared_integers_may_be_strings_of_digits() -> None:
    assert convert("int64", "9007199254740993", "-1", 0) == [2**53 + 1, -1, 0]
    assert convert("uint64", str(2**64 - 1)) == [2**64 - 1]


@pytest.mark.parametrize("text", ["", "1.0", "+1", " 1", "1e3", "0x1", "01", "\u0661", "1" * 21, "NaN"])
def test_other_strings_are_no_integers(text: str) -> None:
    error = refused("int64", 1, text)
    assert (error.index, error.code, error.error) == (1, "inexact_integer", LossyConversion)


def test_integral_decimals_are_integers_as_far_as_they_are_exact() -> None:
    assert convert("int64", 1.0, -0.0, 2.0**53 - 1, 1 - 2.0**53) == [1, 0, 2**53 - 1, 1 - 2**53]
    # 9007199254740993.0 arrives as 2^53 too, so that token no longer says which integer it was.
    for value in (1.5, 2.0**53, -(2.0**53), 2.0**53 + 2, 1e300, NonFinite("nan"), NonFinite("inf")):
        assert refused("int64", value).code in {"inexact_integer", "type_mismatch"}


def test_an_inferred_integer_takes_integer_tokens_alone() -> None:
    assert refused("int64", 1, 1.0, reading=INFERRED).code == "type_mismatch"
    assert refused("int64", "1", reading=INFERRED).code == "type_mismatch"


@pytest.mark.parametrize(
    ("name", "exact", "inexact"),
    [
        ("bfloat16", 2**8, 2**8 + 1),
        ("float16", 2**11, 2**11 + 1),
        ("float32", 2**24, 2**24 + 1),
        ("float64", 2**53, 2**53 + 1),
    ],
)
def test_a_float_holds_an_integer_token_exactly_or_refuses_it(name: str, exact: int, inexact: int) -> None:
    assert convert(name, exact, -exact, exact + 2 * exact) == [exact, -exact, 3 * exact]
    for items in ([0.5, inexact], [0, -inexact]):
        error = refused(name, *items)
        assert (error.index, error.code, error.error) == (1, "inexact_integer", LossyConversion)
    assert convert(name, float(exact) + 0.25) == [exact]


@pytest.mark.parametrize(
    ("name", "fits", "overflows"),
    [
        ("float16", 65519.0, 65520.0),
        ("bfloat16", 3.38e38, 3.4e38),
        ("float32", 3.4028235e38, 1e39),
        ("float64", 1.7e308, float("inf")),
        ("float16", 65504, 70000),
        ("float64", 10**308, 10**309),
        ("float32", 10, 10**39),
    ],
)
def test_overflow_is_refused(name: str, fits: float, overflows: float) -> None:
    if isinstance(fits, float):
        assert np.isfinite(convert(name, fits)[0])
    error = refused(name, 0.5, overflows)
    assert (error.index, error.code) == (1, "out_of_range")


def test_the_largest_integer_a_float64_holds() -> None:
    largest = int(np.finfo(np.float64).max)
    assert convert("float64", largest) == [float(largest)]
    assert refused("float64", largest, 2**1024 - 2**970).index == 1


@settings(deadline=None, max_examples=200)
@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32)))
def test_decimals_round_to_nearest_as_numpy_does(values: list[float]) -> None:
    assert convert("float32", *values) == values
    with np.errstate(over="ignore"):
        expected = np.array(values, np.float64).astype(ml_dtypes.bfloat16)
    if np.isfinite(expected).all():
        assert convert("bfloat16", *values) == expected.tolist()


def test_words_are_numbers_where_a_float_is_declared() -> None:
    for name in ("float16", "bfloat16", "float32", "float64"):
        nan, *others = np.array(convert(name, "NaN", "Infinity", "-Infinity", 1)).tolist()
        assert np.isnan(nan)
        assert others == [np.inf, -np.inf, 1]
    assert refused("float32", 1, "nan").code == "type_mismatch"
    assert refused("float32", "NaN", reading=INFERRED).code == "type_mismatch"
    assert refused("int64", "NaN").code == "inexact_integer"


def test_null_is_nan_only_when_asked_for_and_only_in_floats() -> None:
    asked = Reading(null_is_nan=True)
    assert np.isnan(convert("float32", None, reading=asked)[0])
    assert refused("float32", 1, None).code == "null_value"
    assert refused("int64", 1, None, reading=asked).code == "null_value"
    assert refused("text", None, reading=asked).code == "null_value"


def test_bare_tokens_are_infinities_and_not_overflow() -> None:
    assert convert("float32", NonFinite("inf"), 1.0) == [np.inf, 1.0]


@pytest.mark.parametrize("name", ["bool", "int8", "float32", "complex64"])
@pytest.mark.parametrize("item", [[], {"x": 1}, {"b64": "AA=="}])
def test_items_of_another_kind_are_refused(name: str, item: object) -> None:
    assert refused(name, item).code == "type_mismatch"


def test_booleans_are_no_numbers_and_numbers_no_booleans() -> None:
    assert convert("bool", True, False) == [True, False]
    for name, item in [("bool", 1), ("bool", "true"), ("int8", True), ("float32", True), ("text", True)]:
        assert refused(name, item).code == "type_mismatch"


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_negative_zero_keeps_its_sign_in_a_float(dtype: DType) -> None:
    for reading in (DECLARED, INFERRED):
        values = convert(dtype.name, NegativeZero(), 0, 3, 0.5, reading=reading)
        has_negative_zero = not dtype.name.endswith("uz")
        assert np.signbit(np.array(values, np.float64)).tolist() == [has_negative_zero, False, False, False]


def test_a_negative_zero_keeps_its_sign_in_both_parts_of_a_complex_number() -> None:
    [value] = convert("complex64", NegativeZero(), NegativeZero())
    assert (str(value.real), str(value.imag)) == ("-0.0", "-0.0")


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_a_negative_zero_is_the_integer_0(dtype: DType) -> None:
    assert convert(dtype.name, NegativeZero(), 1, reading=INFERRED) == [0, 1]
    assert convert(dtype.name, NegativeZero(), 1.0, "1") == [0, 1, 1]
    assert refused(dtype.name, NegativeZero(), 10**30).index == 1


def test_a_negative_zero_is_no_boolean_and_no_string() -> None:
    for name in ("bool", "text", "bytes"):
        error = refused(name, NegativeZero())
        assert (error.code, "found an integer" in error.detail) == ("type_mismatch", True)


def test_sparse_and_ragged_cells_are_named_as_not_served() -> None:
    cells: list[dict[str, Any]] = [
        {"values": [], "row_splits": []},
        {"values": [], "indices": [], "dense_shape": []},
    ]
    for cell in cells:
        assert refused("float32", cell).code == "unsupported_kind"
        assert refused("bytes", cell).code == "unsupported_kind"


def test_complex_numbers_are_pairs_of_floats() -> None:
    assert convert("complex64", 1, 2.5, "NaN", 0)[0] == 1 + 2.5j
    assert convert("complex128", 2**53, 0.1) == [complex(2**53, 0.1)]
    assert refused("complex64", 0, 2**24 + 1).code == "inexact_integer"


def test_strings_are_utf8_text_and_never_base64() -> None:
    assert convert("string", "AA==", "é", {"b64": "AA"}) == [b"AA==", b"\xc3\xa9", b"\0"]
    assert convert("bytes", "é", {"b64": "/w"}) == [b"\xc3\xa9", b"\xff"]
    assert convert("text", {"b64": "YQ"}) == [b"a"]


def test_text_takes_no_bytes_that_are_not_text() -> None:
    error = refused("text", "a", {"b64": "/w=="})
    assert (error.index, error.code) == (1, "invalid_utf8")


def test_an_inferred_string_takes_what_it_was_inferred_from() -> None:
    assert convert_items(["a"], TEXT, INFERRED).tolist() == [b"a"]
    assert convert_items(["a", {"b64": ""}], STRING, INFERRED).tolist() == [b"a", b""]
    assert refused("text", {"b64": ""}, reading=INFERRED).code == "type_mismatch"
    assert refused(BYTES.name, "a", reading=INFERRED).code == "type_mismatch"


def test_broken_base64_in_a_cell_is_malformed() -> None:
    error = refused("bytes", {"b64": "AA=="}, {"b64": "A"})
    assert (error.index, error.code, error.error) == (1, "invalid_base64", MalformedInput)


@settings(deadline=None, max_examples=200)
@given(data=st.binary(max_size=40), url_safe=st.booleans(), padded=st.booleans())
def test_either_alphabet_with_or_without_padding(data: bytes, url_safe: bool, padded: bool) -> None:
    text = (base64.urlsafe_b64encode(data) if url_safe else base64.b64encode(data)).decode()
    assert decode_b64(text if padded else text.rstrip("=")) == data


@pytest.mark.parametrize(
    "text",
    [
        "A",
        "AAAAA",
        "AA=",
        "AAA==",
        "AAAA=",
        "=",
        "AA==AA==",
        "A A=",
        "AA\n",
        "AB==",
        "AAB=",
        "+_AA",
        "é===",
        "A*AA",
        5,
    ],
)
def test_base64_is_strict_otherwise(text: object) -> None:
    with pytest.raises(MalformedInput) as caught:
        decode_b64(text)
    assert caught.value.code == "invalid_base64"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("aG Vs", "alphabet"),
        ("!", "alphabet"),
        ("a-b+", "alphabet"),
        ("é===", "alphabet"),
        ("AA==AA==", "alphabet"),
        ("A", "ends inside a byte"),
        ("AB==", "ends inside a byte"),
        ("AA=", "padding"),
    ],
)
def test_what_is_wrong_with_base64_is_named(text: str, what: str) -> None:
    with pytest.raises(MalformedInput, match=what):
        decode_b64(text)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_no_items_are_an_empty_array(dtype: DType) -> None:
    assert convert_items([], dtype, DECLARED).dtype == dtype.numpy
