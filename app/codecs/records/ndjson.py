"""Records as NDJSON: one JSON object a line, read and written as a stream.

Source: github.com/ndjson/ndjson-spec, version 1.0: UTF-8, lines end with LF or CRLF, the last one may
lack it; blank lines are skipped. A line is always one row, never an envelope.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ...domain.limits import Budget
from ...domain.schema import Schema
from ...domain.streams import Buffer, ByteStream
from ...errors import AmbiguousInput, InputError, LimitExceeded
from ..json_numbers import NotPlain
from ..json_out import gather
from ..json_text import JsonDocument, parse_json
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from .columns import MAX_BATCH_ROWS, Records
from .infer import HEAD_ROWS
from .json_blocks import RowBlock, records_from_blocks
from .json_cells import row_texts, slices
from .json_columns import columns_text
from .json_plain import plain_rows
from .lease import Lease
from .ndjson_lines import LineReader, Lines

__all__ = ["decode", "encode", "require_row"]


def decode(source: ByteStream, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The lines of the body as rows, a batch at a time.

    Raises:
        MalformedInput: a line that is not JSON, or no object; with `row` and `offset`.
        LimitExceeded: a line longer than `Limits.max_record_bytes` (`record_too_large`).
        InputError: as `records_from_blocks`.
    """
    blocks = _LineBlocks(source, options, budget)
    return records_from_blocks(iter(blocks), options, budget, blocks.plain_batches)


def encode(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:  # noqa: ARG001 (one signature for all)
    """One line a row, written as the batches come; with `layout=columns` one line of columns a batch.

    Raises:
        UnprocessableInput: rows without any feature as columns (`not_expressible`).
        InputError: a value that has no text under these options.
    """
    texts = _batch_texts if options.layout == "columns" else _line_texts
    return gather(texts(records, options))


def _batch_texts(records: Records, options: RecordsEncodeOptions) -> Iterator[str | Buffer]:
    first_row = 0
    for batch in records.batches:
        yield from columns_text(records.schema, [batch], options, first_row)
        yield "\n"
        first_row += batch.num_rows


def _line_texts(records: Records, options: RecordsEncodeOptions) -> Iterator[str | Buffer]:
    first_row = 0
    for batch in records.batches:
        for start, piece in slices(batch):
            yield row_texts(piece, records.schema, options, first_row + start, "\n").data.data
            yield "\n"
        first_row += batch.num_rows


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


class _LineBlocks:
    """The blocks of a body: parsed ones, or as batches of plain rows once the schema is known."""

    def __init__(self, source: ByteStream, options: RecordsDecodeOptions, budget: Budget) -> None:
        self._options = options
        self._budget = budget
        infers_head = options.schema is None and options.infer == "head"
        self._reader = LineReader(source, budget, HEAD_ROWS if infers_head else MAX_BATCH_ROWS)
        self._blocks = iter(self._reader)
        self._next: Lines | None = None
        self._first_row = 0
        self._offset = 0

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
        self._offset += len(lines.text)

    def _parse(self, lines: Lines) -> RowBlock:
        bare = self._options.nonfinite == "bare"
        rows: list[dict[str, Any]] = []
        num_bytes = len(lines.text)
        for start, end in zip(lines.starts.tolist(), lines.ends.tolist(), strict=True):
            row, offset = self._first_row + len(rows), self._offset + start
            if end - start > self._budget.limits.max_record_bytes:
                raise _too_long(self._budget, row, offset)
            try:
                document = parse_json(lines.text[start:end], self._budget, bare_nonfinite=bare)
                rows.append(require_row(document))
            except InputError as error:
                inside = error.location.offset or 0
                error.location = replace(error.location, row=row, offset=offset + inside)
                raise
            num_bytes += document.num_bytes
        if lines.longest > self._budget.limits.max_record_bytes:
            raise _too_long(self._budget, self._first_row + len(rows), self._offset)
        return RowBlock(rows, num_bytes, self._first_row)


def _too_long(budget: Budget, row: int, offset: int) -> LimitExceeded:
    return LimitExceeded(
        f"The line of row {row} is longer than {budget.limits.max_record_bytes} bytes.",
        code="record_too_large",
        row=row,
        offset=offset,
    )
