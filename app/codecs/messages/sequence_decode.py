"""Framed `tf.train.SequenceExample` messages to batches of columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...domain.schema import Feature, Schema
from ...errors import InputError, SchemaConflict
from ...runtime.budget import Budget
from .. import kernels
from ..columns import AbsentColumns, Batch, Column, Ints, Records, bounds_of_present
from ..kernels.example_index import KIND_ABSENT
from ..options import RecordsDecodeOptions
from ..records.lease import Lease
from .example_content import build_content
from .example_decode import column_from_cells, rows_at_a_time, undeclared_feature
from .example_index import CELL_BYTES, Cells, ExampleIndex
from .example_values import ColumnBuilder, expected_kind
from .framing import FrameBlock
from .sequence_index import ListIndex, contexts_of, in_sequence_example
from .sequence_infer import infer_sequence_schema


def parse_sequences(frames: Iterator[FrameBlock], options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The rows of the SequenceExamples in `frames`, read as `tf.train.SequenceExample.FromString` reads them.

    An Example is one, too, with a context alone. A row that lacks a feature list has null, one whose list
    has no steps an empty list; a step without a kind holds no values. With `options.schema`, of dense
    features and sequences, the values must fit it. Without one it is inferred (see
    `infer_sequence_schema`) before this returns. What is refused although protobuf reads it is listed in
    `kernels/example_index.py`.

    Raises, as batches are drawn:
        MalformedInput: not a SequenceExample (`malformed_example`), with row and offset.
        SchemaConflict: `schema_conflict`, with row and feature.
        LossyConversion: a value that a declared float16 or bfloat16 does not hold.
        UnprocessableInput: `ambiguous_example`, `invalid_utf8`.
        InputError: whatever drawing a block raises.
    """
    schema = options.schema
    if schema is None:
        schema, frames = infer_sequence_schema(frames, options.infer, budget)
    return Records(schema, _Parser(schema, options, budget).batches(frames))


class _Parser:
    def __init__(self, schema: Schema, options: RecordsDecodeOptions, budget: Budget) -> None:
        self._schema = schema
        self._budget = budget
        self._declared = options.schema is not None
        self._max_unknown = 0 if self._declared and options.undeclared == "drop" else 1
        self._context = [feature.name for feature in schema if feature.kind != "sequence"]
        self._lists = [feature.name for feature in schema if feature.kind == "sequence"]
        numbers = {
            name: number for names in (self._context, self._lists) for number, name in enumerate(names)
        }
        #: The features in the order of the schema, each with its number in its part of the message.
        self._features = [(feature, numbers[feature.name]) for feature in schema]

    def batches(self, frames: Iterator[FrameBlock]) -> Iterator[Batch]:
        step = rows_at_a_time(self._schema)
        with Lease(self._budget) as lease:
            context = ExampleIndex(self._context, max_unknown=self._max_unknown, lease=lease)
            lists = ListIndex(self._lists, max_unknown=self._max_unknown, lease=lease)
            for block in frames:
                for first in range(0, block.num_records, step):
                    last = min(first + step, block.num_records)
                    with Lease(self._budget) as batch_lease:
                        yield self._batch(block, first, last, (context, lists), batch_lease)

    def _batch(
        self,
        block: FrameBlock,
        first: int,
        last: int,
        indexes: tuple[ExampleIndex, ListIndex],
        lease: Lease,
    ) -> Batch:
        context, lists = indexes
        contexts = contexts_of(block, first, last, lease)
        try:
            context.index(contexts, 0, last - first)
        except InputError as error:
            raise in_sequence_example(error, block) from None
        lists.index(block, first, last)
        for unknown in context.unknown(contexts, 0) + lists.unknown(block, first):
            raise undeclared_feature(unknown, declared=self._declared)
        columns, absent = [], AbsentColumns(last - first)
        occurring = context.occurring(), lists.occurring()
        for feature, number in self._features:
            if feature.nullable and not occurring[feature.kind == "sequence"][number]:
                columns.append(absent.column(feature))
            elif feature.kind == "sequence":
                columns.append(_sequence(feature, lists.cells(number, block, first), lease))
            else:
                columns.append(column_from_cells(feature, context.cells(number, contexts, 0), lease))
        return Batch(last - first, tuple(columns))


class _StepBuilder(ColumnBuilder):
    """Builds the column of all steps of one feature list, each in the place of a row.

    Args:
        starts: by row, the number of its first step, and the number of steps at the end.
    """

    def __init__(self, feature: Feature, cells: Cells, lease: Lease, starts: Ints) -> None:
        super().__init__(feature, cells, lease)
        self._starts = starts

    def number(self, row: int) -> int:
        """The number in the whole input of the row that has the step."""
        return self.cells.first_row + self._row_of(row)

    def conflict(self, row: int, what: str) -> SchemaConflict:
        """A step does not fit."""
        step = row - int(self._starts[self._row_of(row)])
        name, number = self.feature.name, self.number(row)
        return SchemaConflict(
            f"Record {number}: feature {name!r}, step {step}, {what}.", row=number, feature=name
        )

    def _row_of(self, step: int) -> int:
        return int(np.searchsorted(self._starts, step, "right")) - 1


def _sequence(feature: Feature, cells: Cells, lease: Lease) -> Column:
    """The column of a feature of kind `sequence` from the cells of its feature list."""
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
    np.cumsum(cells.counts, out=starts[1:])
    builder = _StepBuilder(feature.step, _steps(feature, cells, starts, lease), lease, starts)
    builder.check_kinds()
    steps = builder.build_list() if feature.encoding == "list" else build_content(builder)
    mask = None if present.all() else present
    splits = (bounds_of_present(starts, mask), *steps.splits)
    return Column(steps.values, splits, mask, steps.width, steps.shapes)


def _steps(feature: Feature, cells: Cells, starts: Ints, lease: Lease) -> Cells:
    """The cells of all steps."""
    total = int(starts[-1])
    lease.charge(CELL_BYTES * total, "Steps of a batch")
    kinds = np.empty(total, np.uint8)
    begins, ends, counts, num_bytes = np.empty((4, total), np.int64)
    kernels.load().index_steps(
        cells.data, cells.kinds, cells.begins, cells.ends, starts, expected_kind(feature.step),
        kinds, begins, ends, counts, num_bytes,
    )  # fmt: skip
    return Cells(cells.data, kinds, begins, ends, counts, num_bytes, cells.first_row, cells.offset)
