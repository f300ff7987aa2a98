"""Compute the memory that the pages of a Parquet file take, before any of them is read.

The footer says how large everything is, and nothing holds it to that: a page header of 30 bytes can declare
2^31 values. Arrow allocates what headers declare, so they are walked here first. Within a column without
lists a value is a row, and the pages that a batch of rows touches are known. Behind lists it is not known
how the values are spread over the rows: one row could have all of them.

A page of strings may also become more than its bytes: a dictionary holds a string once for many values, and
DELTA_BYTE_ARRAY holds only what differs from the string before. The lengths of those are read.

Source: github.com/apache/parquet-format, `src/main/thrift/parquet.thrift`, version 2.12.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...domain.limits import KIB, MIB
from ...errors import UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import ByteFile
from .. import kernels
from .ipc import arrow_faults
from .parquet_footer import ColumnChunk, Leaf
from .thrift import Incomplete, invalid_parquet, parse_struct

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_PLAIN_DICTIONARY, _DELTA_STRINGS, _RLE_DICTIONARY = 2, 7, 8
#: Number of a compression -> name in Arrow; LZ4 in Hadoop's framing has none.
_CODECS: Final = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_UNCOMPRESSED: Final = 0
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
        pages: values of each, and the bytes that they become at most.
        largest: what one page takes, as stored and inflated.
        dictionary_bytes: of the dictionary, inflated.
        longest: bytes of the longest string in the dictionary.
        by_dictionary: its strings are looked up in the dictionary once they are read, a few rows at a time:
            written out they may be too many.
    """

    path: str
    leaf: Leaf
    pages: list[tuple[int, int]] = field(default_factory=list)
    largest: int = 0
    dictionary_bytes: int = 0
    longest: int = 0
    by_dictionary: bool = False

    @property
    def num_bytes(self) -> int:
        """The largest number of bytes that all values take, without their levels."""
        if self.leaf.value_bytes:
            return sum(count for count, _ in self.pages) * self.leaf.value_bytes
        return sum(size for _, size in self.pages)

    def held_bytes(self, num_rows: int) -> int:
        """The largest number of bytes that reading any `num_rows` rows takes."""
        values = sum(count for count, _ in self.pages)
        if not self.leaf.repeated:
            values = min(num_rows, values)
        overhead = self.largest + 2 * self.dictionary_bytes
        return overhead + values * (_LEVEL_BYTES + self.leaf.value_bytes) + self.string_bytes(num_rows)

    def string_bytes(self, num_rows: int) -> int:
        """The bytes of the pages that `num_rows` rows in sequence touch, at most."""
        if self.leaf.value_bytes:
            return 0
        if self.leaf.repeated:
            return self.num_bytes
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


def measure_pages(
    file: ByteFile, chunk: ColumnChunk, max_rows: int, max_bytes: int, budget: Budget
) -> ColumnPages:
    """The pages of a column of a row group.

    Args:
        max_rows: of a batch.
        max_bytes: that strings of a dictionary become in a batch, where they are written out at once.

    Raises:
        MalformedInput: a header that is corrupt, or leads out of its column (`invalid_parquet`).
        LimitExceeded: a page whose lengths are looked at is larger than the budget.
    """
    if chunk.stop > file.size:
        raise invalid_parquet(f"Column {chunk.path[:64]!r} lies outside of the file")
    found = ColumnPages(chunk.path, chunk.leaf)
    pages = _Pages(file, chunk, budget)
    #: The pages with strings of the dictionary written out.
    written_out: list[tuple[int, int]] = []
    seen = 0
    for header, position in pages.headers():
        kind, inflated, stored = (header.get(number, -1) for number in (1, 2, 3))
        if not _is_size(inflated) or not _is_size(stored):
            raise invalid_parquet(f"A page of column {chunk.path[:64]!r} declares an impossible size")
        found.largest = max(found.largest, inflated + stored)
        if kind == _DICTIONARY:
            found.dictionary_bytes += inflated
            if not chunk.leaf.value_bytes:
                found.longest = max(found.longest, pages.longest_string(header, position))
        elif kind in (_DATA, _DATA_V2):
            values: Any = header.get(5 if kind == _DATA else 8)
            count = _num_values(values)
            size = inflated
            encoding = values.get(2 if kind == _DATA else 4)
            if encoding == _DELTA_STRINGS and not chunk.leaf.value_bytes:
                size += pages.shared_bytes(header, position)
            found.pages.append((count, size))
            is_looked_up = encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY)
            written_out.append((count, count * found.longest if is_looked_up else size))
            seen += count
        if seen >= chunk.num_values:
            break
    if found.longest:
        in_dictionary = replace(found, by_dictionary=True)
        found.pages = written_out
        if found.string_bytes(max_rows) > max_bytes:
            return in_dictionary
    return found


def _is_size(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= _MAX_PAGE_BYTES


def _num_values(header: Any) -> int:
    count = header.get(1, -1) if isinstance(header, dict) else -1
    if not isinstance(count, int) or not _is_size(count):
        raise invalid_parquet("A page declares an impossible number of values")
    return count


class _Pages:
    """The pages of a column, and what is looked at inside of them."""

    def __init__(self, file: ByteFile, chunk: ColumnChunk, budget: Budget) -> None:
        self._file = file
        self._chunk = chunk
        self._budget = budget

    def headers(self) -> Iterator[tuple[dict[int, Any], int]]:
        """Each header, and where the page behind it begins."""
        position = self._chunk.start
        while position < self._chunk.stop:
            header, size = self._read_header(position)
            yield header, position + size
            stored = header.get(3)
            if not isinstance(stored, int) or stored < 0:
                raise invalid_parquet("A page has no size")
            position += size + stored

    def _read_header(self, position: int) -> tuple[dict[int, Any], int]:
        size = _HEADER_BYTES
        while size <= _MAX_HEADER_BYTES:
            data = self._file.read_at(position, size)
            try:
                return parse_struct(data)
            except Incomplete:
                if len(data) < size:
                    break
                size *= 4
        raise invalid_parquet(f"The page at byte {position} has a header that does not end")

    def longest_string(self, header: dict[int, Any], position: int) -> int:
        """The bytes of the longest string of a dictionary."""
        charged = self._charge(header)
        data = self._inflate(header, position, 0)
        longest = header[2] if data is None else kernels.load().longest_string(data)
        self._budget.release(charged)
        return longest

    def shared_bytes(self, header: dict[int, Any], position: int) -> int:
        """The bytes that strings of DELTA_BYTE_ARRAY have in common with the ones before them."""
        charged = self._charge(header)
        version_2 = header.get(8)
        num_levels = 0
        if isinstance(version_2, dict):
            sizes: list[Any] = [version_2.get(number, 0) for number in (5, 6)]
            if not all(map(_is_size, sizes)) or (num_levels := sum(sizes)) > header[3]:
                raise invalid_parquet("A page declares impossible levels")
        data = self._inflate(header, position, num_levels)
        if data is None:
            raise UnprocessableInput(
                f"The strings of column {self._chunk.path[:64]!r} are in DELTA_BYTE_ARRAY, which is not read "
                f"under compression number {self._chunk.codec}. Write the file with another compression.",
                code="unsupported_parquet",
            )
        start = 0
        for _ in range(0 if version_2 else self._chunk.leaf.num_levels):
            start += 4 + int.from_bytes(data[start : start + 4].tobytes(), "little")
        total = kernels.load().sum_deltas(data, start) if start < len(data) else 0
        self._budget.release(charged)
        if total < 0:
            raise invalid_parquet(f"The strings of column {self._chunk.path[:64]!r} have impossible lengths")
        return total

    def _charge(self, header: dict[int, Any]) -> int:
        num_bytes: int = header[2] + header[3]
        self._budget.charge(num_bytes, "A page of the Parquet file")
        return num_bytes

    def _inflate(self, header: dict[int, Any], position: int, num_levels: int) -> Any:
        """The content of a page behind its levels; None where its compression is not known."""
        stored = self._file.read_at(position + num_levels, header[3] - num_levels)
        version_2 = header.get(8)
        is_plain = isinstance(version_2, dict) and version_2.get(7) is False
        if self._chunk.codec == _UNCOMPRESSED or is_plain:
            return np.frombuffer(stored, np.uint8)
        name: Any = _CODECS.get(self._chunk.codec)
        if name is None:
            return None
        codec: Any = pa.Codec(name)
        with arrow_faults(f"A page of column {self._chunk.path[:64]!r}", "invalid_parquet"):
            return np.frombuffer(codec.decompress(stored, header[2] - num_levels), np.uint8)
