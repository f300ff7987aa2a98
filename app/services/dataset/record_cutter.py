"""Framed records, gathered and cut into runs of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...codecs.records.frames import find_frames
from ...domain.buffer_pool import BufferPool
from ...domain.limits import Budget

__all__ = ["RecordCutter"]

_NO_ROOM: Final = np.empty(0, np.uint8)


class RecordCutter:
    """Gathers framed records and hands them out in runs of at most `max_bytes`.

    With each run comes how many records begin in it. Its memory is used again once nobody holds it any more;
    see `BufferPool`.

    Args:
        budget: charged for all of it, until the end of the `with` block.
        most_held: how many runs are held at a time by who they are handed to, as a rule.
    """

    def __init__(self, max_bytes: int, budget: Budget, *, most_held: int = 1) -> None:
        self._max = max_bytes
        self._pool = BufferPool(budget, "A part of the records", most_lent=most_held)
        self._room = _NO_ROOM
        self._size = 0
        self._next_room = 0
        self._num_records = 0

    def __enter__(self) -> RecordCutter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()

    def add_run(self, data: memoryview, num_records: int) -> Iterator[tuple[memoryview, int]]:
        """Add whole records, kept together where they fit into one run."""
        if self._size + len(data) > self._max:
            yield from self.flush()
        if len(data) <= self._max:
            self._gather(data, num_records)
        else:
            yield from self.add(data, find_frames(np.frombuffer(data, np.uint8), num_records))

    def add(self, data: memoryview, ends: NDArray[np.int64]) -> Iterator[tuple[memoryview, int]]:
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

    def flush(self) -> Iterator[tuple[memoryview, int]]:
        """Hand out what is gathered, if anything."""
        if self._size:
            run, num_records = self._pool.lend(self._room, self._size), self._num_records
            self._room, self._next_room = _NO_ROOM, len(self._room)
            self._size = self._num_records = 0
            yield run, num_records

    def _gather(self, data: memoryview, num_records: int) -> None:
        size = self._size + len(data)
        if size > len(self._room):
            self._grow(size)
        self._room[self._size : size] = np.frombuffer(data, np.uint8)
        self._size = size
        self._num_records += num_records

    def _grow(self, needed: int) -> None:
        held = self._room
        room = self._pool.take(max(needed, min(self._max, max(2 * len(held), self._next_room))))
        room[: self._size] = held[: self._size]
        self._room = room
        self._pool.drop(held)

    def _cut_up(self, record: memoryview) -> Iterator[tuple[memoryview, int]]:
        """One record that is larger than a run."""
        for offset in range(0, len(record), self._max):
            self._gather(record[offset : offset + self._max], 1 if offset == 0 else 0)
            yield from self.flush()
