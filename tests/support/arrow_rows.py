"""Rows as Arrow record batches: what tests compare, and what they make rows of.

The layouts are those of columns (app/codecs/columns.py), so that nothing is converted on the way:

| value of a row            | Arrow column                                                       |
|---------------------------|--------------------------------------------------------------------|
| scalar                    | the storage type of the dtype                                      |
| all dimensions known      | `fixed_size_list(storage, product)`, row-major                     |
| one dimension unknown     | `list(storage)`, row-major                                         |
| several unknown           | `struct<shape: fixed_size_list(int64, rank), values: list(storage)>`|
| ragged                    | `list(list(... storage))`: one list for the row, one for each cut  |
| sparse                    | `struct<indices: list(int64), values: list(storage)>`              |
| sequence                  | `list(column of one step)`                                         |

Uniform dimensions of a ragged value, behind its last cut, are one `fixed_size_list(storage, product)` inside;
the coordinates of a sparse one lie row-major.

Storage is `storage_type`. A null stands for an absent feature and only ever at
the top.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from app.codecs.columns import Batch, Column, Ints, Records, Strings, no_values
from app.domain.dtypes import DType
from app.domain.feature import Feature
from app.domain.schema import Schema
from app.domain.tensor import num_elements


def storage_type(dtype: DType) -> pa.DataType:
    """The Arrow type of one element: the bits of floats that Arrow lacks, the values of narrow integers."""
    if dtype.is_string:
        return pa.binary()
    if dtype.kind == "complex":
        return pa.binary(dtype.itemsize)
    if dtype.is_float and dtype.in_numpy:
        return pa.from_numpy_dtype(dtype.numpy)
    kind = "int" if dtype.kind == "int" else "uint"
    return pa.from_numpy_dtype(np.dtype(f"{kind}{8 * dtype.itemsize}"))


def column_type(feature: Feature) -> pa.DataType:
    """The Arrow type of the whole column, from the table above."""
    storage = storage_type(feature.dtype)
    if feature.kind == "ragged":
        return _ragged_type(feature)
    if feature.kind == "sparse":
        return pa.struct([("indices", pa.list_(pa.int64())), ("values", pa.list_(storage))])
    if feature.kind == "sequence":
        return pa.list_(column_type(feature.step))
    if feature.is_scalar:
        return storage
    if (num_values := feature.num_values) is not None:
        return pa.list_(storage, num_values)
    if feature.num_unknown == 1:
        return pa.list_(storage)
    return pa.struct([("shape", pa.list_(pa.int64(), len(feature.shape))), ("values", pa.list_(storage))])


def _ragged_type(feature: Feature) -> pa.DataType:
    nested: pa.DataType = storage_type(feature.dtype)
    if feature.inner_shape:
        nested = pa.list_(nested, num_elements(feature.inner_shape))
    for _ in range(feature.num_partitions + 1):
        nested = pa.list_(nested)
    return nested


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of every record batch."""
    fields: list[pa.Field[Any]] = [
        pa.field(feature.name, column_type(feature), nullable=True) for feature in schema
    ]
    return pa.schema(fields)


def from_arrow(schema: Schema, batches: Iterable[pa.RecordBatch], num_rows: int | None = None) -> Records:
    """Rows of record batches of `arrow_schema(schema)`."""
    return Records(schema, batches_from_arrow(schema, batches), num_rows)


def batches_from_arrow(schema: Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[Batch]:
    """The same as batches of columns."""
    for batch in batches:
        columns = [_read(feature, column) for feature, column in zip(schema, batch.columns, strict=True)]
        yield Batch(batch.num_rows, tuple(columns))


def _read(feature: Feature, array: Any) -> Column:
    present = None
    if array.null_count:
        present = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
        array = array.drop_null()
    if feature.kind == "sequence":
        items, bounds = _items(array)
        steps = _read(feature.step, items)
        return Column(steps.values, (bounds, *steps.splits), present, steps.width, steps.shapes)
    splits, coordinates, shapes, width = [], None, None, 1
    if feature.kind == "ragged":
        for _ in range(feature.num_partitions + 1):
            array, bounds = _items(array)
            splits.append(bounds)
        if feature.inner_shape:
            width, array = num_elements(feature.inner_shape), _fixed_items(array)
    elif feature.kind == "sparse":
        coordinates = _items(array.field(0))[0].to_numpy().reshape(-1, len(feature.shape))
        array = array.field(1)
    elif feature.num_unknown > 1:
        shapes = _fixed_items(array.field(0)).to_numpy().reshape(-1, len(feature.shape))
        array = array.field(1)
    elif feature.shape and feature.num_values is not None:
        width, array = feature.num_values, _fixed_items(array)
    if feature.kind != "ragged" and pa.types.is_list(array.type):
        array, bounds = _items(array)
        splits.append(bounds)
    values = _read_elements(feature.dtype, array)
    return Column(values, tuple(splits), present, width, shapes, coordinates)


def _read_elements(dtype: DType, array: Any) -> Any:
    if not len(array):
        return no_values(dtype)
    if dtype.is_string:
        return Strings.pack(array.to_pylist())
    memory = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * dtype.itemsize :]
    return memory[: len(array) * dtype.itemsize].view(dtype.numpy)


def _items(array: Any) -> tuple[Any, Ints]:
    """The items of all lists, and where those of each begin."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    return array.values.slice(begin, end - begin), offsets - begin


def _fixed_items(array: Any) -> Any:
    size = array.type.list_size
    return array.values.slice(array.offset * size, len(array) * size)


def as_arrow(records: Records) -> Iterator[pa.RecordBatch]:
    """The batches of `records` as record batches of `arrow_schema`, as they are drawn."""
    return batches_to_arrow(records.schema, records.batches)


def batches_to_arrow(schema: Schema, batches: Iterable[Batch]) -> Iterator[pa.RecordBatch]:
    """Record batches of `arrow_schema(schema)`."""
    layout = pa.struct(list(arrow_schema(schema)))
    for batch in batches:
        columns = [
            _write(feature, column, batch.num_rows)
            for feature, column in zip(schema, batch.columns, strict=True)
        ]
        # Not RecordBatch.from_arrays: rows without any feature would lose their number.
        rows: Any = pa.Array.from_buffers(layout, batch.num_rows, [None], children=columns)
        yield pa.RecordBatch.from_struct_array(rows)


def _write(feature: Feature, column: Column, num_rows: int) -> Any:
    array = _write_present(feature, column, column.count(num_rows))
    if column.present is None:
        return array
    return array.take(pa.array(np.cumsum(column.present) - 1, mask=~column.present))


def _write_present(feature: Feature, column: Column, count: int) -> Any:
    """The rows that have the feature."""
    if feature.kind == "sequence":
        splits = column.splits[0]
        return _lists(splits, _write(feature.step, column.steps(), int(splits[-1])))
    items = _write_elements(feature, column.values)
    if feature.kind == "ragged":
        if feature.inner_shape:
            items = _fixed_lists(column.width, items, int(column.splits[-1][-1]))
        for splits in reversed(column.splits):
            items = _lists(splits, items)
        return items
    if not column.splits:
        return _fixed_lists(column.width, items, count) if feature.shape else items
    lists, rank = _lists(column.splits[0], items), len(feature.shape)
    if column.coordinates is not None:
        indices = _lists(column.splits[0] * rank, pa.array(column.coordinates.reshape(-1)))
        return pa.StructArray.from_arrays([indices, lists], ["indices", "values"])
    if column.shapes is not None:
        shapes = _fixed_lists(rank, pa.array(column.shapes.reshape(-1)), count)
        return pa.StructArray.from_arrays([shapes, lists], ["shape", "values"])
    return lists


def _write_elements(feature: Feature, values: Any) -> Any:
    storage = storage_type(feature.dtype)
    if isinstance(values, Strings):
        offsets = pa.py_buffer(values.offsets.astype(np.int32).data)
        return pa.Array.from_buffers(storage, len(values), [None, offsets, pa.py_buffer(values.data.data)])
    if feature.dtype.is_narrow and feature.dtype.is_integer:  # the upper bits of which may be unset
        values = values.astype(np.int8 if feature.dtype.kind == "int" else np.uint8)
    memory = np.ascontiguousarray(values).view(np.uint8)
    return pa.Array.from_buffers(storage, len(values), [None, pa.py_buffer(memory.data)])


def _lists(splits: Ints, items: Any) -> Any:
    offsets: Any = pa.array(splits.astype(np.int32))
    return pa.ListArray.from_arrays(offsets, items)


def _fixed_lists(size: int, items: Any, count: int) -> Any:
    return pa.Array.from_buffers(pa.list_(items.type, size), count, [None], children=[items])
