"""Arrow columns as entries of the map in `tf.train.Example`: what the encoding kernels take.

Every column becomes one of three: float32 values, int64 values, or bytes values with a prefix that all
share (the header of a TensorProto). Nothing is done for each row, except for tensors whose header
differs from row to row and for tensors of strings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Protocol, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.dtypes import INT64, STRING, DType
from ...domain.schema import Feature
from ...domain.tensor import Shape, Tensor
from ...errors import LossyConversion
from ..content import in_low_bits
from ..kernels import Kernels
from ..kernels.example_encode import HEAD_ROOM
from ..protobuf import serialize_varint
from ..tensors.tensor_proto import serialize_tensor_proto, tensor_proto_header
from .arrays import string_buffers
from .lease import Lease

__all__ = ["Entries", "EntryTarget", "key_field", "lower_column", "storage_dtype", "wire_order"]

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


@dataclass(frozen=True, slots=True)
class EntryTarget:
    """Where entries go: the rows `first` to `last` of a chunk, at their cursors in `out`."""

    first: int
    last: int
    cursors: Ints
    out: Bytes


class Entries(Protocol):
    """One feature of a chunk of rows."""

    #: By row, 1 where the feature is there.
    present: Bytes
    #: Whether the list is packed: FloatList and Int64List.
    packed: bool

    def bodies(self, kernels: Kernels) -> Ints:
        """By row, the bytes inside the list."""
        ...

    def write(self, kernels: Kernels, key: Bytes, bodies: Ints, target: EntryTarget) -> None:
        """Write the entries; `key` is the field of the key with tag and length."""
        ...


def _head(key: Bytes) -> Bytes:
    return np.empty(len(key) + HEAD_ROOM, np.uint8)


@dataclass(slots=True)
class _FloatEntries:
    raw: Bytes
    offsets: Ints
    present: Bytes
    packed: bool = True

    def bodies(self, kernels: Kernels) -> Ints:  # noqa: ARG002 (numpy does it)
        return np.diff(self.offsets) * 4

    def write(self, kernels: Kernels, key: Bytes, bodies: Ints, target: EntryTarget) -> None:
        kernels.write_floats(
            self.raw, self.offsets, bodies, self.present, key, _head(key),
            target.first, target.last, target.cursors, target.out,
        )  # fmt: skip


@dataclass(slots=True)
class _IntEntries:
    words: NDArray[np.uint64]
    offsets: Ints
    present: Bytes
    packed: bool = True

    def bodies(self, kernels: Kernels) -> Ints:
        bodies = np.empty(len(self.present), np.int64)
        kernels.int_bodies(self.words, self.offsets, bodies)
        return bodies

    def write(self, kernels: Kernels, key: Bytes, bodies: Ints, target: EntryTarget) -> None:
        kernels.write_ints(
            self.words, self.offsets, bodies, self.present, key, _head(key),
            target.first, target.last, target.cursors, target.out,
        )  # fmt: skip


@dataclass(slots=True)
class _BytesEntries:
    data: Bytes
    value_offsets: Ints
    offsets: Ints
    present: Bytes
    prefix: Bytes
    packed: bool = False

    def bodies(self, kernels: Kernels) -> Ints:
        bodies = np.empty(len(self.present), np.int64)
        kernels.bytes_bodies(len(self.prefix), self.value_offsets, self.offsets, bodies)
        return bodies

    def write(self, kernels: Kernels, key: Bytes, bodies: Ints, target: EntryTarget) -> None:
        kernels.write_bytes(
            self.prefix, self.data, self.value_offsets, self.offsets, bodies, self.present, key, _head(key),
            target.first, target.last, target.cursors, target.out,
        )  # fmt: skip


def wire_order(name: str) -> bytes:
    """The sort key of features in an Example, as `SerializeToString(deterministic=True)` orders them.

    That is by bytes, but a key goes before its own prefixes ("ab" before "a"): upb, protobuf's engine in
    Python, compares so (`_upb_mapsorter_cmpstr`). No byte of UTF-8 is as large as 0xff.
    """
    return name.encode() + b"\xff"


def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy dtype of a numeric dtype's storage in a column (see `columns.py`)."""
    return _STORAGE.get(dtype.name, dtype.numpy)


def lower_column(feature: Feature, column: pa.Array[Any], lease: Lease, *, first_row: int) -> Entries:
    """The entries of one column.

    Args:
        lease: charged for what is not a view of `column`.
        first_row: number of the column's first row in the whole input, for errors.

    Raises:
        LossyConversion: a float64 too large for the FloatList that lossy=allow sends it to.
        LimitExceeded: more than the budget.
    """
    present = _present(column)
    if feature.encoding == "tensor" and (feature.num_unknown or feature.dtype.is_string):
        return _lower_each(feature, column, present, lease)
    values, offsets = _flat(column, feature)
    if feature.encoding != "list":
        return _lower_content(feature, values, offsets, present)
    if feature.dtype.is_string:
        data, value_offsets = string_buffers(values)
        return _BytesEntries(data, value_offsets, offsets, present, _NO_BYTES)
    numbers = _numbers(values, feature.dtype)
    if not feature.dtype.is_float:
        return _IntEntries(_widened_ints(numbers, lease), offsets, present)
    floats = _as_float32(feature, numbers, lease)
    if feature.dtype.name == "float64":
        _check_overflow(feature, numbers, floats, offsets, present, first_row)
    return _FloatEntries(floats.view(np.uint8), offsets, present)


def _present(column: pa.Array[Any]) -> Bytes:
    if not column.null_count:
        return np.ones(len(column), np.uint8)
    return column.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)


def _flat(column: pa.Array[Any], feature: Feature) -> tuple[pa.Array[Any], Ints]:
    """The values of all rows, and where each row's begin and the last one's end."""
    rows = np.arange(len(column) + 1, dtype=np.int64)
    if feature.is_scalar:
        return column, rows
    if (width := feature.num_values) is not None:
        fixed = cast("pa.FixedSizeListArray[Any, Any]", column)
        return fixed.values.slice(column.offset * width, len(column) * width), rows * width
    listed = cast("pa.ListArray[Any]", column)
    offsets = listed.offsets.to_numpy().astype(np.int64)
    return listed.values.slice(offsets[0], offsets[-1] - offsets[0]), offsets - offsets[0]


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
    with np.errstate(over="ignore", invalid="ignore"):
        return numbers.astype(np.float32)


def _check_overflow(
    feature: Feature,
    numbers: NDArray[Any],
    floats: NDArray[np.float32],
    offsets: Ints,
    present: Bytes,
    first_row: int,
) -> None:
    lost = np.isinf(floats) & np.isfinite(numbers)
    if not lost.any():
        return
    lost &= np.repeat(present, np.diff(offsets)).astype(bool)
    for index in np.flatnonzero(lost)[:1]:
        row = int(np.searchsorted(offsets, index, "right")) - 1
        raise LossyConversion(
            f"{numbers[index]!s} is too large for the float32 of a FloatList. Declare encoding 'raw' or "
            f"'tensor' for feature {feature.name!r}.",
            row=first_row + row,
            feature=feature.name,
        )


def _lower_content(feature: Feature, values: pa.Array[Any], offsets: Ints, present: Bytes) -> _BytesEntries:
    """Encodings whose value is the row's memory, behind a header that is the same in each row."""
    content = _numbers(values, feature.dtype).view(np.uint8)
    prefix = b""
    if feature.encoding == "tensor":
        content = in_low_bits(content, feature.dtype)
        prefix = tensor_proto_header(feature.dtype, cast("Shape", feature.shape))
    rows = np.arange(len(present) + 1, dtype=np.int64)
    return _BytesEntries(
        content,
        offsets * feature.dtype.itemsize,
        rows,
        present,
        np.frombuffer(prefix, np.uint8),
    )


def _lower_each(feature: Feature, column: pa.Array[Any], present: Bytes, lease: Lease) -> _BytesEntries:
    """Tensors whose headers differ, one by one."""
    lease.charge(2 * column.nbytes + _ROW_OVERHEAD * len(column), "Tensors of a batch")
    protos = [
        b"".join(_proto_of(feature, shape, values)) if there else b""
        for there, (shape, values) in zip(present, _rows_of(feature, column), strict=True)
    ]
    value_offsets = np.zeros(len(protos) + 1, np.int64)
    np.cumsum([len(proto) for proto in protos], out=value_offsets[1:])
    data = np.frombuffer(b"".join(protos), np.uint8)
    rows = np.arange(len(present) + 1, dtype=np.int64)
    return _BytesEntries(data, value_offsets, rows, present, _NO_BYTES)


def _rows_of(feature: Feature, column: pa.Array[Any]) -> Iterator[tuple[Shape, pa.Array[Any]]]:
    """The shape and the values of each row."""
    if feature.num_unknown < 2:
        values, starts = _flat(column, feature)
        for begin, end in pairwise(starts.tolist()):
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
    return [tensor_proto_header(feature.dtype, shape), _numbers(values, feature.dtype).tobytes()]


def key_field(name: str) -> Bytes:
    """The key's field in a map entry: tag, length, UTF-8."""
    key = name.encode()
    return np.frombuffer(b"\x0a" + serialize_varint(len(key)) + key, np.uint8)
