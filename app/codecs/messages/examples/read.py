"""Framed Examples and SequenceExamples to batches of columns."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Final

import numpy as np

from ....domain.feature import Feature
from ....domain.limits import MIB
from ....domain.schema import LIST_PREFIX, Schema, message_keys
from ....errors import SchemaConflict
from ....runtime.budget import Budget
from ... import kernels
from ...columns import MAX_BATCH_ROWS, AbsentColumns, Batch, Column, Ints, Records, bounds_of_present
from ...kernels.messages.keys import MODE_CELL, MODE_CONTENT, MODE_FLOATS, MODE_INTS, MODE_SPAN
from ...kernels.messages.read import FEATURE_LISTS, FEATURES
from ...kernels.messages.wire import KIND_ABSENT
from ...options import RecordsDecodeOptions
from ...records.lease import Lease
from ..framing import FrameBlock
from .cells import CELL_BYTES, MAX_WIDTH, FieldCells, MessageCells, UnknownFeature, Wanted, cell_rows
from .content import build_content, content_prefix
from .infer import HEAD_RECORDS, infer_schema
from .values import ColumnBuilder, expected_kind

#: What the columns of fixed shape may take in one batch.
_BATCH_BYTES: Final = 16 * MIB


def parse_frames(frames: Iterator[FrameBlock], options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The rows of the messages in `frames`, read as `FromString` of the message reads them.

    The message is a SequenceExample where `options.message` or the schema says so, else an Example. An
    Example is a SequenceExample, too, with a context alone. A row that lacks a feature list has null, one
    whose list has no steps an empty list; a step without a kind holds no values. With `options.schema`, of
    dense features and sequences, the values must fit it. Without one it is inferred (see `infer_schema`)
    before this returns. What is refused although protobuf reads it is listed in `kernels/message_read.py`.

    Errors, as batches are drawn:
        MalformedInput: not such a message (`malformed_example`), with row and offset.
        SchemaConflict: `schema_conflict`, with row and feature.
        LossyConversion: a value that a declared float16 or bfloat16 does not hold.
        UnprocessableInput: `sequence_example`, `ambiguous_example`, `not_an_example`, `invalid_utf8`.
        InputError: whatever drawing a block raises.
    """
    schema = options.schema
    if schema is None:
        schema, frames = infer_schema(frames, options.message or "example", options.infer, budget)
    return Records(schema, _parse(frames, schema, options, budget))


def _parse(
    frames: Iterator[FrameBlock], schema: Schema, options: RecordsDecodeOptions, budget: Budget
) -> Iterator[Batch]:
    declared = options.schema is not None
    max_unknown = 0 if declared and options.undeclared == "drop" else 1
    step = _rows_at_a_time(schema)
    keys = message_keys(schema)
    wanted = [_describe_wanted(feature, keys[feature.name]) for feature in schema]
    as_read = {feature.name for feature in schema if _is_as_read(feature)}
    with Lease(budget) as kept:
        messages = MessageCells(wanted, schema.message, max_unknown=max_unknown, lease=kept)
        for block in frames:
            for first in range(0, block.num_records, step):
                last = min(first + step, block.num_records)
                with Lease(budget) as lease:
                    messages.read(block, first, last, lease)
                    for unknown in messages.unknown(block, first):
                        raise _undeclared_feature(unknown, schema, declared=declared)
                    yield _batch(schema, as_read, messages, block, first, last, lease)


def _batch(
    schema: Schema,
    as_read: Set[str],
    messages: MessageCells,
    block: FrameBlock,
    first: int,
    last: int,
    lease: Lease,
) -> Batch:
    """The columns of the records that `messages` has read.

    Args:
        as_read: features whose values need no look where all rows have them.
    """
    absent = AbsentColumns(last - first)
    columns = []
    for number, (feature, occurs) in enumerate(zip(schema, messages.find_occurring(), strict=True)):
        if feature.nullable and not occurs:
            columns.append(absent.column(feature))
        elif feature.name in as_read and (values := messages.whole_values(number)) is not None:
            columns.append(Column(values.view(feature.dtype.numpy), width=feature.num_values or 0))
        else:
            columns.append(_column(feature, messages.cells(number, block, first), lease))
    return Batch(last - first, tuple(columns))


def _rows_at_a_time(schema: Schema) -> int:
    """How many rows a batch of these features holds at most."""
    row_bytes = sum(max(feature.dtype.itemsize, 8) * (feature.num_values or 0) for feature in schema)
    return max(1, min(MAX_BATCH_ROWS, cell_rows(len(schema)), _BATCH_BYTES // max(row_bytes, 1)))


def _describe_wanted(feature: Feature, key: str) -> Wanted:
    if feature.kind == "sequence":
        return Wanted(key, FEATURE_LISTS)
    mode, width = _mode(feature), feature.num_values or 0
    if mode == MODE_CELL:
        return Wanted(key, FEATURES, expected_kind(feature))
    if mode == MODE_SPAN:
        return Wanted(key, FEATURES, expected_kind(feature), mode)
    if mode == MODE_CONTENT:
        width *= feature.dtype.itemsize
        return Wanted(key, FEATURES, expected_kind(feature), mode, width, content_prefix(feature))
    return Wanted(key, FEATURES, expected_kind(feature), mode, width)


def _mode(feature: Feature) -> int:
    """What the kernel reads of a feature that is no sequence."""
    is_known = feature.num_values is not None and feature.num_values <= MAX_WIDTH
    if feature.encoding != "list":
        return MODE_CONTENT if is_known and not feature.dtype.is_string else MODE_SPAN
    if feature.dtype.is_string:
        return MODE_SPAN if feature.is_scalar else MODE_CELL
    if not is_known or feature.was_int64:
        return MODE_CELL
    return MODE_FLOATS if feature.dtype.is_float else MODE_INTS


def _is_as_read(feature: Feature) -> bool:
    """Whether whatever the kernel reads are values of the feature, as they lie in a column."""
    mode, dtype = _mode(feature), feature.dtype
    if mode == MODE_CONTENT:
        return dtype.kind != "bool" and not dtype.is_narrow
    return mode in (MODE_FLOATS, MODE_INTS) and dtype.name in ("float32", "int64", "uint64")


def _column(feature: Feature, cells: FieldCells, lease: Lease) -> Column:
    """The column of a feature.

    Raises:
        SchemaConflict: a cell that does not fit.
    """
    if feature.kind == "sequence":
        return _sequence_column(feature, cells, lease)
    return _build(ColumnBuilder(feature, cells, lease))


def _build(builder: ColumnBuilder) -> Column:
    builder.check_kinds()
    return builder.build_list() if builder.feature.encoding == "list" else build_content(builder)


class _StepBuilder(ColumnBuilder):
    """Builds the column of all steps of one feature list, each in the place of a row.

    Args:
        starts: by row, the number of its first step, and the number of steps at the end.
    """

    def __init__(self, feature: Feature, cells: FieldCells, lease: Lease, starts: Ints) -> None:
        super().__init__(feature, cells, lease)
        self._starts = starts

    def number(self, row: int) -> int:
        """The number in the whole input of the row that has the step."""
        return self.cells.first_row + self._row_of(row)

    def conflict(self, row: int, what: str) -> SchemaConflict:
        """The error of a step that does not fit."""
        step = row - int(self._starts[self._row_of(row)])
        name, number = self.feature.name, self.number(row)
        return SchemaConflict(
            f"Record {number}: feature {name!r}, step {step}, {what}.", row=number, feature=name
        )

    def _row_of(self, step: int) -> int:
        return int(np.searchsorted(self._starts, step, "right")) - 1


def _sequence_column(feature: Feature, cells: FieldCells, lease: Lease) -> Column:
    present = cells.kinds != KIND_ABSENT
    if not feature.nullable and not present.all():
        number = cells.first_row + int(np.argmin(present))
        raise SchemaConflict(
            f"Record {number} lacks feature list {feature.name!r}. Declare the feature nullable in the "
            f"schema if it may be absent.",
            row=number,
            feature=feature.name,
        )
    starts = np.zeros(len(present) + 1, np.int64)
    np.cumsum(np.where(present, cells.counts, 0), out=starts[1:])
    steps = _build(_StepBuilder(feature.step, _steps(feature, cells, starts, lease), lease, starts))
    mask = None if present.all() else present
    splits = (bounds_of_present(starts, mask), *steps.splits)
    return Column(steps.values, splits, mask, steps.width, steps.shapes)


def _steps(feature: Feature, cells: FieldCells, starts: Ints, lease: Lease) -> FieldCells:
    """The cells of all steps."""
    total = int(starts[-1])
    lease.charge(CELL_BYTES * total, "Steps of a batch")
    kinds = np.empty(total, np.uint8)
    numbers = np.empty((4, total), np.int64)
    mode = MODE_CELL if feature.encoding == "list" else MODE_SPAN
    kernels.load().index_steps(
        cells.data, cells.kinds, cells.begins, cells.ends, starts, expected_kind(feature.step), mode,
        kinds, *numbers,
    )  # fmt: skip
    return FieldCells(
        cells.data, kinds, numbers, cells.first_row, cells.offset, mode, cells.values, complete=False
    )


def _undeclared_feature(unknown: UnknownFeature, schema: Schema, *, declared: bool) -> SchemaConflict:
    """The error of a record with a feature that the schema lacks, be it `declared` or inferred."""
    if declared and unknown.part == FEATURE_LISTS and unknown.key in schema.by_name:
        detail = (
            f"in its context and in its feature lists. Declare the list, too, as "
            f"{LIST_PREFIX + unknown.key!r}, or set undeclared=drop to leave it out."
        )
    elif declared:
        detail = "which the schema does not name. Declare it, or set undeclared=drop to leave it out."
    else:
        detail = f"which none of the first {HEAD_RECORDS} has. Declare a schema, or set infer=all."
    return SchemaConflict(
        f"Record {unknown.row} has feature {unknown.key!r}, {detail}",
        row=unknown.row,
        feature=unknown.key,
    )
