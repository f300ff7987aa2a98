"""Rounding to floats of few bits, against exact arithmetic."""

import json
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from app.codecs.rounding import rounded
from app.domain.dtypes import DTYPES, DType
from tests.unit.codecs.seam import Refusal, read_tensors

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
    found, lost = rounded(np.array(drawn), dtype)
    assert not lost.any()
    for number, held in zip(drawn, found.astype(np.float64).tolist(), strict=True):
        distance = min(abs(Fraction(number) - Fraction(value)) for value in values)
        assert abs(Fraction(number) - Fraction(held)) == distance


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_overflow_is_seen_wherever_it_begins(dtype: DType) -> None:
    values = finite(dtype)
    largest, step = values[-1], values[-1] - values[-2]
    for sign in (1, -1):
        numbers = np.array([largest, largest + 0.49 * step, largest + 0.51 * step, 1e5, 1e30, 1e300]) * sign
        found, lost = rounded(numbers, dtype)
        assert lost.tolist() == [False, False, True, True, True, True]
        assert found[:2].astype(np.float64).tolist() == [sign * largest] * 2


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_the_least_integer_is_lost_too(width: int) -> None:
    least = np.array([-(1 << (width - 1)), 5], f"int{width}")
    assert rounded(least, DTYPES["float4_e2m1fn"])[1].tolist() == [True, False]


def test_what_a_dtype_has_no_bits_for_is_lost() -> None:
    specials = np.array([np.inf, -np.inf, np.nan])
    expected = {"float8_e5m2": [False] * 3, "float4_e2m1fn": [True] * 3}
    for dtype in SMALL:
        assert rounded(specials, dtype)[1].tolist() == expected.get(dtype.name, [True, True, False])


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
    found, _ = rounded(np.array([just_above_the_middle, -just_above_the_middle, 1e-45, 3.39e38]), BFLOAT16)
    assert found.astype(np.float64).tolist() == [1 + 2**-7, -1 - 2**-7, 0, 3.3895313892515355e38]
