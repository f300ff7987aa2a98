"""Rows to serialized `tf.train.Example` messages, framed as TFRecord."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.limits import MIB, Budget
from ...domain.schema import Feature
from ...errors import UnprocessableInput
from .. import kernels
from ..options import RecordsEncodeOptions
from .columns import MAX_BATCH_ROWS, Records
from .example_columns import Entries, EntryTarget, key_field, lower_column, wire_order
from .framing import BLOCK_BYTES
from .lease import Lease

__all__ = ["RecordBlock", "encode_blocks"]

#: What the columns of a chunk may take once they are lowered, where its rows are large.
_CHUNK_BYTES: Final = 8 * MIB
#: protobuf parses no message of 2 GiB or more; this leaves room for tag and length of Features.
_MAX_FEATURES_BYTES: Final = 2**31 - 16


@dataclass(frozen=True, slots=True, eq=False)
class RecordBlock:
    """Whole TFRecord frames.

    Attributes:
        data: nothing writes to it any more.
        num_records: how many frames it holds.
    """

    data: memoryview
    num_records: int


@dataclass(frozen=True, slots=True)
class _Column:
    index: int
    feature: Feature
    key: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Lowered:
    key: NDArray[np.uint8]
    entries: Entries
    bodies: NDArray[np.int64]


def encode_blocks(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[RecordBlock]:
    """One `tf.train.Example` a row, byte for byte `SerializeToString(deterministic=True)`, framed.

    Blocks are of about 512 KiB; a row that is larger gets its own. Each has memory of its own, which counts
    against `budget` until the next block is drawn.

    Raises:
        LossyConversion: float64 or uint64 in a list without `options.lossy`, or a float64 that float32
            cannot hold (with row and feature).
        UnprocessableInput: a row of 2 GiB or more (`example_too_large`).
        LimitExceeded: more than the budget.
        InputError: whatever drawing a batch raises.
    """
    if not options.lossy:
        records.schema.require_lossless()
    return _Encoder(records, budget).blocks()


class _Encoder:
    def __init__(self, records: Records, budget: Budget) -> None:
        self._batches = records.batches
        self._budget = budget
        self._kernels = kernels.load()
        self._columns = sorted(
            (_Column(i, feature, key_field(feature.name)) for i, feature in enumerate(records.schema)),
            key=lambda column: wire_order(column.feature.name),
        )
        self._first_row = 0

    def blocks(self) -> Iterator[RecordBlock]:
        for batch in self._batches:
            step = self._rows_at_a_time(batch)
            for begin in range(0, batch.num_rows, step):
                rows = min(step, batch.num_rows - begin)
                yield from self._encode_chunk([column.slice(begin, rows) for column in batch.columns], rows)
                self._first_row += rows

    def _rows_at_a_time(self, batch: pa.RecordBatch) -> int:
        lowered = sum(_lowered_bytes(c.feature, batch.column(c.index)) for c in self._columns)
        return max(1, min(MAX_BATCH_ROWS, batch.num_rows * _CHUNK_BYTES // max(lowered, 1)))

    def _encode_chunk(self, columns: list[pa.Array[Any]], rows: int) -> Iterator[RecordBlock]:
        with Lease(self._budget) as lease:
            lease.charge(8 * rows * (3 * len(columns) + 3), "Sizes and offsets of a batch")
            features = np.zeros(rows, np.int64)
            lowered = [
                self._lower(column, columns[column.index], features, lease) for column in self._columns
            ]
            self._check_sizes(features)
            ends = np.empty(rows, np.int64)
            self._kernels.frame_ends(features, ends)
            yield from self._write_blocks(lowered, features, ends)

    def _lower(
        self, column: _Column, values: pa.Array[Any], features: NDArray[np.int64], lease: Lease
    ) -> _Lowered:
        entries = lower_column(column.feature, values, lease, first_row=self._first_row)
        bodies = entries.bodies(self._kernels)
        self._kernels.add_entry_sizes(bodies, entries.present, entries.packed, len(column.key), features)
        return _Lowered(column.key, entries, bodies)

    def _check_sizes(self, features: NDArray[np.int64]) -> None:
        if (largest := int(features.max(initial=0))) > _MAX_FEATURES_BYTES:
            row = self._first_row + int(features.argmax())
            raise UnprocessableInput(
                f"Row {row} takes {largest} bytes as Example; protobuf holds less than 2 GiB.",
                code="example_too_large",
                row=row,
            )

    def _write_blocks(
        self, lowered: list[_Lowered], features: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Iterator[RecordBlock]:
        cursors = np.empty(len(ends), np.int64)
        first, written = 0, 0
        while first < len(ends):
            last = max(first + 1, int(np.searchsorted(ends, written + BLOCK_BYTES, "right")))
            size = int(ends[last - 1]) - written
            with Lease(self._budget) as lease:
                lease.charge(size, "A block of records")
                out = np.empty(size, np.uint8)
                self._write_block(lowered, features, EntryTarget(first, last, cursors, out))
                yield RecordBlock(out.data.toreadonly(), last - first)
            first, written = last, written + size

    def _write_block(self, lowered: list[_Lowered], features: NDArray[np.int64], target: EntryTarget) -> None:
        first, last, out = target.first, target.last, target.out
        self._kernels.begin_frames(features, first, last, target.cursors, out)
        for column in lowered:
            column.entries.write(self._kernels, column.key, column.bodies, target)
        self._kernels.end_frames(features, first, last, out)


def _lowered_bytes(feature: Feature, column: pa.Array[Any]) -> int:
    """About what a column takes once lowered: integers in a list are widened to eight bytes."""
    widened = feature.encoding == "list" and 0 < feature.dtype.itemsize < 8
    return int(column.nbytes) * (8 // feature.dtype.itemsize if widened else 1)
