"""A stretch of a TFRecord stream in memory, in which whole frames are found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...runtime.budget import Budget
from ...runtime.streams import ByteStream, ViewStream
from .. import kernels
from ..columns import MAX_BATCH_ROWS
from ..kernels.framing import FOOTER_BYTES, HEADER_BYTES, INCOMPLETE

__all__ = ["FrameBlock", "FrameWindow", "Stop"]


@dataclass(frozen=True, slots=True, eq=False)
class FrameBlock:
    """Some whole records that follow one another, with all checksums verified.

    Attributes:
        data: their frames; nothing else writes to this memory.
        starts: int64, where each payload begins in `data`.
        sizes: int64, bytes of each payload.
        first_record: number of the first record in the whole input.
        offset: of `data` in the uncompressed input.
    """

    data: memoryview
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    first_record: int
    offset: int

    @property
    def num_records(self) -> int:
        return len(self.starts)

    @property
    def ends(self) -> NDArray[np.int64]:
        """Where each frame ends in `data`, and the next one begins."""
        return self.starts + self.sizes + FOOTER_BYTES

    def part(self, first: int, last: int) -> FrameBlock:
        """The records `first` up to `last` of this block, of which there is one at least."""
        if last - first == self.num_records:
            return self
        begin = int(self.starts[first]) - HEADER_BYTES
        end = int(self.starts[last - 1] + self.sizes[last - 1]) + FOOTER_BYTES
        return FrameBlock(
            self.data[begin:end],
            self.starts[first:last] - begin,
            self.sizes[first:last],
            self.first_record + first,
            self.offset + begin,
        )


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a scan ended.

    Attributes:
        reason: as `kernels.framing` names them; 0 where the window may hold more frames.
        position: of the next frame, in the window.
        needed: how many bytes of that frame must be there to go on.
    """

    reason: int
    position: int
    needed: int

    def is_fault(self, window: FrameWindow) -> bool:
        """Whether the stream goes on with something else than a good frame."""
        if self.reason == INCOMPLETE:
            return window.ended and self.position < window.filled
        return self.reason != 0


class FrameWindow:
    """`data[:filled]` holds the bytes of a stream from `offset` on.

    What it holds does not depend on how the stream hands out its bytes, unless it is a `ViewStream`, whose
    stretches are used where they lie. A block is charged to `budget`, and is never written again once frames
    of it were handed out.
    """

    def __init__(self, stream: ByteStream, budget: Budget, block_bytes: int) -> None:
        self.data = np.empty(0, np.uint8)
        self.filled = 0
        self.offset = 0
        self.ended = False
        self._stream = stream
        self._budget = budget
        self._block_bytes = block_bytes
        self._charged = 0
        self._is_view = False
        self._scan_frames = kernels.load().scan_frames

    def close(self) -> None:
        """Give back the memory."""
        self._replace(np.empty(0, np.uint8), 0)

    def advance(self, position: int, needed: int) -> None:
        """Drop what lies before `position`, and read on, for `needed` bytes in all at most.

        Raises:
            LimitExceeded: more memory than the budget has.
            InputError: whatever the stream raises.
        """
        carried = self.filled - position
        self.offset += position
        if not carried and isinstance(self._stream, ViewStream):
            self._adopt(self._stream.read_view())
            self.ended = not self.filled or self._stream.ended
            return
        # Not more than twice what has come: the length of a frame is only a claim.
        size = min(max(needed, self._block_bytes), max(self._block_bytes, 2 * carried))
        if self._is_view:  # which takes no memory here
            self._replace(self.data, 0)
        self._budget.charge(size, "A block of records")
        data = np.empty(size, np.uint8)
        data[:carried] = self.data[position : self.filled]
        self._replace(data, size)
        self._is_view = False
        self.filled = carried
        self._fill()

    def _replace(self, data: NDArray[np.uint8], charged: int) -> None:
        """Go on with `data`, for which `charged` bytes were charged."""
        self._budget.release(self._charged)
        self.data, self._charged = data, charged

    def _adopt(self, view: memoryview) -> None:
        """Look for frames where the bytes lie."""
        # Charged as a block that is copied: what a request may hold does not depend on how it arrives.
        self._budget.charge(self._block_bytes, "A block of records")
        self._replace(np.frombuffer(view, np.uint8), self._block_bytes)
        self._is_view = True
        self.filled = len(view)

    def _fill(self) -> None:
        while self.filled < len(self.data):
            piece = self._stream.read(len(self.data) - self.filled)
            if not piece:
                self.ended = True
                return
            end = self.filled + len(piece)
            self.data[self.filled : end] = np.frombuffer(piece, np.uint8)
            self.filled = end

    def scan(
        self, position: int, first_record: int, *, most: int = MAX_BATCH_ROWS
    ) -> tuple[FrameBlock | None, Stop]:
        """The whole frames of about a block from `position`, `most` at most, and why there are no more."""
        starts = np.empty(most, np.int64)
        sizes = np.empty(most, np.int64)
        stop = np.zeros(3, np.int64)
        limit = self._budget.limits.max_record_bytes
        end = min(self.filled, position + self._block_bytes)
        count = self._scan_frames(self.data, position, end, limit, starts, sizes, stop)
        if not count and stop[0] == INCOMPLETE and end < self.filled:
            end = min(self.filled, position + int(stop[2]))
            count = self._scan_frames(self.data, position, end, limit, starts, sizes, stop)
        reason, after, needed = (int(value) for value in stop)
        if reason == INCOMPLETE and end < self.filled:
            reason = 0  # as far as it was looked
        if not count:
            return None, Stop(reason, after, needed)
        found = FrameBlock(
            self.data.data[position:after].toreadonly(),
            starts[:count] - position,
            sizes[:count].copy(),
            first_record,
            self.offset + position,
        )
        return found, Stop(reason, after, needed)
