"""Features whose value is one byte string: the array's memory (`raw`), or a TensorProto (`tensor`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.schema import Feature
from ...domain.tensor import Shape, Tensor
from ...errors import InputError
from .. import kernels
from ..content import narrow_faults, sign_extended
from ..kernels.example_index import KIND_ABSENT
from ..records.columns import column_type
from .example_columns import storage_dtype
from .example_values import ColumnBuilder, arrow_buffer
from .tensor_proto import parse_tensor_proto, tensor_proto_header

__all__ = ["build_content", "finish_content"]

Ints = NDArray[np.int64]


def build_content(builder: ColumnBuilder) -> pa.Array[Any]:
    """The column of a feature with encoding `raw` or `tensor`.

    Raises:
        SchemaConflict: not one value a row, or one of another size, dtype or shape.
        InputError: as `parse_tensor_proto`, with row and feature.
    """
    _find_values(builder)
    if builder.feature.encoding == "raw":
        return _build_raw(builder)
    if builder.feature.num_values is not None and not builder.feature.dtype.is_string:
        column = _build_same_shape(builder)
        if column is not None:
            return column
    return _TensorColumn(builder).build()


def _find_values(builder: ColumnBuilder) -> None:
    """Make the cells point to the values themselves."""
    cells = builder.cells
    if (row := builder.first(builder.present & (cells.counts != 1))) is not None:
        raise builder.conflict(
            row, f"has {cells.counts[row]} values; encoding {builder.feature.encoding!r} takes one"
        )
    kernels.load().single_spans(cells.data, cells.kinds, cells.begins, cells.ends)


def _copy_content(builder: ColumnBuilder, prefix: bytes, starts: Ints) -> tuple[NDArray[Any], int]:
    """What stands behind `prefix` in each value, and the first row where that does not fit, or -1."""
    cells = builder.cells
    storage = storage_dtype(builder.feature.dtype)
    values = builder.empty(int(starts[-1]), storage)
    row = kernels.load().copy_spans(
        cells.data,
        cells.kinds,
        cells.begins,
        cells.ends,
        np.frombuffer(prefix, np.uint8),
        starts * storage.itemsize,
        values.view(np.uint8),
    )
    return values, row


def finish_content(builder: ColumnBuilder, values: NDArray[Any], starts: Ints) -> pa.Array[Any]:
    """The column of values that lie one row behind the other.

    Raises:
        SchemaConflict: a bool that is neither 0 nor 1.
    """
    if builder.feature.dtype.kind == "bool":
        builder.check_values(values > 1, values, starts, "0 and 1")
    if (dtype := builder.feature.dtype).is_narrow:
        raw = values.view(np.uint8)
        builder.check_values(narrow_faults(raw, dtype), raw, starts, f"of {dtype.num_bits} bits")
        values = sign_extended(raw.view(dtype.numpy), dtype)
    return builder.nested(builder.storage(values), starts)


def _build_raw(builder: ColumnBuilder) -> pa.Array[Any]:
    cells = builder.cells
    itemsize = builder.feature.dtype.itemsize
    sizes = np.where(builder.present, cells.ends - cells.begins, 0)
    if (row := builder.first(sizes % itemsize != 0)) is not None:
        raise builder.conflict(row, f"has {sizes[row]} bytes, which are no whole {builder.feature.dtype}s")
    starts = builder.value_starts(sizes // itemsize, "elements")
    values, _ = _copy_content(builder, b"", starts)
    return finish_content(builder, values, starts)


def _build_same_shape(builder: ColumnBuilder) -> pa.Array[Any] | None:
    """The column where every row has the header that TensorFlow writes for the schema's shape."""
    header = tensor_proto_header(builder.feature.dtype, cast("Shape", builder.feature.shape))
    width = builder.feature.num_values or 0
    starts = np.arange(builder.rows + 1, dtype=np.int64) * width
    values, row = _copy_content(builder, header, starts)
    return finish_content(builder, values, starts) if row < 0 else None


class _TensorColumn:
    """Tensors that are parsed one by one: of any shape that fits, of strings, in any valid form."""

    def __init__(self, builder: ColumnBuilder) -> None:
        self._builder = builder
        self._feature = builder.feature

    def build(self) -> pa.Array[Any]:
        builder, feature = self._builder, self._feature
        shapes = np.zeros((builder.rows, len(feature.shape)), np.int64)
        values: list[NDArray[Any]] = [np.empty(0, storage_dtype(feature.dtype))] * builder.rows
        for row, tensor in self._tensors():
            shapes[row] = tensor.shape
            values[row] = tensor.values
        counts = np.array([len(row) for row in values], np.int64)
        starts = builder.value_starts(counts, "elements")
        flat = self._strings(values, starts) if feature.dtype.is_string else self._numbers(values, starts)
        return builder.nested(flat, starts) if feature.num_unknown < 2 else self._struct(shapes, flat, starts)

    def _tensors(self) -> Iterator[tuple[int, Tensor]]:
        cells = self._builder.cells
        view = cells.data.data
        for row in np.flatnonzero(cells.kinds != KIND_ABSENT).tolist():
            begin, end = int(cells.begins[row]), int(cells.ends[row])
            yield row, self._parse(row, view[begin:end], cells.offset + begin)

    def _parse(self, row: int, data: memoryview, offset: int) -> Tensor:
        builder, feature = self._builder, self._feature
        budget = builder.lease.budget
        before = budget.remaining
        try:
            tensor = parse_tensor_proto(data, budget, offset=offset)
        except InputError as error:
            error.location = replace(error.location, row=builder.number(row), feature=feature.name)
            raise
        finally:
            builder.lease.adopt(before)
        if tensor.dtype.tf_enum != feature.dtype.tf_enum:
            raise builder.conflict(row, f"is a tensor of {tensor.dtype}, not of {feature.dtype}")
        if not _fits(tensor.shape, feature):
            expected = ["null" if dim is None else dim for dim in feature.shape]
            raise builder.conflict(
                row, f"is a tensor of shape {list(tensor.shape)}, but the schema says {expected}"
            )
        return tensor

    def _numbers(self, values: list[NDArray[Any]], starts: Ints) -> pa.Array[Any]:
        storage = storage_dtype(self._feature.dtype)
        flat = self._builder.empty(int(starts[-1]), storage)
        for row, array in enumerate(values):
            flat[starts[row] : starts[row] + len(array)] = sign_extended(array, self._feature.dtype).view(
                storage
            )
        return self._builder.storage(flat)

    def _strings(self, values: list[NDArray[Any]], starts: Ints) -> pa.Array[Any]:
        sizes = np.zeros(int(starts[-1]) + 1, np.int64)
        for row, array in enumerate(values):
            sizes[starts[row] + 1 : starts[row] + 1 + len(array)] = [len(value) for value in array]
        offsets = np.cumsum(sizes)
        self._builder.check_int32(int(offsets[-1]))
        self._builder.lease.charge(int(offsets[-1]) + 12 * len(offsets), "Strings of a batch")
        data = np.frombuffer(b"".join(value for array in values for value in array), np.uint8)
        return self._builder.strings(data, offsets.astype(np.int32), starts)

    def _struct(self, shapes: Ints, values: pa.Array[Any], starts: Ints) -> pa.Array[Any]:
        kind = cast("pa.StructType", column_type(self._feature))
        rows = self._builder.rows
        flat_shapes = pa.Array.from_buffers(pa.int64(), shapes.size, [None, arrow_buffer(shapes.reshape(-1))])
        dims = pa.Array.from_buffers(kind.field(0).type, rows, [None], children=[flat_shapes])
        offsets = arrow_buffer(starts.astype(np.int32))
        listed = pa.Array.from_buffers(kind.field(1).type, rows, [None, offsets], children=[values])
        return pa.Array.from_buffers(kind, rows, [self._builder.validity()], children=[dims, listed])


def _fits(shape: Shape, feature: Feature) -> bool:
    """Whether the column keeps `shape`: beside a 0, a list's length does not tell the unknown dimension."""
    if len(shape) != len(feature.shape):
        return False
    unknown = 0 if feature.num_unknown == 1 and not feature.known_values else None
    return all(
        dim == (unknown if declared is None else declared) or (declared is None and unknown is None)
        for dim, declared in zip(shape, feature.shape, strict=True)
    )
