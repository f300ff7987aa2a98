"""Rows of a large JSON body, some at a time: the body is never parsed as a whole.

First the array is walked once, to its end, so that a body that is cut short or goes on behind it is refused
before anything is done with its rows. Where a body is anything but one array of objects in one of the forms
of rows, there is no answer, and it is parsed whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ....domain.limits import KIB, MIB
from ....runtime.budget import Budget
from ....runtime.streams import Arriving, WholeBody
from ... import kernels
from ...columns import MAX_BATCH_ROWS, Ints
from .lines import MAX_TEXT, Lines

INSTANCES: Final = "instances"

#: The array begins within so many bytes, and so many stand around it at most.
_HEAD_BYTES: Final = 64 * KIB
_AROUND_BYTES: Final = 1 * MIB
#: Where objects lie is kept of the first so many times MAX_BATCH_ROWS; the others are looked for twice.
_KEPT: Final = 8
_SPAN_BYTES: Final = 16 * (MAX_BATCH_ROWS + 1)
#: It is kept only where so many times as much memory is left: no body is refused for it.
_LEFT: Final = 64
#: While the body arrives, an object may be so long.
_LONGEST: Final = 2 * MIB
_CLOSE: Final = 0x5D
_NO_INTS: Final = np.empty(0, np.int64)
_BLANKS: Final = re.compile(r"[ \t\r\n]*+")


@dataclass(frozen=True, slots=True)
class RowsInText:
    """An array of objects in a text.

    Attributes:
        around: the text, with an array in its place that is empty.
        first: where the first objects begin and end, some thousands in each pair.
        position: of the comma or bracket behind those.
        num_bytes: what is charged for `first`; the caller releases it.
    """

    around: bytes
    first: list[tuple[Ints, Ints]]
    position: int
    num_bytes: int


def find_rows(body: WholeBody, budget: Budget) -> RowsInText | None:
    """The array that the text is, or that is its member `instances`; None where that is not plain to see.

    Objects are looked for while the body arrives.

    Raises:
        LimitExceeded, StreamInterrupted: the request has taken too long, or was given up.
        InputError, StorageUnavailable: what stops the body from arriving.
    """
    walk: _Walk | None = None
    for text, is_whole in _growing(body):
        if walk is None and (is_whole or len(text) >= _HEAD_BYTES):
            begin = _find_array(str(text[:_HEAD_BYTES], "latin-1"))  # a character a byte
            if begin is None:
                return None
            walk = _Walk(begin, budget)
        if walk is not None and not walk.go_on(text, is_whole=is_whole):
            budget.release(walk.num_bytes)
            return None
    if walk is None:
        raise AssertionError("the whole text comes last")  # pragma: no cover
    around = text[: walk.begin], b"[]", text[walk.position + 1 :]
    if sum(map(len, around)) > _AROUND_BYTES:
        budget.release(walk.num_bytes)
        return None
    return RowsInText(b"".join(around), walk.first, walk.kept_up_to, walk.num_bytes)


def _growing(body: WholeBody) -> Iterator[tuple[memoryview, bool]]:
    """The text as far as it has arrived, again and again, and whether it is all."""
    if isinstance(body, Arriving):
        for text in body.read_ahead():
            yield text, False
    yield body.view(), True


def _find_array(head: str) -> int | None:
    position = _skip_blanks(head, 0)
    if head.startswith("[", position):
        return position
    if not head.startswith("{", position):
        return None
    try:
        return _find_instances(head, position)
    except (ValueError, RecursionError):  # whatever is wrong, the general parser says so
        return None


def _find_instances(head: str, position: int) -> int | None:
    """`position` is that of the bracket, and then of the comma before each member."""
    decoder = json.JSONDecoder()
    while True:
        key, position = decoder.raw_decode(head, _skip_blanks(head, position + 1))
        position = _skip_blanks(head, position)
        if not head.startswith(":", position):
            return None
        position = _skip_blanks(head, position + 1)
        if key == INSTANCES:
            return position if head.startswith("[", position) else None
        _, position = decoder.raw_decode(head, position)
        position = _skip_blanks(head, position)
        if not head.startswith(",", position):
            return None


def _skip_blanks(head: str, position: int) -> int:
    blanks = _BLANKS.match(head, position)
    return position if blanks is None else blanks.end()


class _Walk:
    """Along the objects of an array, while its text may still grow.

    Attributes:
        begin: the position of the bracket that opens the array.
        position: of the bracket that opens or closes it, or of the comma ahead of what comes next.
        first: where the first objects begin and end.
        kept_up_to: the position behind those.
        num_bytes: what is charged for them.
    """

    def __init__(self, begin: int, budget: Budget) -> None:
        self.begin = self.position = self.kept_up_to = begin
        self.first: list[tuple[Ints, Ints]] = []
        self.num_bytes = 0
        self._budget = budget
        self._is_kept, self._is_over = True, False
        self._starts = self._ends = _NO_INTS
        self._count = 0

    def go_on(self, text: memoryview, *, is_whole: bool) -> bool:
        """Walk as far as the text goes; false where it turns out to be something else."""
        data = np.frombuffer(text, np.uint8)
        # An object that is very long is looked for once, when all is there.
        while not self._is_over and (is_whole or len(text) - self.position <= _LONGEST):
            if not len(self._starts):
                self._make_room()
            starts, ends = self._starts[self._count :], self._ends[self._count :]
            count = kernels.load().find_objects(data, self.position, starts, ends)
            self.position = int(starts[count])
            self._count += count
            self._is_over = bool(data[self.position] == _CLOSE)
            if self._is_over or self._count == MAX_BATCH_ROWS:
                self._keep()
            else:
                return not is_whole
        return True

    def _make_room(self) -> None:
        has_room = len(self.first) < _KEPT and self._budget.remaining > _LEFT * _SPAN_BYTES
        self._is_kept = self._is_kept and has_room
        kept_bytes = _SPAN_BYTES if self._is_kept else 0
        self._budget.charge(kept_bytes, "Rows of JSON")  # which asks whether to go on, too
        self.num_bytes += kept_bytes
        self._starts, self._ends = np.empty((2, MAX_BATCH_ROWS + 1), np.int64)

    def _keep(self) -> None:
        if self._is_kept:
            self.first.append((self._starts[: self._count], self._ends[: self._count]))
            self.kept_up_to = self.position
        self._starts = _NO_INTS
        self._count = 0


class ObjectReader:
    """Cuts an array that `find_rows` has found into blocks of rows, as `LineReader` does with lines.

    Attributes:
        max_rows: in one block; may change between blocks.
    """

    def __init__(self, text: memoryview, rows: RowsInText, budget: Budget, max_rows: int) -> None:
        self.max_rows = max_rows
        self._text = text
        self._rows = rows
        self._budget = budget

    def __iter__(self) -> Iterator[Lines]:
        for starts, ends in self._rows.first:
            yield from self._blocks(starts, ends)
        self._rows.first.clear()
        self._budget.release(self._rows.num_bytes)
        data, position = np.frombuffer(self._text, np.uint8), self._rows.position
        while data[position] != _CLOSE:
            starts, ends = np.empty((2, MAX_BATCH_ROWS + 1), np.int64)
            count = kernels.load().find_objects(data, position, starts, ends)
            if not count:
                raise AssertionError("called for what is no array of objects")  # pragma: no cover
            position = int(starts[count])
            yield from self._blocks(starts[:count], ends[:count])

    def _blocks(self, starts: Ints, ends: Ints) -> Iterator[Lines]:
        first = 0
        while first < len(starts):
            begin = int(starts[first])
            stop = max(first + 1, int(np.searchsorted(ends, begin + MAX_TEXT, "right")))
            rows = slice(first, min(stop, first + self.max_rows))
            size = int(ends[rows][-1]) - begin
            self._budget.charge(size, "Rows of JSON")
            text = self._text[begin : begin + size]
            longest = int((ends[rows] - starts[rows]).max())
            yield Lines(text, starts[rows] - begin, ends[rows] - begin, longest, begin)
            first = rows.stop
