"""Rows to serialized `tf.train.Example` and `SequenceExample` messages, framed as TFRecord."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....domain.feature import Feature
from ....domain.immutable import immutable
from ....domain.limits import MIB
from ....domain.schema import Schema, message_keys
from ....errors import UnprocessableInput
from ....runtime.budget import Budget
from ... import kernels
from ...columns import MAX_BATCH_ROWS, Batch, Column, Records
from ...kernels.messages.encode import (
    COLUMN_FIELDS,
    FIRST_PART,
    HEAD_ROOM,
    IMPOSSIBLE,
    MAX_FIELD_OVERHEAD,
    SECOND_PART,
    STATE_FIELDS,
)
from ...options import RecordsEncodeOptions
from ...records.lease import Lease
from ..framing import BLOCK_BYTES, OVERHEAD_BYTES
from .lower import STEP_BYTES, Entries, key_field, lower_column, wire_order

#: What the columns of a chunk may take once they are lowered, where its rows are large.
_CHUNK_BYTES: Final = 8 * MIB
#: protobuf parses no message of 2 GiB or more.
_MAX_MESSAGE_BYTES: Final = 2**31 - 1
#: Heads that are kept of each feature, for bodies of different sizes; and the most that they may take.
_HEADS: Final = 8
_MAX_HEAD_BYTES: Final = 1 * MIB
#: A batch has few of the features where it has one of so many: then it gets a writer of its own.
_FEW: Final = 2


@immutable(eq=False)
class RecordBlock:
    """Whole TFRecord frames.

    Attributes:
        data: nothing writes to it any more.
        num_records: how many frames it holds.
    """

    data: memoryview
    num_records: int


@immutable()
class _Column:
    """A feature to write.

    Attributes:
        index: of its column in a batch.
        key: as `key_field` gives it.
        order: where it stands on the wire: the context before the feature lists.
    """

    index: int
    feature: Feature
    key: NDArray[np.uint8]

    order: tuple[bool, bytes]


def encode_blocks(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[RecordBlock]:
    """One message a row, byte for byte `SerializeToString(deterministic=True)`, framed.

    It is a `tf.train.Example` or, as `records.schema.message` says, a `SequenceExample`: features of kind
    `sequence` are its feature lists, the dense ones are the context. Such a message is the one that
    `SequenceExample(context=..., feature_lists=...)` makes with an argument for each part that the schema has
    features for: that part is written even where a row has none of them, the other part never.

    Blocks are of about 512 KiB; a row that is larger gets its own. Each has memory of its own, which counts
    against `budget` until the next block is drawn.

    Raises:
        LossyConversion: a value that a FloatList would change too much.
        UnprocessableInput: a row of 2 GiB or more (`example_too_large`).
        LimitExceeded: more than the budget.
        InputError: whatever drawing a batch raises.
    """
    return _Encoder(records, options, budget).blocks()


class _Encoder:
    def __init__(self, records: Records, options: RecordsEncodeOptions, budget: Budget) -> None:
        self._batches = records.batches
        self._options = options
        self._budget = budget
        self._columns = sorted(_columns(records.schema), key=lambda column: column.order)
        self._is_sequence = records.schema.message == "sequence_example"
        self._parts = _parts(self._columns) if self._is_sequence else FIRST_PART
        self._first_row = 0

    def blocks(self) -> Iterator[RecordBlock]:
        with Lease(self._budget) as lease:
            writer = self._writer(self._columns, lease)
            for batch in self._batches:
                # What no row has leaves no trace; a few bytes can name thousands of features.
                columns = [c for c in self._columns if batch.columns[c.index].occurs]
                if _FEW * len(columns) > len(self._columns):
                    yield from self._encode_batch(writer, batch, self._columns)
                else:
                    with Lease(self._budget) as of_batch:
                        yield from self._encode_batch(self._writer(columns, of_batch), batch, columns)

    def _writer(self, columns: list[_Column], lease: Lease) -> _RowWriter:
        num_lists = sum(column.feature.kind == "sequence" for column in columns)
        message = "SequenceExample" if self._is_sequence else "Example"
        keys = [column.key for column in columns]
        return _RowWriter(keys, len(columns) - num_lists, self._parts, message, lease)

    def _encode_batch(
        self, writer: _RowWriter, batch: Batch, columns: list[_Column]
    ) -> Iterator[RecordBlock]:
        found = [batch.columns[column.index] for column in columns]
        step = _rows_at_a_time(columns, found, batch.num_rows)
        for begin in range(0, batch.num_rows, step):
            rows = min(step, batch.num_rows - begin)
            some = found if rows == batch.num_rows else [column.rows(begin, begin + rows) for column in found]
            yield from self._encode_chunk(writer, columns, some, rows)
            self._first_row += rows

    def _encode_chunk(
        self, writer: _RowWriter, columns: list[_Column], found: list[Column], rows: int
    ) -> Iterator[RecordBlock]:
        with Lease(self._budget) as lease:
            lease.charge(16 * (rows + 1) * len(columns), "Offsets of a batch")
            entries = [
                lower_column(column.feature, values, rows, lease, self._options, first_row=self._first_row)
                for column, values in zip(columns, found, strict=True)
            ]
            yield from self._write_blocks(writer, entries, rows)

    def _write_blocks(self, writer: _RowWriter, entries: list[Entries], rows: int) -> Iterator[RecordBlock]:
        writer.begin(entries, rows)
        first, room = 0, BLOCK_BYTES
        while first < rows:
            with Lease(self._budget) as lease:
                lease.charge(size := min(room, writer.max_bytes), "A block of records")
                out = np.empty(size, np.uint8)
                count, size, room = writer.write(out, first, self._first_row)
                if count:
                    yield RecordBlock(out.data[:size].toreadonly(), count)
            first += count


def _columns(schema: Schema) -> Iterator[_Column]:
    keys = message_keys(schema)
    for index, feature in enumerate(schema):
        key = keys[feature.name]
        yield _Column(index, feature, key_field(key), (feature.kind == "sequence", wire_order(key)))


def _parts(columns: list[_Column]) -> int:
    """The parts that a SequenceExample of these features has."""
    parts = 0
    for column in columns:
        parts |= SECOND_PART if column.feature.kind == "sequence" else FIRST_PART
    return parts


class _RowWriter:
    """Writes frames; what it learns about rows is kept from chunk to chunk.

    Args:
        keys: of the features, in the order of the wire.
        num_first: how many of them the first part has.
        parts: that each message has.
        message: its name, for errors.
        lease: charged for the memory.
    """

    def __init__(
        self, keys: list[NDArray[np.uint8]], num_first: int, parts: int, message: str, lease: Lease
    ) -> None:
        self._kernels = kernels.load()
        self._keys = keys
        self._num_first = num_first
        self._parts = parts
        self._message = message
        self._head_steps = [len(key) + HEAD_ROOM for key in keys]
        self._slots = _HEADS if _HEADS * sum(self._head_steps) <= _MAX_HEAD_BYTES else 1
        begins = list(accumulate((self._slots * step for step in self._head_steps), initial=0))
        size = begins.pop()
        lease.charge(size + 16 * len(keys) * (self._slots + COLUMN_FIELDS), "Heads of features")
        self._head_begins = begins
        self._heads = np.empty(size, np.uint8)
        self._head_bodies = np.empty(len(keys) * self._slots, np.int64)
        self._head_bodies.fill(-1)
        self._head_sizes = np.empty(len(keys) * self._slots, np.int64)
        self._state = np.empty(STATE_FIELDS * len(keys), np.int64)
        self._varying = np.empty(len(keys), np.int64)
        self._stop = np.zeros(3, np.int64)
        self._entries: list[Entries] = []
        self._table = np.empty(0, np.int64)
        self._rows = 0
        #: What the rows that are left take at most.
        self.max_bytes = 0

    def begin(self, entries: list[Entries], rows: int) -> None:
        """Write these rows next."""
        self._entries = entries  # the table has addresses in their arrays
        described = [
            column.row(key, begin, step)
            for column, key, begin, step in zip(
                entries, self._keys, self._head_begins, self._head_steps, strict=True
            )
        ]
        self._table = np.array(described, np.int64).reshape(-1)
        for number, column in enumerate(entries):
            if column.step_bodies is not None and not self._kernels.step_bodies(
                self._table, number, column.step_bodies
            ):
                raise _impossible()
        self._rows = rows
        self.max_bytes = sum(column.max_bytes for column in entries) + rows * (
            OVERHEAD_BYTES + 2 * MAX_FIELD_OVERHEAD + sum(self._head_steps)
        )

    def write(self, out: NDArray[np.uint8], first: int, first_row: int) -> tuple[int, int, int]:
        """Write the rows from `first` on into `out`; how many, their bytes, and the room to offer next.

        Raises:
            UnprocessableInput: a row of 2 GiB or more.
        """
        count = self._kernels.encode_messages(
            self._table, self._parts, self._num_first, self._rows, first, _MAX_MESSAGE_BYTES,
            self._heads, self._head_bodies, self._head_sizes, self._state, self._varying,
            out, self._stop,
        )  # fmt: skip
        size, needed, too_large = self._stop.tolist()
        if count == IMPOSSIBLE:
            raise _impossible()
        if too_large:
            raise UnprocessableInput(
                f"Row {first_row + first + count} takes {too_large} bytes as {self._message}; "
                f"protobuf holds less than 2 GiB.",
                code="example_too_large",
                row=first_row + first + count,
            )
        self.max_bytes -= size
        return count, size, max(needed, BLOCK_BYTES)


def _impossible() -> IndexError:
    return IndexError("the columns of a batch do not lie in their arrays")


def _rows_at_a_time(columns: list[_Column], found: list[Column], num_rows: int) -> int:
    lowered = sum(map(_lowered_bytes, (column.feature for column in columns), found))
    return max(1, min(MAX_BATCH_ROWS, num_rows * _CHUNK_BYTES // max(lowered, 1)))


def _lowered_bytes(feature: Feature, column: Column) -> int:
    """About what a column takes once lowered: integers in a list are widened to eight bytes."""
    widened = feature.encoding == "list" and 0 < feature.dtype.itemsize < 8
    values = column.nbytes * (8 // feature.dtype.itemsize if widened else 1)
    return values + (STEP_BYTES * int(column.splits[0][-1]) if feature.kind == "sequence" else 0)
