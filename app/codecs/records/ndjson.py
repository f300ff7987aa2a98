"""Records as NDJSON: one JSON object a line, read and written as a stream.

Source: github.com/ndjson/ndjson-spec, version 1.0: UTF-8, lines end with LF or CRLF, the last one may
lack it; blank lines are skipped. A line is always one row, never an envelope.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from ...domain.limits import MIB, Budget
from ...domain.streams import Buffer, ByteStream
from ...errors import AmbiguousInput, InputError, LimitExceeded
from ..json_out import gather
from ..json_text import JsonDocument, parse_json
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from .columns import MAX_BATCH_ROWS, Records
from .json_blocks import RowBlock, records_from_blocks
from .json_cells import row_texts, slices

__all__ = ["decode", "encode", "require_row"]

_CHUNK: Final = 1 * MIB
#: A batch ends here even when it has fewer rows than `MAX_BATCH_ROWS`.
_MAX_BATCH_TEXT: Final = 4 * MIB
#: The whitespace of JSON, less the line feed.
_BLANK: Final = b" \t\r"


def decode(source: ByteStream, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The lines of the body as rows, a batch at a time.

    Raises:
        MalformedInput: a line that is not JSON, or no object; with `row` and `offset`.
        LimitExceeded: a line longer than `Limits.max_record_bytes` (`record_too_large`).
        InputError: as `records_from_blocks`.
    """
    return records_from_blocks(_blocks(source, options, budget), options, budget)


def encode(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:  # noqa: ARG001 (one signature for all)
    """One line a row, written as the batches come.

    Raises:
        InputError: a value that has no text under these options.
    """
    return gather(_line_texts(records, options))


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


def _blocks(source: ByteStream, options: RecordsDecodeOptions, budget: Budget) -> Iterator[RowBlock]:
    bare = options.nonfinite == "bare"
    rows: list[dict[str, Any]] = []
    first_row = text_bytes = held_bytes = 0
    for offset, line in _lines(source, budget):
        row = first_row + len(rows)
        if len(line) > budget.limits.max_record_bytes:
            raise _too_long(budget, row, offset)
        if line.strip(_BLANK):
            try:
                document = parse_json(line, budget, bare_nonfinite=bare)
                rows.append(require_row(document))
            except InputError as error:
                inside = error.location.offset or 0
                error.location = replace(error.location, row=row, offset=offset + inside)
                raise
            held_bytes += document.num_bytes
        text_bytes += len(line) + 1
        if len(rows) == MAX_BATCH_ROWS or text_bytes >= _MAX_BATCH_TEXT:
            yield RowBlock(rows, held_bytes + text_bytes, first_row)
            first_row += len(rows)
            rows, text_bytes, held_bytes = [], 0, 0
    yield RowBlock(rows, held_bytes + text_bytes, first_row)


def _too_long(budget: Budget, row: int, offset: int) -> LimitExceeded:
    return LimitExceeded(
        f"The line of row {row} is longer than {budget.limits.max_record_bytes} bytes.",
        code="record_too_large",
        row=row,
        offset=offset,
    )


def _lines(source: ByteStream, budget: Budget) -> Iterator[tuple[int, bytes]]:
    """Each line without its line feed, and the offset where it begins.

    A line is charged with the bytes it takes when they are read; whoever takes it releases them. One
    that grows past `Limits.max_record_bytes` is handed out as far as it was read, and fails there.
    """
    begun: list[bytes] = []
    begun_bytes = offset = 0
    while piece := source.read(_CHUNK):
        budget.charge(len(piece), "Lines of NDJSON")
        first, *others = piece.split(b"\n")
        begun.append(first)
        begun_bytes += len(first)
        if not others and begun_bytes <= budget.limits.max_record_bytes:
            continue
        for line in (b"".join(begun), *others[:-1]):
            yield offset, line
            offset += len(line) + 1
        begun = others[-1:]
        begun_bytes = sum(map(len, begun))
    if begun_bytes:
        yield offset, b"".join(begun)
