"""Records as CSV: one row a line under a header, scalars alone, read as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np

from ...domain.feature import Feature
from ...domain.schema import Schema
from ...errors import SchemaConflict, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import ByteStream
from ..columns import AbsentColumns, Batch, Records
from ..json.values import Reading
from ..options import RecordsDecodeOptions
from ..records.lease import Lease
from ..records.named_columns import check_columns, refuse_undeclared, require_present
from ..schema_inference import HEAD_ROWS
from .fields import build_column, find_fields, infer_feature, require_nullable
from .lines import Block, LineReader, drain


def decode(source: ByteStream, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The lines of the body as rows, a batch at a time.

    Without a schema it is inferred from exactly the first 1,000 rows (all, with `options.infer`).

    Raises:
        MalformedInput: no header (`no_header`); quotes that do not match, a bare carriage return or a NUL
            (`invalid_csv`), lines of another length (`ragged_line`), no UTF-8 (`invalid_utf8`).
        LimitExceeded: a line longer than `Limits.max_record_bytes` (`record_too_large`); too many columns.
        UnprocessableInput: names that no feature can have; a declared feature that is no scalar, or
            SequenceExamples (`not_expressible`).
        SchemaConflict: columns and features that do not match; values that do not fit.
    """
    names, blocks = LineReader(options.csv, budget).read(source)
    check_columns(names, budget)
    dropped: list[str] = []
    if options.schema is None:
        head = list(_head(blocks, None if options.infer == "all" else HEAD_ROWS))
        schema = _infer(names, head, options)
        dropped = [name for name in names if name not in schema.by_name]
        blocks = chain(drain(head), blocks)
    else:
        schema = options.schema.with_message(options.message).as_read()
        if options.undeclared == "error":
            refuse_undeclared(names, schema, "column")
        require_present(names, schema, "column")
    require_scalars(schema)
    reading = Reading.of(options.nonfinite, declared=options.schema is not None)
    return Records(schema, _batches(blocks, names, schema, reading, budget), dropped=dropped)


def holds_scalars(schema: Schema) -> bool:
    """Whether rows of this schema can be lines of CSV."""
    return schema.message == "example" and all(map(_is_field, schema))


def _is_field(feature: Feature) -> bool:
    return feature.is_scalar and feature.dtype.kind != "complex"


def require_scalars(schema: Schema, advise: Callable[[], str] = lambda: "Choose another format.") -> None:
    """Refuse what a line of CSV does not hold.

    Args:
        advise: says what to do, if rows are to be written.

    Raises:
        UnprocessableInput: which feature (`not_expressible`).
    """
    if schema.message != "example":
        raise UnprocessableInput(
            "SequenceExamples do not go into CSV, whose fields are single values. Choose another format.",
            code="not_expressible",
        )
    for feature in schema:
        if not _is_field(feature):
            raise UnprocessableInput(
                f"Feature {feature.name!r} is {feature.dtype} of shape {list(feature.shape)}, but a field of "
                f"CSV is a single value. {advise()}",
                code="not_expressible",
                feature=feature.name,
            )


def _head(blocks: Iterator[Block], num_rows: int | None) -> Iterator[Block]:
    for block in blocks:
        yield block
        if num_rows is not None and block.first_row + block.fields.num_rows >= num_rows:
            return


def _infer(names: list[str], head: list[Block], options: RecordsDecodeOptions) -> Schema:
    features: list[Feature] = []
    for index, name in enumerate(names):
        chunks = [block.fields.column(index) for block in head]
        if options.infer == "head":
            rows = (HEAD_ROWS - block.first_row for block in head)
            chunks = [chunk.slice(0, count) for chunk, count in zip(chunks, rows, strict=True)]
        if (feature := infer_feature(name, list(map(find_fields, chunks)))) is not None:
            features.append(feature)
    return Schema(tuple(features)).with_message(options.message)


def _batches(
    blocks: Iterable[Block],
    names: list[str],
    schema: Schema,
    reading: Reading,
    budget: Budget,
) -> Iterator[Batch]:
    place = {name: index for index, name in enumerate(names)}
    value_bytes = _value_bytes(schema)
    with Lease(budget) as lease:
        for block in blocks:
            if not reading.declared:
                _refuse_late(block, names, schema)
            num_rows = block.fields.num_rows
            absent = AbsentColumns(num_rows)
            lease.charge(value_bytes * num_rows, "Values of CSV")
            columns = []
            for feature in schema:
                index = place.get(feature.name)
                if index is None or block.fields.column(index).null_count == num_rows:
                    require_nullable(feature, block.first_row, reading)
                    columns.append(absent.column(feature))
                else:
                    fields = find_fields(block.fields.column(index))
                    columns.append(build_column(feature, fields, reading, block.first_row, budget))
            yield Batch(num_rows, tuple(columns))
            del columns
            lease.release()
            budget.release(block.num_bytes)


def _value_bytes(schema: Schema) -> int:
    """What a row takes at most: an offset and a mark of each field, and its values while they are read."""
    return sum(9 + (0 if feature.dtype.is_string else 34 + feature.dtype.itemsize) for feature in schema)


def _refuse_late(block: Block, names: list[str], schema: Schema) -> None:
    """Refuse a value in a column that had none in the rows that the schema was inferred from."""
    for name, fields in zip(names, block.fields.columns, strict=True):
        if name not in schema.by_name and fields.null_count < len(fields):
            present = find_fields(fields).present
            row = block.first_row + (0 if present is None else int(np.argmax(present)))
            raise SchemaConflict(
                f"Row {row} has a value for {name[:64]!r}, which none of the first {HEAD_ROWS} rows has: "
                "declare a schema, or set infer=all.",
                row=row,
                feature=name,
            )
