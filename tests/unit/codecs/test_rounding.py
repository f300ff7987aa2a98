"""Rounding to floats of few bits, against exact arithmetic."""

import io
import json
from bisect import bisect
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from app.domain.dtypes import DTYPES, DType
from tests.support.format_cases import Refusal, read, read_tensors, schema_of

BFLOAT16 = DTYPES["bfloat16"]
SMALL = [dtype for dtype in DTYPES.values() if dtype.is_float and dtype.itemsize == 1]


def from_json(items: Sequence[object], dtype: DType) -> list[float] | Refusal:
    """An array of JSON, read as `dtype`."""
    found = read_tensors("json", json.dumps(items).encode(), dtype=dtype)
    return found if isinstance(found, Refusal) else found[0].values


def finite(dtype: DType) -> list[float]:
    """All values of the dtype, in their order."""
    every = np.arange(1 << dtype.num_bits, dtype=np.uint8).view(dtype.numpy).astype(np.float64)
    return sorted({float(value) for value in every if np.isfinite(value)})


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_decimals_round_to_the_nearest_value(dtype: DType) -> None:
    values = finite(dtype)
    rng = np.random.default_rng(1)
    drawn = rng.uniform(values[0], values[-1], 500).tolist()
    for low, high in pairwise(values):
        middle = (low + high) / 2  # exact: a few bits more than the dtype has
        drawn += [low, np.nextafter(middle, -np.inf), np.nextafter(middle, np.inf)]
    found = from_json(drawn, dtype)
    assert not isinstance(found, Refusal)
    for number, held in zip(drawn, found, strict=True):
        above = bisect(values, number)
        beside = values[max(above - 1, 0) : above + 1]
        distance = min(abs(Fraction(number) - Fraction(value)) for value in beside)
        assert abs(Fraction(number) - Fraction(held)) == distance


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_overflow_is_seen_wherever_it_begins(dtype: DType) -> None:
    values = finite(dtype)
    largest, step = values[-1], values[-1] - values[-2]
    for sign in (1.0, -1.0):
        assert from_json([sign * largest, sign * (largest + 0.49 * step)], dtype) == [sign * largest] * 2
        for number in (largest + 0.51 * step, 1e5, 1e30, 1e300):
            assert from_json([0.0, sign * number], dtype) == Refusal("out_of_range")


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_the_least_integer_is_lost_too(width: int) -> None:
    body = io.BytesIO()
    np.savez(body, x=np.array([4, -(1 << (width - 1))], f"int{width}"))
    found = read("npz", body.getvalue(), schema=schema_of(x="float4_e2m1fn"))
    assert found == Refusal("out_of_range", 1, "x")


def test_nonfinite_value_without_bits_is_refused() -> None:
    expected = {"float8_e5m2": [False] * 3, "float4_e2m1fn": [True] * 3}
    for dtype in SMALL:
        lost = [isinstance(from_json([word], dtype), Refusal) for word in ("Infinity", "-Infinity", "NaN")]
        assert lost == expected.get(dtype.name, [True, True, False])


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_the_values_of_the_dtype_read_back_from_json(dtype: DType) -> None:
    values = finite(dtype)
    assert from_json(values, dtype) == values


@pytest.mark.parametrize(
    ("name", "items", "code"),
    [
        ("float8_e4m3fn", [1.0, 480.0], "out_of_range"),
        ("float8_e4m3fn", [1.0, 1000], "out_of_range"),
        ("float8_e5m2", [1.0, 65536.0], "out_of_range"),
        ("float4_e2m1fn", [1.0, 7.5], "out_of_range"),
        ("float4_e2m1fn", [1.0, 8], "out_of_range"),
        ("float4_e2m1fn", [1.0, "NaN"], "out_of_range"),
        ("float4_e2m1fn", [1.0, "Infinity"], "out_of_range"),
        ("float8_e4m3fnuz", [1.0, "-Infinity"], "out_of_range"),
        ("float8_e4m3fn", [1.0, 17], "inexact_integer"),
        ("float4_e2m1fn", [1.0, 5], "inexact_integer"),
    ],
)
def test_json_values_that_few_bits_do_not_hold(name: str, items: list[object], code: str) -> None:
    found = from_json(items, DTYPES[name])
    assert isinstance(found, Refusal)
    assert (found.pointer, found.code) == ("/1", code)


def test_infinities_and_nans_that_a_dtype_has_are_kept() -> None:
    values = from_json(["NaN", "Infinity", "-Infinity"], DTYPES["float8_e5m2"])
    assert repr(values) == "[nan, inf, -inf]"
    assert repr(from_json(["NaN"], DTYPES["float8_e4m3fn"])) == "[nan]"


def test_a_bfloat16_is_rounded_once() -> None:
    just_above_the_middle = 1 + 2**-8 + 2**-40
    found = from_json([just_above_the_middle, -just_above_the_middle, 1e-45, 3.39e38], BFLOAT16)
    assert found == [1 + 2**-7, -1 - 2**-7, 0, 3.3895313892515355e38]
