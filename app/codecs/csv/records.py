"""Records as CSV: one line a row under a header, scalars alone, read and written as a stream.

Source: RFC 4180; UTF-8, with or without a byte order mark. An empty field is null, `""` is empty text. A
feature of dtype bytes is the UTF-8 text itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from ...domain.limits import MIB
from ...domain.schema import Schema
from ...errors import SchemaConflict, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream
from ..arrow.batches import arrow_schema, batches_from_arrow, batches_to_arrow
from ..columns import Records, check_columns, without_features
from ..json.texts import gather
from ..json.values import Reading
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from ..records.lease import Lease
from ..schema_inference import HEAD_ROWS
from .blocks import CsvBlock, read_csv_blocks
from .cells import build_csv_column, field_texts, infer_csv_feature, quoted_field

__all__ = ["decode", "encode"]

_LINE_END: Final = "\r\n"


def decode(source: ByteStream, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The lines of the body as rows, a batch at a time.

    Without a schema it is inferred from exactly the first 1,000 rows (all, with `options.infer`).

    Raises:
        MalformedInput: as `read_csv_blocks`.
        UnprocessableInput: two columns of one name (`duplicate_feature`), names that no feature can
            have; a declared feature that is no scalar, or SequenceExamples (`not_expressible`).
        SchemaConflict: columns and features that do not match; while batches are drawn, a value that
            does not fit.
    """
    names, blocks = read_csv_blocks(source, budget)
    check_columns(names, budget)
    bare = options.nonfinite == "bare"
    reading = Reading.of(options.nonfinite, declared=options.schema is not None)
    dropped: tuple[str, ...] = ()
    if options.schema is None:
        held = list(_head(blocks, None if options.infer == "all" else HEAD_ROWS))
        schema = _infer(names, held, options, bare=bare)
        dropped = tuple(name for name in names if name not in schema.by_name)
        blocks = chain(_taken(held), blocks)
    else:
        schema = options.schema.with_message(options.message).as_read()
        _refuse_undeclared(names, schema, options)
    require_scalars(schema)
    batches = _batches(blocks, names, schema, reading, budget, bare=bare)
    return Records(schema, batches_from_arrow(schema, batches, budget), dropped=dropped)


def _refuse_undeclared(names: list[str], schema: Schema, options: RecordsDecodeOptions) -> None:
    unnamed = [name for name in names if name not in schema.by_name]
    if unnamed and options.undeclared == "error":
        raise SchemaConflict(
            f"The schema does not declare the column {unnamed[0][:64]!r}. Add it there, leave it out, or set "
            "?undeclared=drop.",
            feature=unnamed[0],
        )
    for feature in schema:
        if feature.name not in names and not feature.nullable:
            raise SchemaConflict(
                f"The schema declares {feature.name!r}, but there is no such column. Add it, or declare the "
                "feature nullable.",
                feature=feature.name,
            )


def require_scalars(schema: Schema) -> None:
    """Refuse what a line of CSV does not hold.

    Raises:
        UnprocessableInput: which feature (`not_expressible`).
    """
    if schema.message != "example":
        raise UnprocessableInput(
            "SequenceExamples do not go into CSV, whose fields are single values. Choose another form.",
            code="not_expressible",
        )
    for feature in schema:
        if not feature.is_scalar or feature.dtype.kind == "complex":
            raise UnprocessableInput(
                f"Feature {feature.name!r} is {feature.dtype} of shape {list(feature.shape)}, but a field of "
                "CSV is a single value. Choose another form.",
                code="not_expressible",
                feature=feature.name,
            )


def _head(blocks: Iterator[CsvBlock], num_rows: int | None) -> Iterator[CsvBlock]:
    for block in blocks:
        yield block
        if num_rows is not None and block.first_row + block.num_rows >= num_rows:
            return


def _taken(held: list[CsvBlock]) -> Iterator[CsvBlock]:
    """The blocks in their order, none of which is kept."""
    held.reverse()
    while held:
        yield held.pop()


def _infer(names: list[str], held: list[CsvBlock], options: RecordsDecodeOptions, *, bare: bool) -> Schema:
    features = []
    for index, name in enumerate(names):
        chunks = [block.columns[index] for block in held]
        fields = pa.chunked_array(chunks, pa.string())
        if options.infer == "head":
            fields = fields.slice(0, HEAD_ROWS)
        feature = infer_csv_feature(name, fields, bare=bare)
        if feature is not None:
            features.append(feature)
    return Schema(tuple(features)).with_message(options.message)


def _batches(
    blocks: Iterable[CsvBlock],
    names: list[str],
    schema: Schema,
    reading: Reading,
    budget: Budget,
    *,
    bare: bool,
) -> Iterator[pa.RecordBatch]:
    place = {name: index for index, name in enumerate(names)}
    fields = pa.struct(list(arrow_schema(schema)))
    with Lease(budget) as lease:
        for block in blocks:
            if not reading.declared:
                _refuse_late(block, names, schema)
            columns = [
                build_csv_column(
                    feature,
                    _fields(block, place.get(feature.name)),
                    reading,
                    block.first_row,
                    lease,
                    bare=bare,
                )
                for feature in schema
            ]
            # Not RecordBatch.from_arrays: rows without any feature would lose their number.
            rows: Any = pa.Array.from_buffers(fields, block.num_rows, [None], children=columns)
            yield pa.RecordBatch.from_struct_array(rows)
            del columns, rows
            lease.release()
            budget.release(block.num_bytes)


def _fields(block: CsvBlock, index: int | None) -> Any:
    return pa.nulls(block.num_rows, pa.string()) if index is None else block.columns[index]


def _refuse_late(block: CsvBlock, names: list[str], schema: Schema) -> None:
    """Refuse a value in a column that had none in the rows that the schema was inferred from."""
    for name, fields in zip(names, block.columns, strict=True):
        if name not in schema.by_name and fields.null_count < len(fields):
            valid = fields.is_valid().to_pylist()
            row = block.first_row + valid.index(True)
            raise SchemaConflict(
                f"Row {row} has a value for {name[:64]!r}, which none of the first {HEAD_ROWS} rows has: "
                "declare a schema, or set ?infer=all.",
                row=row,
                feature=name,
            )


def encode(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:
    """A header, and one line a row as the batches come. Quotes stand only where they have to.

    Raises:
        UnprocessableInput: a feature that is no scalar, bytes that are not UTF-8 (`not_expressible`).
        InputError: a value that has no text under these options.
    """
    require_scalars(records.schema)
    if not len(records.schema):
        raise without_features("CSV")
    return gather(_lines(records, replace(options, int64="number"), budget))


def _slices(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batch in pieces whose text is about 4 MiB, with their first rows."""
    row_bytes = batch.nbytes // max(batch.num_rows, 1) + 8 * batch.num_columns + 1
    step = max(1, MIB // row_bytes)
    for start in range(0, batch.num_rows, step):
        yield start, batch.slice(start, step)


def _lines(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[str]:
    yield ",".join(map(quoted_field, records.schema.names)) + _LINE_END
    first_row = 0
    for batch in batches_to_arrow(records.schema, records.batches, budget):
        for start, piece in _slices(batch):
            columns = [
                field_texts(column, feature, options, first_row + start)
                for feature, column in zip(records.schema, piece.columns, strict=True)
            ]
            yield "".join([",".join(fields) + _LINE_END for fields in zip(*columns, strict=True)])
        first_row += batch.num_rows
