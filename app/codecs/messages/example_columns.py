"""Arrow columns as entries of the map in `tf.train.Example`: what the encoding kernels take.

Every column becomes one of three: float32 values, int64 values, or bytes values with a prefix that all
share (the header of a TensorProto). Nothing is done for each row, except for tensors whose header
differs from row to row and for tensors of strings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.dtypes import FLOAT64, INT64, STRING, DType
from ...domain.schema import Feature
from ...domain.tensor import Shape, Tensor
from ..content import in_low_bits
from ..kernels.example_encode import BYTES, FLOATS, INTS, MAX_FIELD_OVERHEAD
from ..kernels.varint import MAX_VARINT_BYTES, field_size
from ..options import RecordsEncodeOptions
from ..records.arrays import string_buffers
from ..records.lease import Lease
from .float_lists import ValuePlaces, round_floats
from .protobuf import serialize_varint
from .tensor_proto import serialize_tensor_proto, tensor_proto_header

__all__ = ["Entries", "key_field", "lower_column", "storage_dtype", "wire_order"]

Ints = NDArray[np.int64]
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
_NO_BYTES: Final = np.empty(0, np.uint8)
#: Python's own cost of one row of a tensor that is serialized by itself: objects for header and content.
_ROW_OVERHEAD: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """One feature of some rows.

    Attributes:
        kind: tag of the list in Feature.
        values: contiguous; float32, eight bytes an integer, or the bytes of all values.
        num_values: how many there are.
        width: values of each row, where `starts` is None.
        starts: by row, the number of its first value; and of all values at the end.
        span: bytes of each value of a BytesList, where `spans` is None.
        spans: by value, where it begins in `values`, and where the last one ends.
        present: by row, 1 where the feature is there; None where it is in each.
        prefix: stands before each value of a BytesList, unless it is None.
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

    @property
    def prefix_size(self) -> int:
        """Bytes of the prefix."""
        return 0 if self.prefix is None else len(self.prefix)

    @property
    def fixed_body(self) -> int:
        """The bytes inside the list, where all rows have the same; -1 elsewhere."""
        if self.starts is not None or (self.kind == INTS and self.width):
            return -1
        if self.kind != BYTES:
            return 4 * self.width
        return self.width * field_size(self.prefix_size + self.span) if self.spans is None else -1

    @property
    def max_bytes(self) -> int:
        """What all bodies take at most."""
        if self.kind == FLOATS:
            return self.values.nbytes
        if self.kind == INTS:
            return MAX_VARINT_BYTES * self.num_values
        size = self.span * self.num_values if self.spans is None else int(self.spans[-1] - self.spans[0])
        return size + (MAX_FIELD_OVERHEAD + self.prefix_size) * self.num_values

    def row_starts(self, rows: int) -> Ints:
        """`starts`, also where it is None."""
        return _row_starts(rows, self.width, self.starts)

    def value_spans(self) -> Ints:
        """`spans`, also where it is None."""
        return _row_starts(self.num_values, self.span, self.spans)

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
        )


def _address(array: NDArray[Any] | None) -> int:
    return 0 if array is None else int(array.__array_interface__["data"][0])


def wire_order(name: str) -> bytes:
    """The sort key of features in an Example, as `SerializeToString(deterministic=True)` orders them.

    That is by bytes, but a key goes before its own prefixes ("ab" before "a"): upb, protobuf's engine in
    Python, compares so (`_upb_mapsorter_cmpstr`). No byte of UTF-8 is as large as 0xff.
    """
    return name.encode() + b"\xff"


def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy dtype of a numeric dtype's storage in a column (see `columns.py`)."""
    return _STORAGE.get(dtype.name, dtype.numpy)


def lower_column(
    feature: Feature,
    column: pa.Array[Any],
    lease: Lease,
    options: RecordsEncodeOptions,
    *,
    first_row: int,
    row_starts: Ints | None = None,
) -> Entries:
    """The entries of one column.

    Args:
        lease: charged for what is not a view of `column`.
        options: which float64 values may be rounded.
        first_row: number of the column's first row in the whole input, for errors.
        row_starts: of a column of steps, where those of each row begin, and where the last ones end.

    Raises:
        LossyConversion: as `round_floats`.
        LimitExceeded: more than the budget.
    """
    present = _present(column)
    if feature.encoding == "tensor" and (feature.num_unknown or feature.dtype.is_string):
        return _lower_each(feature, column, present, lease)
    values, width, starts = _flat(column, feature)
    if feature.encoding != "list":
        return _lower_content(feature, values, len(column), width, starts, present)
    if feature.dtype.is_string:
        data, spans = string_buffers(values)
        return Entries(BYTES, data, len(values), width, starts, spans=spans, present=present)
    numbers = _numbers(values, feature.dtype)
    if not feature.dtype.is_float:
        return Entries(INTS, _widened_ints(numbers, lease), len(numbers), width, starts, present=present)
    if feature.dtype is FLOAT64:
        lease.charge(6 * len(numbers), "Floats of a batch")
        places = ValuePlaces(_row_starts(len(column), width, starts), present, first_row)
        places = places if row_starts is None else places.of_rows(row_starts)
        floats = round_floats(feature, numbers, places, options)
    else:
        floats = _as_float32(feature, numbers, lease)
    return Entries(FLOATS, floats, len(floats), width, starts, present=present)


def _present(column: pa.Array[Any]) -> Bytes | None:
    if not column.null_count:
        return None
    return column.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)


def _flat(column: pa.Array[Any], feature: Feature) -> tuple[pa.Array[Any], int, Ints | None]:
    """The values of all rows; how many each has; or else where each row's begin and the last one's end."""
    if feature.is_scalar:
        return column, 1, None
    if (width := feature.num_values) is not None:
        fixed = cast("pa.FixedSizeListArray[Any, Any]", column)
        return fixed.values.slice(column.offset * width, len(column) * width), width, None
    listed = cast("pa.ListArray[Any]", column)
    offsets = listed.offsets.to_numpy().astype(np.int64)
    return listed.values.slice(offsets[0], offsets[-1] - offsets[0]), 0, offsets - offsets[0]


def _row_starts(rows: int, width: int, starts: Ints | None) -> Ints:
    return np.arange(rows + 1, dtype=np.int64) * width if starts is None else starts


def _numbers(values: pa.Array[Any], dtype: DType) -> NDArray[Any]:
    storage = storage_dtype(dtype)
    buffer = values.buffers()[1]
    if buffer is None or not len(values):
        return np.empty(0, storage)
    return np.frombuffer(memoryview(buffer), storage, len(values), values.offset * storage.itemsize)


def _widened_ints(numbers: NDArray[Any], lease: Lease) -> NDArray[np.uint64]:
    if numbers.dtype.itemsize < 8:
        lease.charge(8 * len(numbers), "Integers of a batch")
        numbers = numbers.astype(np.int64)
    return numbers.view(np.uint64)


def _as_float32(feature: Feature, numbers: NDArray[Any], lease: Lease) -> NDArray[np.float32]:
    if feature.dtype.name == "float32":
        return numbers
    lease.charge(4 * len(numbers), "Floats of a batch")
    if feature.dtype.name == "bfloat16":  # the upper half of a float32
        return (numbers.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return numbers.astype(np.float32)  # float16


def _lower_content(
    feature: Feature,
    values: pa.Array[Any],
    rows: int,
    width: int,
    starts: Ints | None,
    present: Bytes | None,
) -> Entries:
    """Encodings whose value is the row's memory, behind a header that is the same in each row."""
    content = _numbers(values, feature.dtype).view(np.uint8)
    itemsize = feature.dtype.itemsize
    header = b""
    if feature.encoding == "tensor":
        content = in_low_bits(content, feature.dtype)
        header = tensor_proto_header(feature.dtype, cast("Shape", feature.shape))
    prefix = np.frombuffer(header, np.uint8)
    if starts is not None:
        return Entries(BYTES, content, rows, spans=starts * itemsize, present=present, prefix=prefix)
    return Entries(BYTES, content, rows, span=width * itemsize, present=present, prefix=prefix)


def _lower_each(feature: Feature, column: pa.Array[Any], present: Bytes | None, lease: Lease) -> Entries:
    """Tensors whose headers differ, one by one."""
    lease.charge(2 * column.nbytes + _ROW_OVERHEAD * len(column), "Tensors of a batch")
    protos = [
        b"".join(_proto_of(feature, shape, values)) if there else b""
        for there, (shape, values) in zip(
            repeat(1, len(column)) if present is None else present, _rows_of(feature, column), strict=True
        )
    ]
    spans = np.zeros(len(protos) + 1, np.int64)
    np.cumsum([len(proto) for proto in protos], out=spans[1:])
    data = np.frombuffer(b"".join(protos), np.uint8)
    return Entries(BYTES, data, len(protos), spans=spans, present=present)


def _rows_of(feature: Feature, column: pa.Array[Any]) -> Iterator[tuple[Shape, pa.Array[Any]]]:
    """The shape and the values of each row."""
    if feature.num_unknown < 2:
        values, width, starts = _flat(column, feature)
        for begin, end in pairwise(_row_starts(len(column), width, starts).tolist()):
            yield _row_shape(feature, end - begin), values.slice(begin, end - begin)
        return
    struct = cast("pa.StructArray", column)
    dims = cast("pa.FixedSizeListArray[Any, Any]", struct.field(0))
    listed = cast("pa.ListArray[Any]", struct.field(1))
    rank = len(feature.shape)
    shapes = _numbers(dims.values.slice(dims.offset * rank, len(column) * rank), INT64).reshape(-1, rank)
    for shape, (begin, end) in zip(
        shapes.tolist(), pairwise(listed.offsets.to_numpy().tolist()), strict=True
    ):
        yield tuple(shape), listed.values.slice(begin, end - begin)


def _row_shape(feature: Feature, size: int) -> Shape:
    known = feature.known_values
    unknown = size // known if known else 0
    return tuple(unknown if dim is None else dim for dim in feature.shape)


def _proto_of(feature: Feature, shape: Shape, values: pa.Array[Any]) -> list[bytes]:
    if feature.dtype.is_string:
        strings = np.empty(len(values), object)
        strings[:] = values.to_pylist()
        return [bytes(piece) for piece in serialize_tensor_proto(Tensor(STRING, shape, strings))]
    content = in_low_bits(_numbers(values, feature.dtype).view(np.uint8), feature.dtype)
    return [tensor_proto_header(feature.dtype, shape), content.tobytes()]


def key_field(name: str) -> Bytes:
    """The key's field in a map entry: tag, length, UTF-8."""
    key = name.encode()
    return np.frombuffer(b"\x0a" + serialize_varint(len(key)) + key, np.uint8)
