"""Framed records, gathered and cut into runs of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...codecs.records.frames import find_frames
from ...domain.limits import Budget
from ...domain.streams import Buffer

__all__ = ["RecordCutter"]

_NO_ROOM: Final = np.empty(0, np.uint8)


class RecordCutter:
    """Gathers framed records and hands them out in runs of at most `max_bytes`.

    With each run comes how many records begin in it. Each has memory of its own, to which nothing writes any
    more; it is charged to `budget` until the next one is drawn.
    """

    def __init__(self, max_bytes: int, budget: Budget) -> None:
        self._max = max_bytes
        self._budget = budget
        self._room = _NO_ROOM
        self._size = 0
        self._next_room = 0
        self._num_records = 0

    def add_run(self, data: memoryview, num_records: int) -> Iterator[tuple[Buffer, int]]:
        """Add whole records, kept together where they fit into one run."""
        if self._size + len(data) > self._max:
            yield from self.flush()
        if len(data) <= self._max:
            self._gather(data, num_records)
        else:
            yield from self.add(data, find_frames(np.frombuffer(data, np.uint8), num_records))

    def add(self, data: memoryview, ends: NDArray[np.int64]) -> Iterator[tuple[Buffer, int]]:
        """Add whole records that end at `ends`; a run takes as many as fit, however they arrive."""
        begin, done = 0, 0
        while done < len(ends):
            room = begin + self._max - self._size
            fitting = int(np.searchsorted(ends, room, side="right"))
            if fitting > done:
                end = int(ends[fitting - 1])
                self._gather(data[begin:end], fitting - done)
                begin, done = end, fitting
            elif self._size:
                yield from self.flush()
            else:
                end = int(ends[done])
                yield from self._cut_up(data[begin:end])
                begin, done = end, done + 1

    def flush(self) -> Iterator[tuple[Buffer, int]]:
        """Hand out what is gathered, if anything."""
        if self._size:
            held = len(self._room)
            data, num_records = self._room[: self._size].data.toreadonly(), self._num_records
            self._room, self._next_room = _NO_ROOM, held
            self._size = self._num_records = 0
            yield data, num_records
            self._budget.release(held)

    def _gather(self, data: memoryview, num_records: int) -> None:
        size = self._size + len(data)
        if size > len(self._room):
            self._grow(size)
        self._room[self._size : size] = np.frombuffer(data, np.uint8)
        self._size = size
        self._num_records += num_records

    def _grow(self, needed: int) -> None:
        """Make room, from numpy: it asks the system for large pages, which cost less to touch."""
        held = len(self._room)
        size = max(needed, min(self._max, max(2 * held, self._next_room)))
        self._budget.charge(size, "A part of the records")
        room = np.empty(size, np.uint8)
        room[: self._size] = self._room[: self._size]
        self._room = room
        self._budget.release(held)

    def _cut_up(self, record: memoryview) -> Iterator[tuple[Buffer, int]]:
        """One record that is larger than a run."""
        for offset in range(0, len(record), self._max):
            yield bytes(record[offset : offset + self._max]), 1 if offset == 0 else 0
