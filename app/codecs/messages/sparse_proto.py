"""Sparse tensors as TensorProtos inside strings: `tf.io.serialize_sparse` and `tf.io.serialize_many_sparse`.

Source: tensorflow/core/kernels/serialize_sparse_op.cc and deserialize_sparse_string_op.cc, TensorFlow 2.21.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import STRING
from ...domain.tensor import NamedAny, SparseTensor, Tensor
from ...errors import InputError, LimitExceeded, UnprocessableInput
from ...runtime.budget import Budget
from ..tensors.components import components_of, sparse_tensor
from .tensor_proto import parse_tensor_proto, serialize_tensor_content

__all__ = ["is_serialized_sparse", "parse_sparse", "serialize_many_sparse", "serialize_sparse"]

#: Protos of one sparse tensor: indices, values, dense_shape.
_PARTS: Final = 3
#: A dense_shape of [2^40, 1] in a few bytes would ask for as many rows of strings.
_MAX_ROWS: Final = 2**20


def serialize_sparse(tensor: SparseTensor) -> Tensor:
    """What `tf.io.serialize_sparse` gives: a string `[3]` of the protos of indices, values, dense_shape."""
    values = np.empty(_PARTS, object)
    values[:] = _protos(tensor)
    return Tensor(STRING, (_PARTS,), values)


def serialize_many_sparse(tensor: SparseTensor) -> Tensor:
    """What `tf.io.serialize_many_sparse` gives: a string `[N, 3]`, one sparse tensor a row of the first axis.

    Raises:
        UnprocessableInput: fewer than two dimensions (`invalid_shape`); indices that are not sorted, or
            stand twice, which TensorFlow refuses too (`unsorted_indices`).
        LimitExceeded: more than a million rows (`too_many_rows`).
    """
    rank, num_rows = len(tensor.dense_shape), tensor.dense_shape[0] if tensor.dense_shape else 0
    if rank < 2:
        raise UnprocessableInput(
            f"A sparse tensor of {rank} dimensions has no rows of sparse tensors. Leave out ?sparse=many.",
            code="invalid_shape",
        )
    if num_rows > _MAX_ROWS:
        raise LimitExceeded(
            f"{num_rows} rows of sparse tensors; at most {_MAX_ROWS} are written.", code="too_many_rows"
        )
    _require_sorted(tensor.indices)
    strings = np.empty((num_rows, _PARTS), object)
    strings[:] = _protos(_row(tensor, slice(0, 0)))  # most rows of most tensors are empty
    rows = tensor.indices[:, 0]
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=False):
        strings[rows[start]] = _protos(_row(tensor, slice(start, stop)))
    return Tensor(STRING, (num_rows, _PARTS), strings.reshape(-1))


def _row(tensor: SparseTensor, entries: slice) -> SparseTensor:
    indices = np.ascontiguousarray(tensor.indices[entries, 1:])
    return SparseTensor(tensor.dtype, tensor.dense_shape[1:], indices, tensor.values[entries])


def _protos(tensor: SparseTensor) -> list[bytes]:
    return [b"".join(serialize_tensor_content(part.tensor)) for part in components_of(NamedAny(tensor))]


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
            "twice. ?sparse=many takes sorted indices (tf.sparse.reorder).",
            code="unsorted_indices",
        )


def is_serialized_sparse(tensor: Tensor) -> bool:
    """Whether this has the dtype and a shape of what the two functions of TensorFlow give."""
    return tensor.dtype is STRING and len(tensor.shape) in (1, 2) and tensor.shape[-1] == _PARTS


def parse_sparse(tensor: Tensor, budget: Budget) -> SparseTensor:
    """The sparse tensor of a string `[3]`, or what `tf.io.deserialize_many_sparse` gives for `[N, 3]`.

    That has one axis more, in front, which counts the rows; the others are as long as the longest.

    Raises:
        UnprocessableInput: no rows at all, or rows of different dtypes or ranks
            (`invalid_serialized_sparse`).
        InputError: as `parse_tensor_proto` and `sparse_tensor`; `row` says in which row.
    """
    protos: Sequence[bytes] = tensor.values.tolist()
    if len(tensor.shape) == 1:
        return _parse_row(protos, budget)
    rows = list(_parse_rows(protos, budget))
    if len({(row.dtype, len(row.dense_shape)) for row in rows}) != 1:
        why = "are of different dtypes or ranks" if rows else "are none at all"
        raise UnprocessableInput(
            f"The {len(rows)} rows of this serialized sparse tensor {why}.", code="invalid_serialized_sparse"
        )
    num_bytes = sum(row.num_bytes + row.indices.shape[0] * 8 for row in rows)
    budget.charge(num_bytes, "The sparse tensor")
    counts = [len(row.values) for row in rows]
    first_axis = np.repeat(np.arange(len(rows), dtype=np.int64), counts)
    indices = np.column_stack([first_axis, np.concatenate([row.indices for row in rows])])
    longest = tuple(map(max, zip(*(row.dense_shape for row in rows), strict=True)))
    values: NDArray[Any] = np.concatenate([row.values for row in rows])
    return SparseTensor(rows[0].dtype, (len(rows), *longest), np.ascontiguousarray(indices), values)


def _parse_rows(protos: Sequence[bytes], budget: Budget) -> Iterator[SparseTensor]:
    for row in range(len(protos) // _PARTS):
        try:
            yield _parse_row(protos[row * _PARTS : (row + 1) * _PARTS], budget)
        except InputError as error:
            raise error.shifted(feature=f"row {row} of the sparse tensor") from error.__cause__


def _parse_row(protos: Sequence[bytes], budget: Budget) -> SparseTensor:
    indices, values, dense_shape = (parse_tensor_proto(proto, budget) for proto in protos)
    return sparse_tensor(indices, values, dense_shape)
