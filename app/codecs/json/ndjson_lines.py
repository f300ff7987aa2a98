"""The lines of NDJSON, some whole ones at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...domain.limits import MIB
from ...runtime.budget import Budget
from ...runtime.streams import ByteStream

_CHUNK: Final = 1 * MIB
_BOM: Final = b"\xef\xbb\xbf"
#: Lines are handed out when they are so long together, even if they are fewer than was asked for.
_MAX_TEXT: Final = 1 * MIB
_LINE_FEED: Final = 0x0A
_SPACE: Final = 0x20
#: By byte: whether a line that holds it is more than whitespace (RFC 8259, section 2).
_IS_FILLED: Final = ~np.isin(np.arange(256), list(b" \t\r\n"))


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
        # Of each whole line that is held: where it ends, from `_begin` on, and whether it is a row.
        self._ends = np.empty(0, np.int64)
        self._is_row = np.empty(0, np.bool_)

    def __iter__(self) -> Iterator[Lines]:
        for piece in self._pieces():
            self._budget.charge(len(piece), "Lines of NDJSON")
            self._hold(piece)
            while count := self._count_full():
                yield self._take(count)
            if self._end - self._begin - self._begun() > self._budget.limits.max_record_bytes:
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
                buffer = np.empty(max(held + len(piece), min(2 * len(buffer), _MAX_TEXT + _CHUNK)), np.uint8)
            buffer[:held] = self._buffer[self._begin : self._end]
            self._buffer, self._begin, self._end = buffer, 0, held
        begin, self._end = self._end, self._end + len(piece)
        added = self._buffer[begin : self._end]
        added[:] = np.frombuffer(piece, np.uint8)
        self._add(np.flatnonzero(added == _LINE_FEED) + held)

    def _begun(self) -> int:
        """Where the line begins that is not whole yet."""
        return int(self._ends[-1]) + 1 if len(self._ends) else 0

    def _add(self, ends: NDArray[np.int64]) -> None:
        if not len(ends):
            return
        starts = np.concatenate([[self._begun()], ends[:-1] + 1])
        view = self._buffer[self._begin : self._end]
        is_row = (view[starts] > _SPACE) & (starts < ends)
        indented = np.flatnonzero(~is_row & (starts < ends))
        if len(indented):
            begin, end = int(starts[indented[0]]), int(ends[indented[-1]])
            filled = np.flatnonzero(_IS_FILLED[view[begin:end]]) + begin
            following = np.append(filled, end)[np.searchsorted(filled, starts[indented])]
            is_row[indented] = following < ends[indented]
        self._ends = np.concatenate([self._ends, ends]) if len(self._ends) else ends
        self._is_row = np.concatenate([self._is_row, is_row]) if len(self._is_row) else is_row

    def _count_full(self) -> int:
        """How many lines fill a block, or 0."""
        by_rows = int(np.searchsorted(np.cumsum(self._is_row), self.max_rows))
        by_text = int(np.searchsorted(self._ends, _MAX_TEXT - 1))
        count = min(by_rows, by_text) + 1
        return count if count <= len(self._ends) else 0

    def _take_rest(self) -> Lines:
        size = self._end - self._begin
        if self._begun() < size:
            # The last line lacks its line feed, behind which it would end.
            self._hold(b"\n")
            self._end -= 1
        return self._take(len(self._ends))

    def _take(self, count: int) -> Lines:
        ends, is_row = self._ends[:count], self._is_row[:count]
        starts = np.concatenate([[0], ends[:-1] + 1])
        size = min(int(ends[-1]) + 1, self._end - self._begin)
        text = self._buffer[self._begin : self._begin + size].data
        self._begin += size
        self._ends, self._is_row = self._ends[count:] - size, self._is_row[count:]
        offset, self._offset = self._offset, self._offset + size
        return Lines(text, starts[is_row], ends[is_row], int((ends - starts).max()), offset)
