"""Records as NDJSON: one JSON object a line, read and written as a stream.

Source: github.com/ndjson/ndjson-spec, version 1.0: UTF-8, lines end with LF or CRLF, the last one may
lack it; blank lines are skipped, and so is a byte order mark in front. A line is always one row, never an
envelope.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream
from ..arrow.batches import batches_to_arrow
from ..columns import Records
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from .cells import row_texts
from .columns import columns_text
from .ndjson_lines import LineReader
from .out import gather
from .row_texts import head_rows, records_from_texts

__all__ = ["decode", "encode"]


def decode(source: ByteStream, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The lines of the body as rows, a batch at a time.

    Raises:
        MalformedInput: a line that is not JSON, or no object; with `row` and `offset`.
        LimitExceeded: a line longer than `Limits.max_record_bytes` (`record_too_large`).
        InputError: as `records_from_texts`.
    """
    return records_from_texts(LineReader(source, budget, head_rows(options)), options, budget)


def encode(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:
    """One line a row, written as the batches come; with `layout=columns` one line of columns a batch.

    Raises:
        UnprocessableInput: rows without any feature as columns (`not_expressible`).
        InputError: a value that has no text under these options.
    """
    texts = _batch_texts if options.layout == "columns" else _line_texts
    return gather(texts(records, options, budget))


def _batch_texts(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[str | Buffer]:
    first_row = 0
    for batch in batches_to_arrow(records.schema, records.batches, budget):
        yield from columns_text(records.schema, [batch], options, first_row)
        yield "\n"
        first_row += batch.num_rows


def _line_texts(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[str | Buffer]:
    first_row = 0
    for batch in batches_to_arrow(records.schema, records.batches, budget):
        for texts in row_texts(batch, records.schema, options, first_row, "\n"):
            yield texts.data.data
            yield "\n"
        first_row += batch.num_rows
