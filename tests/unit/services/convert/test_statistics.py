"""Statistics of pieces are those of the whole, with numpy as the oracle."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.domain.dtypes import DTYPES
from app.services.convert import statistics
from app.services.convert.statistics import LengthStatistics, NumberStatistics


def described(dtype: str, *pieces: Any) -> dict[str, Any]:
    found = NumberStatistics(DTYPES[dtype])
    for piece in pieces:
        found.add(np.array(piece, DTYPES[dtype].numpy))
    return {**found.to_json()}


FLOATS = st.lists(st.lists(st.floats(-1e6, 1e6, width=32), max_size=20), min_size=1, max_size=5)


@settings(deadline=None, max_examples=50)
@given(FLOATS)
def test_floats_in_pieces(pieces: list[list[float]]) -> None:
    whole = np.array([number for piece in pieces for number in piece], np.float32).astype(np.float64)
    found = described("float32", *pieces)
    assert found["num_zeros"] == np.count_nonzero(whole == 0)
    assert (found["num_nan"], found["num_infinite"]) == (0, 0)
    if len(whole):
        assert (found["min"], found["max"]) == (whole.min(), whole.max())
        assert found["mean"] == pytest.approx(whole.mean(), abs=1e-6)
        assert found["std"] == pytest.approx(whole.std(), abs=1e-4)
    else:
        assert (found["min"], found["max"], found["mean"], found["std"]) == (None,) * 4


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_nonfinite_values_are_counted_apart(dtype: str) -> None:
    assert described(dtype, [np.nan, np.inf], [-np.inf, 2.0, -0.0]) == {
        "min": 0.0,
        "max": 2.0,
        "mean": 1.0,
        "std": 1.0,
        "num_zeros": 1,
        "num_nan": 1,
        "num_infinite": 2,
    }


def test_statistic_beyond_float64_is_null() -> None:
    found = described("float64", [1.7e308, -1.7e308], [1.7e308, 1.7e308])
    assert (found["min"], found["max"], found["std"]) == (-1.7e308, 1.7e308, None)
    found = described("float64", [1.5, 1e308])
    assert (found["mean"], found["std"]) == (5e307, None)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("int64", -(2**63), 2**63 - 1), ("uint64", 0, 2**64 - 1), ("int8", -128, 127), ("bool", 0, 1)],
)
def test_integers_keep_every_digit(dtype: str, low: int, high: int) -> None:
    found = described(dtype, [high], [low, low])
    assert (found["min"], found["max"]) == (low, high)
    assert found["num_zeros"] == (2 if low == 0 else 0)
    assert found["mean"] == pytest.approx((2 * low + high) / 3)


def test_complex_numbers_have_no_order() -> None:
    assert described("complex64", [1j, 0, complex(np.nan, 1), complex(0, np.inf)]) == {
        "num_zeros": 1,
        "num_nan": 1,
        "num_infinite": 1,
    }


def test_no_values_at_all() -> None:
    assert described("int8") == {"min": None, "max": None, "mean": None, "std": None, "num_zeros": 0}
    assert LengthStatistics().to_json() == {
        "min_length": None,
        "max_length": None,
        "mean_length": None,
        "num_empty": 0,
    }


def test_lengths() -> None:
    found = LengthStatistics()
    found.add(np.array([3, 0], np.int64))
    found.add(np.array([], np.int64))
    found.add(np.array([0, 5], np.int64))
    assert found.to_json() == {"min_length": 0, "max_length": 5, "mean_length": 2.0, "num_empty": 2}


def test_a_long_piece_is_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = list(range(100))
    whole = described("int16", numbers)
    monkeypatch.setattr(statistics, "_PIECE", 7)
    parts = described("int16", numbers)
    assert parts.pop("std") == pytest.approx(whole.pop("std"))
    assert parts == whole


def every_dtype() -> list[str]:
    return [name for name in DTYPES if name != "string"]


@pytest.mark.parametrize("dtype", every_dtype())
def test_every_dtype_has_statistics(dtype: str) -> None:
    make: Callable[..., NDArray[Any]] = np.zeros
    found = NumberStatistics(DTYPES[dtype])
    found.add(make(3, DTYPES[dtype].numpy))
    assert found.to_json()["num_zeros"] == 3
