"""Arrow columns of any kind -> the layouts of `columns.py`, under a schema: exactly or not at all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.dtypes import BYTES, INT64, TEXT, DType
from ...domain.schema import Feature
from ...domain.tensor import num_elements
from ...errors import InputError, LimitExceeded, SchemaConflict, UnprocessableInput
from ..content import check_content, content_view
from ..convert import convert_values
from ..records.arrays import column_from_values, null_column, values_from_column
from ..records.lease import Lease
from ..records.nulls import spread_rows
from .batches import column_type, storage_type
from .features import value_dtype
from .values import FlatValues, Ints, flatten_arrow, members, node_counts, row_bounds, row_of, unwrapped
from .written_out import has_numbers, write_out

__all__ = ["ColumnReader"]

#: Arrow's lists count their values by int32.
_MAX_OFFSET: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """Reads the columns of one feature.

    Attributes:
        marks: the metadata of the field in the body.
        lease: charged for what is copied.
        first_row: the number in the input of the column's first row, for errors.
    """

    feature: Feature
    marks: dict[bytes, bytes]
    lease: Lease
    first_row: int

    def read(self, column: pa.Array[Any]) -> pa.Array[Any]:
        """The column in its layout; a null stays one, and nothing lies below it.

        Raises:
            SchemaConflict: another shape or another kind of values than declared; a null where the
                feature is not nullable.
            InputError: as `flatten_arrow` and `convert_values`. Errors carry feature and row.
        """
        if not isinstance(column.type, pa.FixedShapeTensorType):
            column = unwrapped(column, self.lease, self.feature.name)
        num_rows = len(column)
        rows = np.arange(self.first_row, self.first_row + num_rows)
        if not column.null_count:
            return self._layout(flatten_arrow(column, rows, self.lease, self.feature.name))
        if pa.types.is_null(column.type):
            return self.absent(num_rows)
        present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
        self._require_nullable(int(rows[np.argmin(present)]))
        self.lease.charge(column.nbytes, "Rows without nulls")
        found = _filtered(column, present)
        flat = flatten_arrow(found, rows[present], self.lease, self.feature.name)
        return spread_rows(self._layout(flat), present, self.lease)

    def absent(self, num_rows: int) -> pa.Array[Any]:
        """A column that every row lacks.

        Raises:
            SchemaConflict: the feature is not nullable.
        """
        if num_rows:
            self._require_nullable(self.first_row)
        width = max(self.feature.dtype.itemsize, 4) * (self.feature.num_values or 1) + 16
        self.lease.charge(num_rows * width, "A batch of absent features")
        return null_column(self.feature, num_rows)

    def _require_nullable(self, row: int) -> None:
        if not self.feature.nullable:
            raise SchemaConflict(
                f"Row {row} lacks the feature {self.feature.name!r}. Send it, or declare the feature "
                "nullable.",
                row=row,
                feature=self.feature.name,
            )

    def _layout(self, flat: FlatValues) -> pa.Array[Any]:
        if self.feature.kind == "sparse":
            return self._sparse(flat)
        if self.feature.kind == "ragged":
            return self._ragged(flat)
        if self.feature.kind == "sequence":
            return self._sequence(flat)
        return self.dense(flat)

    def dense(self, flat: FlatValues) -> pa.Array[Any]:
        """The layout of a dense feature."""
        feature = self.feature
        if feature.num_unknown and pa.types.is_struct(flat.values.type):
            return self._from_variable_shape(flat)
        self._check_dims(flat)
        elements = self.elements(flat)
        if feature.is_scalar:
            return elements
        if not feature.num_unknown:
            layout = column_type(feature)
            return pa.Array.from_buffers(layout, len(flat.rows), [None], children=[elements])
        if feature.num_unknown == 1 and feature.shape[0] is None and feature.known_values:
            return self._lists(row_bounds(flat), elements)
        return self._shaped(self._row_shapes(flat), row_bounds(flat), elements, flat)

    def _from_variable_shape(self, flat: FlatValues) -> pa.Array[Any]:
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
        return self._shaped(shapes, bounds, self.elements(data), flat)

    def _shaped(self, shapes: Ints, bounds: Ints, elements: pa.Array[Any], flat: FlatValues) -> pa.Array[Any]:
        lists = self._lists(bounds, elements)
        if self.feature.num_unknown == 1:
            if not self.feature.known_values:
                hidden = shapes[:, self.feature.shape.index(None)] != 0
                self._refuse_rows(hidden, flat, "of a length that a dimension of 0 would hide")
            return lists
        dims = pa.array(np.ascontiguousarray(shapes).reshape(-1))
        dims_type = pa.list_(pa.int64(), shapes.shape[1])
        dims_lists = pa.Array.from_buffers(dims_type, len(shapes), [None], children=[dims])
        layout = column_type(self.feature)
        return pa.Array.from_buffers(layout, len(shapes), [None], children=[dims_lists, lists])

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

    def _ragged(self, flat: FlatValues) -> pa.Array[Any]:
        self._check_dims(flat)
        nested = self.elements(flat)
        counts = node_counts(flat)
        cuts = self.feature.num_partitions
        if inner := num_elements(self.feature.inner_shape) if self.feature.inner_shape else 0:
            layout = pa.list_(nested.type, inner)
            nested = pa.Array.from_buffers(layout, counts[cuts + 1], [None], children=[nested])
        for axis in range(cuts, -1, -1):
            level = flat.levels[axis]
            offsets = np.arange(counts[axis] + 1) * level if isinstance(level, int) else level
            nested = self._lists(offsets, nested)
        return nested

    def _sequence(self, flat: FlatValues) -> pa.Array[Any]:
        if not flat.levels:
            raise self._misfit(flat, "a single value, not a list of steps")
        outer = FlatValues(flat.rows, flat.levels[:1], flat.values)
        steps = replace(self, feature=self.feature.step).dense(flat.inner())
        return self._lists(row_bounds(outer), steps)

    def _sparse(self, flat: FlatValues) -> pa.Array[Any]:
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
        lists = self._lists(row_bounds(values), self.elements(values))
        places = self._lists(bounds, pa.array(coordinates.reshape(-1)))
        layout = column_type(self.feature)
        return pa.Array.from_buffers(layout, len(flat.rows), [None], children=[places, lists])

    def _integers(self, flat: FlatValues) -> Ints:
        plain = replace(self, feature=Feature(self.feature.name, INT64), marks={})
        found: Ints = values_from_column(plain.elements(flat), plain.feature)
        return found

    def elements(self, flat: FlatValues) -> pa.Array[Any]:
        """The values in the storage of the feature's dtype."""
        leaf = flat.values
        if pa.types.is_null(leaf.type):
            if len(leaf):
                raise self._misfit(flat, "null inside a list")
            return pa.array([], storage_type(self.feature.dtype))
        try:
            return self._elements(leaf)
        except InputError as error:
            if error.location.row is not None:
                error.location = replace(error.location, row=row_of(flat, error.location.row))
            raise

    def _elements(self, leaf: pa.Array[Any]) -> pa.Array[Any]:
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
        plain = self._plain(leaf, source)
        if source.is_narrow:
            values = values_from_column(plain, Feature(name, source))
            check_content(content_view(values), source)
            plain = column_from_values(values, Feature(name, source), (), len(values))
        return plain if source is target else self._converted(plain, source)

    def _plain(self, leaf: pa.Array[Any], source: DType) -> pa.Array[Any]:
        if leaf.type == (storage := storage_type(source)):
            return leaf
        if source.is_string and not pa.types.is_fixed_size_binary(leaf.type):
            self.lease.charge(4 * len(leaf), "Strings of a batch")
        else:
            self.lease.charge(leaf.nbytes + 8 * len(leaf), "Values of a batch")
        return leaf.cast(storage)

    def _converted(self, plain: pa.Array[Any], source: DType) -> pa.Array[Any]:
        """Raises InputError with the index of the value as its row."""
        name, target = self.feature.name, self.feature.dtype
        if source.is_string and target.is_string:
            if target is TEXT:
                _check_text(plain, name)
            return plain
        self.lease.charge((source.itemsize + 2 * target.itemsize) * len(plain), "Values, converted,")
        values = values_from_column(plain, Feature(name, source))
        converted: NDArray[Any] = convert_values(values, source, target, feature=name)
        return column_from_values(converted, Feature(name, target), (), len(converted))

    def _lists(self, offsets: Ints, values: pa.Array[Any]) -> pa.Array[Any]:
        if int(offsets[-1]) > _MAX_OFFSET:
            raise LimitExceeded(
                f"Rows of feature {self.feature.name!r} are too large for one column.",
                code="column_too_large",
                feature=self.feature.name,
            )
        narrow = pa.py_buffer(offsets.astype(np.int32).data)
        layout = pa.list_(values.type)
        return pa.Array.from_buffers(layout, len(offsets) - 1, [None, narrow], children=[values])

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


def _filtered(column: Any, present: NDArray[np.bool_]) -> pa.Array[Any]:
    """The rows that are present, which keep their type."""
    mask = pa.array(present)
    if isinstance(column.type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(column.type, column.storage.filter(mask))
    return column.filter(mask)  # type: ignore[no-any-return]  # declared on each class apart


def _check_text(strings: pa.Array[Any], feature: str) -> None:
    try:
        strings.cast(pa.string())
    except pa.ArrowInvalid:
        # Found one by one, since Arrow does not say where.
        values = np.empty(len(strings), object)
        values[:] = strings.to_pylist()
        convert_values(values, BYTES, TEXT, feature=feature)
