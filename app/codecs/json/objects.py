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
from numpy.typing import NDArray

from ...domain.limits import KIB, MIB
from ...runtime.budget import Budget
from .. import kernels
from ..columns import MAX_BATCH_ROWS
from .ndjson_lines import Lines

__all__ = ["INSTANCES", "ObjectReader", "RowsInText", "find_rows"]

INSTANCES: Final = "instances"

#: The array begins within so many bytes, and so many stand around it at most.
_HEAD_BYTES: Final = 64 * KIB
_AROUND_BYTES: Final = 1 * MIB
#: Rows are handed out when they are so long together, even if they are fewer than was asked for.
_MAX_TEXT: Final = 1 * MIB
_CLOSE: Final = 0x5D
_BLANKS: Final = re.compile(r"[ \t\r\n]*+")


@dataclass(frozen=True, slots=True)
class RowsInText:
    """An array of objects in a text.

    Attributes:
        begin, end: of the array.
        around: the text, with an array in its place that is empty.
    """

    begin: int
    end: int
    around: bytes


def find_rows(text: memoryview, budget: Budget) -> RowsInText | None:
    """The array that the text is, or that is its member `instances`; None where that is not plain to see.

    Raises:
        LimitExceeded, StreamInterrupted: the request has taken too long, or was given up.
    """
    begin = _find_array(str(text[:_HEAD_BYTES], "latin-1"))  # a character a byte
    end = None if begin is None else _find_end(text, begin, budget)
    if begin is None or end is None or begin + len(text) - end > _AROUND_BYTES:
        return None
    return RowsInText(begin, end, b"".join((text[:begin], b"[]", text[end:])))


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


def _find_end(text: memoryview, begin: int, budget: Budget) -> int | None:
    walk = _Walk(text, begin)
    while not walk.is_over:
        budget.charge(0, "Rows of JSON")  # asks whether to go on
        if walk.objects(MAX_BATCH_ROWS) is None:
            return None
    return walk.position + 1


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

    def objects(self, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
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

    def __init__(self, text: memoryview, begin: int, budget: Budget, max_rows: int) -> None:
        self.max_rows = max_rows
        self._text = text
        self._begin = begin
        self._budget = budget

    def __iter__(self) -> Iterator[Lines]:
        walk = _Walk(self._text, self._begin)
        while not walk.is_over:
            found = walk.objects(self.max_rows)
            if found is None:
                raise AssertionError("called for what is no array of objects")  # pragma: no cover
            yield from self._blocks(*found)

    def _blocks(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Iterator[Lines]:
        first = 0
        while first < len(starts):
            begin = int(starts[first])
            stop = max(first + 1, int(np.searchsorted(ends, begin + _MAX_TEXT, "right")))
            size = int(ends[stop - 1]) - begin
            self._budget.charge(size, "Rows of JSON")
            text = self._text[begin : begin + size]
            rows = slice(first, stop)
            longest = int((ends[rows] - starts[rows]).max())
            yield Lines(text, starts[rows] - begin, ends[rows] - begin, longest, begin)
            first = stop
