"""Rows to serialized `tf.train.SequenceExample` messages, framed as TFRecord."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...domain.limits import MIB
from ...domain.schema import Feature
from ...errors import UnprocessableInput
from ...runtime.budget import Budget
from .. import kernels
from ..columns import MAX_BATCH_ROWS, Batch, Column, Ints, Records
from ..options import RecordsEncodeOptions
from ..records.lease import Lease
from .example_columns import key_field, wire_order
from .example_encode import RecordBlock
from .framing import BLOCK_BYTES, OVERHEAD_BYTES
from .sequence_columns import STEP_BYTES, MapEntries, Target, lower_map

#: What the columns of a chunk may take once they are lowered, where its rows are large.
_CHUNK_BYTES: Final = 8 * MIB
#: protobuf parses no message of 2 GiB or more.
_MAX_MESSAGE_BYTES: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Column:
    index: int
    feature: Feature
    key: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Lowered rows: their columns, and by row the bytes of the two fields and of the message."""

    contexts: list[MapEntries]
    lists: list[MapEntries]
    context_sizes: Ints
    feature_lists: Ints
    payloads: Ints


def encode_sequences(
    records: Records, options: RecordsEncodeOptions, budget: Budget
) -> Iterator[RecordBlock]:
    """One `tf.train.SequenceExample` a row, byte for byte `SerializeToString(deterministic=True)`, framed.

    Features of kind `sequence` are feature lists, the dense ones are the context. The message is the one
    that `SequenceExample(context=..., feature_lists=...)` makes with an argument for each part that the
    schema has features for: such a part is written even where a row has none of them, the other part never.
    Blocks are as `encode_blocks` makes them.

    Raises:
        LossyConversion: as `Feature.require_lossless`, without `options.lossy`; and as `round_floats`.
        UnprocessableInput: a row of 2 GiB or more (`example_too_large`).
        LimitExceeded: more than the budget.
        InputError: whatever drawing a batch raises.
    """
    if not options.lossy:
        records.schema.require_lossless()
    return _Encoder(records, options, budget).blocks()


class _Encoder:
    def __init__(self, records: Records, options: RecordsEncodeOptions, budget: Budget) -> None:
        self._batches = records.batches
        self._options = options
        self._budget = budget
        self._kernels = kernels.load()
        columns = sorted(
            (_Column(i, feature, key_field(feature.name)) for i, feature in enumerate(records.schema)),
            key=lambda column: wire_order(column.feature.name),
        )
        self._context = [column for column in columns if column.feature.kind != "sequence"]
        self._lists = [column for column in columns if column.feature.kind == "sequence"]
        self._first_row = 0

    def blocks(self) -> Iterator[RecordBlock]:
        for batch in self._batches:
            step = self._rows_at_a_time(batch)
            for begin in range(0, batch.num_rows, step):
                rows = min(step, batch.num_rows - begin)
                yield from self._encode_chunk(batch.rows(begin, begin + rows))
                self._first_row += rows

    def _rows_at_a_time(self, batch: Batch) -> int:
        lowered = sum(
            _lowered_bytes(c.feature, batch.columns[c.index], batch.num_rows)
            for c in self._context + self._lists
        )
        return max(1, min(MAX_BATCH_ROWS, batch.num_rows * _CHUNK_BYTES // max(lowered, 1)))

    def _encode_chunk(self, batch: Batch) -> Iterator[RecordBlock]:
        with Lease(self._budget) as lease:
            chunk = self._lower(batch, lease)
            self._check_sizes(chunk.payloads)
            yield from self._write_blocks(chunk)

    def _lower(self, batch: Batch, lease: Lease) -> _Chunk:
        lease.charge(8 * 5 * batch.num_rows, "Sizes and offsets of a batch")
        context_sizes, feature_lists = np.zeros((2, batch.num_rows), np.int64)
        contexts = [self._add(column, batch, context_sizes, lease) for column in self._context]
        lists = [self._add(column, batch, feature_lists, lease) for column in self._lists]
        payloads = np.empty(batch.num_rows, np.int64)
        self._kernels.payload_sizes(
            context_sizes, bool(self._context), feature_lists, bool(self._lists), payloads
        )
        return _Chunk(contexts, lists, context_sizes, feature_lists, payloads)

    def _add(self, column: _Column, batch: Batch, sizes: Ints, lease: Lease) -> MapEntries:
        entries = lower_map(
            column.feature, batch.columns[column.index], batch.num_rows,
            self._kernels, lease, self._options, first_row=self._first_row,
        )  # fmt: skip
        self._kernels.add_map_entry_sizes(entries.sizes, entries.present, len(column.key), sizes)
        return entries

    def _check_sizes(self, payloads: Ints) -> None:
        if (largest := int(payloads.max(initial=0))) > _MAX_MESSAGE_BYTES:
            row = self._first_row + int(payloads.argmax())
            raise UnprocessableInput(
                f"Row {row} takes {largest} bytes as SequenceExample; protobuf holds less than 2 GiB.",
                code="example_too_large",
                row=row,
            )

    def _write_blocks(self, chunk: _Chunk) -> Iterator[RecordBlock]:
        ends = np.cumsum(chunk.payloads + OVERHEAD_BYTES)
        cursors = np.empty(len(ends), np.int64)
        first, written = 0, 0
        while first < len(ends):
            last = max(first + 1, int(np.searchsorted(ends, written + BLOCK_BYTES, "right")))
            size = int(ends[last - 1]) - written
            with Lease(self._budget) as lease:
                lease.charge(size, "A block of records")
                out = np.empty(size, np.uint8)
                self._write_block(chunk, Target(first, last, cursors, out))
                yield RecordBlock(out.data.toreadonly(), last - first)
            first, written = last, written + size

    def _write_block(self, chunk: _Chunk, target: Target) -> None:
        first, last, cursors, out = target.first, target.last, target.cursors, target.out
        self._kernels.begin_contexts(
            chunk.payloads, chunk.context_sizes, bool(self._context), first, last, cursors, out
        )
        for column, entries in zip(self._context, chunk.contexts, strict=True):
            entries.write(self._kernels, column.key, target)
        if self._lists:
            self._kernels.begin_feature_lists(chunk.feature_lists, first, last, cursors, out)
        for column, entries in zip(self._lists, chunk.lists, strict=True):
            entries.write(self._kernels, column.key, target)
        self._kernels.end_payloads(chunk.payloads, first, last, out)


def _lowered_bytes(feature: Feature, column: Column, num_rows: int) -> int:
    """About what a column takes once lowered: integers in a list are widened to eight bytes."""
    widened = feature.encoding == "list" and 0 < feature.dtype.itemsize < 8
    values = column.nbytes * (8 // feature.dtype.itemsize if widened else 1)
    num_steps = int(column.splits[0][-1]) if feature.kind == "sequence" else num_rows
    return values + STEP_BYTES * (num_steps + num_rows)
