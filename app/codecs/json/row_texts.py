"""Rows that come as texts of JSON, a block of them at a time: lines of NDJSON, or the objects of an array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from ...domain.schema import Schema
from ...errors import AmbiguousInput, InputError, LimitExceeded
from ...runtime.budget import Budget
from ..columns import MAX_BATCH_ROWS, Records
from ..options import RecordsDecodeOptions
from ..records.lease import Lease
from ..schema_inference import HEAD_ROWS
from .blocks import RowBlock, records_from_blocks
from .ndjson_lines import Lines
from .numbers import NotPlain
from .plain import plain_rows
from .text import JsonDocument, parse_json

__all__ = ["RowTexts", "head_rows", "records_from_texts", "require_row"]


class RowTexts(Protocol):
    """Cuts a body into blocks of rows, each of which is a text.

    A block is charged with the bytes of its text when it is made; whoever takes it releases them.

    Attributes:
        max_rows: in one block; may change between blocks.
    """

    max_rows: int

    def __iter__(self) -> Iterator[Lines]: ...


def head_rows(options: RecordsDecodeOptions) -> int:
    """How many rows the first block may have: those that a schema is inferred from, where it has to be."""
    return HEAD_ROWS if options.schema is None and options.infer == "head" else MAX_BATCH_ROWS


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
        InputError: as `records_from_blocks`.
    """
    blocks = _TextBlocks(reader, options, budget, enclosed_by)
    return records_from_blocks(iter(blocks), options, budget, blocks.plain_batches)


def require_row(document: JsonDocument) -> dict[str, Any]:
    """The one row that a line or an example is.

    Raises:
        AmbiguousInput: not a JSON object.
    """
    if not isinstance(document.value, dict):
        raise AmbiguousInput(
            'A row is one JSON object, {"name": value, ...}. Several rows are sent as records: one object a '
            "line (application/x-ndjson), or [{...}, {...}] (application/json)."
        )
    return document.value


class _TextBlocks:
    """The blocks of a body: parsed ones, or as batches of plain rows once the schema is known."""

    def __init__(
        self, reader: RowTexts, options: RecordsDecodeOptions, budget: Budget, enclosed_by: int
    ) -> None:
        self._options = options
        self._budget = budget
        self._enclosed_by = enclosed_by
        self._reader = reader
        self._blocks = iter(reader)
        self._next: Lines | None = None
        self._first_row = 0

    def __iter__(self) -> Iterator[RowBlock]:
        while (lines := self._peek()) is not None:
            block = self._parse(lines)
            self._pass(lines)
            if block.rows:
                yield block
            else:
                self._budget.release(block.num_bytes)

    def plain_batches(self, schema: Schema, row: int) -> Iterator[pa.RecordBatch]:
        """As `PlainBatches`."""
        self._reader.max_rows = MAX_BATCH_ROWS
        reader = plain_rows(schema, declared=self._options.schema is not None)
        while reader is not None and row == self._first_row and (lines := self._peek()) is not None:
            with Lease(self._budget) as lease:
                try:
                    batch = reader.read(lines, lease)
                except (NotPlain, LimitExceeded):
                    return
                self._pass(lines)
                row = self._first_row
                yield batch
            self._budget.release(len(lines.text))

    def _peek(self) -> Lines | None:
        if self._next is None:
            self._next = next(self._blocks, None)
        return self._next

    def _pass(self, lines: Lines) -> None:
        self._next = None
        self._first_row += len(lines.starts)

    def _parse(self, lines: Lines) -> RowBlock:
        bare = self._options.nonfinite == "bare"
        rows: list[dict[str, Any]] = []
        num_bytes = len(lines.text)
        for start, end in zip(lines.starts.tolist(), lines.ends.tolist(), strict=True):
            row, offset = self._first_row + len(rows), lines.offset + start
            if end - start > self._budget.limits.max_record_bytes:
                raise _too_long(self._budget, row, offset)
            try:
                document = parse_json(
                    lines.text[start:end],
                    self._budget,
                    bare_nonfinite=bare,
                    enclosed_by=self._enclosed_by,
                )
                rows.append(require_row(document))
            except InputError as error:
                inside = error.location.offset or 0
                error.location = replace(error.location, row=row, offset=offset + inside)
                raise
            num_bytes += document.num_bytes
        if lines.longest > self._budget.limits.max_record_bytes:
            raise _too_long(self._budget, self._first_row + len(rows), lines.offset)
        return RowBlock(rows, num_bytes, self._first_row)


def _too_long(budget: Budget, row: int, offset: int) -> LimitExceeded:
    return LimitExceeded(
        f"The text of row {row} is longer than {budget.limits.max_record_bytes} bytes.",
        code="record_too_large",
        row=row,
        offset=offset,
    )
