"""Records as NDJSON: one JSON object a line, read as a stream.

Source: github.com/ndjson/ndjson-spec, version 1.0: UTF-8, lines end with LF or CRLF, the last one may
lack it; blank lines are skipped, and so is a byte order mark in front. A line is always one row, never an
envelope.
"""

from __future__ import annotations

from ....runtime.budget import Budget
from ....runtime.streams import ByteStream
from ...columns import Records
from ...options import RecordsDecodeOptions
from .lines import LineReader
from .row_texts import head_rows, records_from_texts


def decode(source: ByteStream, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The lines of the body as rows, a batch at a time.

    Raises:
        MalformedInput: a line that is not JSON, or no object; with `row` and `offset`.
        LimitExceeded: a line longer than `Limits.max_record_bytes` (`record_too_large`).
        InputError: as `records_from_texts`.
    """
    return records_from_texts(LineReader(source, budget, head_rows(options)), options, budget)
