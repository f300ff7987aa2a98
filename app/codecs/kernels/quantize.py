"""Affine quantization: numbers as multiples of a step.

Compiled, it checks no index, but the sizes of its arrays once: see `compile.py`.
"""

from __future__ import annotations

import numpy as np

from .memory import MutableSingles, Singles

#: What is added before cutting off: half itself would take what lies just below it to the next integer.
_HALF = np.nextafter(np.float32(0.5), np.float32(0))


def quantize_singles(
    values: Singles, scales: Singles, zeros: Singles, limits: Singles, target: MutableSingles
) -> bool:
    """`values / scales` as the nearest integers, halves away from zero, plus `zeros`, within `limits`.

    Args:
        scales, zeros: for each value; those behind the last one are not used.
        limits: the least and the largest result.
    """
    if (
        target.size != values.size
        or scales.size < values.size
        or zeros.size < values.size
        or limits.size != 2
    ):
        return False
    low, high = limits[0], limits[1]
    for index in range(values.size):
        number = values[index] / scales[index]
        number = np.trunc(number + (_HALF if number >= np.float32(0) else -_HALF)) + zeros[index]
        number = low if number < low else number
        target[index] = high if number > high else number
    return True
