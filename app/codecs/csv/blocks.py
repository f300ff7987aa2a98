"""CSV text -> the fields of whole lines, strictly as in RFC 4180, without a Python object for each.

A quote opens or closes, by turns, so commas and line ends behind an even number of them separate. Then
every quote that opens has to stand at the start of a field, and every one that closes at its end; a
pair inside stands for one quote. Lines end with LF or CRLF. Blank lines are skipped where a row has more
than one field; where it has one, they are rows that lack it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.limits import MIB
from ...errors import LimitExceeded, MalformedInput
from ...runtime.budget import Budget
from ...runtime.streams import ByteStream
from ..columns import MAX_BATCH_ROWS

__all__ = ["CsvBlock", "read_csv_blocks"]

_CHUNK: Final = 1 * MIB
_BOM: Final = b"\xef\xbb\xbf"
_COMMA, _QUOTE, _LF, _CR = b',"\n\r'
#: Bytes held for one of text while it is taken apart: masks, counts and copies, where it is all commas.
_BYTES_A_BYTE: Final = 44

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CsvBlock:
    """Some consecutive rows.

    Attributes:
        columns: the fields of each column as strings; an empty one without quotes is null.
        first_row: where they begin in the whole input.
        num_bytes: what was charged to the budget for them.
    """

    columns: list[Any]
    first_row: int
    num_rows: int
    num_bytes: int


def read_csv_blocks(source: ByteStream, budget: Budget) -> tuple[list[str], Iterator[CsvBlock]]:
    """The names in the header, and the rows below it.

    Raises:
        MalformedInput: no header (`no_header`); while blocks are drawn: quotes that do not match, a bare
            CR or a NUL (`invalid_csv`), lines of another length (`ragged_line`), no UTF-8 (`invalid_utf8`).
        LimitExceeded: a line longer than `Limits.max_record_bytes` (`record_too_large`); too many columns
            (`too_many_features`).
    """
    pieces = _whole_lines(source, budget)
    first = next(pieces, b"")
    if first.startswith(_BOM):
        first = first[len(_BOM) :]
    end = _end_of_line(first)
    names = _names(first[:end], budget)
    return names, _blocks(first[end:], pieces, len(names), budget)


def _names(line: bytes, budget: Budget) -> list[str]:
    num_bytes = _BYTES_A_BYTE * len(line)
    budget.charge(num_bytes, "The header of a CSV, taken apart,")
    header, _ = _take_apart(line, None, -1) if line else (None, 0)
    if header is None:
        raise MalformedInput(
            "The body is empty; the first line of a CSV names the columns.", code="no_header", row=0
        )
    if len(header) > budget.limits.max_features:
        raise LimitExceeded(
            f"{len(header)} columns; at most {budget.limits.max_features} are allowed.",
            code="too_many_features",
            row=0,
        )
    names = ["" if name is None else name for name in header.to_pylist()]
    budget.release(num_bytes)
    return names


def _end_of_line(text: bytes) -> int:
    """Where the first line ends that does not end inside quotes."""
    end = quotes = 0
    while True:
        begin, end = end, text.find(b"\n", end) + 1
        if not end:
            return len(text)
        quotes += text.count(b'"', begin, end)
        if quotes % 2 == 0 and end > begin:
            return end


def _blocks(first: bytes, pieces: Iterator[bytes], width: int, budget: Budget) -> Iterator[CsvBlock]:
    row = 0
    for text in _chained(first, pieces):
        if not text:
            continue
        num_bytes = _BYTES_A_BYTE * len(text)
        budget.charge(num_bytes, "Lines of CSV, taken apart,")
        fields, num_rows = _take_apart(text, width, row)
        if fields is not None:
            places = np.arange(num_rows) * width
            columns = [fields.take(pa.array(places + column)) for column in range(width)]
            del fields
            for start in range(0, num_rows, MAX_BATCH_ROWS):
                count = min(MAX_BATCH_ROWS, num_rows - start)
                last = start + count == num_rows
                yield CsvBlock(
                    [column.slice(start, count) for column in columns],
                    row + start,
                    count,
                    num_bytes + len(text) if last else 0,
                )
            row += num_rows
        else:
            budget.release(num_bytes + len(text))


def _chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _whole_lines(source: ByteStream, budget: Budget) -> Iterator[bytes]:
    """The text in pieces that end with a line; charged when read, and left to whoever takes it."""
    begun = bytearray()
    offset = 0
    needed = _CHUNK
    while True:
        piece = source.read(_CHUNK)
        budget.charge(len(piece), "Lines of CSV")
        begun += piece
        if piece and len(begun) < needed:
            continue
        end = len(begun) if not piece else _last_line_end(begun)
        if end:
            text = bytes(begun[:end])
            if not piece and not text.endswith(b"\n"):
                text += b"\n"
            yield text
            del begun[:end]
            offset += end
        if not piece:
            return
        if len(begun) > budget.limits.max_record_bytes:
            raise LimitExceeded(
                f"A line of CSV is longer than {budget.limits.max_record_bytes} bytes. Is a quote open?",
                code="record_too_large",
                offset=offset,
            )
        # A line that is not whole yet is looked at again when there is twice as much of it.
        needed = max(_CHUNK, 2 * len(begun))


def _last_line_end(text: bytearray) -> int:
    """Behind the last line feed with an even number of quotes before it, or 0."""
    quotes = text.count(_QUOTE)
    end = len(text)
    while True:
        found = text.rfind(_LF, 0, end) + 1
        if not found:
            return 0
        quotes -= text.count(_QUOTE, found, end)
        if quotes % 2 == 0:
            return found
        end = found - 1
        # Inside quotes: back to the one that opened them.
        opened = text.rfind(_QUOTE, 0, end)
        quotes -= 1
        end = opened


def _take_apart(text: bytes, width: int | None, first_row: int) -> tuple[Any, int]:
    """The fields of whole lines, row after row, and the number of rows; None where there are none.

    Args:
        width: fields in a row; None: any number, in one row.
    """
    raw = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(raw == _QUOTE)
    open_ = np.zeros(len(raw), np.int8)
    open_[quotes[::2]] = 1
    open_[quotes[1::2]] -= 1
    inside = np.cumsum(open_, dtype=np.int8).view(np.bool_)
    line_ends = (raw == _LF) & ~inside
    ends = np.flatnonzero(((raw == _COMMA) & ~inside) | line_ends)
    fault = _Fault(np.flatnonzero(line_ends), first_row)
    if len(quotes) % 2:
        raise fault.at(int(quotes[-1]), "A quote is opened and never closed")
    fault.check_bytes(raw, inside)
    if len(quotes):
        fault.check_quotes(raw, quotes)
    starts = np.concatenate(([0], ends[:-1] + 1))
    kept = _kept(raw, quotes, ends)
    bounds = np.concatenate(([0], np.cumsum(kept)[ends]))
    quoted = raw[starts] == _QUOTE
    rows, keep = _rows(ends, line_ends, bounds, quoted, width, fault)
    if not rows:
        return None, 0
    fields = _strings(raw[kept], bounds, quoted, fault, ends)
    return fields if keep is None else fields.filter(pa.array(keep)), rows


def _kept(raw: Bytes, quotes: Ints, ends: Ints) -> NDArray[np.bool_]:
    """Which bytes are of values: no separators, no CR before a line feed, one of each pair of quotes."""
    kept = np.ones(len(raw), np.bool_)
    kept[ends] = False
    before = ends - 1
    carriage = before[(before >= 0) & (raw[before] == _CR) & (raw[ends] == _LF)]
    kept[carriage] = False
    kept[quotes[::2]] = False
    closing = quotes[1::2]
    kept[closing[raw[closing + 1] != _QUOTE]] = False
    return kept


def _rows(
    ends: Ints,
    line_ends: NDArray[np.bool_],
    bounds: Ints,
    quoted: NDArray[np.bool_],
    width: int | None,
    fault: _Fault,
) -> tuple[int, NDArray[np.bool_] | None]:
    """How many rows there are, and which fields are in them where not all are."""
    last = np.flatnonzero(line_ends[ends])
    counts = np.diff(np.concatenate(([-1], last)))
    if width is None:
        return (0 if counts[0] == 1 and bounds[1] == 0 and not quoted[0] else 1), None
    if width == 1:
        blank = np.zeros(len(last), np.bool_)
    else:
        blank = (counts == 1) & (np.diff(bounds)[last] == 0) & ~quoted[last]
    wrong = (counts != width) & ~blank
    if wrong.any():
        line = int(np.argmax(wrong))
        row = line - int(blank[:line].sum())
        raise fault.ragged(row, int(counts[line]), width)
    if not blank.any():
        return len(last), None
    keep = np.ones(len(ends), np.bool_)
    keep[last[blank]] = False
    return len(last) - int(blank.sum()), keep


def _strings(values: Bytes, bounds: Ints, quoted: NDArray[np.bool_], fault: _Fault, ends: Ints) -> Any:
    absent = (np.diff(bounds) == 0) & ~quoted
    validity = pa.py_buffer(np.packbits(~absent, bitorder="little").data)
    buffers: list[pa.Buffer | None] = [validity, pa.py_buffer(bounds.data), pa.py_buffer(values.data)]
    fields: Any = pa.Array.from_buffers(pa.large_binary(), len(absent), buffers)
    try:
        return fields.cast(pa.large_string()).cast(pa.string())
    except pa.ArrowInvalid:
        raise fault.utf8(fields, ends) from None


class _Fault:
    """Finds the row of what is wrong."""

    def __init__(self, line_ends: Ints, first_row: int) -> None:
        self._line_ends = line_ends
        self._first_row = first_row

    def at(self, position: int, what: str, code: str = "invalid_csv") -> MalformedInput:
        line = self._first_row + int(np.searchsorted(self._line_ends, position))
        where = "the header" if line < 0 else f"row {line}"
        return MalformedInput(f"{what} in {where} of the CSV.", code=code, row=max(line, 0))

    def check_bytes(self, raw: Bytes, inside: NDArray[np.bool_]) -> None:
        if not raw.all():
            raise self.at(int(np.argmin(raw)), "There is a NUL byte")
        carriage = np.flatnonzero((raw == _CR) & ~inside)
        bare = carriage[raw[np.minimum(carriage + 1, len(raw) - 1)] != _LF]
        if len(bare):
            raise self.at(int(bare[0]), "A carriage return stands without line feed and quotes")

    def check_quotes(self, raw: Bytes, quotes: Ints) -> None:
        opening, closing = quotes[::2], quotes[1::2]
        before = raw[np.maximum(opening - 1, 0)]
        begins = (opening == 0) | (before == _COMMA) | (before == _LF) | (before == _QUOTE)
        after = raw[np.minimum(closing + 1, len(raw) - 1)]
        finishes = (after == _COMMA) | (after == _LF) | (after == _CR) | (after == _QUOTE)
        for positions, right in ((opening, begins), (closing, finishes)):
            if not right.all():
                what = 'A quote stands inside a field; write the field in quotes, and "" for the quote,'
                raise self.at(int(positions[np.argmin(right)]), what)

    def ragged(self, row: int, found: int, width: int) -> MalformedInput:
        row += self._first_row
        return MalformedInput(
            f"Row {row} has {found} fields, but the header names {width}.", code="ragged_line", row=row
        )

    def utf8(self, fields: Any, ends: Ints) -> MalformedInput:
        for index, value in enumerate(fields.to_pylist()):
            try:
                (value or b"").decode()
            except UnicodeDecodeError:
                return self.at(int(ends[index]), "There is text that is not UTF-8", "invalid_utf8")
        raise AssertionError("called for text that is UTF-8")  # pragma: no cover
