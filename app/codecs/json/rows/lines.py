"""The lines of NDJSON, some whole ones at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....domain.limits import KIB
from ....runtime.budget import Budget
from ....runtime.streams import ByteStream
from ... import kernels
from ...kernels.json import rows

#: Read at a time: what the processor's own cache holds, beside where it is put.
_CHUNK: Final = 256 * KIB
_BOM: Final = b"\xef\xbb\xbf"
#: Rows are handed out when they are so long together, even if they are fewer than was asked for: what they
#: become on their way to TFRecord then takes no more memory than a thread keeps (`allocator.py`).
MAX_TEXT: Final = 512 * KIB


@dataclass(frozen=True, slots=True)
class Lines:
    """Consecutive lines.

    Attributes:
        text: with their line feeds; the last one may lack it. It is valid until the next lines are drawn.
        starts, ends: of the lines that are not blank, without their line feeds.
        longest: bytes of the longest line, blank ones included.
        offset: of the text in the body.
    """

    text: memoryview
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    longest: int
    offset: int


class LineReader:
    """Cuts a body into blocks of lines.

    The text is charged with the bytes it takes when they are read; the caller releases them. A line that
    grows past `Limits.max_record_bytes` is handed out as far as it was read.

    Attributes:
        max_rows: of lines that are not blank in one block; may change between blocks.
    """

    def __init__(self, source: ByteStream, budget: Budget, max_rows: int) -> None:
        self.max_rows = max_rows
        self._source = source
        self._budget = budget
        # What is held lies in one buffer, since new memory costs more than what is done with it.
        self._buffer = np.empty(0, np.uint8)
        self._begin = 0
        self._end = 0
        self._offset = 0
        #: Of the lines that are held, as `find_lines` fills them.
        self._starts = self._ends = np.empty(0, np.int64)
        self._state = np.zeros(rows.NUM_STATE, np.int64)

    def __iter__(self) -> Iterator[Lines]:
        for piece in self._pieces():
            self._budget.charge(len(piece), "Lines of NDJSON")
            self._hold(piece)
            while self._find_enough():
                yield self._take()
            begun = self._end - self._begin - int(self._state[rows.BEGIN])
            if begun > self._budget.limits.max_record_bytes:
                yield self._take_rest()
        if self._end > self._begin:
            yield self._take_rest()

    def _pieces(self) -> Iterator[bytes]:
        """The body, without a byte order mark in front."""
        head = self._source.read(_CHUNK)
        while len(head) < len(_BOM) and _BOM.startswith(head) and (piece := self._source.read(_CHUNK)):
            head += piece
        if head.startswith(_BOM):
            self._offset = len(_BOM)
            head = head[len(_BOM) :]
        if head:
            yield head
        while piece := self._source.read(_CHUNK):
            yield piece

    def _hold(self, piece: bytes) -> None:
        held = self._end - self._begin
        if self._end + len(piece) > len(self._buffer):
            buffer = self._buffer
            if held + len(piece) > len(buffer):
                # A long line doubles it, or copying would take the square of the time.
                room = 2 * held if held > MAX_TEXT else MAX_TEXT + _CHUNK if len(buffer) else 0
                buffer = np.empty(max(held + len(piece), room), np.uint8)
            buffer[:held] = self._buffer[self._begin : self._end]
            self._buffer, self._begin, self._end = buffer, 0, held
        begin, self._end = self._end, self._end + len(piece)
        self._buffer[begin : self._end] = np.frombuffer(piece, np.uint8)

    def _find_enough(self) -> bool:
        """Whether the lines that are held fill a block."""
        if not self._state[rows.COUNT]:
            self._starts, self._ends = np.empty((2, self.max_rows), np.int64)
        held = self._buffer[self._begin : self._end]
        return kernels.load().find_lines(held, MAX_TEXT, self._starts, self._ends, self._state)

    def _take_rest(self) -> Lines:
        if self._state[rows.BEGIN] < self._end - self._begin:
            # The last line lacks its line feed.
            self._hold(b"\n")
            self._find_enough()
            self._end -= 1
        return self._take()

    def _take(self) -> Lines:
        end, _, count, longest = self._state.tolist()
        self._state[:] = 0
        size = min(end, self._end - self._begin)
        text = self._buffer[self._begin : self._begin + size].data
        self._begin += size
        offset, self._offset = self._offset, self._offset + size
        return Lines(text, self._starts[:count], self._ends[:count], longest, offset)
