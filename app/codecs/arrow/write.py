"""Write columns as Arrow that other languages can read.

| value             | Arrow type                                                                    |
|-------------------|-------------------------------------------------------------------------------|
| bool, text        | `bool`, `utf8`                                                                |
| bfloat16, complex, float8, ... | the storage, marked by `shardsmith:dtype` on the field           |
| shape known       | nested `fixed_size_list`                                                      |
| one dim. unknown  | `list` in its place                                                           |
| several unknown   | `struct<data, shape>`; of numbers the extension `arrow.variable_shape_tensor` |
| ragged, sequence  | nested `list`                                                                 |
| sparse            | `struct<indices: list<fixed_size_list<int64>[rank]>, values: list>`           |

It uses plain lists, which every reader knows, and not the extension for tensors of one shape. A null is an
absent feature and stands only at the top; below it lists are empty, values of a fixed size zero. The schema
stands in the metadata, so that reading it again gives the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.dtypes import TEXT
from ...domain.feature import Feature, FeatureShape
from ...domain.schema import Schema
from ...domain.tensor import num_elements
from ...errors import UnprocessableInput
from ...runtime.budget import Budget
from ..columns import Batch, Column, Ints, Mask, Strings, bounds_by_row
from ..records.lease import Lease
from .elements import first_not_utf8, natural_type, offsets_buffer, write_elements
from .features import DTYPE_KEY, SCHEMA_KEY, VARIABLE_SHAPE, has_arrow_type

_MAX_INT32: Final = 2**31 - 1


def export_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of what `write_batches` gives.

    Raises:
        UnprocessableInput: a dimension beyond int32 (`not_expressible`).
    """
    text = json.dumps(schema.to_json(), ensure_ascii=False, separators=(",", ":"))
    return pa.schema([_field(feature) for feature in schema], {SCHEMA_KEY: text.encode()})


def _field(feature: Feature) -> pa.Field[Any]:
    marks: dict[bytes, bytes] = {}
    if not has_arrow_type(feature.dtype):
        marks[DTYPE_KEY] = feature.dtype.name.encode()
    is_number = feature.dtype.is_integer or feature.dtype.is_float
    if feature.kind == "dense" and feature.num_unknown > 1 and is_number:
        uniform = json.dumps({"uniform_shape": feature.shape}, separators=(",", ":"))
        marks[b"ARROW:extension:name"] = VARIABLE_SHAPE
        marks[b"ARROW:extension:metadata"] = uniform.encode()
    return pa.field(feature.name, _type(feature), nullable=feature.nullable, metadata=marks or None)


def _type(feature: Feature) -> pa.DataType:
    leaf = natural_type(feature.dtype)
    if feature.kind == "sparse":
        places = _nested_type(feature, (None, len(feature.shape)), pa.int64())
        return pa.struct([_item("indices", places), _item("values", _nested_type(feature, (None,), leaf))])
    if feature.kind == "sequence":
        return pa.list_(_item("item", _type(feature.step)))
    if feature.kind == "ragged":
        cuts = (None,) * (feature.num_partitions + 1)
        return _nested_type(feature, (*cuts, *feature.inner_shape), leaf)
    if feature.num_unknown > 1:
        dims = _nested_type(feature, (len(feature.shape),), pa.int32())
        return pa.struct([_item("data", _nested_type(feature, (None,), leaf)), _item("shape", dims)])
    return _nested_type(feature, feature.shape, leaf)


def _item(name: str, layout: pa.DataType) -> pa.Field[Any]:
    # Only whole features are null.
    return pa.field(name, layout, nullable=False)


def _nested_type(feature: Feature, shape: FeatureShape, leaf: pa.DataType) -> pa.DataType:
    for dim in reversed(shape):
        if dim is not None and dim > _MAX_INT32:
            raise _too_long(feature, dim)
        leaf = pa.list_(_item("item", leaf), -1 if dim is None else dim)
    return leaf


def write_batches(schema: Schema, batches: Iterable[Batch], budget: Budget) -> Iterator[pa.RecordBatch]:
    """The rows as record batches of `export_schema(schema)`; most values are not copied.

    Raises, as batches are drawn:
        UnprocessableInput: text that is not UTF-8 (`invalid_utf8`), a dimension beyond int32
            (`not_expressible`); with row and feature.
        LimitExceeded: more than the budget; what is copied is charged while a batch is in use. More values
            or bytes than an Arrow column holds (`column_too_large`).
    """
    target = export_schema(schema)
    fields = pa.struct(list(target))
    first_row = 0
    for batch in batches:
        with Lease(budget) as lease:
            made: dict[int, pa.Array[Any]] = {}  # thousands of features that no row has share a column
            columns = []
            for feature, column in zip(schema, batch.columns, strict=True):
                if id(column) not in made:
                    _check(feature, column, batch.num_rows, first_row)
                    made[id(column)] = _Writer(feature, lease).write(column, batch.num_rows)
                columns.append(made[id(column)])
            # Not RecordBatch.from_arrays: rows without any feature would lose their number.
            rows: Any = pa.Array.from_buffers(fields, batch.num_rows, [None], children=columns)
            yield pa.RecordBatch.from_struct_array(rows).replace_schema_metadata(target.metadata)
        first_row += batch.num_rows


def _check(feature: Feature, column: Column, num_rows: int, first_row: int) -> None:
    """Refuse values that their Arrow types do not hold."""
    if feature.dtype is TEXT and isinstance(column.values, Strings):
        value = first_not_utf8(column.values)
        if value is not None:
            raise UnprocessableInput(
                f"Feature {feature.name!r} is text, but holds bytes that are not UTF-8. Declare it as bytes.",
                code="invalid_utf8",
                row=first_row + column.find_row(column.value_bounds(num_rows), value),
                feature=feature.name,
            )
    if column.shapes is not None and column.shapes.size and column.shapes.max() > _MAX_INT32:
        item = int(np.argmax(column.shapes.max(axis=1)))
        items = column.splits[0] if feature.kind == "sequence" else np.arange(len(column.shapes) + 1)
        raise _too_long(feature, int(column.shapes.max()), first_row + column.find_row(items, item))


def _too_long(feature: Feature, dim: int, row: int | None = None) -> UnprocessableInput:
    return UnprocessableInput(
        f"Feature {feature.name!r} has a dimension of {dim}; Arrow's tensors have dimensions of 32 bits. "
        "Choose another output format.",
        code="not_expressible",
        row=row,
        feature=feature.name,
    )


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the columns of one feature."""

    feature: Feature
    lease: Lease

    def write(self, column: Column, num_rows: int) -> pa.Array[Any]:
        """The column as an array of the feature's type."""
        feature, present = self.feature, column.present
        validity = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little").data)
        if feature.kind == "sequence":
            steps = _Writer(feature.step, self.lease).write(column.steps(), int(column.splits[0][-1]))
            return self._lists(bounds_by_row(column.splits[0], present), steps, validity)
        if feature.kind == "ragged":
            nested = _fixed_lists(
                self._elements(column.values), feature.inner_shape, int(column.splits[-1][-1])
            )
            for split in reversed(column.splits[1:]):
                nested = self._lists(split, nested)
            return self._lists(bounds_by_row(column.splits[0], present), nested, validity)
        if feature.kind == "sparse":
            bounds = bounds_by_row(column.splits[0], present)
            flat = pa.array(np.ascontiguousarray(column.coordinates).reshape(-1))
            indices = _fixed_lists(flat, (len(feature.shape),), len(column.values))
            members = [self._lists(bounds, indices), self._lists(bounds, self._elements(column.values))]
            return pa.Array.from_buffers(_type(feature), num_rows, [validity], children=members)
        if not column.splits:
            values = column.values if present is None else self._spread(column.values, present, column.width)
            elements = self._elements(values, None if feature.shape else validity)
            return _fixed_lists(elements, feature.shape, num_rows, validity)
        bounds = bounds_by_row(column.splits[0], present)
        if column.shapes is None:
            return self._varying_lists(bounds, self._elements(column.values), validity)
        dims: Any = column.shapes.astype(np.int32).reshape(-1)
        rank = len(feature.shape)
        if present is not None:
            dims = self._spread(dims, present, rank)
        shapes = _fixed_lists(pa.array(dims), (rank,), num_rows)
        members = [self._lists(bounds, self._elements(column.values)), shapes]
        return pa.Array.from_buffers(_type(feature), num_rows, [validity], children=members)

    def _varying_lists(self, bounds: Ints, items: pa.Array[Any], validity: pa.Buffer | None) -> pa.Array[Any]:
        """Fixed lists outside and inside of the one list whose length varies."""
        shape = self.feature.shape
        axis = shape.index(None)
        outer, inner = shape[:axis], shape[axis + 1 :]
        num_rows, num_outer = len(bounds) - 1, num_elements([dim or 0 for dim in outer])
        num_known = max(1, self.feature.known_values)
        if num_outer != 1:
            lengths = np.diff(bounds) // num_known
            bounds = np.zeros(num_rows * num_outer + 1, np.int64)
            np.cumsum(np.repeat(lengths, num_outer), out=bounds[1:])
        elif num_known != 1:
            bounds = bounds // num_known
        items = _fixed_lists(items, inner, int(bounds[-1]))
        lists = self._lists(bounds, items, None if outer else validity)
        return _fixed_lists(lists, outer, num_rows, validity)

    def _spread(self, values: NDArray[Any] | Strings, present: Mask, width: int) -> NDArray[Any] | Strings:
        """The values with zeros, or empty strings, in the places of rows that are not present."""
        if isinstance(values, Strings):
            self.lease.charge(8 * width * len(present), "Rows that lack a feature")
            lengths = np.zeros((len(present), width), np.int64)
            lengths[present] = np.diff(values.offsets).reshape(np.count_nonzero(present), width)
            return Strings(values.data, np.concatenate(([0], np.cumsum(lengths))))
        self.lease.charge(values.itemsize * width * len(present), "Rows that lack a feature")
        spread = np.zeros((len(present), width), values.dtype)
        spread[present] = values.reshape(np.count_nonzero(present), width)
        return spread.reshape(-1)

    def _elements(self, values: NDArray[Any] | Strings, validity: pa.Buffer | None = None) -> pa.Array[Any]:
        if isinstance(values, Strings):
            self.lease.charge(4 * len(values.offsets), "Offsets of a batch")
        return write_elements(self.feature.dtype, values, self.feature.name, validity)

    def _lists(self, bounds: Ints, items: pa.Array[Any], validity: pa.Buffer | None = None) -> pa.Array[Any]:
        self.lease.charge(4 * len(bounds), "Offsets of a batch")
        offsets = offsets_buffer(bounds, self.feature.name)
        layout = pa.list_(_item("item", items.type))
        return pa.Array.from_buffers(layout, len(bounds) - 1, [validity, offsets], children=[items])


def _fixed_lists(
    items: pa.Array[Any], shape: FeatureShape, count: int, validity: pa.Buffer | None = None
) -> pa.Array[Any]:
    """`count` nested lists of a fixed shape; only the outermost have the validity."""
    counts = [count]
    for dim in shape[:-1]:
        counts.append(counts[-1] * (dim or 0))
    for axis in reversed(range(len(shape))):
        layout = pa.list_(_item("item", items.type), shape[axis] or 0)
        valid = validity if axis == 0 else None
        items = pa.Array.from_buffers(layout, counts[axis], [valid], children=[items])
    return items
