"""Nested lists, opened one axis after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Nesting"]


@dataclass(frozen=True, slots=True)
class Nesting:
    """How the cells of a feature are cut into items.

    Attributes:
        lengths: of every axis that was opened, outermost first: how many items each list holds.
    """

    lengths: list[NDArray[np.int64]] = field(default_factory=list)

    def open(self, lists: Sequence[list[Any]]) -> list[Any]:
        """The items of all the lists: the next axis."""
        self.lengths.append(np.fromiter(map(len, lists), np.int64, len(lists)))
        return list(chain.from_iterable(lists))

    def cell_of(self, index: int) -> int:
        """The cell that holds the item at `index` of those that were opened last."""
        for lengths in reversed(self.lengths):
            index = int(np.searchsorted(np.cumsum(lengths), index, side="right"))
        return index

    def first_uneven(self) -> int | None:
        """The first cell in which two lists of one axis differ in length, or None."""
        uneven: list[int] = []
        cells = np.arange(len(self.lengths[0]) if self.lengths else 0)
        for lengths in self.lengths:
            first = np.searchsorted(cells, cells)
            uneven += cells[lengths != lengths[first]][:1].tolist()
            cells = np.repeat(cells, lengths)
        return min(uneven, default=None)
