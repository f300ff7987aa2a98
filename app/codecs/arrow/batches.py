"""Batches of columns <-> Arrow record batches, in a closed set of layouts.

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

Storage is the Arrow type of the same name; bool is `uint8` (0 or 1), bfloat16 is `uint16` and float8 and
float4 are `uint8` (their bits), int4 and int2 are `int8` and uint4 and uint2 `uint8` (their values), a
quantized integer is the one without the q, complex is `fixed_size_binary(8 or 16)`, text and bytes are
`binary`. A null stands for an absent feature and only ever at the top. Numbers are not copied, except beside
nulls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.dtypes import DType
from ...domain.schema import Feature, Schema
from ...domain.tensor import num_elements
from ...errors import LimitExceeded
from ...runtime.budget import Budget
from ..columns import AbsentColumns, Batch, Column, Ints, Mask, Strings, bounds_by_row, no_values
from ..content import content_view, sign_extended
from ..records.lease import Lease

#: Arrow's lists count their values, and its strings their bytes, by int32.
_MAX_OFFSET: Final = 2**31 - 1

_STORAGE: Final[dict[str, pa.DataType]] = {
    "bool": pa.uint8(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "bfloat16": pa.uint16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "complex64": pa.binary(8),
    "complex128": pa.binary(16),
    "float8_e5m2": pa.uint8(),
    "float8_e4m3fn": pa.uint8(),
    "float8_e4m3fnuz": pa.uint8(),
    "float8_e4m3b11fnuz": pa.uint8(),
    "float8_e5m2fnuz": pa.uint8(),
    "float4_e2m1fn": pa.uint8(),
    "int4": pa.int8(),
    "uint4": pa.uint8(),
    "int2": pa.int8(),
    "uint2": pa.uint8(),
    "qint8": pa.int8(),
    "quint8": pa.uint8(),
    "qint16": pa.int16(),
    "quint16": pa.uint16(),
    "qint32": pa.int32(),
    "string": pa.binary(),
    "text": pa.binary(),
    "bytes": pa.binary(),
}


def storage_type(dtype: DType) -> pa.DataType:
    """The Arrow type that holds one element of `dtype`."""
    return _STORAGE[dtype.name]


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


def batches_from_arrow(schema: Schema, batches: Iterable[pa.RecordBatch], budget: Budget) -> Iterator[Batch]:
    """The rows of record batches of `arrow_schema(schema)`.

    Raises, as batches are drawn:
        LimitExceeded: more than the budget; what is copied is charged while a batch is in use.
    """
    for batch in batches:
        absent = AbsentColumns(batch.num_rows)
        with Lease(budget) as lease:
            columns = [
                column_from_arrow(feature, column, lease)
                if column.null_count < batch.num_rows or not batch.num_rows
                else absent.column(feature)
                for feature, column in zip(schema, batch.columns, strict=True)
            ]
            yield Batch(batch.num_rows, tuple(columns))


def batches_to_arrow(schema: Schema, batches: Iterable[Batch], budget: Budget) -> Iterator[pa.RecordBatch]:
    """The rows as record batches of `arrow_schema(schema)`.

    Raises, as batches are drawn:
        LimitExceeded: more than the budget; what is copied is charged while a batch is in use. More values
            or bytes than an Arrow column holds (`column_too_large`).
    """
    fields: pa.StructType | None = None
    for batch in batches:
        with Lease(budget) as lease:
            made: dict[int, pa.Array[Any]] = {}  # thousands of features that no row has share a column
            columns = []
            for feature, column in zip(schema, batch.columns, strict=True):
                if id(column) not in made:
                    made[id(column)] = column_to_arrow(feature, column, batch.num_rows, lease)
                columns.append(made[id(column)])
            # Not before there are rows that fit: Arrow has no lists of 2^31 values.
            fields = fields or pa.struct(list(arrow_schema(schema)))
            # Not RecordBatch.from_arrays: rows without any feature would lose their number.
            rows: Any = pa.Array.from_buffers(fields, batch.num_rows, [None], children=columns)
            yield pa.RecordBatch.from_struct_array(rows)


def column_from_arrow(feature: Feature, array: pa.Array[Any], lease: Lease) -> Column:
    """A column out of one of `column_type(feature)`.

    Raises:
        LimitExceeded: more than the budget.
    """
    present: Mask | None = None
    if array.null_count:
        present = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
        lease.charge(array.nbytes, "Rows without nulls")
        array = array.drop_null()
    return _Reader(feature, lease).read(array, present)


class _Reader:
    def __init__(self, feature: Feature, lease: Lease) -> None:
        self._feature = feature
        self._lease = lease

    def read(self, array: Any, present: Mask | None) -> Column:
        """The column of an array without nulls."""
        feature = self._feature
        if feature.kind == "ragged":
            return self._ragged(array, present)
        if feature.kind == "sparse":
            values, bounds = self._list(array.field(1))
            places, _ = self._list(array.field(0))
            coordinates = places.to_numpy().reshape(-1, len(feature.shape))
            return Column(self._elements(values), (bounds,), present, coordinates=coordinates)
        if feature.kind == "sequence":
            items, bounds = self._list(array)
            steps = _Reader(feature.step, self._lease).read(items, None)
            return Column(steps.values, (bounds, *steps.splits), present, steps.width, steps.shapes)
        return self._dense(array, present)

    def _dense(self, array: Any, present: Mask | None) -> Column:
        feature = self._feature
        if feature.is_scalar:
            return Column(self._elements(array), (), present)
        if (width := feature.num_values) is not None:
            return Column(self._elements(_fixed_items(array)), (), present, width)
        if feature.num_unknown == 1:
            values, bounds = self._list(array)
            return Column(self._elements(values), (bounds,), present)
        values, bounds = self._list(array.field(1))
        shapes = _fixed_items(array.field(0)).to_numpy().reshape(-1, len(feature.shape))
        return Column(self._elements(values), (bounds,), present, shapes=shapes)

    def _ragged(self, array: Any, present: Mask | None) -> Column:
        feature = self._feature
        splits = []
        for _ in range(feature.num_partitions + 1):
            array, bounds = self._list(array)
            splits.append(bounds)
        if not feature.inner_shape:
            return Column(self._elements(array), tuple(splits), present)
        width = num_elements(feature.inner_shape)
        return Column(self._elements(_fixed_items(array)), tuple(splits), present, width)

    def _list(self, array: Any) -> tuple[Any, Ints]:
        """The items of all lists, and where those of each begin."""
        self._lease.charge(8 * (len(array) + 1), "The offsets of lists")
        offsets = array.offsets.to_numpy().astype(np.int64)
        begin, end = int(offsets[0]), int(offsets[-1])
        offsets -= begin
        return array.values.slice(begin, end - begin), offsets

    def _elements(self, array: Any) -> NDArray[Any] | Strings:
        return values_from_arrow(self._feature.dtype, array, self._lease)


def values_from_arrow(dtype: DType, array: Any, lease: Lease) -> NDArray[Any] | Strings:
    """The values of an array of the storage type, without nulls; numbers and the bytes of strings are views.

    Raises:
        LimitExceeded: more than the budget.
    """
    if not len(array):
        return no_values(dtype)
    if not dtype.is_string:
        memory = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * dtype.itemsize :]
        return memory[: len(array) * dtype.itemsize].view(dtype.numpy)
    lease.charge(8 * (len(array) + 1), "The offsets of strings")
    _, found, data = array.buffers()
    offsets = np.frombuffer(found, np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)
    memory = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    memory = memory[offsets[0] : offsets[-1]]
    offsets -= offsets[0]
    return Strings(memory, offsets)


def _fixed_items(array: Any) -> Any:
    """The items of an array of fixed-size lists without nulls."""
    size = array.type.list_size
    return array.values.slice(array.offset * size, len(array) * size)


def column_to_arrow(feature: Feature, column: Column, num_rows: int, lease: Lease) -> pa.Array[Any]:
    """The column as one of `column_type(feature)`; below a null lists are empty, values of a fixed size zero.

    Raises:
        LimitExceeded: more than the budget, or more values or bytes than an Arrow column holds
            (`column_too_large`).
    """
    return _Writer(feature, lease).write(column, column.present, num_rows)


class _Writer:
    def __init__(self, feature: Feature, lease: Lease) -> None:
        self._feature = feature
        self._lease = lease

    def write(self, column: Column, present: Mask | None, num_rows: int) -> pa.Array[Any]:
        feature = self._feature
        validity = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little").data)
        if feature.kind == "ragged":
            nested = self._elements(column.values)
            if feature.inner_shape:
                nested = _fixed_lists(nested, column.width, len(nested) // column.width)
            for split in reversed(column.splits[1:]):
                nested = self._lists(split, nested)
            return self._lists(column.splits[0], nested, present, validity)
        if feature.kind == "sparse":
            coordinates = pa.array(np.ascontiguousarray(column.coordinates).reshape(-1))
            bounds = column.splits[0]
            children = [
                self._lists(bounds * len(feature.shape), coordinates, present),
                self._lists(bounds, self._elements(column.values), present),
            ]
            return pa.Array.from_buffers(column_type(feature), num_rows, [validity], children=children)
        if feature.kind == "sequence":
            steps = _Writer(feature.step, self._lease).write(column.steps(), None, int(column.splits[0][-1]))
            return self._lists(column.splits[0], steps, present, validity)
        return self._dense(column, present, validity, num_rows)

    def _dense(
        self, column: Column, present: Mask | None, validity: pa.Buffer | None, num_rows: int
    ) -> pa.Array[Any]:
        feature = self._feature
        layout = column_type(feature)
        if not column.splits:
            values = column.values if present is None else self._spread(column.values, present, column.width)
            if feature.is_scalar:
                return self._elements(values, validity)
            return pa.Array.from_buffers(layout, num_rows, [validity], children=[self._elements(values)])
        elements = self._elements(column.values)
        if column.shapes is None:
            return self._lists(column.splits[0], elements, present, validity)
        rank = len(feature.shape)
        shapes: Any = np.ascontiguousarray(column.shapes).reshape(-1)
        if present is not None:
            shapes = self._spread(shapes, present, rank)
        dims = pa.array(shapes)
        children = [
            pa.Array.from_buffers(pa.list_(pa.int64(), rank), num_rows, [None], children=[dims]),
            self._lists(column.splits[0], elements, present),
        ]
        return pa.Array.from_buffers(layout, num_rows, [validity], children=children)

    def _spread(self, values: NDArray[Any] | Strings, present: Mask, width: int) -> NDArray[Any] | Strings:
        """The values with zeros, or empty strings, in the places of rows that are not present."""
        if isinstance(values, Strings):
            self._lease.charge(8 * width * len(present), "Rows that lack a feature")
            lengths = np.zeros((len(present), width), np.int64)
            lengths[present] = np.diff(values.offsets).reshape(np.count_nonzero(present), width)
            return Strings(values.data, np.concatenate(([0], np.cumsum(lengths))))
        self._lease.charge(values.itemsize * width * len(present), "Rows that lack a feature")
        spread = np.zeros((len(present), width), values.dtype)
        spread[present] = values.reshape(np.count_nonzero(present), width)
        return spread.reshape(-1)

    def _lists(
        self,
        bounds: Ints,
        items: pa.Array[Any],
        present: Mask | None = None,
        validity: pa.Buffer | None = None,
    ) -> pa.Array[Any]:
        """The items in lists; rows that are not present have empty ones."""
        bounds = bounds_by_row(bounds, present)
        layout = pa.list_(items.type)
        return pa.Array.from_buffers(
            layout, len(bounds) - 1, [validity, self._offsets(bounds)], children=[items]
        )

    def _offsets(self, bounds: Ints) -> pa.Buffer:
        if bounds[-1] > _MAX_OFFSET:
            raise LimitExceeded(
                f"Rows of feature {self._feature.name!r} are too large for one column.",
                code="column_too_large",
                feature=self._feature.name,
            )
        self._lease.charge(4 * len(bounds), "Offsets of a batch")
        return pa.py_buffer(bounds.astype(np.int32).data)

    def _elements(self, values: NDArray[Any] | Strings, validity: pa.Buffer | None = None) -> pa.Array[Any]:
        dtype = self._feature.dtype
        if isinstance(values, Strings):
            buffers = [validity, self._offsets(values.offsets), pa.py_buffer(values.data.data)]
        else:
            buffers = [validity, pa.py_buffer(content_view(sign_extended(values, dtype)))]
        return pa.Array.from_buffers(storage_type(dtype), len(values), buffers)


def _fixed_lists(items: pa.Array[Any], size: int, count: int) -> pa.Array[Any]:
    return pa.Array.from_buffers(pa.list_(items.type, size), count, [None], children=[items])


def first_not_utf8(strings: Strings) -> int | None:
    """The index of the first string that is not UTF-8."""
    if _is_utf8(strings):
        return None
    first, last = 0, len(strings)
    while last - first > 1:
        middle = (first + last) // 2
        if _is_utf8(strings.part(first, middle)):
            first = middle
        else:
            last = middle
    return first


def _is_utf8(strings: Strings) -> bool:
    """Whether all of them are; looked at without a copy, and without the interpreter's lock."""
    buffers = [None, pa.py_buffer(strings.offsets.data), pa.py_buffer(strings.data.data)]
    try:
        pa.Array.from_buffers(pa.large_utf8(), len(strings), buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
