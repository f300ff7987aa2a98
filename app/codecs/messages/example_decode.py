"""Framed `tf.train.Example` messages to batches of columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...domain.limits import MIB
from ...domain.schema import Feature, Schema
from ...errors import SchemaConflict
from ...runtime.budget import Budget
from ..columns import MAX_BATCH_ROWS, AbsentColumns, Batch, Column, Records
from ..options import RecordsDecodeOptions
from ..records.lease import Lease
from .example_content import build_content
from .example_index import Cells, ExampleIndex, UnknownFeature, cell_rows
from .example_infer import HEAD_RECORDS, infer_schema
from .example_rows import RowReader
from .example_values import ColumnBuilder
from .framing import FrameBlock

#: What the columns of fixed shape may take in one batch: an absent tensor takes its room all the same.
_BATCH_BYTES: Final = 16 * MIB


def parse_frames(frames: Iterator[FrameBlock], options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The rows of the Examples in `frames`, read as `tf.train.Example.FromString` reads them.

    With `options.schema` the values must fit it. Without one it is inferred (see `infer_schema`) before
    this returns. What is refused although protobuf reads it is listed in `kernels/example_index.py`.

    Raises, as batches are drawn:
        MalformedInput: not an Example (`malformed_example`), with row and offset.
        SchemaConflict: `schema_conflict`, with row and feature.
        LossyConversion: a value that a declared float16 or bfloat16 does not hold.
        UnprocessableInput: `sequence_example`, `ambiguous_example`, `invalid_utf8`.
        InputError: whatever drawing a block raises.
    """
    if options.schema is not None:
        return Records(options.schema, _parse(frames, options.schema, options, budget))
    schema, frames = infer_schema(frames, options.infer, budget)
    return Records(schema, _parse(frames, schema, options, budget))


def _parse(
    frames: Iterator[FrameBlock], schema: Schema, options: RecordsDecodeOptions, budget: Budget
) -> Iterator[Batch]:
    declared = options.schema is not None
    drop = declared and options.undeclared == "drop"
    step = rows_at_a_time(schema)
    with Lease(budget) as index_lease:
        index = ExampleIndex(schema.names, max_unknown=0 if drop else 1, lease=index_lease)
        reader = RowReader(schema, index_lease)
        for block in frames:
            for first in range(0, block.num_records, step):
                last = min(first + step, block.num_records)
                with Lease(budget) as lease:
                    columns = reader.read(block, first, last, lease)
                    if columns is None:
                        lease.release()
                        index.index(block, first, last)
                        if unknown := index.unknown(block, first):
                            raise undeclared_feature(unknown[0], declared=declared)
                        columns = _columns(schema, index, block, first, last, lease)
                        reader.learn(index.last_begins())
                    yield Batch(last - first, tuple(columns))


def _columns(
    schema: Schema, index: ExampleIndex, block: FrameBlock, first: int, last: int, lease: Lease
) -> list[Column]:
    absent = AbsentColumns(last - first)
    return [
        column_from_cells(feature, index.cells(number, block, first), lease)
        if occurs or not feature.nullable
        else absent.column(feature)
        for number, (feature, occurs) in enumerate(zip(schema, index.occurring(), strict=True))
    ]


def rows_at_a_time(schema: Schema) -> int:
    """How many rows a batch of these features holds at most."""
    row_bytes = sum(max(feature.dtype.itemsize, 8) * (feature.num_values or 0) for feature in schema)
    return max(1, min(MAX_BATCH_ROWS, cell_rows(len(schema)), _BATCH_BYTES // max(row_bytes, 1)))


def column_from_cells(feature: Feature, cells: Cells, lease: Lease) -> Column:
    """The column of a feature that is no sequence.

    Raises:
        SchemaConflict: a cell that does not fit.
    """
    builder = ColumnBuilder(feature, cells, lease)
    builder.check_kinds()
    return builder.build_list() if feature.encoding == "list" else build_content(builder)


def undeclared_feature(unknown: UnknownFeature, *, declared: bool) -> SchemaConflict:
    """A record has a feature that the schema lacks, be it `declared` or inferred."""
    if declared:
        detail = "which the schema does not name. Declare it, or set ?undeclared=drop to leave it out."
    else:
        detail = f"which none of the first {HEAD_RECORDS} has. Declare a schema, or set ?infer=all."
    return SchemaConflict(
        f"Record {unknown.row} has feature {unknown.name!r}, {detail}",
        row=unknown.row,
        feature=unknown.name,
    )
