"""Sparse tensors as TensorProtos inside strings: `tf.io.serialize_sparse` and `tf.io.serialize_many_sparse`.

Source: tensorflow/core/kernels/serialize_sparse_op.cc and deserialize_sparse_string_op.cc, TensorFlow 2.21.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....domain.dtypes import INT64, STRING
from ....domain.tensor import Shape
from ....errors import InputError, LimitExceeded, UnprocessableInput
from ....runtime.budget import Budget
from ....runtime.streams import Buffer
from ...array import Array, SparseTensor
from ...columns import Strings, join_values, part
from ...tensors.components import sparse_tensor
from .read import parse_tensor_proto
from .write import (
    Message,
    make_message,
    serialize_tensor_content,
    sized_message,
    string_prefix,
    tensor_proto_header,
)

#: Protos of one sparse tensor: indices, values, dense_shape.
_PARTS: Final = 3
#: A dense_shape of [2^40, 1] in a few bytes would ask for as many rows of strings.
_MAX_ROWS: Final = 2**20
_EMPTY_AT_ONCE: Final = 1024


def serialize_sparse(tensor: SparseTensor) -> Message:
    """What `tf.io.serialize_sparse` gives: a string `[3]` of the protos of indices, values, dense_shape."""
    strings = _serialize_entries(tensor, tensor.indices, 0, len(tensor.indices), tensor.dense_shape)
    header = tensor_proto_header(STRING, (_PARTS,))
    return sized_message(len(header) + sum(map(len, strings)), [header, *strings])


def serialize_many_sparse(tensor: SparseTensor) -> Message:
    """What `tf.io.serialize_many_sparse` gives: a string `[N, 3]`, one sparse tensor a row of the first axis.

    Raises:
        UnprocessableInput: fewer than two dimensions (`invalid_shape`); indices that are not sorted, or
            stand twice, which TensorFlow refuses too (`unsorted_indices`).
        LimitExceeded: more than a million rows (`too_many_rows`).
    """
    rank, num_rows = len(tensor.dense_shape), tensor.dense_shape[0] if tensor.dense_shape else 0
    if rank < 2:
        raise UnprocessableInput(
            f"A sparse tensor of {rank} dimensions has no rows of sparse tensors. Leave out sparse=many.",
            code="invalid_shape",
        )
    if num_rows > _MAX_ROWS:
        raise LimitExceeded(
            f"{num_rows} rows of sparse tensors; at most {_MAX_ROWS} are written.", code="too_many_rows"
        )
    _require_sorted(tensor.indices)
    inner, shape = np.ascontiguousarray(tensor.indices[:, 1:]), tensor.dense_shape[1:]
    rows = tensor.indices[:, 0]
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    stops = [*starts[1:].tolist(), len(rows)]
    filled = {
        row: b"".join(_serialize_entries(tensor, inner, start, stop, shape))
        for row, start, stop in zip(rows[starts].tolist(), starts.tolist(), stops, strict=False)
    }
    empty = b"".join(_serialize_entries(tensor, inner, 0, 0, shape))
    header = tensor_proto_header(STRING, (num_rows, _PARTS))
    num_bytes = len(header) + sum(map(len, filled.values())) + (num_rows - len(filled)) * len(empty)
    return sized_message(num_bytes, chain([header], _fill_rows(filled, empty, num_rows)))


def _serialize_entries(
    tensor: SparseTensor, indices: NDArray[np.int64], first: int, last: int, dense_shape: Shape
) -> list[Buffer]:
    """The entries `first` to `last` of a sparse tensor as three strings of a TensorProto, in pieces."""
    values = part(tensor.values.elements, first, last)
    protos = (
        make_message(Array.of(indices[first:last], INT64)),
        serialize_tensor_content(Array(tensor.dtype, (len(values),), values)),
        make_message(Array.of(np.array(dense_shape, np.int64), INT64)),
    )
    return [piece for proto in protos for piece in (string_prefix(proto.num_bytes), *proto)]


def _fill_rows(filled: dict[int, bytes], empty: bytes, num_rows: int) -> Iterator[bytes]:
    """All rows in order. Most rows of most tensors are empty, so those are never held one by one."""
    first = 0
    for row, strings in chain(filled.items(), [(num_rows, b"")]):
        for begin in range(first, row, _EMPTY_AT_ONCE):
            yield empty * min(_EMPTY_AT_ONCE, row - begin)
        yield strings
        first = row + 1


def _require_sorted(indices: NDArray[np.int64]) -> None:
    """Refuse coordinates that do not increase from each value to the next, compared axis by axis."""
    differs = indices[1:] != indices[:-1]
    axis = differs.argmax(axis=1)[:, None]  # the first that differs, or 0 where none does
    before, after = (np.take_along_axis(part, axis, 1)[:, 0] for part in (indices[:-1], indices[1:]))
    wrong = np.flatnonzero(after <= before)
    if len(wrong):
        where = int(wrong[0]) + 1
        raise UnprocessableInput(
            f"Index {where} of the sparse tensor, {indices[where].tolist()[:16]}, is out of order or stands "
            "twice. sparse=many takes sorted indices (tf.sparse.reorder).",
            code="unsorted_indices",
        )


def is_serialized_sparse(array: Array) -> bool:
    """Whether this has the dtype and a shape of what the two functions of TensorFlow give."""
    return array.dtype is STRING and len(array.shape) in (1, 2) and array.shape[-1] == _PARTS


def parse_sparse(array: Array, budget: Budget) -> SparseTensor:
    """The sparse tensor of a string `[3]`, or what `tf.io.deserialize_many_sparse` gives for `[N, 3]`.

    That has one axis more, in front, which counts the rows; the others are as long as the longest.

    Raises:
        UnprocessableInput: no rows at all, or rows of different dtypes or ranks
            (`invalid_serialized_sparse`).
        InputError: one of the three is no TensorProto, or they make no sparse tensor; `row` says where.
    """
    if len(array.shape) == 1:
        return _parse_row(_protos_of(array.strings, 0), budget, array.name)
    rows = list(_parse_rows(array.strings, budget))
    if len({(row.dtype, len(row.dense_shape)) for row in rows}) != 1:
        why = "are of different dtypes or ranks" if rows else "are none at all"
        raise UnprocessableInput(
            f"The {len(rows)} rows of this serialized sparse tensor {why}.", code="invalid_serialized_sparse"
        )
    num_bytes = sum(row.num_bytes + row.indices.shape[0] * 8 for row in rows)
    budget.charge(num_bytes, "The sparse tensor")
    counts = [len(row.indices) for row in rows]
    first_axis = np.repeat(np.arange(len(rows), dtype=np.int64), counts)
    indices = np.column_stack([first_axis, np.concatenate([row.indices for row in rows])])
    longest = tuple(map(max, zip(*(row.dense_shape for row in rows), strict=True)))
    values = Array(rows[0].dtype, (len(indices),), join_values([row.values.elements for row in rows]))
    return SparseTensor((len(rows), *longest), np.ascontiguousarray(indices), values, array.name)


def _protos_of(strings: Strings, row: int) -> list[memoryview]:
    """The three strings of a row. They are cut out row by row, since a view takes 200 bytes."""
    bounds = strings.offsets[_PARTS * row : _PARTS * (row + 1) + 1].tolist()
    return [strings.data.data[begin:end] for begin, end in pairwise(bounds)]


def _parse_rows(strings: Strings, budget: Budget) -> Iterator[SparseTensor]:
    for row in range(len(strings) // _PARTS):
        try:
            yield _parse_row(_protos_of(strings, row), budget)
        except InputError as error:
            raise error.shift(feature=f"row {row} of the sparse tensor") from error.__cause__


def _parse_row(protos: Sequence[memoryview], budget: Budget, name: str | None = None) -> SparseTensor:
    indices, values, dense_shape = (parse_tensor_proto(proto, budget) for proto in protos)
    return sparse_tensor(indices, values, dense_shape, name=name)
