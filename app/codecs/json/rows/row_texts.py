"""Rows that come as texts of JSON, a block of them at a time: lines of NDJSON, or the objects of an array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NoReturn, Protocol

import numpy as np

from ....errors import (
    AmbiguousInput,
    InputError,
    LimitExceeded,
)
from ....runtime.budget import Budget
from ...columns import (
    MAX_BATCH_ROWS,
    Ints,
    Records,
)
from ...kernels.json.tape import OBJECT
from ...options import RecordsDecodeOptions
from ...schema_inference import HEAD_ROWS
from ..tape_reader import TapeReader, Unread
from ..text import parse_json
from .blocks import RowBlock, records_from_blocks
from .lines import Lines

_NOT_A_ROW: Final = (
    'A row is one JSON object, {"name": value, ...}. Several rows are sent as records: one object a '
    "line (application/x-ndjson), or [{...}, {...}] (application/json)."
)


class RowTexts(Protocol):
    """Cuts a body into blocks of rows, each of which is a text.

    A block is charged with the bytes of its text when it is made; the caller releases them.

    Attributes:
        max_rows: in one block; may change between blocks.
    """

    max_rows: int

    def __iter__(self) -> Iterator[Lines]: ...


def head_rows(options: RecordsDecodeOptions) -> int:
    """How many rows the first block may have: those that a schema is inferred from, where it has to be."""
    return HEAD_ROWS if options.schema is None and options.infer == "head" else MAX_BATCH_ROWS


def not_a_row() -> AmbiguousInput:
    """The error of a value that is to be a row, and is no object."""
    return AmbiguousInput(_NOT_A_ROW)


def records_from_texts(
    reader: RowTexts, options: RecordsDecodeOptions, budget: Budget, *, enclosed_by: int = 0
) -> Records:
    """The rows as they are read.

    Args:
        reader: of blocks of `head_rows` at most.
        enclosed_by: arrays and objects around each row.

    Raises:
        MalformedInput: a row that is not JSON, or no object; with `row` and `offset`.
        LimitExceeded: a row longer than `Limits.max_record_bytes` (`record_too_large`).
        InputError: what `records_from_blocks` raises.
    """
    return records_from_blocks(iter(_TextBlocks(reader, options, budget, enclosed_by)), options, budget)


class _TextBlocks:
    """The blocks of a body, parsed; the first one has all rows that a schema is inferred from."""

    def __init__(
        self, reader: RowTexts, options: RecordsDecodeOptions, budget: Budget, enclosed_by: int
    ) -> None:
        names = () if options.schema is None else options.schema.names
        self._bare = options.nonfinite == "bare"
        self._enclosed_by = enclosed_by
        self._tapes = TapeReader(names, budget, bare=self._bare, enclosed_by=enclosed_by)
        self._options = options
        self._budget = budget
        self._reader = reader
        self._first_row = 0
        #: What is charged for where the rows of the first block begin and end.
        self._head_bytes = 0

    def __iter__(self) -> Iterator[RowBlock]:
        blocks = iter(self._reader)
        if self._options.schema is None:
            head = self._gather_head(blocks)
            self._reader.max_rows = MAX_BATCH_ROWS
            if head is not None:
                yield from self._parse(head)
                self._budget.release(self._head_bytes)
        for lines in blocks:
            yield from self._parse(lines)

    def _gather_head(self, blocks: Iterator[Lines]) -> Lines | None:
        held: list[Lines] = []
        num_rows = 0
        for lines in blocks:
            is_too_long = self._is_too_long(lines)
            if not len(lines.starts) and not is_too_long:
                self._budget.release(len(lines.text))
                continue
            num_rows += len(lines.starts)
            # Where short rows lie takes more than the rows; twice, since the blocks are joined.
            num_bytes = 2 * (lines.starts.nbytes + lines.ends.nbytes)
            self._budget.charge(num_bytes, "Rows of JSON")
            self._head_bytes += num_bytes
            if is_too_long or (self._options.infer == "head" and num_rows >= HEAD_ROWS):
                held.append(lines)
                break
            held.append(replace(lines, text=memoryview(bytes(lines.text))))
        return _join(held, self._budget) if held else None

    def _is_too_long(self, lines: Lines) -> bool:
        return lines.longest > self._budget.limits.max_record_bytes

    def _parse(self, lines: Lines) -> Iterator[RowBlock]:
        starts, ends = lines.starts, lines.ends
        is_too_long = self._is_too_long(lines)
        if is_too_long:
            longer = np.flatnonzero(ends - starts > self._budget.limits.max_record_bytes)
            if len(longer):
                starts, ends = starts[: longer[0]], ends[: longer[0]]
        text = np.frombuffer(lines.text, np.uint8)
        try:
            tape = self._tapes.read(text, starts, ends)
        except Unread as unread:
            self._refuse(lines, unread.index)
        if not tape.roots.only(OBJECT):
            index = int(np.argmax(tape.root_kinds != OBJECT))
            raise self._located(not_a_row(), lines, index)
        if is_too_long:
            offset = lines.offset
            if len(starts) < len(lines.starts):
                offset += int(lines.starts[len(starts)])
            raise _too_long(self._budget, self._first_row + len(starts), offset)
        num_bytes = len(lines.text) + tape.num_bytes
        if len(starts):
            yield RowBlock(tape.roots, num_bytes, self._first_row)
            self._first_row += len(starts)
        else:
            self._budget.release(num_bytes)

    def _refuse(self, lines: Lines, index: int) -> NoReturn:
        """Raise the error of the first row that is wrong, which is the row of this index or one before it."""
        text = np.frombuffer(lines.text, np.uint8)
        before = self._tapes.read(text, lines.starts[:index], lines.ends[:index])
        if not before.roots.only(OBJECT):
            raise self._located(not_a_row(), lines, int(np.argmax(before.root_kinds != OBJECT)))
        try:
            parse_json(
                lines.text[int(lines.starts[index]) : int(lines.ends[index])],
                self._budget,
                bare_nonfinite=self._bare,
                enclosed_by=self._enclosed_by,
            )
        except InputError as error:
            raise self._located(error, lines, index) from None
        raise AssertionError("called for a text that is strict JSON")  # pragma: no cover

    def _located(self, error: InputError, lines: Lines, index: int) -> InputError:
        offset = lines.offset + int(lines.starts[index]) + (error.location.offset or 0)
        error.location = replace(error.location, row=self._first_row + index, offset=offset)
        return error


def _join(held: list[Lines], budget: Budget) -> Lines:
    """Consecutive blocks as one, with blanks for what stands between them."""
    if len(held) == 1:
        return held[0]
    begin = held[0].offset
    size = held[-1].offset + len(held[-1].text) - begin
    budget.charge(size, "Rows of JSON")
    text = bytearray(b" ") * size
    for lines in held:
        text[lines.offset - begin : lines.offset - begin + len(lines.text)] = lines.text
        budget.release(len(lines.text))
    return Lines(
        memoryview(text),
        _shift([lines.starts for lines in held], [lines.offset - begin for lines in held]),
        _shift([lines.ends for lines in held], [lines.offset - begin for lines in held]),
        max(lines.longest for lines in held),
        begin,
    )


def _shift(positions: Sequence[Ints], offsets: Sequence[int]) -> Ints:
    """The positions of all blocks, each moved by the offset of its block."""
    found = np.concatenate(positions)
    ends = np.cumsum(list(map(len, positions))).tolist()
    for begin, end, offset in zip([0, *ends], ends, offsets, strict=False):
        found[begin:end] += offset
    return found


def _too_long(budget: Budget, row: int, offset: int) -> LimitExceeded:
    return LimitExceeded(
        f"The text of row {row} is longer than {budget.limits.max_record_bytes} bytes.",
        code="record_too_large",
        row=row,
        offset=offset,
    )
