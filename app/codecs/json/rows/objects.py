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
from ... import kernels
from ...columns import MAX_BATCH_ROWS, Ints
from .lines import Lines

INSTANCES: Final = "instances"

#: The array begins within so many bytes, and so many stand around it at most.
_HEAD_BYTES: Final = 64 * KIB
_AROUND_BYTES: Final = 1 * MIB
#: Rows are handed out when they are so long together, even if they are fewer than was asked for.
_MAX_TEXT: Final = 1 * MIB
#: Where objects lie is kept of the first so many times MAX_BATCH_ROWS; the others are looked for twice.
_KEPT: Final = 8
_SPAN_BYTES: Final = 16 * (MAX_BATCH_ROWS + 1)
#: It is kept only where so many times as much memory is left: no body is refused for it.
_LEFT: Final = 64
_CLOSE: Final = 0x5D
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


def find_rows(text: memoryview, budget: Budget) -> RowsInText | None:
    """The array that the text is, or that is its member `instances`; None where that is not plain to see.

    Raises:
        LimitExceeded, StreamInterrupted: the request has taken too long, or was given up.
    """
    begin = _find_array(str(text[:_HEAD_BYTES], "latin-1"))  # a character a byte
    if begin is None:
        return None
    walk = _Walk(text, begin)
    first: list[tuple[Ints, Ints]] = []
    position, num_bytes = begin, 0
    is_kept = True
    while not walk.is_over:
        is_kept = is_kept and len(first) < _KEPT and budget.remaining > _LEFT * _SPAN_BYTES
        kept_bytes = _SPAN_BYTES if is_kept else 0
        budget.charge(kept_bytes, "Rows of JSON")  # which asks whether to go on, too
        num_bytes += kept_bytes
        found = walk.objects(MAX_BATCH_ROWS)
        if found is None:
            budget.release(num_bytes)
            return None
        if is_kept:
            first.append(found)
            position = walk.position
    end = walk.position + 1
    if begin + len(text) - end > _AROUND_BYTES:
        budget.release(num_bytes)
        return None
    return RowsInText(b"".join((text[:begin], b"[]", text[end:])), first, position, num_bytes)


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
    """Along the objects of an array.

    Attributes:
        position: of the bracket that opens or closes it, or of the comma ahead of what comes next.
    """

    def __init__(self, text: memoryview, begin: int) -> None:
        self._text = np.frombuffer(text, np.uint8)
        self.position = begin

    @property
    def is_over(self) -> bool:
        return bool(self._text[self.position] == _CLOSE)

    def objects(self, most: int) -> tuple[Ints, Ints] | None:
        """The starts and ends of the next ones; None where something else stands there."""
        starts, ends = np.empty(most + 1, np.int64), np.empty(most + 1, np.int64)
        count = kernels.load().find_objects(self._text, self.position, starts, ends)
        if count < 0:
            return None
        self.position = int(starts[count])
        return starts[:count], ends[:count]


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
        walk = _Walk(self._text, self._rows.position)
        while not walk.is_over:
            found = walk.objects(MAX_BATCH_ROWS)
            if found is None:
                raise AssertionError("called for what is no array of objects")  # pragma: no cover
            yield from self._blocks(*found)

    def _blocks(self, starts: Ints, ends: Ints) -> Iterator[Lines]:
        first = 0
        while first < len(starts):
            begin = int(starts[first])
            stop = max(first + 1, int(np.searchsorted(ends, begin + _MAX_TEXT, "right")))
            rows = slice(first, min(stop, first + self.max_rows))
            size = int(ends[rows][-1]) - begin
            self._budget.charge(size, "Rows of JSON")
            text = self._text[begin : begin + size]
            longest = int((ends[rows] - starts[rows]).max())
            yield Lines(text, starts[rows] - begin, ends[rows] - begin, longest, begin)
            first = rows.stop
