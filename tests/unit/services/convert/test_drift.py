"""How far two sets of values are apart: 0 for the same, 1 for nothing in common, by hand in between."""

from typing import Any

import numpy as np
import pytest

from app.services.convert.drift import find_drift
from tests.unit.services.convert.test_distribution import parts_of


def drift(dtype: str, one: Any, other: Any) -> float | None:
    return find_drift(*(parts_of({"dtype": dtype}, [values]) for values in (one, other)))  # type: ignore[arg-type]  # a plain dict


def test_equal_shares_have_zero_drift() -> None:
    assert drift("int64", [1, 2, 2], [1, 2, 2] * 5) == 0
    assert drift("text", [b"a", b"b"], [b"b", b"a"]) == 0


def test_nothing_in_common_is_one() -> None:
    assert drift("int64", [1, 2], [3]) == 1
    assert drift("text", [b"a"], [b"b"]) == 1
    assert drift("float32", [np.nan], [np.inf]) == 1


def test_half_in_common() -> None:
    # Shares 1 and 0 against 1/2 and 1/2: H(3/4, 1/4) - (0 + 1) / 2.
    expected = -(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25)) - 0.5
    assert drift("int64", [1, 1], [1, 2]) == pytest.approx(expected, abs=1e-6)


def test_no_rows_have_no_drift() -> None:
    assert drift("int64", [], [1]) is None


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_many_numbers(dtype: str) -> None:
    random = np.random.default_rng(2)
    one, other = random.normal(0, 1e6, 30_000), random.normal(0, 1e6, 30_000)
    near, far = drift(dtype, one, other), drift(dtype, one, other + 3e6)
    assert near is not None
    assert far is not None
    assert near < 0.02
    # Of two normal distributions three deviations apart, by numerical integration: 0.74.
    assert far == pytest.approx(0.74, abs=0.06)
    assert drift(dtype, one, other + 1e9) == pytest.approx(1, abs=0.01)


def test_one_value_that_becomes_frequent_is_seen_between_many() -> None:
    random = np.random.default_rng(2)
    one, other = random.normal(0, 1, 30_000), random.normal(0, 1, 30_000)
    other[::2] = 0
    found = drift("float64", one, other)
    assert found is not None
    assert found > 0.1


def test_lengths_and_frequent_values_of_many_strings() -> None:
    many = [b"%06d" % n for n in range(5000)]
    assert drift("text", many, many[::-1]) == 0
    longer = drift("text", many, [text * 3 for text in many])
    assert longer == 1
    often = drift("text", many, [b"common" if n % 2 else text for n, text in enumerate(many)])
    assert often is not None
    assert often > 0.3
