"""Parsed JSON rows or columns to record batches: what row JSON, column JSON and NDJSON have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Final, Protocol

import pyarrow as pa

from ...domain.limits import MIB
from ...domain.schema import Feature, Schema
from ...errors import SchemaConflict, UnprocessableInput
from ...runtime.budget import Budget
from ..arrow.batches import arrow_schema, batches_from_arrow
from ..columns import MAX_BATCH_ROWS, Records
from ..options import RecordsDecodeOptions
from ..records.lease import Lease
from ..records.nulls import AbsentColumns
from ..schema_inference import HEAD_ROWS, FoundCells, infer_schema
from .arrays import build_column, build_found
from .sequences import ROW_MEMBERS, SequenceBlock, first_beside, found_by_name, have_few, split_rows
from .values import Reading

__all__ = ["Block", "ColumnBlock", "PlainBatches", "RowBlock", "records_from_blocks"]

#: Gives the batches of the rows from a number on that need no general path, under the schema; none where the
#: row of that number, and not one of a later block, is to be parsed. Memory is accounted for as in a block.
PlainBatches = Callable[[Schema, int], Iterator[pa.RecordBatch]]

#: A row that lacks a wide feature still takes its place in a fixed-size column.
_MAX_BATCH_BYTES: Final = 32 * MIB


class Block(Protocol):
    """Some consecutive rows of the input, parsed.

    Attributes:
        first_row: where they begin in the whole input.
        num_rows: how many there are.
        num_bytes: what was charged to the budget for them.
    """

    @property
    def first_row(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...

    def names(self, stop: int) -> Iterable[str]:
        """The keys of the rows before `stop`, in the order in which they occur."""
        ...

    def cells(self, name: str, start: int, stop: int) -> list[Any]:
        """The values of one feature, None where a row lacks it; indices count within the block."""
        ...

    def found_if_few(self, start: int, stop: int, num_features: int) -> Mapping[str, FoundCells] | None:
        """What there is of each feature in these rows, where that is few of so many; else None."""
        ...

    def first_beside(self, known: Set[str]) -> tuple[int, str] | None:
        """A row, counted within the block, and a key other than `known` under which it has a value."""
        ...


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Rows that came as objects."""

    rows: list[dict[str, Any]]
    num_bytes: int
    first_row: int = 0

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    def names(self, stop: int) -> Iterable[str]:
        return dict.fromkeys(chain.from_iterable(self.rows[:stop]))

    def cells(self, name: str, start: int, stop: int) -> list[Any]:
        return list(map(dict.get, self.rows[start:stop], repeat(name)))

    def found_if_few(self, start: int, stop: int, num_features: int) -> Mapping[str, FoundCells] | None:
        rows = self.rows[start:stop]
        return found_by_name(rows) if have_few(rows, num_features) else None

    def first_beside(self, known: Set[str]) -> tuple[int, str] | None:
        return first_beside(self.rows, known)


@dataclass(frozen=True, slots=True)
class ColumnBlock:
    """Rows that came as columns of equal length."""

    columns: dict[str, list[Any]]
    num_rows: int
    num_bytes: int
    first_row: int = 0

    def names(self, stop: int) -> Iterable[str]:  # noqa: ARG002 (columns begin with the first row)
        return self.columns

    def cells(self, name: str, start: int, stop: int) -> list[Any]:
        column = self.columns.get(name)
        return [None] * (stop - start) if column is None else column[start:stop]

    def found_if_few(self, start: int, stop: int, num_features: int) -> Mapping[str, FoundCells] | None:
        if len(self.columns) >= num_features:
            return None
        return {name: FoundCells.among(cells[start:stop]) for name, cells in self.columns.items()}

    def first_beside(self, known: Set[str]) -> tuple[int, str] | None:
        for name, column in self.columns.items():
            if name not in known:
                for index, cell in enumerate(column):
                    if cell is not None:
                        return index, name
        return None


def records_from_blocks(
    blocks: Iterator[Block],
    options: RecordsDecodeOptions,
    budget: Budget,
    plain: PlainBatches | None = None,
) -> Records:
    """The rows of all blocks, under the declared schema or one inferred from the first of them.

    A null and an absent feature are the same. What was charged for a block is released once its
    batches were drawn.

    Args:
        plain: takes over behind each block, once the schema is known; what it yields is left out of `blocks`.

    Raises:
        InputError: as `infer_schema`; while batches are drawn, as `build_column`, and for a value
            under a key that the schema does not name (`schema_conflict`).
    """
    declared = None if options.schema is None else options.schema.with_message(options.message).as_read()
    reading = Reading.of(options.nonfinite, declared=declared is not None)
    if (options.message if declared is None else declared.message) == "sequence_example":
        blocks = _split(blocks)
    dropped: tuple[str, ...] = ()
    if declared is not None:
        schema = declared
        drop = options.undeclared == "drop"
    else:
        held = list(_head(blocks, None if options.infer == "all" else HEAD_ROWS))
        schema, dropped = _infer(held, options, reading, budget)
        blocks = chain(_taken(held), blocks)
        drop = False
    batches = _batches(blocks, schema, reading, budget, plain or _none, drop=drop)
    return Records(schema, batches_from_arrow(schema, batches, budget), dropped=dropped)


def _none(schema: Schema, row: int) -> Iterator[pa.RecordBatch]:  # noqa: ARG001 (a `PlainBatches`)
    return iter(())


def _split(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks; rows in their two parts. Columns go by flat names already."""
    for block in blocks:
        if isinstance(block, RowBlock):
            yield split_rows(block.rows, block.num_bytes, block.first_row)
        else:
            yield block


def _head(blocks: Iterator[Block], num_rows: int | None) -> Iterator[Block]:
    for block in blocks:
        yield block
        if num_rows is not None and block.first_row + block.num_rows >= num_rows:
            return


def _taken(held: list[Block]) -> Iterator[Block]:
    """The blocks in their order, none of which is kept."""
    held.reverse()
    while held:
        yield held.pop()


def _infer(
    held: list[Block], options: RecordsDecodeOptions, reading: Reading, budget: Budget
) -> tuple[Schema, tuple[str, ...]]:
    """The schema, and the names of features that it lacks, since no row has a value of them."""
    for block in held:
        _refuse_sequences(block)
    stops = [
        block.num_rows if options.infer == "all" else min(block.num_rows, HEAD_ROWS - block.first_row)
        for block in held
    ]
    parts = list(zip(held, stops, strict=True))
    names = dict.fromkeys(chain.from_iterable(block.names(stop) for block, stop in parts))
    lists = _list_names(parts)
    with Lease(budget) as lease:
        found = _FoundCells(parts, len(names), lease)
        schema = infer_schema(names, found.of, reading, budget.limits, sequences=lists, known=options.known)
    dropped = tuple(name for name in names if name not in schema.by_name)
    return schema.with_message(options.message), dropped


class _FoundCells:
    """The cells of each feature in the rows that are looked at.

    Where rows have few of the features, cells are put under their names first: a look at every row for every
    feature would be quadratic in what a client sends.

    Raises:
        LimitExceeded: more than the budget.
    """

    def __init__(self, parts: list[tuple[Block, int]], num_features: int, lease: Lease) -> None:
        self._parts = parts
        self._num_rows = sum(stop for _, stop in parts)
        self._found: list[Mapping[str, FoundCells] | None] = []
        for block, stop in parts:
            found = block.found_if_few(0, stop, num_features)
            # A cell that is parsed takes more than its number and its place in two lists.
            lease.charge(0 if found is None else block.num_bytes // 2, "Values by feature")
            self._found.append(found)

    def of(self, name: str) -> FoundCells:
        rows: list[int] = []
        cells: list[Any] = []
        for (block, stop), found in zip(self._parts, self._found, strict=True):
            here = FoundCells.among(block.cells(name, 0, stop)) if found is None else found.get(name)
            if here is not None:
                if len(self._parts) == 1:
                    return here
                rows += (block.first_row + row for row in here.rows)
                cells += here.cells
        return FoundCells(rows, cells, self._num_rows)


def _list_names(parts: list[tuple[Block, int]]) -> Set[str]:
    """The names of the feature lists in the rows that are looked at."""
    split = [(block, stop) for block, stop in parts if isinstance(block, SequenceBlock)]
    names = set(chain.from_iterable(block.list_names(stop) for block, stop in split))
    for block, stop in split:
        block.refuse_twice(names, stop)
    return names


def _batches(
    blocks: Iterable[Block],
    schema: Schema,
    reading: Reading,
    budget: Budget,
    plain: PlainBatches,
    *,
    drop: bool,
) -> Iterator[pa.RecordBatch]:
    row_bytes = sum(map(_row_bytes, schema))
    # Not a pa.Schema: made from arrays, rows without any feature would lose their number.
    fields: pa.StructType | None = None
    step = max(1, min(MAX_BATCH_ROWS, _MAX_BATCH_BYTES // max(row_bytes, 1)))
    yield from plain(schema, 0)
    for block in blocks:
        if isinstance(block, SequenceBlock):
            block.refuse_misplaced(schema)
        elif not ROW_MEMBERS.issubset(schema.names):
            _refuse_sequences(block)
        if not drop:
            _refuse_unknown(block, schema, reading)
        for start in range(0, block.num_rows, step):
            stop = min(start + step, block.num_rows)
            num_bytes = row_bytes * (stop - start)
            budget.charge(num_bytes, "A batch of rows")
            fields = fields or pa.struct(list(arrow_schema(schema)))
            yield _batch(block, start, stop, schema, fields, reading)
            budget.release(num_bytes)
        budget.release(block.num_bytes)
        yield from plain(schema, block.first_row + block.num_rows)


def _row_bytes(feature: Feature) -> int:
    """What a row takes in the column even where it lacks the feature."""
    if feature.kind == "sparse":
        return 1
    return 1 + (feature.num_values or 1) * max(feature.dtype.itemsize, 12)


def _refuse_sequences(block: Block) -> None:
    if not isinstance(block, SequenceBlock) and set(block.names(1)) == ROW_MEMBERS:
        cells = block.cells("context", 0, 1) + block.cells("feature_lists", 0, 1)
        if all(isinstance(cell, dict) for cell in cells):
            raise UnprocessableInput(
                "A row of context and feature_lists is a SequenceExample: set ?message=sequence_example, or "
                "send the features of an Example side by side.",
                code="unsupported_kind",
                row=block.first_row,
            )


def _refuse_unknown(block: Block, schema: Schema, reading: Reading) -> None:
    found = block.first_beside(schema.by_name.keys())
    if found is None:
        return
    row, name = block.first_row + found[0], found[1]
    hint = "Add it there, leave it out, or set ?undeclared=drop."
    if not reading.declared:
        hint = f"No value of it is in the first {HEAD_ROWS} rows: declare a schema, or set ?infer=all."
    raise SchemaConflict(
        f"Row {row} has the key {name[:64]!r}, which is not in the schema. {hint}", row=row, feature=name
    )


def _batch(
    block: Block, start: int, stop: int, schema: Schema, fields: pa.StructType, reading: Reading
) -> pa.RecordBatch:
    found = block.found_if_few(start, stop, len(schema))
    absent = AbsentColumns(stop - start)
    first_row = block.first_row + start

    def column(feature: Feature) -> pa.Array[Any]:
        cells = None if found is None else found.get(feature.name)
        if cells is not None:
            return build_found(feature, cells, reading, first_row)
        if found is not None and feature.nullable:
            return absent.column(feature)
        return build_column(feature, block.cells(feature.name, start, stop), reading, first_row)

    columns = [column(feature) for feature in schema]
    rows: Any = pa.Array.from_buffers(fields, stop - start, [None], children=columns)
    return pa.RecordBatch.from_struct_array(rows)
