"""Shuffling records as tf.data does: each leaves a buffer from a random place, which the next one takes.

Source: `tf.data.Dataset.shuffle`. Record by record: a place of the full buffer is drawn, the record in it
leaves, the next one takes its place; in the end, what is in the buffer leaves in random order.

Here many records are done in one go: which record is in a place when it is drawn, is the last one before
that took the same place. So the order is that of one record at a time, and does not depend on how many
are done together. The records are moved as bytes, before they are decoded: one column instead of many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...domain.limits import MIB
from ...domain.sharding.row_order import Slots
from ...runtime.budget import Budget
from ..columns import MAX_BATCH_ROWS, Strings, join_strings
from ..kernels.messages.framing import HEADER_BYTES, OVERHEAD_BYTES
from ..records.lease import Lease
from .frames import gather_frames
from .framing import FrameBlock

#: What leaves at a time: more than one record has to be looked for in it, less than is worth a wait.
_BLOCK_BYTES: Final = 1 * MIB
#: Records that come before any leaves, at least: what is done in one go has its price.
_LEAST_ROWS: Final = 1024
#: For each record, while it is found out which leave: some eight arrays of int64.
_NUMBERS_BYTES: Final = 64

#: The numbers of the records that leave, in order, and of those that stay, by place.
_Chosen = tuple[NDArray[np.int64], NDArray[np.int64]]


def shuffle_frames(
    frames: Iterator[FrameBlock], num_rows: int, slots: Slots, budget: Budget
) -> Iterator[FrameBlock]:
    """The records of `frames`, each once, in an order that `slots` and `num_rows` determine.

    Args:
        num_rows: the size of the buffer, at least 1.

    Raises:
        LimitExceeded: the buffer, and what is moved through it, takes more than the budget has.
    """
    with Lease(budget) as lease:
        buffer = _Buffer(num_rows, slots, lease)
        for block in frames:
            if not block.num_records:
                continue
            buffer.add(block)
            if buffer.is_ready:
                yield from buffer.replace()
        yield from buffer.drain()


class _Buffer:
    """Records that were taken in, and those that wait for being taken in together."""

    def __init__(self, num_rows: int, slots: Slots, lease: Lease) -> None:
        self._num_rows = num_rows
        self._slots = slots
        self._lease = lease
        #: Whole frames, each a string.
        self._held = Strings.pack([])
        self._waiting: list[Strings] = []
        self._num_waiting = 0

    def add(self, block: FrameBlock) -> None:
        frames = Strings(np.frombuffer(block.data, np.uint8), np.append(0, block.ends))
        self._lease.charge(frames.nbytes, "The shuffle buffer")
        self._waiting.append(frames)
        self._num_waiting += block.num_records

    @property
    def is_ready(self) -> bool:
        """Whether so many wait that taking them in is worth copying the buffer."""
        wanted = self._num_rows - len(self._held)
        return self._num_waiting >= wanted + max(self._num_rows // 2, _LEAST_ROWS)

    def replace(self) -> Iterator[FrameBlock]:
        """Take in what waits; what that displaces leaves."""
        yield from self._move(self._choose_displaced)

    def drain(self) -> Iterator[FrameBlock]:
        """All that is left."""
        if self._num_waiting + len(self._held) > self._num_rows:
            yield from self.replace()
        if self._num_waiting or len(self._held):
            yield from self._move(self._choose_all)

    def _move(self, choose: Callable[[int], _Chosen]) -> Iterator[FrameBlock]:
        parts = [self._held, *self._waiting]
        size = sum(part.nbytes for part in parts)
        # Besides these: all of them together; in whose place come those that leave and those that stay.
        self._lease.charge(size + _NUMBERS_BYTES * sum(map(len, parts)), "The shuffle buffer")
        pool = join_strings(parts)
        self._held, self._waiting, self._num_waiting = pool, [], 0
        del parts
        leave, stay = choose(len(pool))
        left, self._held = _take(pool, leave), _take(pool, stay)
        del pool
        self._lease.release()
        self._lease.charge(left.nbytes + self._held.nbytes, "The shuffle buffer")
        yield from _blocks(left)
        self._lease.release()
        self._lease.charge(self._held.nbytes, "The shuffle buffer")

    def _choose_displaced(self, total: int) -> _Chosen:
        """Of the records held and waiting, counted through: which leave in which order, which stay where."""
        size, held = self._num_rows, np.arange(self._num_rows)
        came = np.arange(size, total)
        slots = self._slots.below(size, len(came))
        by_slot = np.argsort(slots, kind="stable")
        of_slot = slots[by_slot]
        again = of_slot[1:] == of_slot[:-1]
        leave = slots.copy()
        leave[by_slot[1:][again]] = came[by_slot[:-1][again]]
        last = np.append(~again, True)
        held[of_slot[last]] = came[by_slot[last]]
        return leave, held

    def _choose_all(self, total: int) -> _Chosen:
        return self._slots.permutation(total), np.empty(0, np.int64)


def _take(frames: Strings, numbers: NDArray[np.int64]) -> Strings:
    """The frames of these numbers, copied."""
    begins, ends = frames.offsets[numbers], frames.offsets[numbers + 1]
    offsets = np.zeros(len(numbers) + 1, np.int64)
    np.cumsum(ends - begins, out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    gather_frames(frames.data, begins, ends, data)
    return Strings(data, offsets)


def _blocks(frames: Strings) -> Iterator[FrameBlock]:
    """The frames as blocks of about a megabyte, at most `MAX_BATCH_ROWS` in each."""
    offsets, view, first = frames.offsets, frames.data.data, 0
    while first < len(frames):
        fitting = int(np.searchsorted(offsets, offsets[first] + _BLOCK_BYTES, side="right")) - 1
        last = min(max(fitting, first + 1), first + MAX_BATCH_ROWS, len(frames))
        begin = int(offsets[first])
        starts = offsets[first:last] - begin + HEADER_BYTES
        sizes = np.diff(offsets[first : last + 1]) - OVERHEAD_BYTES
        yield FrameBlock(view[begin : int(offsets[last])].toreadonly(), starts, sizes, first, 0)
        first = last
