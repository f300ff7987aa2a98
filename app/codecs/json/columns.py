"""Rows as one JSON object of columns, `{"name": [...], ...}`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from ...domain.schema import Schema
from ...runtime.streams import Buffer
from ..columns import without_features
from ..options import RecordsEncodeOptions
from .cells import cell_texts, slices
from .out import quote
from .texts import joined

__all__ = ["RESERVED", "columns_text"]

#: What a bare object of columns cannot be named at the top, since the name says what the body is.
RESERVED: Final = frozenset({"instances", "inputs", "outputs", "columns", "schema", "b64"})


def columns_text(
    schema: Schema, batches: Sequence[pa.RecordBatch], options: RecordsEncodeOptions, first_row: int = 0
) -> Iterator[str | Buffer]:
    """The rows of all batches as one object; `{"columns": {...}}` where a name is reserved.

    Args:
        first_row: the number of the first row, for errors.

    Raises:
        UnprocessableInput: rows without any feature (`not_expressible`).
        InputError: a value that has no text under these options.
    """
    num_rows = sum(batch.num_rows for batch in batches)
    if num_rows and not len(schema):
        raise without_features("JSON columns")
    enveloped = not RESERVED.isdisjoint(schema.names)
    yield '{"columns":{' if enveloped else "{"
    for index, feature in enumerate(schema):
        yield ("," if index else "") + quote(feature.name) + ":"
        separator, row = "[", first_row
        for batch in batches:
            for start, piece in slices(batch.select([index])):
                yield separator
                yield joined(cell_texts(piece.column(0), feature, options, row + start))
                separator = ","
            row += batch.num_rows
        yield "]" if num_rows else "[]"
    yield "}}" if enveloped else "}"
