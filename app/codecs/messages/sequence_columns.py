"""Columns as map entries of a `tf.train.SequenceExample`: what the encoding kernels take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.schema import Feature
from ..columns import Column, Ints, Mask, even_bounds
from ..kernels import Kernels
from ..kernels.example_encode import FLOATS, INTS
from ..kernels.sequence_encode import STEP_HEAD_BYTES
from ..options import RecordsEncodeOptions
from ..records.lease import Lease
from .example_columns import Entries, lower_column

Bytes = NDArray[np.uint8]

#: What lowering takes for each step and for each row, beside the values.
STEP_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Target:
    """Where entries go: the rows `first` to `last` of a chunk, at their cursors in `out`."""

    first: int
    last: int
    cursors: Ints
    out: Bytes


@dataclass(frozen=True, slots=True)
class _Floats:
    """Steps of float32 values: step `s` has those from `offsets[s]` to `offsets[s + 1]`."""

    raw: Bytes
    offsets: Ints

    def bodies(self, kernels: Kernels) -> Ints:  # noqa: ARG002 (numpy does it)
        """By step, the bytes inside the list."""
        return np.diff(self.offsets) * 4

    def write(self, kernels: Kernels, *entries: Any) -> None:
        """Write the entries of `MapEntries`."""
        kernels.write_float_steps(self.raw, self.offsets, np.empty(STEP_HEAD_BYTES, np.uint8), *entries)


@dataclass(frozen=True, slots=True)
class _Integers:
    """Steps of int64 values; see `_Floats`."""

    words: NDArray[np.uint64]
    offsets: Ints

    def bodies(self, kernels: Kernels) -> Ints:
        """By step, the bytes inside the list."""
        bodies = np.empty(len(self.offsets) - 1, np.int64)
        kernels.int_step_bodies(self.words, self.offsets, bodies)
        return bodies

    def write(self, kernels: Kernels, *entries: Any) -> None:
        """Write the entries of `MapEntries`."""
        kernels.write_int_steps(self.words, self.offsets, np.empty(STEP_HEAD_BYTES, np.uint8), *entries)


@dataclass(frozen=True, slots=True)
class _Strings:
    """Steps of bytes values, each behind `prefix`; value `v` is `data[spans[v]:spans[v + 1]]`."""

    prefix: Bytes
    data: Bytes
    spans: Ints
    offsets: Ints

    def bodies(self, kernels: Kernels) -> Ints:
        """By step, the bytes inside the list."""
        bodies = np.empty(len(self.offsets) - 1, np.int64)
        kernels.bytes_step_bodies(len(self.prefix), self.spans, self.offsets, bodies)
        return bodies

    def write(self, kernels: Kernels, *entries: Any) -> None:
        """Write the entries of `MapEntries`."""
        kernels.write_bytes_steps(self.prefix, self.data, self.spans, self.offsets, *entries)


_Values = _Floats | _Integers | _Strings


@dataclass(frozen=True, slots=True)
class MapEntries:
    """One feature of a chunk of rows: an entry of the context, or of the feature lists.

    Attributes:
        values: of the steps; a context's feature has one step a row.
        wrapped: the steps are those of a FeatureList.
        bodies: by step, the bytes inside the list.
        steps: row `r` has the steps from `steps[r]` to `steps[r + 1]`.
        sizes: by row, the bytes of the entry's value.
        present: by row, 1 where the entry is there.
    """

    values: _Values
    wrapped: bool
    bodies: Ints
    steps: Ints
    sizes: Ints
    present: Bytes

    def write(self, kernels: Kernels, key: Bytes, target: Target) -> None:
        """Write the entries; `key` is the field of the key with tag and length."""
        self.values.write(
            kernels, self.bodies, self.wrapped, self.steps, self.sizes, self.present, key,
            target.first, target.last, target.cursors, target.out,
        )  # fmt: skip


def lower_map(
    feature: Feature,
    column: Column,
    num_rows: int,
    kernels: Kernels,
    lease: Lease,
    options: RecordsEncodeOptions,
    *,
    first_row: int,
) -> MapEntries:
    """The entries of a column that is dense or a sequence; arguments and errors are as of `lower_column`."""
    entries = lower_column(feature, column, num_rows, lease, options, first_row=first_row)
    steps = even_bounds(num_rows, 1) if entries.steps is None else entries.steps
    lease.charge(STEP_BYTES * (int(steps[-1]) + num_rows), "Sizes and offsets of a batch")
    present = np.ones(num_rows, np.bool_) if column.present is None else column.present
    wrapped = feature.kind == "sequence"
    return _measured(_values(entries, int(steps[-1])), steps, present, kernels, wrapped=wrapped)


def _values(entries: Entries, num_steps: int) -> _Values:
    offsets = entries.row_starts(num_steps)
    if entries.kind == FLOATS:
        return _Floats(entries.values.view(np.uint8), offsets)
    if entries.kind == INTS:
        return _Integers(entries.values, offsets)
    prefix = np.empty(0, np.uint8) if entries.prefix is None else entries.prefix
    return _Strings(prefix, entries.values, entries.value_spans(), offsets)


def _measured(values: _Values, steps: Ints, present: Mask, kernels: Kernels, *, wrapped: bool) -> MapEntries:
    bodies = values.bodies(kernels)
    sizes = np.empty(len(present), np.int64)
    packed = not isinstance(values, _Strings)
    kernels.list_sizes(bodies, packed, wrapped, steps, sizes)
    return MapEntries(values, wrapped, bodies, steps, sizes, present.view(np.uint8))
