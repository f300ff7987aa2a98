"""The lines of NDJSON, some whole ones at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...domain.limits import MIB
from ...runtime.budget import Budget
from ...runtime.streams import ByteStream

__all__ = ["LineReader", "Lines"]

_CHUNK: Final = 1 * MIB
_BOM: Final = b"\xef\xbb\xbf"
#: Lines are handed out when they are so long together, even if they are fewer than was asked for.
_MAX_TEXT: Final = 4 * MIB
_LINE_FEED: Final = 0x0A
_SPACE: Final = 0x20
#: By byte: whether a line that holds it is more than whitespace (RFC 8259, section 2).
_IS_FILLED: Final = ~np.isin(np.arange(256), list(b" \t\r\n"))


@dataclass(frozen=True, slots=True)
class Lines:
    """Consecutive lines.

    Attributes:
        text: with their line feeds; the last one may lack it.
        starts, ends: of the lines that are not blank, without their line feeds.
        longest: bytes of the longest line, blank ones included.
        offset: of the text in the body.
    """

    text: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    longest: int
    offset: int


class LineReader:
    """Cuts a body into blocks of lines.

    The text is charged with the bytes it takes when they are read; whoever takes it releases them. A line
    that grows past `Limits.max_record_bytes` is handed out as far as it was read.

    Attributes:
        max_rows: of lines that are not blank in one block; may change between blocks.
    """

    def __init__(self, source: ByteStream, budget: Budget, max_rows: int) -> None:
        self.max_rows = max_rows
        self._source = source
        self._budget = budget
        self._held = bytearray()
        self._offset = 0
        # Of each whole line that is held: where it ends, and whether it is a row.
        self._ends = np.empty(0, np.int64)
        self._is_row = np.empty(0, np.bool_)

    def __iter__(self) -> Iterator[Lines]:
        for piece in self._pieces():
            self._budget.charge(len(piece), "Lines of NDJSON")
            feeds = np.flatnonzero(np.frombuffer(piece, np.uint8) == _LINE_FEED) + len(self._held)
            self._held += piece
            self._add(feeds)
            while count := self._count_full():
                yield self._take(count)
            if len(self._held) - self._begun() > self._budget.limits.max_record_bytes:
                yield self._take_rest()
        if self._held:
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

    def _begun(self) -> int:
        """Where the line begins that is not whole yet."""
        return int(self._ends[-1]) + 1 if len(self._ends) else 0

    def _add(self, ends: NDArray[np.int64]) -> None:
        if not len(ends):
            return
        starts = np.concatenate([[self._begun()], ends[:-1] + 1])
        view = np.frombuffer(self._held, np.uint8)
        is_row = view[starts] > _SPACE
        indented = np.flatnonzero(~is_row & (starts < ends))
        if len(indented):
            begin, end = int(starts[indented[0]]), int(ends[indented[-1]])
            filled = np.flatnonzero(_IS_FILLED[view[begin : end + 1]]) + begin
            following = np.append(filled, end)[np.searchsorted(filled, starts[indented])]
            is_row[indented] = following < ends[indented]
        self._ends = np.concatenate([self._ends, ends])
        self._is_row = np.concatenate([self._is_row, is_row])

    def _count_full(self) -> int:
        """How many lines fill a block, or 0."""
        by_rows = int(np.searchsorted(np.cumsum(self._is_row), self.max_rows))
        by_text = int(np.searchsorted(self._ends, _MAX_TEXT - 1))
        count = min(by_rows, by_text) + 1
        return count if count <= len(self._ends) else 0

    def _take_rest(self) -> Lines:
        if self._begun() < len(self._held):
            self._held += b"\n"
            self._add(np.array([len(self._held) - 1]))
            lines = self._take(len(self._ends))
            return replace(lines, text=lines.text[:-1])
        return self._take(len(self._ends))

    def _take(self, count: int) -> Lines:
        ends, is_row = self._ends[:count], self._is_row[:count]
        starts = np.concatenate([[0], ends[:-1] + 1])
        size = int(ends[-1]) + 1
        text = bytes(memoryview(self._held)[:size])
        del self._held[:size]
        self._ends, self._is_row = self._ends[count:] - size, self._is_row[count:]
        offset, self._offset = self._offset, self._offset + size
        return Lines(text, starts[is_row], ends[is_row], int((ends - starts).max()), offset)
