"""Rows or columns on a tape to batches of columns: what row JSON, column JSON and NDJSON have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Final, Protocol

import numpy as np

from ....domain.feature import Feature
from ....domain.limits import MIB
from ....domain.schema import LIST_PREFIX, Schema
from ....errors import SchemaConflict, UnprocessableInput
from ....runtime.budget import Budget
from ...columns import (
    MAX_BATCH_ROWS,
    AbsentColumns,
    Batch,
    Column,
    Records,
)
from ...kernels.json.tape import ARRAY, OBJECT
from ...options import RecordsDecodeOptions
from ...schema_inference import HEAD_ROWS, infer_schema
from ..tape import KEY_OF, Items
from ..values import Reading
from .build import build_column
from .cells import Cells, Members

#: What a row of a SequenceExample consists of.
ROW_MEMBERS: Final = frozenset({"context", "feature_lists"})
#: A row that lacks a wide feature may still take its place in what is made of the batch.
_MAX_BATCH_BYTES: Final = 32 * MIB


class Block(Protocol):
    """Some consecutive rows of the input.

    Attributes:
        first_row: where they begin in the whole input.
        num_rows: how many there are.
        num_bytes: what was charged to the budget for them.
    """

    first_row: int
    num_rows: int
    num_bytes: int

    def head(self, stop: int) -> Block:
        """The rows before `stop`."""
        ...

    def names(self) -> Iterable[str]:
        """The keys of the rows, in the order in which they first occur."""
        ...

    def cells(self, name: str) -> Cells | None:
        """The values under a key; None where no row has it."""
        ...


class RowBlock:
    """Rows that came as objects."""

    def __init__(self, objects: Items, num_bytes: int, first_row: int = 0) -> None:
        self.objects = objects
        self.num_rows = len(objects)
        self.num_bytes = num_bytes
        self.first_row = first_row
        self._members = Members(objects)
        self._keys = _by_name(self._members)

    def head(self, stop: int) -> RowBlock:
        return self if stop >= self.num_rows else RowBlock(self.objects.take(slice(stop)), 0, self.first_row)

    def names(self) -> Iterable[str]:
        return self._keys

    def cells(self, name: str) -> Cells | None:
        key = self._keys.get(name)
        return None if key is None else self._members.of(key)


def _by_name(members: Members) -> dict[str, int]:
    return {members.tape.name(key): key for key in members.keys}


class ColumnBlock:
    """Rows that came as columns of equal length."""

    def __init__(self, columns: Mapping[str, Items], num_rows: int, num_bytes: int) -> None:
        self.num_rows = num_rows
        self.num_bytes = num_bytes
        self.first_row = 0
        self._columns = columns

    def head(self, stop: int) -> ColumnBlock:
        if stop >= self.num_rows:
            return self
        return ColumnBlock({name: items.take(slice(stop)) for name, items in self._columns.items()}, stop, 0)

    def names(self) -> Iterable[str]:
        return self._columns

    def cells(self, name: str) -> Cells | None:
        items = self._columns.get(name)
        return None if items is None else Cells.of(items)


class SequenceBlock:
    """Rows that came as objects of a context and feature lists.

    Raises:
        UnprocessableInput: a row of another form (`invalid_sequence_example`).
    """

    def __init__(self, rows: RowBlock) -> None:
        self.objects = rows.objects
        self.num_rows = rows.num_rows
        self.num_bytes = rows.num_bytes
        self.first_row = rows.first_row
        members = Members(rows.objects)
        self._parts = [members.of(KEY_OF[name]) for name in ("context", "feature_lists")]
        if not ROW_MEMBERS.issuperset(_by_name(members)) or not all(
            part.items.only(OBJECT) for part in self._parts
        ):
            self._refuse()
        self._members = [Members(part.items) for part in self._parts]
        self._keys = [_by_name(part) for part in self._members]

    def _refuse(self) -> None:
        wrong = [
            (int(part.row_numbers(0)[index]), f'has a "{name}" that is no object')
            for name, part in zip(("context", "feature_lists"), self._parts, strict=True)
            for index in np.flatnonzero(part.items.kinds != OBJECT)[:1].tolist()
        ]
        for row in range(self.num_rows):
            if unknown := set(self.objects.member_names(row)) - ROW_MEMBERS:
                wrong.append((row, f"has the member {min(unknown)[:64]!r}"))
                break
        row, what = min(wrong)
        raise UnprocessableInput(
            f"Row {self.first_row + row} {what}. A SequenceExample is sent as "
            '{"context": {...}, "feature_lists": {"name": [step, ...]}}.',
            code="invalid_sequence_example",
            row=self.first_row + row,
        )

    def head(self, stop: int) -> SequenceBlock:
        if stop >= self.num_rows:
            return self
        return SequenceBlock(RowBlock(self.objects.take(slice(stop)), 0, self.first_row))

    def names(self) -> Iterable[str]:
        return dict.fromkeys([*self._keys[0], *self._keys[1]])

    def list_names(self) -> Set[str]:
        """The names of feature lists that a row has."""
        return {name for name in self._keys[1] if len(self._of(1, name).items)}

    def cells(self, name: str) -> Cells | None:
        found = [self._of(part, name) for part in (0, 1) if name in self._keys[part]]
        return next((cells for cells in found if len(cells.items)), found[0] if found else None)

    def _of(self, part: int, name: str) -> Cells:
        cells = self._members[part].of(self._keys[part][name])
        outer = self._parts[part]
        if outer.rows is None:
            return cells
        return Cells(cells.items, outer.rows[cells.row_numbers(0)], self.num_rows)

    def _first_of(self, part: int, name: str) -> int | None:
        cells = self._of(part, name)
        return int(cells.row_numbers(0)[0]) if len(cells.items) else None

    def refuse_twice(self, lists: Set[str]) -> None:
        """Refuse a name in a context that is one of the feature lists, too.

        Raises:
            UnprocessableInput: `duplicate_feature`.
        """
        twice = [
            (row, name)
            for name in self._keys[0]
            if name in lists and (row := self._first_of(0, name)) is not None
        ]
        if twice:
            row, name = min(twice, key=lambda place: place[0])
            raise UnprocessableInput(
                f"Row {self.first_row + row} has {name[:64]!r} in its context, and there is a feature list "
                f"of that name. Send the list as {(LIST_PREFIX + name)[:96]!r}.",
                code="duplicate_feature",
                row=self.first_row + row,
                feature=name,
            )

    def refuse_misplaced(self, schema: Schema) -> None:
        """Refuse a feature list in a context, or the other way round.

        Raises:
            SchemaConflict: which.
        """
        lists = {feature.name for feature in schema if feature.kind == "sequence"}
        context = schema.by_name.keys() - lists
        for part, others, hint in (
            (0, lists, "a sequence in the schema; send it in feature_lists"),
            (1, context, "no sequence in the schema; send it in context"),
        ):
            misplaced = [
                (row, name)
                for name in self._keys[part]
                if name in others and (row := self._first_of(part, name)) is not None
            ]
            if misplaced:
                row, name = min(misplaced)
                row += self.first_row
                also = f", or the list as {LIST_PREFIX + name!r}" if LIST_PREFIX + name in lists else ""
                raise SchemaConflict(
                    f"Feature {name!r}, row {row}: it is {hint}{also}.", row=row, feature=name
                )


def records_from_blocks(
    blocks: Iterator[RowBlock | ColumnBlock], options: RecordsDecodeOptions, budget: Budget
) -> Records:
    """The rows of all blocks, under the declared schema or one inferred from the first block.

    A null and an absent feature are the same. Under a key that the schema lacks, an empty array is passed
    over as null is, unless the client declared the schema; `Records.dropped` then names the key. What was
    charged for a block is released once its batches were drawn.

    Raises:
        InputError: what `infer_schema` raises; while batches are drawn, what `build_column` does, and for a
            value under a key that the schema does not name (`schema_conflict`).
    """
    declared = None if options.schema is None else options.schema.with_message(options.message).as_read()
    reading = Reading.of(options.nonfinite, declared=declared is not None)
    is_sequence = (options.message if declared is None else declared.message) == "sequence_example"
    if declared is not None:
        unknown = _UnknownKeys(declared, options, budget)
        return Records(
            declared, _batches(blocks, None, reading, budget, is_sequence, unknown), dropped=unknown.dropped
        )
    first = next(blocks, None)
    if first is None:
        return Records(Schema(()).with_message(options.message), iter(()))
    block = _split(first, is_sequence=is_sequence)
    head = block if options.infer == "all" else block.head(HEAD_ROWS)
    schema, dropped = _infer(head, options, reading, budget)
    unknown = _UnknownKeys(schema, options, budget, dropped)
    return Records(schema, _batches(blocks, block, reading, budget, is_sequence, unknown), dropped=dropped)


def _split(block: RowBlock | ColumnBlock, *, is_sequence: bool) -> RowBlock | ColumnBlock | SequenceBlock:
    """Rows of SequenceExamples in their two parts. Columns go by flat names already."""
    return SequenceBlock(block) if is_sequence and isinstance(block, RowBlock) else block


def _infer(
    block: Block, options: RecordsDecodeOptions, reading: Reading, budget: Budget
) -> tuple[Schema, list[str]]:
    """The schema, and the names of features that it lacks, since no row has a value of them."""
    _refuse_sequences(block)
    lists: Set[str] = frozenset()
    if isinstance(block, SequenceBlock):
        lists = block.list_names()
        block.refuse_twice(lists)
    names = list(block.names())

    def cells(name: str) -> Cells:
        return block.cells(name) or Cells.absent(block.num_rows)

    schema = infer_schema(names, cells, reading, budget.limits, sequences=lists, known=options.known)
    dropped = [name for name in names if name not in schema.by_name]
    return schema.with_message(options.message), dropped


def _batches(
    blocks: Iterator[RowBlock | ColumnBlock],
    first: RowBlock | ColumnBlock | SequenceBlock | None,
    reading: Reading,
    budget: Budget,
    is_sequence: bool,
    unknown: _UnknownKeys,
) -> Iterator[Batch]:
    schema = unknown.schema
    row_bytes = sum(map(_row_bytes, schema))
    step = max(1, min(MAX_BATCH_ROWS, _MAX_BATCH_BYTES // max(row_bytes, 1)))
    while True:
        block = first
        first = None
        if block is None:
            block = next(blocks, None)
            if block is None:
                return
            block = _split(block, is_sequence=is_sequence)
        if isinstance(block, SequenceBlock):
            block.refuse_misplaced(schema)
        elif not ROW_MEMBERS.issubset(schema.names):
            _refuse_sequences(block)
        unknown.check(block)
        for start in range(0, block.num_rows, step):
            stop = min(start + step, block.num_rows)
            num_bytes = len(schema) * (stop - start)
            budget.charge(num_bytes, "A batch of rows")
            yield _batch(block, start, stop, schema, reading)
            budget.release(num_bytes)
        budget.release(block.num_bytes)


def _row_bytes(feature: Feature) -> int:
    """What a row may take in a form in which rows without the feature have a place, too."""
    if feature.kind == "sparse":
        return 1
    return 1 + (feature.num_values or 1) * max(feature.dtype.itemsize, 12)


def _refuse_sequences(block: Block) -> None:
    if not isinstance(block, RowBlock) or not ROW_MEMBERS.issubset(block.names()):
        return
    first = block.head(1)
    if set(first.names()) == ROW_MEMBERS:
        cells = [first.cells(name) for name in ROW_MEMBERS]
        if all(found is not None and len(found.items) and found.items.only(OBJECT) for found in cells):
            raise UnprocessableInput(
                "A row of context and feature_lists is a SequenceExample: set message=sequence_example, or "
                "send the features of an Example side by side.",
                code="unsupported_kind",
                row=block.first_row,
            )


class _UnknownKeys:
    """What becomes of values under keys that the schema lacks.

    Attributes:
        dropped: keys of empty arrays that were passed over, and those that `schema` was inferred without.
    """

    def __init__(
        self, schema: Schema, options: RecordsDecodeOptions, budget: Budget, dropped: list[str] | None = None
    ) -> None:
        self.schema = schema
        self.dropped = [] if dropped is None else dropped
        self._options = options
        self._max_dropped = budget.limits.max_features

    def check(self, block: Block) -> None:
        """Refuse the first value in the block.

        Raises:
            SchemaConflict: its row and key.
        """
        is_declared = self._options.schema is not None
        if is_declared and self._options.undeclared == "drop":
            return
        passes_over = not is_declared or self._options.schema_of_dataset
        found = []
        for name in block.names():
            cells = None if name in self.schema.by_name else block.cells(name)
            if cells is None or not len(cells.items):
                continue
            first = _first_value(cells.items) if passes_over else 0
            if first is not None:
                found.append((int(cells.row_numbers(block.first_row)[first]), name))
            elif name not in self.dropped and len(self.dropped) < self._max_dropped:
                self.dropped.append(name)
        if not found:
            return
        row, name = min(found, key=lambda place: place[0])
        hint = "Add it there, leave it out, or set undeclared=drop."
        if not is_declared:
            hint = f"No value of it is in the first {HEAD_ROWS} rows: declare a schema, or set infer=all."
        raise SchemaConflict(
            f"Row {row} has the key {name[:64]!r}, which is not in the schema. {hint}", row=row, feature=name
        )


def _first_value(items: Items) -> int | None:
    """The first cell that is not an empty array, or arrays of those; None where all are."""
    cells, found = np.arange(len(items)), []
    while len(items):
        is_array = items.kinds == ARRAY
        found += cells[~is_array][:1].tolist()
        items, counts = items.take(is_array).open()
        cells = np.repeat(cells[is_array], counts)
    return min(found, default=None)


def _batch(block: Block, start: int, stop: int, schema: Schema, reading: Reading) -> Batch:
    absent = AbsentColumns(stop - start)
    first_row = block.first_row + start
    columns: list[Column] = []
    for feature in schema:
        cells = block.cells(feature.name)
        cells = None if cells is None else cells.part(start, stop)
        if cells is None or not len(cells.items):
            if feature.nullable:
                columns.append(absent.column(feature))
                continue
            cells = Cells.absent(stop - start)
        columns.append(build_column(feature, cells, reading, first_row))
    return Batch(stop - start, tuple(columns))
