"""Split the text of a CSV into fields, as strings, one block of whole lines at a time.

Source: RFC 4180; UTF-8, with or without a byte order mark. `pyarrow.csv` splits the lines. It accepts an open
quote, text around a quoted field and a NUL, so these are refused first. Blank lines are
skipped where a row has more than one field; where it has one, they are rows that lack it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv  # noqa: TID251  # the one place

from ...domain.limits import KIB, MIB
from ...errors import LimitExceeded, MalformedInput
from ...runtime.budget import Budget
from ...runtime.streams import ByteStream
from ..arrow.elements import first_not_utf8
from ..columns import MAX_BATCH_ROWS, Strings
from ..options import CsvDialect
from ..records.lease import Lease

T = TypeVar("T")

_CHUNK: Final = 1 * MIB
_BOM: Final = b"\xef\xbb\xbf"
_QUOTE, _LF, _CR = b'"\n\r'
#: The most bytes that pyarrow holds for a byte of text, and for a column, while it splits lines.
_BYTES_A_BYTE: Final = 16
_BYTES_A_COLUMN: Final = 5 * KIB
#: The name for pandas' first column, which it writes without a name.
_INDEX: Final = "index"


@dataclass(frozen=True, slots=True)
class Block:
    """Some consecutive rows.

    Attributes:
        fields: a column of strings for each in the header; an empty one without quotes is null.
        first_row: where they begin in the whole input.
        num_bytes: what is charged for them.
    """

    fields: pa.RecordBatch
    first_row: int
    num_bytes: int


class LineReader:
    """Reads lines of one dialect."""

    def __init__(self, dialect: CsvDialect, budget: Budget) -> None:
        self._delimiter = dialect.delimiter.encode()
        self._nulls = ["", *dialect.nulls]
        self._budget = budget
        self._width = 0

    def read(self, source: ByteStream) -> tuple[list[str], Iterator[Block]]:
        """The names in the header, and the rows below it."""
        pieces = whole_lines(source, self._budget, "CSV", _last_line_end, " Is a quote open?")
        first = next(pieces, b"")
        if first.startswith(_BOM):
            first = first[len(_BOM) :]
        end = end_of_line(first)
        names = self._read_names(first[:end])
        self._width = len(names)
        self._budget.release(end)
        return names, self._blocks(chain((first[end:],), pieces))

    def _read_names(self, line: bytes) -> list[str]:
        if not line.strip(b"\r\n"):
            raise MalformedInput(
                "The body is empty; the first line of a CSV names the columns.", code="no_header", row=0
            )
        self._check(line, None)
        # An upper bound: delimiters in quotes count, too.
        num_columns = line.count(self._delimiter) + 1
        if num_columns > self._budget.limits.max_features:
            raise LimitExceeded(
                f"The CSV has {num_columns} columns; at most {self._budget.limits.max_features} are allowed. "
                "Send fewer columns.",
                code="too_many_features",
                row=0,
            )
        with Lease(self._budget) as lease:
            lease.charge(self._size_of(line, num_columns), "The header of a CSV, split,")
            table = pa_csv.read_csv(
                _source(line),
                pa_csv.ReadOptions(use_threads=False, block_size=len(line) + len(_BOM) + 1),
                pa_csv.ParseOptions(delimiter=self._delimiter.decode(), newlines_in_values=True),
            )
        names: list[str] = table.column_names
        if len(names) > 1 and not names[0]:
            names[0] = _INDEX
        return names

    def _size_of(self, text: bytes, width: int) -> int:
        return _BYTES_A_BYTE * len(text) + _BYTES_A_COLUMN * width

    def _blocks(self, pieces: Iterable[bytes]) -> Iterator[Block]:
        row = 0
        for text in pieces:
            if not text:
                continue
            num_bytes = self._size_of(text, self._width)
            self._budget.charge(num_bytes, "Lines of CSV, split,")
            self._check(text, row)
            table = self._parse(text, row)
            held = num_bytes + len(text)
            if not table.num_rows:
                self._budget.release(held)
                continue
            last = row + table.num_rows
            for fields in table.to_batches(MAX_BATCH_ROWS):
                first, row = row, row + fields.num_rows
                yield Block(fields, first, held if row == last else 0)

    def _parse(self, text: bytes, first_row: int) -> pa.Table:
        ragged: list[pa_csv.InvalidRow] = []

        def refuse(line: pa_csv.InvalidRow) -> Literal["skip", "error"]:
            ragged.append(line)
            return "error"

        names = [str(index) for index in range(self._width)]
        try:
            return pa_csv.read_csv(
                _source(text),
                pa_csv.ReadOptions(
                    use_threads=False, block_size=len(text) + len(_BOM) + 1, column_names=names
                ),
                pa_csv.ParseOptions(
                    delimiter=self._delimiter.decode(),
                    newlines_in_values=True,
                    # Of one column an empty line is a row.
                    ignore_empty_lines=self._width > 1,
                    invalid_row_handler=refuse,
                ),
                pa_csv.ConvertOptions(
                    check_utf8=False,  # `_check` has
                    column_types=dict.fromkeys(names, pa.string()),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    null_values=self._nulls,
                ),
            )
        except pa.ArrowInvalid:
            if ragged:
                row = first_row + (ragged[0].number or 1) - 1  # one thread knows it
                raise MalformedInput(
                    f"Row {row} has {ragged[0].actual_columns} fields, but the header names {self._width}. "
                    "Correct the line; a field that holds the delimiter needs quotes.",
                    code="ragged_line",
                    row=row,
                ) from None
            raise

    def _check(self, text: bytes, first_row: int | None) -> None:
        """Refuse what pyarrow would accept silently.

        Args:
            first_row: of the text; None is the header.
        """
        # First: the faults below split the rows before them, and pyarrow decodes one of the wrong width.
        characters = Strings(np.frombuffer(text, np.uint8), np.array([0, len(text)], np.int64))
        if not text.isascii() and first_not_utf8(characters) is not None:
            try:
                text.decode()
            except UnicodeDecodeError as error:
                what = "There is text that is not UTF-8"
                raise self._fault(text, error.start, what, first_row, "invalid_utf8") from None
        if (position := text.find(b"\0")) >= 0:
            raise self._fault(text, position, "There is a NUL byte", first_row)
        self._check_quoting(text, first_row)

    def _check_quoting(self, text: bytes, first_row: int | None) -> None:
        has_quotes, has_returns = b'"' in text, b"\r" in text
        if not has_quotes and not has_returns:
            return
        raw = np.frombuffer(text, np.uint8)
        quotes = np.flatnonzero(raw == _QUOTE)
        if has_quotes:
            self._check_quotes(text, raw, quotes, first_row)
        if has_returns:
            returns = np.flatnonzero(raw == _CR)
            bare = returns[raw[np.minimum(returns + 1, len(raw) - 1)] != _LF]
            outside = bare[np.searchsorted(quotes, bare) % 2 == 0]
            if len(outside):
                what = "A carriage return stands without line feed and quotes"
                raise self._fault(text, int(outside[0]), what, first_row)

    def _check_quotes(self, text: bytes, raw: Any, quotes: Any, first_row: int | None) -> None:
        """Quotes alternate between the start and the end of a field; two in a row inside it mean one."""
        if len(quotes) % 2:
            raise self._fault(text, int(quotes[-1]), "A quote is opened and never closed", first_row)
        opening, closing = quotes[::2], quotes[1::2]
        delimiter = self._delimiter[0]
        before = raw[np.maximum(opening - 1, 0)]
        begins = (opening == 0) | (before == delimiter) | (before == _LF) | (before == _QUOTE)
        after = raw[np.minimum(closing + 1, len(raw) - 1)]
        ends = (after == delimiter) | (after == _LF) | (after == _CR) | (after == _QUOTE)
        for positions, right in ((opening, begins), (closing, ends)):
            if not right.all():
                what = 'A quote stands inside a field; write the field in quotes, and "" for the quote,'
                raise self._fault(text, int(positions[np.argmin(right)]), what, first_row)

    def _fault(
        self, text: bytes, position: int, what: str, first_row: int | None, code: str = "invalid_csv"
    ) -> MalformedInput:
        if first_row is None:
            return MalformedInput(f"{what} in the header of the CSV.", code=code, row=0)
        before = text[: _last_line_end(text[:position])]
        row = first_row + (self._parse(before, first_row).num_rows if before else 0)
        return MalformedInput(f"{what} in row {row} of the CSV.", code=code, row=row)


def _source(text: bytes) -> Any:
    """The text behind a byte order mark, if it begins with one itself: pyarrow passes over the first."""
    return pa.BufferReader(_BOM + text if text.startswith(_BOM) else text)


def end_of_line(text: bytes) -> int:
    """Where the first line ends that does not end inside quotes."""
    end = quotes = 0
    while True:
        begin, end = end, text.find(b"\n", end) + 1
        if not end:
            return len(text)
        quotes += text.count(b'"', begin, end)
        if quotes % 2 == 0 and end > begin:
            return end


def whole_lines(
    source: ByteStream, budget: Budget, form: str, find_end: Callable[[bytearray], int], hint: str = ""
) -> Iterator[bytes]:
    """The text in pieces that end with a line, charged as they are read; the caller releases them.

    Args:
        form: names the text in errors.
        find_end: finds where the last whole line of a text ends; 0 where none does.
        hint: what may be wrong where a line is too long.

    Raises:
        LimitExceeded: a line longer than `Limits.max_record_bytes` (`record_too_large`).
    """
    what = f"Lines of {form}"
    begun = bytearray()
    offset = 0
    needed = _CHUNK
    while piece := source.read(_CHUNK):
        budget.charge(len(piece), what)
        begun += piece
        if len(begun) < needed:
            continue
        if end := find_end(begun):
            yield _take_line(begun, end, budget, what)
            offset += end
        if len(begun) > budget.limits.max_record_bytes:
            raise LimitExceeded(
                f"A line of {form} is longer than {budget.limits.max_record_bytes} bytes.{hint}",
                code="record_too_large",
                offset=offset,
            )
        # An incomplete line is searched again when there is twice as much of it.
        needed = max(_CHUNK, 2 * len(begun))
    if begun:
        if not begun.endswith(b"\n"):
            budget.charge(1, what)
            begun += b"\n"
        yield _take_line(begun, len(begun), budget, what)


def _take_line(begun: bytearray, end: int, budget: Budget, what: str) -> bytes:
    """Take the first `end` bytes out; they are charged twice while they are there twice."""
    budget.charge(end, what)
    with memoryview(begun) as view:
        text = bytes(view[:end])
    del begun[:end]
    budget.release(end)
    return text


def _last_line_end(text: bytes | bytearray) -> int:
    """The end of the last line feed that has an even number of quotes before it, or 0."""
    # Not `text.count`, which takes ten times as long.
    quotes = np.count_nonzero(np.frombuffer(text, np.uint8) == _QUOTE) if _QUOTE in text else 0
    end = len(text)
    while True:
        found = text.rfind(_LF, 0, end) + 1
        if not found:
            return 0
        quotes -= text.count(_QUOTE, found, end)
        if quotes % 2 == 0:
            return found
        # Inside quotes: back to the one that opened them.
        end = text.rfind(_QUOTE, 0, found - 1)
        quotes -= 1


def drain(blocks: list[T]) -> Iterator[T]:
    """The blocks in order; each is removed from the list, so that none is kept."""
    blocks.reverse()
    while blocks:
        yield blocks.pop()
