"""Features whose value is one byte string: the array's memory (`raw`), or a TensorProto (`tensor`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ....domain.feature import Feature
from ....domain.tensor import Shape, num_elements
from ....errors import InputError
from ... import kernels
from ...array import Array
from ...columns import Column, Ints, Strings, join_strings
from ...content import narrow_faults
from ...kernels.messages.keys import MODE_CONTENT
from ...kernels.messages.wire import KIND_ABSENT
from ..tensor_proto.read import parse_tensor_proto
from ..tensor_proto.write import tensor_proto_header
from .values import ColumnBuilder


def build_content(builder: ColumnBuilder) -> Column:
    """The column of a feature with encoding `raw` or `tensor`.

    Raises:
        SchemaConflict: not one value a row, or one of another size, dtype or shape.
        InputError: a value that is no TensorProto of the feature, with row and feature.
    """
    cells, feature = builder.cells, builder.feature
    if cells.mode == MODE_CONTENT and builder.first_unfit() is None:
        return _finish(builder, cells.values, builder.starts_of_width(feature.num_values or 0))
    if (row := builder.first_present(cells.counts != 1)) is not None:
        raise builder.conflict(
            row, f"has {cells.counts[row]} values; encoding {feature.encoding!r} takes one"
        )
    if feature.encoding == "raw":
        return _build_raw(builder)
    if feature.num_values is not None and not feature.dtype.is_string:
        column = _build_same_shape(builder)
        if column is not None:
            return column
    return _TensorColumn(builder).build()


def content_prefix(feature: Feature) -> bytes:
    """What stands before the array's memory in the value of a feature whose shape is known."""
    return (
        tensor_proto_header(feature.dtype, cast("Shape", feature.shape))
        if feature.encoding == "tensor"
        else b""
    )


def _copy_content(builder: ColumnBuilder, prefix: bytes, starts: Ints) -> tuple[NDArray[np.uint8], int]:
    """What stands behind `prefix` in each value, and the first row where that does not fit, or -1."""
    cells, itemsize = builder.cells, builder.feature.dtype.itemsize
    content = builder.empty(int(starts[-1]) * itemsize, np.dtype(np.uint8))
    row = kernels.load().copy_spans(
        cells.data, cells.kinds, cells.begins, cells.ends, np.frombuffer(prefix, np.uint8), starts * itemsize,
        content,
    )  # fmt: skip
    return content, row


def _finish(builder: ColumnBuilder, content: NDArray[np.uint8], starts: Ints) -> Column:
    """The column whose memory is `content`.

    Raises:
        SchemaConflict: a bool that is neither 0 nor 1, a number with more bits than its dtype.
    """
    dtype = builder.feature.dtype
    if dtype.kind == "bool":
        builder.check_values(content > 1, content, starts, "0 and 1")
    if dtype.is_narrow:
        builder.check_values(narrow_faults(content, dtype), content, starts, f"of {dtype.num_bits} bits")
    return builder.column(content, starts)


def _build_raw(builder: ColumnBuilder) -> Column:
    cells = builder.cells
    itemsize = builder.feature.dtype.itemsize
    sizes = cells.ends - cells.begins
    if (row := builder.first_present(sizes % itemsize != 0)) is not None:
        raise builder.conflict(row, f"has {sizes[row]} bytes, which are no whole {builder.feature.dtype}s")
    starts = builder.value_starts(sizes // itemsize, "elements")
    content, _ = _copy_content(builder, b"", starts)
    return _finish(builder, content, starts)


def _build_same_shape(builder: ColumnBuilder) -> Column | None:
    """The column where every row has the header that TensorFlow writes for the schema's shape."""
    starts = builder.starts_of_width(builder.feature.num_values or 0)
    sizes = builder.cells.ends - builder.cells.begins
    held = int((sizes if builder.present is None else sizes[builder.present]).sum())
    if int(starts[-1]) * builder.feature.dtype.itemsize > held:
        return None  # no memory is taken for what the rows do not hold
    content, row = _copy_content(builder, content_prefix(builder.feature), starts)
    return _finish(builder, content, starts) if row < 0 else None


class _TensorColumn:
    """Tensors that are parsed one by one: of any shape that fits, of strings, in any valid form."""

    def __init__(self, builder: ColumnBuilder) -> None:
        self._builder = builder
        self._feature = builder.feature

    def build(self) -> Column:
        builder, feature = self._builder, self._feature
        shapes = np.zeros((builder.rows, len(feature.shape)), np.int64)
        counts = np.zeros(builder.rows, np.int64)
        tensors: list[Array] = []
        for row, tensor in self._tensors():
            shapes[row] = tensor.shape
            counts[row] = num_elements(tensor.shape)
            tensors.append(tensor)
        starts = builder.value_starts(counts, "elements")
        flat = self._strings(tensors, starts) if feature.dtype.is_string else self._numbers(tensors, starts)
        if feature.num_unknown < 2:
            return builder.column(flat, starts)
        return builder.column(flat, starts, shapes if builder.present is None else shapes[builder.present])

    def _tensors(self) -> Iterator[tuple[int, Array]]:
        cells = self._builder.cells
        view = cells.data.data
        for row in np.flatnonzero(cells.kinds != KIND_ABSENT).tolist():
            begin, end = int(cells.begins[row]), int(cells.ends[row])
            yield row, self._parse(row, view[begin:end], cells.offset + begin)

    def _parse(self, row: int, data: memoryview, offset: int) -> Array:
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

    def _numbers(self, tensors: list[Array], starts: Ints) -> NDArray[Any]:
        dtype = self._feature.dtype.numpy
        flat = self._builder.empty(int(starts[-1]), np.dtype(dtype))
        end = 0
        for tensor in tensors:
            values = tensor.values.view(dtype)
            flat[end : end + len(values)] = values
            end += len(values)
        return flat

    def _strings(self, tensors: list[Array], starts: Ints) -> Strings:
        strings = [tensor.strings for tensor in tensors]
        self._builder.lease.charge(sum(part.nbytes for part in strings) + 16, "Strings of a batch")
        joined = join_strings(strings) if strings else Strings.pack([])
        self._builder.check_text(joined, starts)
        return joined


def _fits(shape: Shape, feature: Feature) -> bool:
    """Whether the column keeps `shape`: beside a 0, a list's length does not tell the unknown dimension."""
    if len(shape) != len(feature.shape):
        return False
    unknown = 0 if feature.num_unknown == 1 and not feature.known_values else None
    return all(
        dim == (unknown if declared is None else declared) or (declared is None and unknown is None)
        for dim, declared in zip(shape, feature.shape, strict=True)
    )
