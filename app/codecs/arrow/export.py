"""The layouts of `columns.py` -> Arrow as other languages read it.

| value             | Arrow type                                                                    |
|-------------------|-------------------------------------------------------------------------------|
| bool, text        | `bool`, `utf8`                                                                |
| bfloat16, complex, float8, ... | the storage, marked by `shardsmith:dtype` on the field     |
| shape known       | nested `fixed_size_list`                                                      |
| one dim. unknown  | `list` in its place                                                           |
| several unknown   | `struct<data, shape>`; of numbers the extension `arrow.variable_shape_tensor` |
| ragged, sequence  | nested `list`                                                                 |
| sparse            | `struct<indices: list<fixed_size_list<int64>[rank]>, values: list>`           |

Plain lists, and not the extension for tensors of one shape: every reader knows them. The schema stands in
the metadata, so that reading it again gives the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...domain.dtypes import BOOL, TEXT, DType
from ...domain.schema import Feature, FeatureShape, Schema
from ...errors import UnprocessableInput
from .batches import storage_type
from .features import DTYPE_KEY, SCHEMA_KEY, VARIABLE_SHAPE, has_arrow_type
from .values import Ints

__all__ = ["export_batches", "exported_schema"]

_MAX_INT32: Final = 2**31 - 1


def exported_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of what `export_batches` gives."""
    text = json.dumps(schema.to_json(), ensure_ascii=False, separators=(",", ":"))
    return pa.schema([_field(feature) for feature in schema], {SCHEMA_KEY: text.encode()})


def _field(feature: Feature) -> pa.Field[Any]:
    marks: dict[bytes, bytes] = {}
    if not has_arrow_type(feature.dtype):
        marks[DTYPE_KEY] = feature.dtype.name.encode()
    if (
        feature.kind == "dense"
        and feature.num_unknown > 1
        and (feature.dtype.is_integer or feature.dtype.is_float)
    ):
        uniform = json.dumps({"uniform_shape": feature.shape}, separators=(",", ":"))
        marks[b"ARROW:extension:name"] = VARIABLE_SHAPE
        marks[b"ARROW:extension:metadata"] = uniform.encode()
    return pa.field(feature.name, _type(feature), nullable=feature.nullable, metadata=marks or None)


def _type(feature: Feature) -> pa.DataType:
    leaf = _leaf_type(feature.dtype)
    if feature.kind == "sparse":
        places = _nested_type((None, len(feature.shape)), pa.int64())
        return pa.struct([_item("indices", places), _item("values", _nested_type((None,), leaf))])
    if feature.kind == "sequence":
        return pa.list_(_item("item", _type(feature.step)))
    if feature.kind == "ragged":
        cuts = (None,) * (feature.num_partitions + 1)
        return _nested_type((*cuts, *feature.inner_shape), leaf)
    if feature.num_unknown > 1:
        dims = _nested_type((len(feature.shape),), pa.int32())
        return pa.struct([_item("data", _nested_type((None,), leaf)), _item("shape", dims)])
    return _nested_type(feature.shape, leaf)


def _leaf_type(dtype: DType) -> pa.DataType:
    if dtype is BOOL:
        return pa.bool_()
    return pa.string() if dtype is TEXT else storage_type(dtype)


def _item(name: str, layout: pa.DataType) -> pa.Field[Any]:
    # Only whole features are null.
    return pa.field(name, layout, nullable=False)


def _nested_type(shape: FeatureShape, leaf: pa.DataType) -> pa.DataType:
    for dim in reversed(shape):
        leaf = pa.list_(_item("item", leaf), -1 if dim is None else dim)
    return leaf


def export_batches(schema: Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches in the types of `exported_schema`; numbers and strings are not copied.

    Raises:
        UnprocessableInput: bytes in a text feature that are not UTF-8 (`invalid_utf8`), a dimension beyond
            int32 (`not_expressible`).
    """
    target = exported_schema(schema)
    fields = pa.struct(list(target))
    first_row = 0
    for batch in batches:
        columns = [
            _exported(feature, column, first_row)
            for feature, column in zip(schema, batch.columns, strict=True)
        ]
        # Not RecordBatch.from_arrays: rows without any feature would lose their number.
        rows: Any = pa.Array.from_buffers(fields, batch.num_rows, [None], children=columns)
        yield pa.RecordBatch.from_struct_array(rows).replace_schema_metadata(target.metadata)
        first_row += batch.num_rows


def _exported(feature: Feature, column: pa.Array[Any], first_row: int) -> pa.Array[Any]:
    validity = None
    if column.null_count:
        present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
        validity = pa.py_buffer(np.packbits(present, bitorder="little").data)
    try:
        return _rebuilt(feature, column, validity)
    except UnprocessableInput as error:
        raise error.shifted(rows=first_row, feature=feature.name) from None


def _rebuilt(feature: Feature, column: Any, validity: pa.Buffer | None) -> pa.Array[Any]:
    layout, num_rows = _type(feature), len(column)
    if isinstance(column, pa.StructArray):
        rebuild = _sparse_members if feature.kind == "sparse" else _tensor_members
        children = rebuild(feature, column, num_rows)
        return pa.Array.from_buffers(layout, num_rows, [validity], children=children)
    if isinstance(column, pa.ListArray):
        return _rebuilt_list(feature, column, validity)
    if isinstance(column, pa.FixedSizeListArray):
        width = column.type.list_size
        values = column.values.slice(column.offset * width, num_rows * width)
        return _in_fixed_lists(_leaf(feature, values), feature.shape, num_rows, validity)
    return _leaf(feature, column)


def _rebuilt_list(feature: Feature, column: Any, validity: pa.Buffer | None) -> pa.Array[Any]:
    num_rows = len(column)
    offsets = column.offsets.to_numpy()
    values = column.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    offsets = offsets - offsets[0]
    if feature.kind == "sequence":
        items = _rebuilt(feature.step, values, None)
    elif feature.kind == "ragged":
        items = _rebuilt_cut(feature, values, feature.num_partitions)
    else:
        return _one_unknown(feature, values, offsets, validity)
    return _lists(offsets, items, num_rows, validity)


def _rebuilt_cut(feature: Feature, values: Any, cuts: int) -> pa.Array[Any]:
    if cuts:
        offsets = values.offsets.to_numpy()
        items = values.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        return _lists(offsets - offsets[0], _rebuilt_cut(feature, items, cuts - 1), len(values), None)
    if not feature.inner_shape:
        return _leaf(feature, values)
    width = values.type.list_size
    inner = _leaf(feature, values.values.slice(values.offset * width, len(values) * width))
    return _in_fixed_lists(inner, feature.inner_shape, len(values), None)


def _one_unknown(
    feature: Feature, values: pa.Array[Any], offsets: Any, validity: pa.Buffer | None
) -> pa.Array[Any]:
    """Fixed lists outside and inside of the one list whose length varies."""
    axis = feature.shape.index(None)
    outer, inner = feature.shape[:axis], feature.shape[axis + 1 :]
    num_rows = len(offsets) - 1
    num_outer = int(np.prod([dim or 0 for dim in outer], dtype=np.int64))
    num_inner = int(np.prod([dim or 0 for dim in inner], dtype=np.int64))
    lengths = np.diff(offsets) // max(1, num_outer * num_inner)
    bounds = np.zeros(num_rows * num_outer + 1, np.int64)
    np.cumsum(np.repeat(lengths, num_outer), out=bounds[1:])
    count = int(bounds[-1])
    items = _leaf(feature, values)
    if inner:
        items = _in_fixed_lists(items, inner, count, None)
    if not outer:
        return _lists(bounds, items, num_rows, validity)
    lists = _lists(bounds, items, num_rows * num_outer, None)
    return _in_fixed_lists(lists, outer, num_rows, validity)


def _sparse_members(feature: Feature, column: Any, num_rows: int) -> list[pa.Array[Any]]:
    rank = len(feature.shape)
    places, values = column.field(0), column.field(1)
    bounds = places.offsets.to_numpy()
    indices = places.values.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
    pairs = _in_fixed_lists(indices, (rank,), len(indices) // rank, None)
    listed = _one_unknown(_list_of(feature), *_flat_list(values), None)
    return [_lists((bounds - bounds[0]) // rank, pairs, num_rows, None), listed]


def _tensor_members(feature: Feature, column: Any, num_rows: int) -> list[pa.Array[Any]]:
    rank = len(feature.shape)
    dims, values = column.field(0), column.field(1)
    shapes: Ints = dims.values.slice(dims.offset * rank, num_rows * rank).to_numpy()
    if len(shapes) and shapes.max() > _MAX_INT32:
        raise UnprocessableInput(
            f"Feature {feature.name!r} has a dimension of {shapes.max()}; Arrow's tensors have dimensions of "
            "32 bits. Choose another output form.",
            code="not_expressible",
            row=int(np.argmax(shapes > _MAX_INT32)) // rank,
        )
    listed = _one_unknown(_list_of(feature), *_flat_list(values), None)
    return [listed, _in_fixed_lists(pa.array(shapes.astype(np.int32)), (rank,), num_rows, None)]


def _list_of(feature: Feature) -> Feature:
    return replace(feature, shape=(None,), kind="dense")


def _flat_list(column: Any) -> tuple[pa.Array[Any], Any]:
    offsets = column.offsets.to_numpy()
    values = column.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    return values, offsets - offsets[0]


def _lists(offsets: Any, items: pa.Array[Any], num_rows: int, validity: pa.Buffer | None) -> pa.Array[Any]:
    memory = pa.py_buffer(np.ascontiguousarray(offsets, np.int32).data)
    layout = pa.list_(_item("item", items.type))
    return pa.Array.from_buffers(layout, num_rows, [validity, memory], children=[items])


def _in_fixed_lists(
    items: pa.Array[Any], shape: FeatureShape, num_rows: int, validity: pa.Buffer | None
) -> pa.Array[Any]:
    """`items` in nested lists of a fixed size; only the outermost have the validity."""
    counts = [num_rows]
    for dim in shape[:-1]:
        counts.append(counts[-1] * (dim or 0))
    for axis in range(len(shape) - 1, -1, -1):
        layout = pa.list_(_item("item", items.type), shape[axis] or 0)
        valid = validity if axis == 0 else None
        items = pa.Array.from_buffers(layout, counts[axis], [valid], children=[items])
    return items


def _leaf(feature: Feature, values: pa.Array[Any]) -> pa.Array[Any]:
    """Values of the natural type; a scalar column keeps its nulls."""
    layout = _leaf_type(feature.dtype)
    if values.type == layout:
        return values
    try:
        return values.cast(layout)
    except pa.ArrowInvalid:
        raise UnprocessableInput(
            f"Feature {feature.name!r} is text, but holds bytes that are not UTF-8. Declare it as bytes.",
            code="invalid_utf8",
        ) from None
