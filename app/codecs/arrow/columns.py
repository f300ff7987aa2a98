"""Convert Arrow columns of any kind to columns of a schema, exactly or not at all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.dtypes import DTYPES, INT64, DType
from ...domain.feature import Feature
from ...domain.tensor import num_elements
from ...errors import InputError, SchemaConflict, UnprocessableInput
from ..columns import AbsentColumns, Column, Strings, even_bounds, item_width, no_values
from ..content import check_content, content_view
from ..convert import convert_strings, convert_values
from ..records.lease import Lease
from .elements import read_elements, storage_type
from .features import value_dtype
from .flatten import FlatValues, Ints, flatten_arrow, members, node_counts, row_bounds, row_of, unwrap
from .times import has_numbers, write_out

Values = NDArray[Any] | Strings


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """Reads the columns of one feature.

    Attributes:
        marks: the metadata of the field in the body.
        lease: charged for what is copied.
        rows: the number in the input of each row of the column, for errors.
    """

    feature: Feature
    marks: dict[bytes, bytes]
    lease: Lease
    rows: Ints

    def read(self, column: pa.Array[Any]) -> Column:
        """The column; rows with null lack the feature.

        Raises:
            SchemaConflict: another shape or another kind of values than declared; a null where the
                feature is not nullable.
            UnprocessableInput: a null inside a value, or an Arrow type or encoding that is not read.
            LossyConversion: the declared dtype does not hold a value. Errors carry feature and row.
        """
        if not isinstance(column.type, pa.FixedShapeTensorType):
            column = unwrap(column, self.lease, self.feature.name)
        rows = self.rows
        if not column.null_count:
            return self._column(flatten_arrow(column, rows, self.lease, self.feature.name))
        present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
        self._require_nullable(int(rows[np.argmin(present)]))
        self.lease.charge(column.nbytes, "Rows without nulls")
        found = _filter(column, present)
        flat = flatten_arrow(found, rows[present], self.lease, self.feature.name)
        return replace(self._column(flat), present=present)

    def absent(self, columns: AbsentColumns) -> Column:
        """A column that every row lacks, of at least one row.

        Raises:
            SchemaConflict: the feature is not nullable.
        """
        self._require_nullable(int(self.rows[0]))
        return columns.column(self.feature)

    def _require_nullable(self, row: int) -> None:
        if not self.feature.nullable:
            raise SchemaConflict(
                f"Row {row} lacks the feature {self.feature.name!r}. Send it, or declare the feature "
                "nullable.",
                row=row,
                feature=self.feature.name,
            )

    def _column(self, flat: FlatValues) -> Column:
        if self.feature.kind == "sparse":
            return self._read_sparse(flat)
        if self.feature.kind == "ragged":
            return self._read_ragged(flat)
        if self.feature.kind == "sequence":
            return self._read_sequence(flat)
        return self.dense(flat)

    def dense(self, flat: FlatValues) -> Column:
        """The column of a dense feature."""
        feature = self.feature
        if feature.num_unknown and pa.types.is_struct(flat.values.type):
            return self._from_variable_shape(flat)
        self._check_dims(flat)
        values = self.values(flat)
        if not feature.num_unknown:
            return Column(values, width=item_width(feature))
        if feature.num_unknown == 1 and feature.shape[0] is None and feature.known_values:
            return Column(values, (row_bounds(flat),))
        return self._column_of_shapes(self._row_shapes(flat), row_bounds(flat), values, flat)

    def _from_variable_shape(self, flat: FlatValues) -> Column:
        children = members(flat, "data", "shape")
        if flat.levels or children is None:
            raise self._misfit(flat, "a struct")
        data = flatten_arrow(children[0], flat.rows, self.lease, self.feature.name)
        dims = flatten_arrow(children[1], flat.rows, self.lease, self.feature.name)
        rank = len(self.feature.shape)
        if len(data.levels) != 1 or len(dims.levels) != 1:
            raise self._misfit(flat, "no tensor")
        self._refuse_rows(np.diff(row_bounds(dims)) != rank, flat, "a tensor of another rank")
        shapes = self._integers(dims).reshape(-1, rank)
        bounds = row_bounds(data)
        for axis, declared in enumerate(self.feature.shape):
            wrong = shapes[:, axis] < 0 if declared is None else shapes[:, axis] != declared
            self._refuse_rows(wrong, flat, "a tensor of another shape")
        products = np.fromiter(map(num_elements, shapes.tolist()), object, len(shapes))
        self._refuse_rows(products != np.diff(bounds), flat, "a tensor whose shape is not that of its data")
        return self._column_of_shapes(shapes, bounds, self.values(data), flat)

    def _column_of_shapes(self, shapes: Ints, bounds: Ints, values: Values, flat: FlatValues) -> Column:
        if self.feature.num_unknown > 1:
            return Column(values, (bounds,), shapes=shapes)
        if not self.feature.known_values:
            hidden = shapes[:, self.feature.shape.index(None)] != 0
            self._refuse_rows(hidden, flat, "of a length that a dimension of 0 would hide")
        return Column(values, (bounds,))

    def _row_shapes(self, flat: FlatValues) -> Ints:
        """The shape of each row, whose lists have to be rectangular; `[n, rank]`."""
        num_rows, rank = len(flat.rows), len(flat.levels)
        self.lease.charge(8 * num_rows * rank, "The shapes of rows")
        shapes = np.tile(np.array([dim or 0 for dim in self.feature.shape], np.int64), (num_rows, 1))
        owners = np.arange(num_rows)
        for axis, level in enumerate(flat.levels):
            lengths = np.full(len(owners), level) if isinstance(level, int) else np.diff(level)
            shapes[owners, axis] = lengths
            ragged = shapes[owners, axis] != lengths
            if ragged.any():
                row = int(flat.rows[owners[np.argmax(ragged)]])
                raise UnprocessableInput(
                    f"Feature {self.feature.name!r}, row {row}: the nested lists are ragged. Declare the "
                    "feature as kind 'ragged'.",
                    code="ragged",
                    row=row,
                    feature=self.feature.name,
                )
            self.lease.charge(8 * int(lengths.sum()), "The shapes of rows")
            owners = np.repeat(owners, lengths)
        return shapes

    def _read_ragged(self, flat: FlatValues) -> Column:
        self._check_dims(flat)
        levels = zip(flat.levels, node_counts(flat), strict=False)
        splits = [even_bounds(count, level) if isinstance(level, int) else level for level, count in levels]
        cuts = self.feature.num_partitions + 1
        return Column(self.values(flat), tuple(splits[:cuts]), width=item_width(self.feature))

    def _read_sequence(self, flat: FlatValues) -> Column:
        if not flat.levels:
            raise self._misfit(flat, "a single value, not a list of steps")
        outer = FlatValues(flat.rows, flat.levels[:1], flat.values)
        steps = replace(self, feature=self.feature.step).dense(flat.inner())
        return Column(steps.values, (row_bounds(outer), *steps.splits), None, steps.width, steps.shapes)

    def _read_sparse(self, flat: FlatValues) -> Column:
        children = members(flat, "indices", "values")
        if flat.levels or children is None:
            raise self._misfit(flat, "no struct of indices and values")
        name, rank = self.feature.name, len(self.feature.shape)
        indices = flatten_arrow(children[0], flat.rows, self.lease, name)
        values = flatten_arrow(children[1], flat.rows, self.lease, name)
        if len(values.levels) != 1 or len(indices.levels) not in (1, 2):
            raise self._misfit(flat, "no lists of indices and values")
        counts = np.diff(row_bounds(values))
        bounds = row_bounds(indices)
        self._refuse_rows(np.diff(bounds) != counts * rank, flat, f"other than {rank} indices for each value")
        if len(indices.levels) == 2:
            per_value = indices.levels[1]
            widths = np.array([per_value]) if isinstance(per_value, int) else np.diff(per_value)
            if (widths != rank).any() and len(indices.values):
                raise self._misfit(flat, f"other than {rank} indices for each value")
        coordinates = self._integers(indices).reshape(-1, rank)
        outside = (coordinates < 0) | (coordinates >= np.array(self.feature.shape))
        if outside.any():
            row = row_of(values, int(np.argmax(outside.any(axis=1))))
            raise UnprocessableInput(
                f"Feature {name!r}, row {row}: an index lies outside the shape {list(self.feature.shape)}.",
                code="index_out_of_bounds",
                row=row,
                feature=name,
            )
        return Column(self.values(values), (row_bounds(values),), coordinates=coordinates)

    def _integers(self, flat: FlatValues) -> Ints:
        plain = replace(self, feature=Feature(self.feature.name, INT64), marks={})
        found: Any = plain.values(flat)
        return found  # type: ignore[no-any-return]  # int64 are no strings

    def values(self, flat: FlatValues) -> NDArray[Any] | Strings:
        """The values as the feature's dtype."""
        leaf = flat.values
        if pa.types.is_null(leaf.type):
            if len(leaf):
                raise self._misfit(flat, "null inside a list")
            return no_values(self.feature.dtype)
        try:
            return self._values(leaf)
        except InputError as error:
            if error.location.row is not None:
                error.location = replace(error.location, row=row_of(flat, error.location.row))
            raise

    def _values(self, leaf: pa.Array[Any]) -> NDArray[Any] | Strings:
        """Raises InputError with the index of the value as its row."""
        name, target = self.feature.name, self.feature.dtype
        if has_numbers(leaf.type):
            leaf = write_out(leaf, target, self.lease, name)
        source = value_dtype(leaf.type, self.marks)
        if source is None:
            raise UnprocessableInput(
                f"Feature {name!r} has values of the Arrow type {str(leaf.type)[:100]}, but {target} is "
                "declared. Cast them before you send them.",
                code="unsupported_type",
                feature=name,
            )
        values = read_elements(source, self._in_storage(leaf, source), self.lease)
        if isinstance(values, Strings):
            return convert_strings(values, source, target, feature=name)
        if source.is_narrow and source.is_integer:
            stored = DTYPES["int8" if source.kind == "int" else "uint8"]
            values = convert_values(values.view(stored.numpy), stored, source, feature=name)
        elif source.is_narrow:
            check_content(content_view(values), source)
        if source is not target:
            self.lease.charge((source.itemsize + 2 * target.itemsize) * len(values), "Values, converted,")
        return convert_values(values, source, target, feature=name)

    def _in_storage(self, leaf: pa.Array[Any], source: DType) -> pa.Array[Any]:
        if leaf.type == (storage := storage_type(source)) or pa.types.is_string(leaf.type):
            return leaf
        if source.is_string and not pa.types.is_fixed_size_binary(leaf.type):
            self.lease.charge(4 * len(leaf), "Strings of a batch")
        else:
            self.lease.charge(leaf.nbytes + 8 * len(leaf), "Values of a batch")
        return leaf.cast(storage)

    def _check_dims(self, flat: FlatValues) -> None:
        """Whether the lists are as deep and as long as the shape says."""
        shape = self.feature.shape
        if len(flat.levels) != len(shape):
            raise self._misfit(flat, f"nested {len(flat.levels)} deep")
        for axis, (declared, level) in enumerate(zip(shape, flat.levels, strict=True)):
            if declared is None:
                continue
            if isinstance(level, int):
                if level != declared:
                    raise self._misfit(flat, f"of length {level} at axis {axis}")
                continue
            wrong = np.diff(level) != declared
            if wrong.any():
                nodes = FlatValues(flat.rows, flat.levels[:axis], flat.values)
                row = row_of(nodes, int(np.argmax(wrong)))
                raise self._misfit(flat, f"of another length at axis {axis}", row)

    def _refuse_rows(self, wrong: Any, flat: FlatValues, what: str) -> None:
        if wrong.any():
            raise self._misfit(flat, what, int(flat.rows[np.argmax(wrong)]))

    def _misfit(self, flat: FlatValues, what: str, row: int | None = None) -> SchemaConflict:
        if row is None:
            row = int(flat.rows[0]) if len(flat.rows) else None
        where = "" if row is None else f", row {row}"
        return SchemaConflict(
            f"Feature {self.feature.name!r}{where}: {self.feature.kind} {self.feature.dtype} of shape "
            f"{list(self.feature.shape)} is declared, but the column is {what}.",
            row=row,
            feature=self.feature.name,
        )


def _filter(column: Any, present: NDArray[np.bool_]) -> pa.Array[Any]:
    """The rows that are present, which keep their type."""
    mask = pa.array(present)
    if isinstance(column.type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(column.type, column.storage.filter(mask))
    return column.filter(mask)  # type: ignore[no-any-return]  # declared on each class apart
