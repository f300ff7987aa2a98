"""Framed records, gathered and cut into runs of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....codecs.messages.frames import find_frames
from ....runtime.buffer_pool import BufferPool

_NO_ROOM: Final = np.empty(0, np.uint8)


class RecordCutter:
    """Gathers framed records and hands them out in runs of at most `max_bytes`.

    With each run comes how many records begin in it. It lies in a buffer of `buffers`.
    """

    def __init__(self, max_bytes: int, buffers: BufferPool) -> None:
        self._max = max_bytes
        self._buffers = buffers
        self._room = _NO_ROOM
        self._size = 0
        self._next_room = 0
        self._num_records = 0

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
            run, num_records = self._buffers.lend(self._room, self._size), self._num_records
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
        room = self._buffers.take(max(needed, min(self._max, max(2 * len(held), self._next_room))))
        room[: self._size] = held[: self._size]
        self._room = room
        self._buffers.drop(held)

    def _cut_up(self, record: memoryview) -> Iterator[tuple[memoryview, int]]:
        """One record that is larger than a run."""
        for offset in range(0, len(record), self._max):
            self._gather(record[offset : offset + self._max], 1 if offset == 0 else 0)
            yield from self.flush()
