"""Objects as columns: the members of many objects by key, and the values of one feature in some rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....domain.immutable import immutable
from ... import kernels
from ...kernels.json.tape import NULL
from ..tape import (
    Items,
    Kinds,
    Words,
)

Ints = NDArray[np.int64]

_NO_INTS: Final = np.empty(0, np.int64)


class Members:
    """The members of objects that are not null, by key.

    Args:
        objects: all of them are objects.
    """

    def __init__(self, objects: Items) -> None:
        self.tape = tape = objects.tape
        self.num_rows = num_rows = len(objects)
        #: In the order in which they first occur, those of nulls among them.
        self.keys: list[int]
        self._table: tuple[Kinds, Words] | None = None
        self._column: dict[int, int] = {}
        self._found: dict[int, Cells] = {}
        starts = np.ascontiguousarray(objects.words).view(np.int64)
        counts = tape.words[starts].view(np.int64)
        if num_rows and self._are_alike(starts, counts):
            return
        total = int(counts.sum())
        self._rows = np.repeat(np.arange(num_rows), counts)
        places = np.repeat(starts + 1 - 2 * (np.cumsum(counts) - counts), counts) + 2 * np.arange(total)
        keys = tape.words[places].view(np.int64)
        present = tape.kinds[places + 1] != NULL
        self.keys = _in_order(keys)
        if not present.all():
            places, keys, self._rows = places[present], keys[present], self._rows[present]
        order = np.argsort(keys.astype(np.uint16) if len(tape.keys) < 1 << 16 else keys, kind="stable")
        keys = keys[order]
        self._rows = self._rows[order]
        self._places = places[order] + 1
        bounds = np.flatnonzero(np.diff(keys, prepend=-1, append=-1)).tolist() if len(keys) else [0]
        self._bounds = {int(keys[first]): (first, last) for first, last in pairwise(bounds)}

    def _are_alike(self, starts: Ints, counts: Ints) -> bool:
        """Whether all have the same keys in the same order."""
        if np.count_nonzero(counts != counts[0]):
            return False
        shape = int(counts[0]), self.num_rows
        keys = np.empty(shape[0], np.int64)
        kinds, words = np.empty(shape, np.uint8), np.empty(shape, np.uint64)
        tape = self.tape
        if not kernels.load().gather_members(
            tape.kinds, tape.words, starts, keys, kinds.reshape(-1), words.reshape(-1)
        ):
            return False
        self.keys = keys.tolist()
        self._table = kinds, words
        self._column = {key: column for column, key in enumerate(self.keys)}
        return True

    def of(self, key: int) -> Cells:
        """The values under a key."""
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._find(key)
        return found

    def _find(self, key: int) -> Cells:
        if self._table is not None:
            column = self._column.get(key)
            if column is None:
                return self._none()
            kinds, words = self._table[0][column], self._table[1][column]
            return Cells.of(Items(self.tape, kinds, words))
        first, last = self._bounds.get(key, (0, 0))
        places = self._places[first:last]
        cells = Items(self.tape, self.tape.kinds[places], self.tape.words[places])
        rows = self._rows[first:last]
        return Cells(cells, None if len(rows) == self.num_rows else rows, self.num_rows)

    def _none(self) -> Cells:
        return Cells.absent(self.num_rows)


def _in_order(keys: Ints) -> list[int]:
    found, first = np.unique(keys, return_index=True)
    return [int(key) for key in found[np.argsort(first, kind="stable")]]


@immutable(eq=False)
class Cells:
    """The values of one feature in some rows.

    Attributes:
        items: none of them is null.
        rows: the row of each, rising; None where every row has one.
    """

    items: Items
    rows: Ints | None
    num_rows: int

    @classmethod
    def absent(cls, num_rows: int) -> Cells:
        """No value in any row."""
        return cls(Items.none(), _NO_INTS if num_rows else None, num_rows)

    @classmethod
    def of(cls, items: Items) -> Cells:
        """A value for each row, where null is none."""
        if not items.has(NULL):
            return cls(items, None, len(items))
        rows = np.flatnonzero(items.kinds)
        return cls(items.take(rows), rows, len(items))

    def part(self, start: int, stop: int) -> Cells:
        """The cells of these rows."""
        if (start, stop) == (0, self.num_rows):
            return self
        if self.rows is None:
            return Cells(self.items.take(slice(start, stop)), None, stop - start)
        first, last = np.searchsorted(self.rows, (start, stop)).tolist()
        rows = self.rows[first:last] - start
        whole = len(rows) == stop - start
        return Cells(self.items.take(slice(first, last)), None if whole else rows, stop - start)

    def row_numbers(self, first_row: int) -> Ints:
        """The row of each cell, counted from `first_row`."""
        if self.rows is None:
            return np.arange(first_row, first_row + self.num_rows)
        return first_row + self.rows
