import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.columns import Strings
from app.codecs.convert import convert_strings, convert_values
from app.domain.dtypes import BYTES, DTYPES, TEXT
from app.errors import LossyConversion, SchemaConflict, UnprocessableInput

INTEGERS = [dtype for dtype in DTYPES.values() if dtype.is_integer]
FLOATS = [dtype for dtype in DTYPES.values() if dtype.is_float]
NUMBERS = [*INTEGERS, *FLOATS]


def convert(values: list[Any], source: str, target: str) -> Any:
    return convert_values(
        np.array(values).astype(DTYPES[source].numpy), DTYPES[source], DTYPES[target], feature="x"
    )


def lossy(values: Any, source: str, target: str) -> LossyConversion:
    with pytest.raises(LossyConversion) as caught:
        convert_values(np.array(values, DTYPES[source].numpy), DTYPES[source], DTYPES[target], feature="x")
    assert caught.value.code == "out_of_range"
    assert caught.value.location.feature == "x"
    return caught.value


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_the_same_dtype_is_the_same_array(dtype: Any) -> None:
    values = np.zeros(2, dtype.numpy)
    assert convert_values(values, dtype, dtype, feature="x") is values


@given(st.data(), st.sampled_from(INTEGERS), st.sampled_from(NUMBERS))
@settings(deadline=None, max_examples=300)
def test_an_integer_stays_that_integer_or_is_refused(data: st.DataObject, source: Any, target: Any) -> None:
    low, high = source.bounds
    values = np.array(data.draw(st.lists(st.integers(low, high), max_size=4)), source.numpy)
    # numpy compares integers with floats inexactly; Python does not.
    held = [_holds(target, int(value)) for value in values]
    if not all(held):
        assert lossy(values, source.name, target.name).location.row == held.index(False)
        return
    converted = convert_values(values, source, target, feature="x")
    assert converted.dtype == target.numpy
    assert [int(value) for value in converted.tolist()] == values.tolist()


def _holds(target: Any, value: int) -> bool:
    if target.is_integer:
        low, high = target.bounds
        return bool(low <= value <= high)
    with np.errstate(over="ignore", invalid="ignore"):
        number = float(np.array([value], np.float64).astype(target.numpy)[0])
    return math.isfinite(number) and int(number) == value


#: Integers, halves, what lies at the bounds of integers, and what is none.
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, 127.0, 128.0, 2.0**63, 2.0**64, -(2.0**63), np.nan, np.inf]


@given(st.lists(st.sampled_from(EDGES), max_size=3), st.sampled_from(FLOATS), st.sampled_from(INTEGERS))
@settings(deadline=None, max_examples=200)
def test_a_float_becomes_an_integer_only_where_it_is_one(
    values: list[float], source: Any, target: Any
) -> None:
    with np.errstate(over="ignore"):
        array = np.array(values, np.float64).astype(source.numpy)
    exact = [float(value) for value in array]
    low, high = target.bounds
    held = [np.isfinite(v) and v == int(v) and low <= int(v) <= high for v in exact]
    if not all(held):
        assert lossy(array, source.name, target.name).location.row == held.index(False)
        return
    assert convert_values(array, source, target, feature="x").tolist() == exact


@pytest.mark.parametrize(
    ("values", "source", "target"),
    [
        ([300], "int64", "int8"),
        ([-1], "int8", "uint64"),
        ([2**63], "uint64", "int64"),
        ([2**53 + 1], "int64", "float64"),
        ([2**24 + 1], "int32", "float32"),
        ([-(2**63) + 1], "int64", "float64"),
        ([2**64 - 1], "uint64", "float64"),
        ([257], "int16", "bfloat16"),
        ([65536], "int32", "float16"),
        ([2**24 + 1], "int32", "complex64"),
        ([2], "int8", "bool"),
        ([0.5], "float32", "int32"),
        ([float("nan")], "float64", "int64"),
        ([2.0**63], "float64", "int64"),
        ([1e300], "float64", "float32"),
        ([-70000.0], "float32", "float16"),
        ([1e300 + 1j], "complex128", "complex64"),
    ],
)
def test_values_that_the_target_does_not_hold(values: list[Any], source: str, target: str) -> None:
    assert lossy([values[0], *values], source, target).location.row == 0


@pytest.mark.parametrize(
    ("values", "source", "target", "expected"),
    [
        ([2**53, -(2**63), 2**62 + 2**12], "int64", "float64", [2**53, -(2**63), 2**62 + 2**12]),
        ([2**63], "uint64", "float32", [2**63]),
        ([0, 1], "uint8", "bool", [False, True]),
        ([0.0, 1.0], "float32", "bool", [False, True]),
        ([False, True], "bool", "int64", [0, 1]),
        ([False, True], "bool", "float32", [0, 1]),
        ([0.1], "float64", "float32", [float(np.float32(0.1))]),
        ([1.5], "float16", "bfloat16", [1.5]),
        ([float("inf")], "float64", "float16", [float("inf")]),
        ([1.5], "float32", "complex128", [1.5]),
        ([0.1 + 1j], "complex128", "complex64", [complex(np.complex64(0.1 + 1j))]),
        ([], "int64", "int8", []),
    ],
)
def test_values_that_it_holds(values: list[Any], source: str, target: str, expected: list[Any]) -> None:
    found = convert(values, source, target)
    assert found.dtype == DTYPES[target].numpy
    assert found.tolist() == expected


def test_nan_stays_nan() -> None:
    assert np.isnan(convert([float("nan")], "float64", "float32")).all()


def test_the_row_is_that_of_the_first_axis() -> None:
    values = np.zeros((4, 3, 2), np.int64)
    values[2, 1, 0] = 300
    assert lossy(values, "int64", "int8").location.row == 2


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("string", "int64"),
        ("int64", "string"),
        ("complex64", "float64"),
        ("complex64", "int8"),
        ("bool", "string"),
    ],
)
def test_dtypes_that_do_not_convert(source: str, target: str) -> None:
    with pytest.raises(SchemaConflict) as caught:
        convert_values(np.zeros(0, DTYPES[source].numpy), DTYPES[source], DTYPES[target], feature="x")
    assert caught.value.code == "schema_conflict"


def test_bytes_are_text_only_where_they_are_utf8() -> None:
    strings = Strings.pack([b"a", "é".encode(), b"b", b"c"])
    assert convert_strings(strings, BYTES, TEXT, feature="x", width=2) is strings
    wrong = Strings.pack([b"a", b"b", b"c", b"\xff"])
    assert convert_strings(wrong, TEXT, BYTES, feature="x") is wrong
    for width, row in ((1, 3), (2, 1)):
        with pytest.raises(UnprocessableInput) as caught:
            convert_strings(wrong, BYTES, TEXT, feature="x", width=width)
        assert (caught.value.code, caught.value.location.row) == ("invalid_utf8", row)
    with pytest.raises(SchemaConflict):
        convert_strings(strings, BYTES, DTYPES["int8"], feature="x")


def test_the_first_row_that_is_lost_is_named_whatever_the_reason() -> None:
    overflow_then_inexact = np.array([0, 65536, 2049], np.int32)
    assert lossy(overflow_then_inexact, "int32", "float16").location.row == 1
