"""Divide the rows that were appended to one split among several splits.

A seeded hash of the row decides where it goes. So the answer is always the same, and no row of a version
moves to another split in a later one.

The hashes are part of the storage format: they never change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate
from math import ceil
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import MalformedInput, UnprocessableInput
from ..names import check_split_name
from .splitmix64 import STEP, mix

#: The largest number of splits to divide rows among.
_MAX_SPLITS: Final = 100
#: Nine digits, so that a threshold below 1 lies below 2**64, too.
_FRACTION: Final = re.compile(r"0?\.[0-9]{1,9}|1(\.0{1,9})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Division:
    """Divides the rows appended to `source`. Rows of other splits, and of the base, stay where they are.

    Attributes:
        source: the split whose rows are divided.
        fractions: the part that each split gets, as exact decimals whose sum is 1.
        by: the feature whose value decides, so that equal values stay together; None: the row itself,
            which is its append and its place in it.
        seed: another seed gives another division.
    """

    source: str
    fractions: Mapping[str, str]
    by: str | None = None
    seed: int = 0

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that get rows."""
        return tuple(self.fractions)

    def deal(self, hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Which of `splits` each row goes to, by its hash: the first whose share of 2**64 reaches past it."""
        dealt = np.zeros(len(hashes), np.intp)
        for end in _ends(tuple(self.fractions.values())):
            dealt += hashes >= end
        return dealt

    def hash_rows(self, append_id: str, first: int, count: int) -> NDArray[np.uint64]:
        """The hashes of `count` rows of an append from its row `first`, by their places."""
        return self._numbers(append_id, np.arange(first, first + count, dtype=np.uint64))

    def hash_integers(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The hash of each value, as 64 bits in two's complement."""
        return self._numbers("integers", values)

    def hash_bytes(self, values: Sequence[bytes]) -> NDArray[np.uint64]:
        """The hash of each value."""
        prefix = sha256(f"{self.seed} bytes ".encode())
        digests = bytearray()
        for value in values:
            whole = prefix.copy()
            whole.update(value)
            digests += whole.digest()[:8]
        return np.frombuffer(digests, "<u8").astype(np.uint64)

    def hash_null(self) -> NDArray[np.uint64]:
        """The hash of a value that is absent, in an array of one."""
        return self._numbers("null", np.zeros(1, np.uint64))

    def _numbers(self, name: str, indices: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Numbers of splitmix64, whose start comes from the seed and `name`."""
        digest = sha256(f"{self.seed} {name}".encode()).digest()
        state = np.frombuffer(digest, "<u8", 1).astype(np.uint64) + (indices + np.uint64(1)) * STEP
        mix(state)
        state ^= state >> np.uint64(31)
        return state

    def to_json(self) -> dict[str, Any]:
        return {"source": self.source, "fractions": dict(self.fractions), "by": self.by, "seed": self.seed}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Division:
        return cls(value["source"], value["fractions"], value["by"], value["seed"])


@lru_cache(maxsize=64)
def _ends(fractions: tuple[str, ...]) -> tuple[np.uint64, ...]:
    """The first hash after each share, except the last one, which takes the rest."""
    shares = accumulate(map(Fraction, fractions[:-1]))
    return tuple(np.uint64(ceil(share * 2**64)) for share in shares)


def parse_fractions(text: str) -> dict[str, str]:
    """`train:0.8,test:0.2` as exact decimals by split, in one spelling.

    Raises:
        MalformedInput: not of that form (`invalid_fractions`), or no name of a split.
        UnprocessableInput: their sum is not 1 (`fractions_not_one`).
    """
    fractions: dict[str, str] = {}
    for item in text.split(","):
        split, _, fraction = item.partition(":")
        if _FRACTION.fullmatch(fraction) is None or not float(fraction) or split in fractions:
            raise MalformedInput(
                f"Fractions are split:decimal, separated by commas, each split once and each decimal above 0 "
                f"with at most 9 digits behind the point, as in train:0.8,test:0.2; got {item[:80]!a}.",
                code="invalid_fractions",
            )
        whole, _, digits = fraction.partition(".")
        digits = digits.rstrip("0")
        fractions[check_split_name(split)] = f"{whole or '0'}.{digits}" if digits else "1"
    if len(fractions) > _MAX_SPLITS:
        raise MalformedInput(
            f"Rows are divided among at most {_MAX_SPLITS} splits. Name fewer.", code="invalid_fractions"
        )
    total = sum(map(Fraction, fractions.values()))
    if total != 1:
        raise UnprocessableInput(
            f"The fractions add up to {float(total):.9g} instead of 1. Change them so that their sum is 1.",
            code="fractions_not_one",
        )
    return fractions
