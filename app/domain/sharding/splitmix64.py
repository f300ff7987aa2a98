"""The mixing of splitmix64: every bit of a word comes to depend on all that lie below it, and many above.

Source: S. Vigna, https://prng.di.unimi.it/splitmix64.c.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

#: What the generator adds to its state for each number.
STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)


def mix(words: NDArray[np.uint64]) -> None:
    """Mix `words` in place, but for the last step, in which high bits go to the low ones once more."""
    words ^= words >> np.uint64(30)
    words *= _MIX_1
    words ^= words >> np.uint64(27)
    words *= _MIX_2
