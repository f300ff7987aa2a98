"""A seeded pseudo-random permutation of 0 ... N-1, computed for each number by itself: it takes no memory.

A Feistel network over the smallest range of 2**b numbers that holds N, whose numbers are walked until
they fall below N: the method of Black and Rogaway, "Ciphers with Arbitrary Finite Domains" (2002). The
function of its rounds is a mixing step of splitmix64, so the order looks random but is not secret.
The permutation is part of the storage format: it never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .splitmix64 import mix

#: A round does little to a small range: with 8 rounds, some orders of five numbers were twice as frequent.
_ROUNDS: Final = 8
_ROUNDS_OF_SMALL: Final = 24
_SMALL_BITS: Final = 12

#: Arrays of 64 KiB stay in the processor's cache, and their memory in the process.
_CHUNK: Final = 8192

Numbers = NDArray[np.int64]
_Words = NDArray[np.uint64]


class Permutation:
    """A permutation of `range(size)`.

    Args:
        size: below 2**62.
        seed: an integer of any size, or a string; each gives another permutation.
    """

    def __init__(self, size: int, seed: int | str) -> None:
        self.size = size
        bits = max(2, (size - 1).bit_length())
        self._low_bits = bits // 2
        self._high_bits = bits - self._low_bits
        self._rounds = _ROUNDS if bits > _SMALL_BITS else _ROUNDS_OF_SMALL
        # Each digest is the keys of four rounds.
        digests = (sha256(f"{seed}/{size}/{first}".encode()).digest() for first in range(0, self._rounds, 4))
        self._keys = np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)

    def positions(self, numbers: Numbers) -> Numbers:
        """The new position of each of `numbers`."""
        return self._walk(numbers, self._encrypt)

    def numbers(self, positions: Numbers) -> Numbers:
        """The number at each of `positions`: the inverse of `positions`."""
        return self._walk(positions, self._decrypt)

    def _walk(self, numbers: Numbers, step: Callable[[_Words], _Words]) -> Numbers:
        words = numbers.astype(np.uint64)
        if self.size < 2:
            return words.astype(np.int64)
        size = np.uint64(self.size)
        _in_chunks(words, step)
        outside = np.flatnonzero(words >= size)
        while outside.size:
            moved = words[outside]
            _in_chunks(moved, step)
            words[outside] = moved
            outside = outside[moved >= size]
        return words.astype(np.int64)

    def _encrypt(self, words: _Words) -> _Words:
        high, low = self._split(words)
        for number in range(0, self._rounds, 2):
            high ^= self._mix(low, number, self._high_bits)
            low ^= self._mix(high, number + 1, self._low_bits)
        return self._join(high, low)

    def _decrypt(self, words: _Words) -> _Words:
        high, low = self._split(words)
        for number in range(self._rounds - 2, -2, -2):
            low ^= self._mix(high, number + 1, self._low_bits)
            high ^= self._mix(low, number, self._high_bits)
        return self._join(high, low)

    def _split(self, words: _Words) -> tuple[_Words, _Words]:
        shift = np.uint64(self._low_bits)
        return words >> shift, words & ((np.uint64(1) << shift) - np.uint64(1))

    def _join(self, high: _Words, low: _Words) -> _Words:
        high <<= np.uint64(self._low_bits)
        high |= low
        return high

    def _mix(self, half: _Words, number: int, bits: int) -> _Words:
        """`bits` bits that depend on all of `half` and on the key of the round `number`."""
        mixed: _Words = half + self._keys[number]
        mix(mixed)
        mixed >>= np.uint64(64 - bits)
        return mixed


def _in_chunks(words: _Words, step: Callable[[_Words], _Words]) -> None:
    """Replace each of `words` by what `step` makes of it."""
    for begin in range(0, len(words), _CHUNK):
        words[begin : begin + _CHUNK] = step(words[begin : begin + _CHUNK])
