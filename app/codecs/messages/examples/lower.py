"""Columns as entries of the map in `tf.train.Example`: what the encoding kernels take.

Every column becomes one of three: float32 values, int64 values, or bytes values with a prefix that all
share (the header of a TensorProto). Nothing is done for each row, except for tensors whose header
differs from row to row and for tensors of strings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, repeat
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from ....domain.dtypes import FLOAT64, STRING
from ....domain.feature import Feature
from ....domain.immutable import immutable
from ....domain.tensor import Shape
from ...array import Array
from ...columns import Column, Ints, Strings, bounds_by_row, even_bounds, part
from ...content import extend_sign, in_low_bits
from ...kernels.messages.encode import BYTES, FLOATS, INTS, MAX_FIELD_OVERHEAD
from ...kernels.varint import MAX_VARINT_BYTES, field_size
from ...options import RecordsEncodeOptions
from ...records.lease import Lease
from ..protobuf import serialize_varint
from ..tensor_proto.write import make_message, tensor_proto_header
from .float_lists import ValuePlaces, round_floats

Bytes = NDArray[np.uint8]

_STORAGE: Final[dict[str, np.dtype[Any]]] = {
    "bool": np.dtype("u1"),
    "bfloat16": np.dtype("<u2"),
    "float8_e5m2": np.dtype("u1"),
    "float8_e4m3fn": np.dtype("u1"),
    "float8_e4m3fnuz": np.dtype("u1"),
    "float8_e4m3b11fnuz": np.dtype("u1"),
    "float8_e5m2fnuz": np.dtype("u1"),
    "float4_e2m1fn": np.dtype("u1"),
    "int4": np.dtype("i1"),
    "uint4": np.dtype("u1"),
    "int2": np.dtype("i1"),
    "uint2": np.dtype("u1"),
}
#: What lowering takes for each step, beside the values; and what one takes in the message at most, beside its
#: list's body.
STEP_BYTES: Final = 16
MAX_STEP_OVERHEAD: Final = 3 * MAX_FIELD_OVERHEAD
#: Python's own cost of one row of a tensor that is serialized by itself: objects for header and content.
_ROW_OVERHEAD: Final = 256


@immutable(eq=False)
class Entries:
    """One feature of some rows.

    Attributes:
        kind: tag of the list in Feature.
        values: contiguous; float32, eight bytes an integer, or the bytes of all values.
        num_values: how many there are.
        width: values of each row that has the feature, where all have as many.
        starts: by row, the number of its first value, and of all values at the end; None where it follows
            from `width`.
        span: bytes of each value of a BytesList, where `spans` is None.
        spans: by value, where it begins in `values`, and where the last one ends.
        present: by row, 1 where the feature is there; None where it is in each.
        prefix: stands before each value of a BytesList, unless it is None.
        steps: of a sequence, by row, the number of its first step, and of all steps at the end. Then each
            step has a list, and stands for a row in all above but `present`.
        step_bodies: room for the size of each step's list.
    """

    kind: int
    values: NDArray[Any]
    num_values: int
    width: int = 1
    starts: Ints | None = None
    span: int = 0
    spans: Ints | None = None
    present: Bytes | None = None
    prefix: Bytes | None = None
    steps: Ints | None = None
    step_bodies: Ints | None = None

    @property
    def prefix_size(self) -> int:
        """Bytes of the prefix."""
        return 0 if self.prefix is None else len(self.prefix)

    @property
    def fixed_body(self) -> int:
        """The bytes inside the list, where all rows have the same; -1 elsewhere."""
        if not self.width:
            return 0 if self.starts is None else -1
        if self.kind == FLOATS:
            return 4 * self.width
        if self.kind == INTS or self.spans is not None:
            return -1
        return self.width * field_size(self.prefix_size + self.span)

    @property
    def max_bytes(self) -> int:
        """What all bodies take at most."""
        steps = 0 if self.step_bodies is None else MAX_STEP_OVERHEAD * len(self.step_bodies)
        return steps + self._max_list_bytes

    @property
    def _max_list_bytes(self) -> int:
        if self.kind == FLOATS:
            return self.values.nbytes
        if self.kind == INTS:
            return MAX_VARINT_BYTES * self.num_values
        size = self.span * self.num_values if self.spans is None else int(self.spans[-1] - self.spans[0])
        return size + (MAX_FIELD_OVERHEAD + self.prefix_size) * self.num_values

    def row(self, key: Bytes, heads: int, head_step: int) -> tuple[int, ...]:
        """The column in the kernel's table (see `kernels/example_encode.py`).

        Args:
            key: the field of the key, with tag and length.
            heads, head_step: where the column's heads begin, and bytes from one to the next.
        """
        return (
            self.kind,
            _address(self.values),
            self.values.nbytes,
            _address(self.starts),
            self.width,
            _address(self.spans),
            self.span,
            self.num_values,
            _address(self.present),
            _address(self.prefix),
            self.prefix_size,
            _address(key),
            len(key),
            heads,
            head_step,
            self.fixed_body,
            _address(self.steps),
            0 if self.step_bodies is None else len(self.step_bodies),
            _address(self.step_bodies),
        )


def _address(array: NDArray[Any] | None) -> int:
    return 0 if array is None else int(array.__array_interface__["data"][0])


def wire_order(name: str) -> bytes:
    """The sort key of features in an Example, as `SerializeToString(deterministic=True)` orders them.

    That is by bytes, but a key goes before its own prefixes ("ab" before "a"): upb, protobuf's engine in
    Python, compares so (`_upb_mapsorter_cmpstr`). No byte of UTF-8 is as large as 0xff.
    """
    return name.encode() + b"\xff"


def lower_column(
    feature: Feature,
    column: Column,
    num_rows: int,
    lease: Lease,
    options: RecordsEncodeOptions,
    *,
    first_row: int,
) -> Entries:
    """The entries of a column that is dense or a sequence.

    Args:
        lease: charged for what is not a view of `column`.
        options: which float64 values may be rounded.
        first_row: number of the column's first row in the whole input, for errors.

    Raises:
        LossyConversion: a value that a FloatList would change too much.
        LimitExceeded: more than the budget.
    """
    items, item, num_items = column, feature, num_rows
    if feature.kind == "sequence":
        items, item, num_items = column.steps(), feature.step, int(column.splits[0][-1])
    if feature.encoding == "tensor" and (item.num_unknown or feature.dtype.is_string):
        entries = _lower_each(item, items, num_items, lease)
    elif feature.encoding != "list":
        entries = _lower_content(item, items, num_items)
    else:
        entries = _lower_list(
            item, items, num_items, lease, options, ValuePlaces(column, num_rows, first_row)
        )
    if feature.kind != "sequence":
        return entries
    lease.charge(STEP_BYTES * num_items, "Steps of a batch")
    return replace(
        entries,
        present=None if column.present is None else column.present.view(np.uint8),
        steps=bounds_by_row(column.splits[0], column.present),
        step_bodies=np.empty(num_items, np.int64),
    )


def _lower_list(
    feature: Feature,
    column: Column,
    num_rows: int,
    lease: Lease,
    options: RecordsEncodeOptions,
    places: ValuePlaces,
) -> Entries:
    values = column.values
    starts = None
    if column.splits:
        starts = bounds_by_row(column.splits[0], column.present)
    elif column.present is not None:
        starts = bounds_by_row(even_bounds(column.count(num_rows), column.width), column.present)
    present = None if column.present is None else column.present.view(np.uint8)
    width = 0 if column.splits else column.width
    if isinstance(values, Strings):
        spans = values.offsets
        return Entries(BYTES, values.data, len(values), width, starts, spans=spans, present=present)
    kind = FLOATS if feature.dtype.is_float else INTS
    if kind == INTS:
        values = _widen_ints(values, lease)
    elif feature.dtype is FLOAT64:
        lease.charge(6 * len(values), "Floats of a batch")
        values = round_floats(feature, values, places, options)
    else:
        values = _as_float32(feature, values, lease)
    return Entries(kind, values, len(values), width, starts, present=present)


def _widen_ints(numbers: NDArray[Any], lease: Lease) -> NDArray[np.uint64]:
    if numbers.dtype.itemsize < 8:
        lease.charge(8 * len(numbers), "Integers of a batch")
        numbers = numbers.astype(np.int64)
    return numbers.view(np.uint64)


def _as_float32(feature: Feature, numbers: NDArray[Any], lease: Lease) -> NDArray[np.float32]:
    if feature.dtype.name == "float32":
        return numbers
    lease.charge(4 * len(numbers), "Floats of a batch")
    if feature.dtype.name == "bfloat16":  # the upper half of a float32
        return (numbers.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return numbers.astype(np.float32)  # float16


def _lower_content(feature: Feature, column: Column, num_rows: int) -> Entries:
    """Encodings whose value is the row's memory, behind a header that is the same in each row."""
    content = cast("NDArray[Any]", column.values).view(np.uint8)
    itemsize = feature.dtype.itemsize
    header = b""
    if feature.encoding == "tensor":
        content = in_low_bits(content, feature.dtype)
        header = tensor_proto_header(feature.dtype, cast("Shape", feature.shape))
    elif feature.dtype.is_narrow:
        content = extend_sign(cast("NDArray[Any]", column.values), feature.dtype).view(np.uint8)
    span, spans = column.width * itemsize, None
    if column.splits:
        span, spans = 0, column.splits[0] * itemsize
    return _one_value(column, content, num_rows, span, spans, np.frombuffer(header, np.uint8))


def _one_value(
    column: Column,
    data: Bytes,
    num_rows: int,
    span: int,
    spans: Ints | None,
    prefix: Bytes | None = None,
) -> Entries:
    """The entries of rows that have one bytes value each."""
    count = column.count(num_rows)
    if column.present is None:
        return Entries(BYTES, data, count, span=span, spans=spans, prefix=prefix)
    return Entries(
        BYTES,
        data,
        count,
        starts=bounds_by_row(even_bounds(count, 1), column.present),
        span=span,
        spans=spans,
        present=column.present.view(np.uint8),
        prefix=prefix,
    )


def _lower_each(feature: Feature, column: Column, num_rows: int, lease: Lease) -> Entries:
    """Tensors whose headers differ, one by one."""
    lease.charge(2 * column.nbytes + _ROW_OVERHEAD * num_rows, "Tensors of a batch")
    protos = Strings.pack(_protos(feature, column, num_rows))
    return _one_value(column, protos.data, num_rows, 0, protos.offsets)


def _protos(feature: Feature, column: Column, num_rows: int) -> Iterator[bytes]:
    """The TensorProto of each row that has the feature."""
    bounds = column.value_bounds(num_rows).tolist()
    shapes = repeat(None) if column.shapes is None else map(tuple, column.shapes.tolist())
    for (begin, end), shape in zip(pairwise(bounds), shapes, strict=False):
        values = part(column.values, begin, end)
        yield b"".join(_proto_of(feature, shape or _row_shape(feature, end - begin), values))


def _row_shape(feature: Feature, size: int) -> Shape:
    known = feature.known_values
    unknown = size // known if known else 0
    return tuple(unknown if dim is None else dim for dim in feature.shape)


def _proto_of(feature: Feature, shape: Shape, values: NDArray[Any] | Strings) -> list[bytes]:
    if isinstance(values, Strings):
        return [bytes(piece) for piece in make_message(Array(STRING, shape, values))]
    content = in_low_bits(values.view(np.uint8), feature.dtype)
    return [tensor_proto_header(feature.dtype, shape), content.tobytes()]


def key_field(name: str) -> Bytes:
    """The key's field in a map entry: tag, length, UTF-8."""
    key = name.encode()
    return np.frombuffer(b"\x0a" + serialize_varint(len(key)) + key, np.uint8)
