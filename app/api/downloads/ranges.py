"""The `Range` header: which bytes of a file a client asks for (RFC 9110, section 14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: A header with more ranges is ignored, as RFC 9110 (section 14.2) allows: each costs a request to the
#: store. Readers of columnar files ask for some ten at a time.
_MAX_RANGES: Final = 64


@dataclass(frozen=True, slots=True)
class ByteRange:
    """`length` bytes from `offset`."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        return self.offset + self.length


class RangeUnsatisfiable(Exception):
    """No range of the header has a byte of the file."""


def parse_ranges(value: str | None, size: int) -> tuple[ByteRange, ...] | None:
    """The ranges of a `Range` header; None where the whole file is to be sent.

    Ranges that overlap or touch are sent as one, so that no answer is longer than the file; the others
    keep the order in which they were asked for. What lies outside of the file is left out.

    A header that is not understood, or that names too many ranges, is ignored.

    Raises:
        RangeUnsatisfiable: no byte of the file lies in any range.
    """
    unit, _, text = (value or "").partition("=")
    # A list may have empty members (RFC 9110, section 5.6.1).
    specs = [spec for part in text.split(",", 16 * _MAX_RANGES) if (spec := part.strip(" \t"))]
    if unit.strip().lower() != "bytes" or not specs or len(specs) > _MAX_RANGES:
        return None
    found: list[ByteRange] = []
    for spec in specs:
        bounds = _bounds(spec)
        if bounds is None:
            return None
        found += _within(*bounds, size)
    if not found:
        raise RangeUnsatisfiable
    return _coalesce(found)


def _bounds(spec: str) -> tuple[int | None, int | None] | None:
    """First and last byte as written: `5-9`, `5-`, or `-9` for the last nine; None if it is none of them."""
    first, dash, last = (part.strip(" \t") for part in spec.partition("-"))
    known = all(
        part == "" or (part.isascii() and part.isdigit() and len(part) < 20) for part in (first, last)
    )
    if not dash or not known or not (first or last):
        return None
    if first and last and int(last) < int(first):
        return None
    return int(first) if first else None, int(last) if last else None


def _within(first: int | None, last: int | None, size: int) -> list[ByteRange]:
    """What of the range lies in the file, if anything."""
    if first is None:
        first = max(0, size - (last or 0))
        last = None
    end = size if last is None else min(last + 1, size)
    return [ByteRange(first, end - first)] if first < end else []


def _coalesce(ranges: list[ByteRange]) -> tuple[ByteRange, ...]:
    order = sorted(range(len(ranges)), key=lambda number: ranges[number].offset)
    merged: list[tuple[int, ByteRange]] = []
    for number in order:
        found = ranges[number]
        if merged and found.offset <= merged[-1][1].end:
            asked, before = merged.pop()
            end = max(before.end, found.end)
            number, found = min(asked, number), ByteRange(before.offset, end - before.offset)
        merged.append((number, found))
    return tuple(found for _, found in sorted(merged, key=lambda item: item[0]))
