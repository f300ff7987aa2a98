"""What the pages of a Parquet file take in memory, found before any of them is read.

The footer says how large everything is, and nothing holds it to that: a page header of 30 bytes can declare
2^31 values. Arrow allocates what headers declare, so they are walked here first. Within a column without
lists a value is a row, and the pages that a batch of rows touches are known. Behind lists it is not known
how the values are spread over the rows: one row could have all of them.

Source: github.com/apache/parquet-format, `src/main/thrift/parquet.thrift`, version 2.12.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ...domain.limits import KIB, MIB
from ...errors import MalformedInput
from ...runtime.streams import ByteFile
from .parquet_footer import ColumnChunk
from .thrift import Incomplete, parse_struct

__all__ = ["ColumnPages", "column_pages"]

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_HEADER_BYTES: Final = 1 * KIB
#: As in Arrow (`kDefaultMaxPageHeaderSize`).
_MAX_HEADER_BYTES: Final = 16 * MIB
_MAX_PAGE_BYTES: Final = 2**31 - 1
#: Definition and repetition level of a value, and its offset or its index in a dictionary.
_LEVEL_BYTES: Final = 8


@dataclass(slots=True)
class ColumnPages:
    """The pages of one column in one row group.

    Attributes:
        repeated: it has lists, so that a row may have any number of values.
        value_bytes: of one value in memory; 0 where values are as large as their bytes.
        pages: values and inflated bytes of each.
        largest: what one page takes, as stored and inflated.
        dictionary_bytes: of the dictionary, inflated.
    """

    repeated: bool
    value_bytes: int
    pages: list[tuple[int, int]] = field(default_factory=list)
    largest: int = 0
    dictionary_bytes: int = 0

    @property
    def num_values(self) -> int:
        return sum(count for count, _ in self.pages)

    @property
    def num_bytes(self) -> int:
        return self.dictionary_bytes + sum(size for _, size in self.pages)

    def held_bytes(self, num_rows: int) -> int:
        """What reading `num_rows` rows, whichever they are, takes at most."""
        values = self.num_values if self.repeated else min(num_rows, self.num_values)
        overhead = self.largest + 2 * self.dictionary_bytes
        # A value cannot be larger than its dictionary or its page.
        return overhead + values * (_LEVEL_BYTES + self.value_bytes) + self._content_bytes(num_rows)

    def _content_bytes(self, num_rows: int) -> int:
        """The inflated bytes of the pages that `num_rows` rows in sequence touch, at most."""
        if self.value_bytes:
            return 0
        if self.repeated:
            return sum(size for _, size in self.pages)
        most = held = count = start = 0
        for values, size in self.pages:
            held += size
            count += values
            # What lies before the window, which ends inside this page and begins inside another one.
            while count - self.pages[start][0] - values + 1 >= num_rows:
                held -= self.pages[start][1]
                count -= self.pages[start][0]
                start += 1
            most = max(most, held)
        return most


def column_pages(file: ByteFile, chunk: ColumnChunk) -> ColumnPages:
    """The pages of a column of a row group.

    Raises:
        MalformedInput: a header that is corrupt, or leads out of its column (`invalid_parquet`).
    """
    if chunk.stop > file.size:
        raise _broken(f"Column {chunk.path[:64]!r} lies outside of the file")
    found = ColumnPages(chunk.repeated, chunk.value_bytes)
    seen = 0
    for header in _headers(file, chunk.start, chunk.stop):
        kind, inflated, stored = (header.get(number, -1) for number in (1, 2, 3))
        if not _is_size(inflated) or not _is_size(stored):
            raise _broken(f"A page of column {chunk.path[:64]!r} declares an impossible size")
        found.largest = max(found.largest, inflated + stored)
        if kind == _DICTIONARY:
            found.dictionary_bytes += inflated
        elif kind in (_DATA, _DATA_V2):
            count = _num_values(header.get(5 if kind == _DATA else 8))
            found.pages.append((count, inflated))
            seen += count
        if seen >= chunk.num_values:
            break
    return found


def _is_size(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= _MAX_PAGE_BYTES


def _num_values(header: Any) -> int:
    count = header.get(1, -1) if isinstance(header, dict) else -1
    if not isinstance(count, int) or not _is_size(count):
        raise _broken("A page declares an impossible number of values")
    return count


def _headers(file: ByteFile, position: int, stop: int) -> Iterator[dict[int, Any]]:
    while position < stop:
        header, size = _read_header(file, position)
        yield header
        stored = header.get(3)
        if not isinstance(stored, int) or stored < 0:
            raise _broken("A page has no size")
        position += size + stored


def _read_header(file: ByteFile, position: int) -> tuple[dict[int, Any], int]:
    size = _HEADER_BYTES
    while size <= _MAX_HEADER_BYTES:
        data = file.read_at(position, size)
        try:
            return parse_struct(data)
        except Incomplete:
            if len(data) < size:
                break
            size *= 4
    raise _broken(f"The page at byte {position} has a header that does not end")


def _broken(what: str) -> MalformedInput:
    return MalformedInput(f"{what}.", code="invalid_parquet")
