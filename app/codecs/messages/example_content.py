"""Features whose value is one byte string: the array's memory (`raw`), or a TensorProto (`tensor`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ...domain.schema import Feature
from ...domain.tensor import Shape, Tensor
from ...errors import InputError
from .. import kernels
from ..columns import Column, Ints, Strings
from ..content import narrow_faults
from ..kernels.example_index import KIND_ABSENT
from .example_columns import storage_dtype
from .example_values import ColumnBuilder
from .tensor_proto import parse_tensor_proto
from .tensor_proto_write import tensor_proto_header


def build_content(builder: ColumnBuilder) -> Column:
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
    if (row := builder.first_present(cells.counts != 1)) is not None:
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


def finish_content(builder: ColumnBuilder, values: NDArray[Any], starts: Ints) -> Column:
    """The column of values that lie one row behind the other.

    Raises:
        SchemaConflict: a bool that is neither 0 nor 1.
    """
    if builder.feature.dtype.kind == "bool":
        builder.check_values(values > 1, values, starts, "0 and 1")
    if (dtype := builder.feature.dtype).is_narrow:
        raw = values.view(np.uint8)
        builder.check_values(narrow_faults(raw, dtype), raw, starts, f"of {dtype.num_bits} bits")
    return builder.column(values, starts)


def _build_raw(builder: ColumnBuilder) -> Column:
    cells = builder.cells
    itemsize = builder.feature.dtype.itemsize
    sizes = cells.ends - cells.begins
    if builder.present is not None:
        sizes = np.where(builder.present, sizes, 0)
    if (row := builder.first(sizes % itemsize != 0)) is not None:
        raise builder.conflict(row, f"has {sizes[row]} bytes, which are no whole {builder.feature.dtype}s")
    starts = builder.value_starts(sizes // itemsize, "elements")
    values, _ = _copy_content(builder, b"", starts)
    return finish_content(builder, values, starts)


def _build_same_shape(builder: ColumnBuilder) -> Column | None:
    """The column where every row has the header that TensorFlow writes for the schema's shape."""
    header = tensor_proto_header(builder.feature.dtype, cast("Shape", builder.feature.shape))
    starts = builder.fixed_starts(builder.feature.num_values or 0)
    values, row = _copy_content(builder, header, starts)
    return finish_content(builder, values, starts) if row < 0 else None


class _TensorColumn:
    """Tensors that are parsed one by one: of any shape that fits, of strings, in any valid form."""

    def __init__(self, builder: ColumnBuilder) -> None:
        self._builder = builder
        self._feature = builder.feature

    def build(self) -> Column:
        builder, feature = self._builder, self._feature
        shapes = np.zeros((builder.rows, len(feature.shape)), np.int64)
        values: list[NDArray[Any]] = [np.empty(0, storage_dtype(feature.dtype))] * builder.rows
        for row, tensor in self._tensors():
            shapes[row] = tensor.shape
            values[row] = tensor.values
        counts = np.array([len(row) for row in values], np.int64)
        starts = builder.value_starts(counts, "elements")
        flat = self._strings(values, starts) if feature.dtype.is_string else self._numbers(values, starts)
        if feature.num_unknown < 2:
            return builder.column(flat, starts)
        return builder.column(flat, starts, shapes if builder.present is None else shapes[builder.present])

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

    def _numbers(self, values: list[NDArray[Any]], starts: Ints) -> NDArray[Any]:
        storage = storage_dtype(self._feature.dtype)
        flat = self._builder.empty(int(starts[-1]), storage)
        for row, array in enumerate(values):
            flat[starts[row] : starts[row] + len(array)] = array.view(storage)
        return flat

    def _strings(self, values: list[NDArray[Any]], starts: Ints) -> Strings:
        strings = [value for array in values for value in array]
        self._builder.lease.charge(sum(map(len, strings)) + 16 * len(strings), "Strings of a batch")
        packed = Strings.pack(strings)
        self._builder.check_text(packed, starts)
        return packed


def _fits(shape: Shape, feature: Feature) -> bool:
    """Whether the column keeps `shape`: beside a 0, a list's length does not tell the unknown dimension."""
    if len(shape) != len(feature.shape):
        return False
    unknown = 0 if feature.num_unknown == 1 and not feature.known_values else None
    return all(
        dim == (unknown if declared is None else declared) or (declared is None and unknown is None)
        for dim, declared in zip(shape, feature.shape, strict=True)
    )
