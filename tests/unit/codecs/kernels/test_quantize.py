"""Affine quantization, number by number."""

from typing import Any

import numpy as np
import pytest

from app.codecs import kernels


def singles(*values: float) -> Any:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("value", "scale", "zero", "expected"),
    [
        (0.0, 1, 0, 0),
        (0.5, 1, 0, 1),
        (-0.5, 1, 0, -1),
        (1.5, 1, 0, 2),
        (0.49999997, 1, 0, 0),
        (-0.49999997, 1, 0, 0),
        (8388607.5, 1, 0, 100),
        (3.0, 0.5, -2, 4),
        (1e30, 1, 0, 100),
        (-1e30, 1, 0, -100),
        (float("inf"), 1, 0, 100),
    ],
)
def test_a_number(value: float, scale: float, zero: float, expected: float) -> None:
    target = singles(9)
    limits = singles(-100, 100)
    # More scales than values: the last block of an array is shorter.
    assert kernels.load().quantize_singles(
        singles(value), singles(scale, 9), singles(zero, 9), limits, target
    )
    assert target.tolist() == [expected]


def test_arrays_that_do_not_fit_are_refused() -> None:
    run = kernels.load().quantize_singles
    one, two = singles(1), singles(1, 2)
    assert not run(two, two, two, two, one)
    assert not run(two, one, two, two, singles(9, 9))
    assert not run(two, two, one, two, singles(9, 9))
    assert not run(two, two, two, one, singles(9, 9))
