"""Framed records, gathered and cut into runs of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...codecs.records.frames import find_frames
from ...domain.limits import Budget

__all__ = ["RecordCutter"]


class RecordCutter:
    """Gathers framed records and hands them out in runs of at most `max_bytes`.

    With each run comes how many records begin in it. What is gathered is charged to `budget` until it
    is handed out.
    """

    def __init__(self, max_bytes: int, budget: Budget) -> None:
        self._max = max_bytes
        self._budget = budget
        self._gathered = bytearray()
        self._num_records = 0

    def add_run(self, data: memoryview, num_records: int) -> Iterator[tuple[bytes, int]]:
        """Add whole records, kept together where they fit into one run."""
        if len(self._gathered) + len(data) > self._max:
            yield from self.flush()
        if len(data) <= self._max:
            self._gather(data, num_records)
        else:
            yield from self.add(data, find_frames(np.frombuffer(data, np.uint8), num_records))

    def add(self, data: memoryview, ends: NDArray[np.int64]) -> Iterator[tuple[bytes, int]]:
        """Add whole records that end at `ends`; a run takes as many as fit, however they arrive."""
        begin, done = 0, 0
        while done < len(ends):
            room = begin + self._max - len(self._gathered)
            fitting = int(np.searchsorted(ends, room, side="right"))
            if fitting > done:
                end = int(ends[fitting - 1])
                self._gather(data[begin:end], fitting - done)
                begin, done = end, fitting
            elif self._gathered:
                yield from self.flush()
            else:
                end = int(ends[done])
                yield from self._cut_up(data[begin:end])
                begin, done = end, done + 1

    def flush(self) -> Iterator[tuple[bytes, int]]:
        """Hand out what is gathered, if anything."""
        if self._gathered:
            data, num_records = bytes(self._gathered), self._num_records
            self._gathered.clear()
            self._num_records = 0
            yield data, num_records
            self._budget.release(len(data))

    def _gather(self, data: memoryview, num_records: int) -> None:
        self._budget.charge(len(data), "A part of the records")
        self._gathered += data
        self._num_records += num_records

    def _cut_up(self, record: memoryview) -> Iterator[tuple[bytes, int]]:
        """One record that is larger than a run."""
        for offset in range(0, len(record), self._max):
            yield bytes(record[offset : offset + self._max]), 1 if offset == 0 else 0
