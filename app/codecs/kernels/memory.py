"""Copies and little-endian words in byte arrays, and the types of the arrays that kernels take.

The functions that `compile.py` replaces by one machine instruction or a memcpy are those whose names
begin with `raw_`; they are the plain twins of intrinsics. Nothing checks their bounds once they are
compiled, so they are called behind a check alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# The names are what counts: `compile.py` derives a kernel's signature from its annotations. All are
# one-dimensional and C-contiguous; those not called mutable may be read-only.
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Singles = NDArray[np.float32]
Doubles = NDArray[np.float64]
MutableBytes = NDArray[np.uint8]
MutableFlags = NDArray[np.uint8]
MutableInts = NDArray[np.int64]
MutableWords = NDArray[np.uint64]
MutableSingles = NDArray[np.float32]
MutableDoubles = NDArray[np.float64]


def raw_copy(target: MutableBytes, at: int, source: Bytes, begin: int, size: int) -> None:
    """Unchecked memcpy of `size` bytes."""
    target[at : at + size] = source[begin : begin + size]


def raw_load(source: Bytes, begin: int) -> np.uint64:
    """Unchecked little-endian word of eight bytes, at any alignment."""
    return np.uint64(int.from_bytes(source[begin : begin + 8].tobytes(), "little"))


def raw_store(target: MutableBytes, at: int, word: np.uint64) -> None:
    """Unchecked store of eight bytes, little-endian, at any alignment."""
    target[at : at + 8] = np.frombuffer(int(word).to_bytes(8, "little"), np.uint8)


def raw_prefetch(source: Bytes, begin: int) -> None:
    """Fetch the cache line at `begin` ahead of its use. It may lie outside of `source`."""


def raw_bit_length(word: np.uint64) -> int:
    """Bits up to the highest one that is set; `word` is not 0."""
    return int(word).bit_length()


def raw_multiply_high(left: np.uint64, right: np.uint64) -> np.uint64:
    """The upper 64 bits of the product."""
    return np.uint64(int(left) * int(right) >> 64)


def raw_multiply_low(left: np.uint64, right: np.uint64) -> np.uint64:
    """The lower 64 bits of the product."""
    return np.uint64(int(left) * int(right) & (2**64 - 1))


def raw_quotient_bits(dividend: int, divisor: np.float64) -> np.uint64:
    """The bits of a float64: the quotient, where the dividend is exact as a float64 too."""
    return np.uint64((np.float64(dividend) / divisor).view(np.uint64))


def copy_bytes(target: MutableBytes, at: int, source: Bytes, begin: int, size: int) -> None:
    """Copy `size` bytes between arrays that do not overlap.

    Raises:
        IndexError: not wholly inside both.
    """
    if size < 0 or at < 0 or begin < 0 or at + size > target.size or begin + size > source.size:
        raise IndexError("copy out of bounds")
    raw_copy(target, at, source, begin, size)


def load_word(source: Bytes, begin: int) -> np.uint64:
    """The eight bytes from `begin`, little-endian.

    Raises:
        IndexError: not wholly inside.
    """
    if begin < 0 or begin + 8 > source.size:
        raise IndexError("load out of bounds")
    return raw_load(source, begin)


def store_word(target: MutableBytes, at: int, word: np.uint64) -> None:
    """Eight bytes, little-endian.

    Raises:
        IndexError: not wholly inside.
    """
    if at < 0 or at + 8 > target.size:
        raise IndexError("store out of bounds")
    raw_store(target, at, word)


def bit_length(word: np.uint64) -> int:
    """Bits up to the highest one that is set; 1 for 0."""
    return raw_bit_length(word | np.uint64(1))


def multiply_high(left: np.uint64, right: np.uint64) -> np.uint64:
    """The upper 64 bits of the product."""
    return raw_multiply_high(left, right)


def multiply_low(left: np.uint64, right: np.uint64) -> np.uint64:
    """The lower 64 bits of the product."""
    return raw_multiply_low(left, right)


def quotient_bits(dividend: int, divisor: np.float64) -> np.uint64:
    """The bits of the float64 nearest to the quotient; the dividend is at most 2^53."""
    return raw_quotient_bits(dividend, divisor)


def same_bytes(data: Bytes, begin: int, other: Bytes, other_begin: int, size: int) -> bool:
    """Whether `size` bytes of both are the same."""
    index = 0
    while index + 8 <= size:
        if load_word(data, begin + index) != load_word(other, other_begin + index):
            return False
        index += 8
    while index < size:
        if data[begin + index] != other[other_begin + index]:
            return False
        index += 1
    return True
