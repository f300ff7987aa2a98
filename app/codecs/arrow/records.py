"""Records as Arrow: IPC in and out, and the rows of record batches from anywhere.

IPC is the stream format as it arrives, or the file format, which embeds it. Arrow is typed, so nothing is
guessed: without a schema a feature is what its column is (`features.py`). With one, values are converted
exactly or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...domain.limits import MIB
from ...domain.schema import Schema
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream
from ..columns import MAX_BATCH_ROWS, AbsentColumns, Batch, Records
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from ..records.lease import Lease, TooLargeAtOnce
from ..records.named_columns import check_columns, refuse_undeclared
from .columns import ColumnReader
from .features import (
    SCHEMA_KEY,
    expand_structs,
    has_no_values,
    infer_arrow_schema,
    narrow_columns,
    text_columns,
    with_schema_in_metadata,
)
from .ipc import ArrowReader, arrow_faults, serialize_arrow
from .write import export_schema, write_batches

#: A batch of large rows has fewer of them: it is encoded in one block.
_BATCH_BYTES: Final = 16 * MIB


def decode(source: ByteStream, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The rows of the batches as they arrive. Both formats are told apart by their first bytes.

    Raises:
        InputError: the schema cannot be read, or does not fit the declared one. While batches are read: a
            batch cannot be read, or a value does not fit.
    """
    reader = ArrowReader(source, budget)
    return records_from_arrow(reader.schema, reader.names, reader, options, budget)


def encode(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:
    """One uncompressed message for each batch.

    Raises:
        InputError: Arrow cannot hold a feature or a value (`not_expressible`).
    """
    batches = write_batches(records.schema, records.batches, budget)
    return serialize_arrow(export_schema(records.schema), batches, options.arrow)


def records_from_arrow(
    foreign: pa.Schema,
    names: list[str],
    batches: Iterable[pa.RecordBatch],
    options: RecordsDecodeOptions,
    budget: Budget,
    num_rows: int | None = None,
) -> Records:
    """The rows of `batches`, by the declared schema, that of the metadata, or one inferred from `foreign`.

    Args:
        foreign: of the batches, which are valid in all their values.
        names: of its columns.

    Raises:
        InputError: two columns of one name, a type that no feature has, or a schema that does not fit. While
            batches are read: a value that does not fit the schema.
    """
    check_columns(names, budget)
    options = with_schema_in_metadata(foreign.metadata, options, budget)
    declared = options.schema
    with arrow_faults("The schema of the body"):  # names of members may not be UTF-8
        columns = expand_structs(foreign, declared)
    is_declared = SCHEMA_KEY in (foreign.metadata or {})
    names = [field.name for field, _ in columns]
    check_columns(names, budget)
    foreign = pa.schema([field for field, _ in columns])
    if declared is None:
        schema = infer_arrow_schema(foreign, options.message)
    else:
        with arrow_faults("The schema of the body"):
            narrow = narrow_columns(foreign)
        schema = declared.with_message(options.message).as_read(narrow)
        is_open = has_no_values if options.schema_of_dataset else pa.types.is_null
        if options.undeclared == "error":
            refuse_undeclared((field.name for field in foreign if not is_open(field.type)), schema, "column")
    rows = _batches(_PieceReader(columns), batches, schema, budget)
    dropped = []
    as_text: tuple[str, ...] = ()
    if declared is None or options.schema_of_dataset:
        found = schema.by_name
        unknown = (field for field in foreign if field.name not in found)
        dropped = [field.name for field in unknown if has_no_values(field.type)]
        as_text = tuple(
            name for name in text_columns(foreign) if name in found and found[name].dtype.is_string
        )
    return Records(schema, rows, num_rows, is_declared=is_declared, dropped=dropped, as_text=as_text)


def _batches(
    reader: _PieceReader, batches: Iterable[pa.RecordBatch], schema: Schema, budget: Budget
) -> Iterator[Batch]:
    with Lease(budget) as lease:
        first_row = 0
        for batch in batches:
            step = most_rows = _batch_rows(batch)
            start = 0
            while start < batch.num_rows:
                piece = batch.slice(start, step)
                row = first_row + start
                lease.expands_to = _BATCH_BYTES if piece.num_rows > 1 else None
                try:
                    with arrow_faults(f"Row {row} and those behind it", row=row):
                        rows = reader.read(piece, row, schema, lease)
                except TooLargeAtOnce:
                    # A few bytes can name a long string again and again, which no size tells beforehand.
                    lease.release()
                    step = (piece.num_rows + 1) // 2
                    continue
                start += piece.num_rows
                step = min(2 * step, most_rows)
                yield rows
                del rows
                lease.release()
            first_row += batch.num_rows


def _batch_rows(batch: pa.RecordBatch) -> int:
    average = batch.nbytes // max(1, batch.num_rows)
    return max(1, min(MAX_BATCH_ROWS, _BATCH_BYTES // max(1, average)))


class _PieceReader:
    """Reads some rows of a foreign batch, whose columns are those of `expand_structs`."""

    def __init__(self, columns: Iterable[tuple[pa.Field[Any], list[int]]]) -> None:
        self._columns = {field.name: (field.metadata or {}, place) for field, place in columns}

    def read(self, piece: pa.RecordBatch, first_row: int, schema: Schema, lease: Lease) -> Batch:
        """The rows of `piece`, the first of which is row `first_row` of the input."""
        rows = np.arange(first_row, first_row + piece.num_rows)
        absent = AbsentColumns(piece.num_rows)
        columns = []
        for feature in schema:
            marks, place = self._columns.get(feature.name, ({}, None))
            reader = ColumnReader(feature, marks, lease, rows)
            column = pa.nulls(1) if place is None else _member(piece, place)
            is_absent = pa.types.is_null(column.type)
            columns.append(reader.absent(absent) if is_absent else reader.read(column))
        return Batch(piece.num_rows, tuple(columns))


def _member(piece: pa.RecordBatch, place: list[int]) -> Any:
    """A column, or a member of structs in it."""
    column: Any = piece.column(place[0])
    if len(place) == 1:
        return column
    import pyarrow.compute as pc  # here: a service that needs it for no request is 9 MB smaller

    return pc.struct_field(column, place[1:])
