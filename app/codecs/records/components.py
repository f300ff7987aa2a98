"""Ragged and sparse columns <-> the lists of an Example that hold them.

An Example has no form for either kind; `domain/components.py` names the lists that stand for one. A
ragged row is its values, row-major, and for each cut the lengths of the pieces, as TensorFlow Datasets
stores it and `tf.io.RaggedFeature(value_key, partitions=[RowLengths, ...])` reads it. A sparse row is
its values and a list of coordinates for each axis, which `tf.io.SparseFeature` reads. The order of the
coordinates, and coordinates that come twice, stay as they are: TensorFlow sorts them as it reads, unless
it is told `already_sorted=True`, and has no rule for duplicates.

Values are not copied; lengths and coordinates are, since Arrow has offsets and interleaves coordinates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.components import check_stored_names, stored_features
from ...domain.schema import Feature, Schema
from ...domain.tensor import num_elements
from ...errors import SchemaConflict
from ...runtime.budget import Budget
from ..messages.example_values import arrow_buffer
from .columns import Records, arrow_schema, column_type, storage_type
from .lease import Lease
from .lists import is_present, list_column, split_lists, validity_bitmap

__all__ = ["from_stored", "parsed_schema", "stored_schema", "to_stored"]

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: A length that no row has; so many of them add up within int64.
_TOO_LONG: Final = 2**31


def stored_schema(schema: Schema) -> Schema:
    """The dense features that rows of `schema` are written as.

    Raises:
        UnprocessableInput: two would have one name (`duplicate_feature`).
    """
    check_stored_names(schema)
    return Schema(tuple(stored for feature in schema for stored in stored_features(feature)), schema.message)


def parsed_schema(schema: Schema) -> Schema:
    """The dense features that rows of `schema` are read as: one component may be absent, as in TensorFlow.

    Raises:
        UnprocessableInput: as `stored_schema`.
    """
    check_stored_names(schema)
    stored = (
        part if part is feature else replace(part, nullable=True)
        for feature in schema
        for part in stored_features(feature)
    )
    return Schema(tuple(stored), schema.message)


def _has_components(schema: Schema) -> bool:
    return any(feature.kind in ("ragged", "sparse") for feature in schema)


def to_stored(records: Records, budget: Budget) -> Records:
    """The rows in dense columns only, of `stored_schema(records.schema)`.

    Raises, as batches are drawn:
        SchemaConflict: a row does not have the lengths or the coordinates that its shape allows.
        LimitExceeded: more than the budget, or more values than a column holds (`column_too_large`).
        InputError: whatever drawing a batch raises.
    """
    schema = stored_schema(records.schema)
    if not _has_components(records.schema):
        return replace(records, schema=schema)
    return Records(schema, _stored_batches(records, schema, budget), records.num_rows)


def _stored_batches(records: Records, schema: Schema, budget: Budget) -> Iterator[pa.RecordBatch]:
    arrow = arrow_schema(schema)
    first_row = 0
    for batch in records.batches:
        with Lease(budget) as lease:
            columns: list[pa.Array[Any]] = []
            for feature, column in zip(records.schema, batch.columns, strict=True):
                if feature.kind == "ragged":
                    columns += _Ragged(feature, first_row, lease).split(column)
                elif feature.kind == "sparse":
                    columns += _Sparse(feature, first_row, lease).split(column)
                else:
                    columns.append(column)
            yield pa.RecordBatch.from_arrays(columns, schema=arrow)
        first_row += batch.num_rows


def from_stored(records: Records, schema: Schema, budget: Budget) -> Records:
    """The rows of `schema` out of rows of `parsed_schema(schema)`.

    A row that lacks all components of a feature lacks the feature; where only some are missing, they
    are read as empty lists, as `tf.io.parse_example` reads them.

    Raises, as batches are drawn:
        SchemaConflict: the components of a row contradict each other or the shape, or all of them
            are missing and the feature is not nullable (`schema_conflict`, with row and feature).
        LimitExceeded: more than the budget, or more values than a column holds (`column_too_large`).
        InputError: whatever drawing a batch raises.
    """
    if not _has_components(schema):
        return replace(records, schema=schema)
    return Records(schema, _joined_batches(records, schema, budget), records.num_rows)


def _joined_batches(records: Records, schema: Schema, budget: Budget) -> Iterator[pa.RecordBatch]:
    arrow = arrow_schema(schema)
    first_row = 0
    for batch in records.batches:
        with Lease(budget) as lease:
            stored = iter(batch.columns)
            columns: list[pa.Array[Any]] = []
            for feature in schema:
                parts = [next(stored) for _ in stored_features(feature)]
                if feature.kind == "ragged":
                    columns.append(_Ragged(feature, first_row, lease).join(parts))
                elif feature.kind == "sparse":
                    columns.append(_Sparse(feature, first_row, lease).join(parts))
                else:
                    columns += parts
            yield pa.RecordBatch.from_arrays(columns, schema=arrow)
        first_row += batch.num_rows


class _Components:
    """What both kinds have in common: one feature of one batch."""

    def __init__(self, feature: Feature, first_row: int, lease: Lease) -> None:
        self.feature = feature
        self.first_row = first_row
        self.lease = lease

    def empty(self, count: int) -> Ints:
        """Memory for `count` numbers."""
        self.lease.charge(8 * count, "Components of a batch")
        return np.empty(count, np.int64)

    def lists(self, values: pa.Array[Any], starts: Ints, present: Flags | None) -> pa.Array[Any]:
        """As `list_column`."""
        return list_column(values, starts, present, feature=self.feature.name, lease=self.lease)

    def present(self, parts: list[pa.Array[Any]]) -> Flags:
        """Which rows have any component."""
        present: Flags = np.logical_or.reduce([is_present(part) for part in parts])
        if not self.feature.nullable and not present.all():
            row = int(np.argmin(present))
            number = self.first_row + row
            raise SchemaConflict(
                f"Record {number} lacks feature {self.feature.name!r}. Declare the feature nullable in the "
                f"schema if it may be absent.",
                row=number,
                feature=self.feature.name,
            )
        return present

    def split_part(self, part: pa.Array[Any]) -> tuple[pa.Array[Any], Ints]:
        """As `split_lists`; rows that lack it are empty."""
        return split_lists(part, is_present(part), self.lease)

    def conflict(self, row: int, what: str) -> SchemaConflict:
        """A row of the batch does not fit."""
        name, number = self.feature.name, self.first_row + row
        return SchemaConflict(f"Record {number}: feature {name!r} {what}.", row=number, feature=name)


class _Ragged(_Components):
    def split(self, column: pa.Array[Any]) -> list[pa.Array[Any]]:
        """The columns of the values and of the lengths of each cut."""
        present = is_present(column)
        nested, starts = split_lists(column, present, self.lease)
        self._check_outer(starts, present)
        lengths = []
        for cut in range(self.feature.num_partitions):
            nested, offsets = self.split_part(nested)
            pieces = self.empty(len(offsets) - 1)
            np.subtract(offsets[1:], offsets[:-1], out=pieces)
            self._check_lengths(cut, pieces, starts)
            lengths.append(self.lists(_int64s(pieces), starts, present))
            starts = offsets[starts]
        width = num_elements(self.feature.inner_shape)
        if self.feature.inner_shape:
            fixed = cast("pa.FixedSizeListArray[Any, Any]", nested)
            nested = fixed.values.slice(fixed.offset * width, len(fixed) * width)
        return [self.lists(nested, starts * width, present), *lengths]

    def join(self, parts: list[pa.Array[Any]]) -> pa.Array[Any]:
        """The column of the values and lengths in `parts`."""
        present = self.present(parts)
        values, value_starts = self.split_part(parts[0])
        cuts = [self.split_part(part) for part in parts[1:]]
        self._check_outer(cuts[0][1], present)
        levels = []
        for cut, (lengths, starts) in enumerate(cuts):
            pieces = _numbers(lengths)
            self._check_lengths(cut, pieces, starts)
            ends = self.empty(len(pieces) + 1)
            ends[0] = 0
            np.cumsum(pieces, out=ends[1:])
            inner = cuts[cut + 1][1] if cut + 1 < len(cuts) else value_starts
            self._check_sums(cut, np.diff(ends[starts]), np.diff(inner))
            levels.append(ends)
        if self.feature.inner_shape:
            width = num_elements(self.feature.inner_shape)
            kind = pa.list_(storage_type(self.feature.dtype), width)
            values = pa.Array.from_buffers(kind, len(values) // width, [None], children=[values])
        for ends in reversed(levels):
            values = self.lists(values, ends, None)
        return self.lists(values, cuts[0][1], present)

    def _check_outer(self, starts: Ints, present: Flags) -> None:
        """Hold the number of a row's first pieces to the first dimension."""
        expected = self.feature.shape[0]
        counts = np.diff(starts)
        if expected is None or not (wrong := present & (counts != expected)).any():
            return
        row = int(np.argmax(wrong))
        raise self.conflict(row, f"has {counts[row]} pieces where the schema's shape takes {expected}")

    def _check_lengths(self, cut: int, lengths: Ints, starts: Ints) -> None:
        """Hold the lengths of one cut to its dimension."""
        dim = self.feature.shape[cut + 1]
        wrong = (lengths < 0) | (lengths >= _TOO_LONG) if dim is None else lengths != dim
        if not wrong.any():
            return
        index = int(np.argmax(wrong))
        expected = "that is no length" if dim is None else f"but the schema's shape says {dim}"
        row = int(np.searchsorted(starts, index, "right")) - 1
        raise self.conflict(row, f"has a row length of {lengths[index]} in cut {cut}, {expected}")

    def _check_sums(self, cut: int, sums: Ints, counts: Ints) -> None:
        """Hold the sum of a row's lengths to the number of what they cut."""
        last = cut + 1 == self.feature.num_partitions
        width = num_elements(self.feature.inner_shape) if last else 1
        if (wrong := (counts % width != 0) | (counts // width != sums)).any():
            row = int(np.argmax(wrong))
            what = "values" if last else f"row lengths in cut {cut + 1}"
            times = f" times {width}" if width > 1 else ""
            found = f"its row lengths in cut {cut} add up to {sums[row]}{times}"
            raise self.conflict(row, f"has {counts[row]} {what}, but {found}")


class _Sparse(_Components):
    def split(self, column: pa.Array[Any]) -> list[pa.Array[Any]]:
        """The columns of the coordinates on each axis, and of the values."""
        present = is_present(column)
        struct = cast("pa.StructArray", column)
        indices, index_starts = split_lists(struct.field(0), present, self.lease)
        values, starts = split_lists(struct.field(1), present, self.lease)
        rank = len(self.feature.shape)
        if (wrong := np.diff(index_starts) != rank * np.diff(starts)).any():
            row = int(np.argmax(wrong))
            raise self.conflict(row, f"does not have {rank} coordinates for each value")
        numbers = _numbers(indices)
        columns = []
        for axis in range(rank):
            coordinates = numbers
            if rank > 1:
                coordinates = self.empty(len(values))
                coordinates[:] = numbers[axis::rank]
            self._check_coordinates(axis, coordinates, starts)
            columns.append(self.lists(_int64s(coordinates), starts, present))
        return [*columns, self.lists(values, starts, present)]

    def join(self, parts: list[pa.Array[Any]]) -> pa.Array[Any]:
        """The column of the coordinates and values in `parts`."""
        present = self.present(parts)
        values, starts = self.split_part(parts[-1])
        counts = np.diff(starts)
        rank = len(self.feature.shape)
        indices = self.empty(rank * len(values))
        for axis, part in enumerate(parts[:-1]):
            coordinates, axis_starts = self.split_part(part)
            found = np.diff(axis_starts)
            if (wrong := found != counts).any():
                row = int(np.argmax(wrong))
                raise self.conflict(row, f"has {found[row]} indices on axis {axis}, but {counts[row]} values")
            numbers = _numbers(coordinates)
            self._check_coordinates(axis, numbers, starts)
            indices[axis::rank] = numbers
        children = [self.lists(_int64s(indices), starts * rank, None), self.lists(values, starts, None)]
        layout = column_type(self.feature)
        return pa.Array.from_buffers(layout, len(present), [validity_bitmap(present)], children=children)

    def _check_coordinates(self, axis: int, coordinates: Ints, starts: Ints) -> None:
        dim = cast("int", self.feature.shape[axis])
        if not (wrong := (coordinates < 0) | (coordinates >= dim)).any():
            return
        index = int(np.argmax(wrong))
        row = int(np.searchsorted(starts, index, "right")) - 1
        raise self.conflict(
            row, f"has the index {coordinates[index]} on axis {axis}, which has the size {dim}"
        )


def _int64s(numbers: Ints) -> pa.Array[Any]:
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, arrow_buffer(numbers)])


def _numbers(column: pa.Array[Any]) -> Ints:
    """The values of an int64 column without nulls, not copied."""
    return column.to_numpy()
