"""Ragged and sparse columns <-> the lists of an Example that hold them.

An Example has no form for either kind; `domain/feature.py` names the lists that stand for one. A
ragged row is its values, row-major, and for each cut the lengths of the pieces, as TensorFlow Datasets
stores it and `tf.io.RaggedFeature(value_key, partitions=[RowLengths, ...])` reads it. A sparse row is
its values and a list of coordinates for each axis, which `tf.io.SparseFeature` reads. The order of the
coordinates, and coordinates that come twice, stay as they are: TensorFlow sorts them as it reads, unless
it is told `already_sorted=True`, and has no rule for duplicates.

Values are not copied; lengths and coordinates are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, cast

import numpy as np

from ...domain.feature import Feature, stored_features
from ...domain.schema import Schema, check_stored_names
from ...errors import SchemaConflict
from ...runtime.budget import Budget
from ..columns import Batch, Column, Ints, Mask, Records, bounds_by_row, bounds_of_present, item_width
from .lease import Lease

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
        UnprocessableInput: two features are stored under one name (`duplicate_feature`).
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
        LimitExceeded: more than the budget.
        InputError: whatever drawing a batch raises.
    """
    if not _has_components(records.schema):
        check_stored_names(records.schema)
        return records
    return Records(stored_schema(records.schema), _store_batches(records, budget), records.num_rows)


def _store_batches(records: Records, budget: Budget) -> Iterator[Batch]:
    first_row = 0
    for batch in records.batches:
        with Lease(budget) as lease:
            columns: list[Column] = []
            for feature, column in zip(records.schema, batch.columns, strict=True):
                if feature.kind == "ragged":
                    columns += _Ragged(feature, first_row, lease).split(column)
                elif feature.kind == "sparse":
                    columns += _Sparse(feature, first_row, lease).split(column)
                else:
                    columns.append(column)
            yield Batch(batch.num_rows, tuple(columns))
        first_row += batch.num_rows


def from_stored(records: Records, schema: Schema, budget: Budget) -> Records:
    """The rows of `schema` out of rows of `parsed_schema(schema)`.

    A row that lacks all components of a feature lacks the feature; where only some are missing, they
    are read as empty lists, as `tf.io.parse_example` reads them.

    Raises, as batches are drawn:
        SchemaConflict: the components of a row contradict each other or the shape, or all of them
            are missing and the feature is not nullable (`schema_conflict`, with row and feature).
        LimitExceeded: more than the budget.
        InputError: whatever drawing a batch raises.
    """
    if not _has_components(schema):
        return replace(records, schema=schema)
    return Records(schema, _join_batches(records, schema, budget), records.num_rows)


def _join_batches(records: Records, schema: Schema, budget: Budget) -> Iterator[Batch]:
    first_row = 0
    for batch in records.batches:
        with Lease(budget) as lease:
            stored = iter(batch.columns)
            columns: list[Column] = []
            for feature in schema:
                parts = [next(stored) for _ in stored_features(feature)]
                if feature.kind == "ragged":
                    columns.append(_Ragged(feature, first_row, lease).join(parts))
                elif feature.kind == "sparse":
                    columns.append(_Sparse(feature, first_row, lease).join(parts))
                else:
                    columns += parts
            yield Batch(batch.num_rows, tuple(columns))
        first_row += batch.num_rows


class _Components:
    """What both kinds have in common: one feature of one batch.

    `starts` is by row that has the feature, or by item: where its own items begin, and where the last end.
    """

    def __init__(self, feature: Feature, first_row: int, lease: Lease) -> None:
        self.feature = feature
        self.first_row = first_row
        self.lease = lease
        self.present: Mask | None = None

    def empty(self, count: int) -> Ints:
        """Memory for `count` numbers."""
        self.lease.charge(8 * count, "Components of a batch")
        return np.empty(count, np.int64)

    def find_present(self, parts: list[Column]) -> None:
        """Note which rows have any component."""
        masks = [part.present for part in parts if part.present is not None]
        if len(masks) < len(parts):
            return
        self.present = np.logical_or.reduce(masks)
        if not self.feature.nullable and not self.present.all():
            number = self.first_row + int(np.argmin(self.present))
            raise SchemaConflict(
                f"Record {number} lacks feature {self.feature.name!r}. Declare the feature nullable in the "
                f"schema if it may be absent.",
                row=number,
                feature=self.feature.name,
            )

    def starts(self, part: Column) -> Ints:
        """By row that has any component, where its values in `part` begin; it may have none there."""
        return bounds_of_present(bounds_by_row(part.splits[0], part.present), self.present)

    def conflict(self, row: int, what: str) -> SchemaConflict:
        """A row of those that have the feature does not fit."""
        if self.present is not None:
            row = int(np.flatnonzero(self.present)[row])
        name, number = self.feature.name, self.first_row + row
        return SchemaConflict(f"Record {number}: feature {name!r} {what}.", row=number, feature=name)


class _Ragged(_Components):
    def split(self, column: Column) -> list[Column]:
        """The columns of the values and of the lengths of each cut."""
        self.present = column.present
        starts = column.splits[0]
        self._check_outer(starts)
        lengths = []
        for cut, offsets in enumerate(column.splits[1:]):
            pieces = self.empty(len(offsets) - 1)
            np.subtract(offsets[1:], offsets[:-1], out=pieces)
            self._check_lengths(cut, pieces, starts)
            lengths.append(Column(pieces, (starts,), self.present))
            starts = offsets[starts]
        return [Column(column.values, (starts * column.width,), self.present), *lengths]

    def join(self, parts: list[Column]) -> Column:
        """The column of the values and lengths in `parts`."""
        self.find_present(parts)
        values = parts[0].values
        all_starts = [self.starts(part) for part in parts]
        self._check_outer(all_starts[1])
        splits = [all_starts[1]]
        for cut, part in enumerate(parts[1:]):
            lengths = _integers(part)
            starts = all_starts[cut + 1]
            self._check_lengths(cut, lengths, starts)
            ends = self.empty(len(lengths) + 1)
            ends[0] = 0
            np.cumsum(lengths, out=ends[1:])
            inner = all_starts[cut + 2] if cut + 2 < len(parts) else all_starts[0]
            self._check_sums(cut, np.diff(ends[starts]), np.diff(inner))
            splits.append(ends)
        return Column(values, tuple(splits), self.present, item_width(self.feature))

    def _check_outer(self, starts: Ints) -> None:
        """Hold the number of a row's first pieces to the first dimension."""
        expected = self.feature.shape[0]
        counts = np.diff(starts)
        if expected is None or not (wrong := counts != expected).any():
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
        width = item_width(self.feature) if last else 1
        if (wrong := (counts % width != 0) | (counts // width != sums)).any():
            row = int(np.argmax(wrong))
            what = "values" if last else f"row lengths in cut {cut + 1}"
            times = f" times {width}" if width > 1 else ""
            found = f"its row lengths in cut {cut} add up to {sums[row]}{times}"
            raise self.conflict(row, f"has {counts[row]} {what}, but {found}")


class _Sparse(_Components):
    def split(self, column: Column) -> list[Column]:
        """The columns of the coordinates on each axis, and of the values."""
        self.present = column.present
        starts = column.splits[0]
        columns = []
        for axis, of_axis in enumerate(cast("Ints", column.coordinates).T):
            coordinates = self.empty(len(of_axis))
            coordinates[:] = of_axis
            self._check_coordinates(axis, coordinates, starts)
            columns.append(Column(coordinates, (starts,), self.present))
        return [*columns, Column(column.values, (starts,), self.present)]

    def join(self, parts: list[Column]) -> Column:
        """The column of the coordinates and values in `parts`."""
        self.find_present(parts)
        values, starts = parts[-1].values, self.starts(parts[-1])
        counts = np.diff(starts)
        rank = len(self.feature.shape)
        indices = self.empty(rank * len(values)).reshape(-1, rank)
        for axis, part in enumerate(parts[:-1]):
            found = np.diff(self.starts(part))
            if (wrong := found != counts).any():
                row = int(np.argmax(wrong))
                raise self.conflict(row, f"has {found[row]} indices on axis {axis}, but {counts[row]} values")
            coordinates = _integers(part)
            self._check_coordinates(axis, coordinates, starts)
            indices[:, axis] = coordinates
        return Column(values, (starts,), self.present, coordinates=indices)

    def _check_coordinates(self, axis: int, coordinates: Ints, starts: Ints) -> None:
        dim = cast("int", self.feature.shape[axis])
        if not (wrong := (coordinates < 0) | (coordinates >= dim)).any():
            return
        index = int(np.argmax(wrong))
        row = int(np.searchsorted(starts, index, "right")) - 1
        raise self.conflict(
            row, f"has the index {coordinates[index]} on axis {axis}, which has the size {dim}"
        )


def _integers(column: Column) -> Ints:
    return cast("Ints", column.values)
