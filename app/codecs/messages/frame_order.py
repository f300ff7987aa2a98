"""Records in the order of an epoch, and of these the ones that a worker gets.

The records are moved as bytes, before they are decoded: one column instead of many. Of small windows several
are shuffled at a time; how many does not change the order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from ...domain.limits import MIB
from ...domain.sharding.mixture import MixedPart
from ...domain.sharding.row_order import Part, RowOrder
from ...domain.sharding.windows import Ints, Windows
from ...runtime.budget import Budget
from ..columns import MAX_BATCH_ROWS, Strings, join_strings
from ..kernels.messages.framing import HEADER_BYTES, OVERHEAD_BYTES
from ..records.lease import Lease
from .frames import gather_frames
from .framing import FrameBlock

#: What leaves at a time, about: more than one record has to be looked for in it, less than is worth a wait.
_BLOCK_BYTES: Final = 1 * MIB
#: For each record of a window, while it is found out where it goes: some eight arrays of int64.
_NUMBERS_BYTES: Final = 64
_WHAT: Final = "The shuffle buffer"
_NOTHING: Final = Strings(np.empty(0, np.uint8), np.zeros(1, np.int64))


def pick_frames(frames: Iterator[FrameBlock], part: Part | MixedPart, budget: Budget) -> Iterator[FrameBlock]:
    """The records of `part`, in the order in which they come; their numbers are their places."""
    for block in frames:
        places = part.between(block.first_record, block.first_record + block.num_records)
        if not len(places):
            continue
        places -= block.first_record
        begin, end = int(places[0]), int(places[-1]) + 1
        if end - begin == len(places):
            yield block.part(begin, end)
            continue
        with Lease(budget) as lease:
            lease.charge(len(block.data), "Records of a part")
            yield from _blocks(_take(_frames_of(block), places))


def shuffle_frames(
    frames: Iterator[FrameBlock],
    order: RowOrder,
    windows: Windows,
    part: Part | MixedPart,
    budget: Budget,
) -> Iterator[FrameBlock]:
    """The records of `part`, in `order`.

    Args:
        frames: of each lane the rows of the windows that hold `part`, in their order; those of an earlier
            window before those of a later one.

    Raises:
        LimitExceeded: a window, and what is read for it, takes more than the budget has.
    """
    window, last = windows.holding(*part.bounds)
    with Lease(budget) as lease:
        held = _Lanes(windows, window, last, lease)
        while window < last:
            while (ready := held.num_ready()) <= window:
                held.add(next(frames))
            until = min(ready, window + max(1, MAX_BATCH_ROWS // windows.size))
            first, end = windows.places(window, until)
            rows = order.arrange_rows(windows, window, until)[part.between(first, end) - first]
            yield from held.take(rows, window, until)
            window = until


def mix_frames(
    sources: Sequence[Iterator[FrameBlock]], turns: Iterator[Ints], budget: Budget
) -> Iterator[FrameBlock]:
    """The records of several sources in turns.

    Args:
        sources: by number.
        turns: the number of the source that each record comes from, some at a time.

    Raises:
        LimitExceeded: what is read of all sources takes more than the budget has.
    """
    held = [_NOTHING] * len(sources)
    with Lease(budget) as lease:
        for left in turns:
            while len(left):
                for source in np.unique(left).tolist():
                    if not len(held[source]):
                        held[source] = _frames_of(next(sources[source]))
                num_ready = min(_num_ready(left, source, len(frames)) for source, frames in enumerate(held))
                ready, left = left[:num_ready], left[num_ready:]
                counts = np.bincount(ready, minlength=len(sources)).tolist()
                parts = [frames.part(0, count) for frames, count in zip(held, counts, strict=True)]
                held = [frames.part(count, len(frames)) for frames, count in zip(held, counts, strict=True)]
                # What is held; and of what leaves, all of it together and in its order.
                size = sum(part.nbytes for part in parts)
                lease.charge(sum(frames.nbytes for frames in held) + 3 * size, "Records of a mixture")
                numbers = np.empty(num_ready, np.int64)
                numbers[np.argsort(ready, kind="stable")] = np.arange(num_ready)
                yield from _blocks(_take(join_strings(parts), numbers))
                lease.release()


def _num_ready(turns: Ints, source: int, num_held: int) -> int:
    """How many of the turns come before the first for which a source has no record at hand."""
    mine = np.flatnonzero(turns == source)
    return int(mine[num_held]) if len(mine) > num_held else len(turns)


class _Lanes:
    """Of each lane of some windows, the rows that were read and have not left."""

    def __init__(self, windows: Windows, first: int, last: int, lease: Lease) -> None:
        self._windows = windows
        self._lease = lease
        self._last = last
        self._ends = [windows.lane(lane, first, last)[1] for lane in range(windows.num_lanes)]
        self._begins = [windows.lane(lane, 0, 0)[0] for lane in range(windows.num_lanes)]
        #: By lane: frames that follow one another, up to the row in `_read`.
        self._held: list[list[Strings]] = [[] for _ in self._ends]
        self._read = [windows.lane(lane, first, first)[0] for lane in range(windows.num_lanes)]

    def add(self, block: FrameBlock) -> None:
        """Take in the next rows of a lane."""
        frames = _frames_of(block)
        self._lease.charge(frames.nbytes, _WHAT)
        lane = bisect_right(self._begins, block.first_record) - 1
        self._held[lane].append(frames)
        self._read[lane] += block.num_records

    def num_ready(self) -> int:
        """Up to which window all rows are there."""
        ready = self._last
        for begin, end, read in zip(self._begins, self._ends, self._read, strict=True):
            if read < end:
                ready = min(ready, (read - begin) // self._windows.depth)
        return ready

    def take(self, rows: Ints, first: int, last: int) -> Iterator[FrameBlock]:
        """These rows of the windows `first` to `last`, which are all given up."""
        lanes = [self._windows.lane(lane, first, last) for lane in range(len(self._held))]
        parts = [frames for lane, (begin, end) in enumerate(lanes) for frames in self._cut(lane, end - begin)]
        # Besides what is held: all of these together, and those that leave.
        size = sum(frames.nbytes for frames in parts)
        self._lease.charge(2 * size + _NUMBERS_BYTES * sum(map(len, parts)), _WHAT)
        pool = join_strings(parts)
        del parts
        lows, highs = np.array(lanes, np.int64).T
        # From the number of a row to its place in the pool, where the lanes are one behind the other.
        behind = np.cumsum(highs - lows) - highs
        left = _take(pool, rows + behind[np.searchsorted(lows, rows, side="right") - 1])
        del pool
        held = sum(frames.nbytes for held in self._held for frames in held)
        self._lease.release()
        self._lease.charge(held + left.nbytes, _WHAT)
        yield from _blocks(left)
        self._lease.release()
        self._lease.charge(held, _WHAT)

    def _cut(self, lane: int, count: int) -> Iterator[Strings]:
        """The first rows of a lane, which it no longer holds."""
        held = self._held[lane]
        while count:
            frames = held.pop(0)
            if len(frames) > count:
                held.insert(0, frames.part(count, len(frames)))
                frames = frames.part(0, count)
            count -= len(frames)
            yield frames


def _frames_of(block: FrameBlock) -> Strings:
    """The whole frames of a block, each a string; a view."""
    return Strings(np.frombuffer(block.data, np.uint8), np.append(0, block.ends))


def _take(frames: Strings, numbers: Ints) -> Strings:
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
