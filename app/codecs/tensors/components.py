"""Sparse and ragged tensors as the dense tensors that they consist of, for forms that hold several tensors.

| kind   | components, in this order                              | of a tensor called `x`                   |
|--------|--------------------------------------------------------|------------------------------------------|
| sparse | int64 indices `[n, rank]`, values, int64 dense_shape   | `x/indices`, `x/values`, `x/dense_shape` |
| ragged | values, then int64 row splits, outermost first         | `x/values`, `x/row_splits_0`, ...        |

A tensor without a name has components called `indices`, `values`, ... Read back they are found by those
names, or by their position where nothing has a name: the order is that of `tf.io.serialize_sparse`, and of
`RaggedTensor.flat_values` and `RaggedTensor.nested_row_splits`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import INT64
from ...domain.tensor import check_shape
from ...errors import InputError, UnprocessableInput
from ..array import AnyTensor, Array, RaggedTensor, SparseTensor

_SPARSE: Final = ("indices", "values", "dense_shape")
_SPLITS: Final = "row_splits_"
_TAKES: Final = {
    "sparse": "A sparse tensor is three tensors: indices, values, dense_shape",
    "ragged": "A ragged tensor is its values and one or more row splits: values, row_splits_0, ...",
}


def components_of(tensor: AnyTensor) -> list[Array]:
    """The dense arrays that a tensor consists of; of a dense one, itself."""
    if isinstance(tensor, Array):
        return [tensor]
    prefix = "" if tensor.name is None else f"{tensor.name}/"
    if isinstance(tensor, SparseTensor):
        shape = np.array(tensor.dense_shape, np.int64)
        return [
            Array.of(tensor.indices, INT64, f"{prefix}indices"),
            replace(tensor.values, name=f"{prefix}values"),
            Array.of(shape, INT64, f"{prefix}dense_shape"),
        ]
    splits = [
        Array.of(cut, INT64, f"{prefix}{_SPLITS}{level}") for level, cut in enumerate(tensor.row_splits)
    ]
    return [replace(tensor.values, name=f"{prefix}values"), *splits]


def assemble(arrays: Sequence[Array], kind: Literal["sparse", "ragged"]) -> list[AnyTensor]:
    """The tensors whose components these are; what is no component by its name stays a dense tensor.

    Without names: as many sparse tensors as there are threes, or one ragged tensor.

    Args:
        arrays: in memory.

    Raises:
        UnprocessableInput: a component is missing or is one too many (`missing_component`), is not of
            integers (`dtype_mismatch`), or does not fit the others (`shape_mismatch`,
            `index_out_of_bounds`, `invalid_row_splits`).
        MalformedInput, LimitExceeded: a dense_shape that is none.
    """
    if all(array.name is None for array in arrays):
        return list(_by_position(arrays, kind))
    groups: dict[str | None, dict[str, Array]] = {}
    dense: list[Array] = []
    for array in arrays:
        prefix, label = _split_name(array.name or "")
        if _is_component(label, kind):
            groups.setdefault(prefix, {})[label] = array
        else:
            dense.append(array)
    if not groups:
        raise missing_component(kind, "none of the tensors is called so")
    return [*(_from_names(name, parts, kind) for name, parts in groups.items()), *dense]


def _split_name(name: str) -> tuple[str | None, str]:
    prefix, slash, label = name.rpartition("/")
    return (prefix if slash else None), label


def _is_component(label: str, kind: str) -> bool:
    if kind == "sparse":
        return label in _SPARSE
    return label == "values" or (label.startswith(_SPLITS) and label.removeprefix(_SPLITS).isdecimal())


def _by_position(arrays: Sequence[Array], kind: Literal["sparse", "ragged"]) -> list[AnyTensor]:
    if kind == "ragged":
        if len(arrays) < 2:
            raise missing_component(kind, f"there are {len(arrays)} tensors")
        return [ragged_tensor(arrays[0], arrays[1:])]
    if not arrays or len(arrays) % 3:
        raise missing_component(kind, f"{len(arrays)} tensors are not threes of them")
    return [sparse_tensor(*arrays[start : start + 3]) for start in range(0, len(arrays), 3)]


def _from_names(name: str | None, parts: dict[str, Array], kind: Literal["sparse", "ragged"]) -> AnyTensor:
    labels = _SPARSE if kind == "sparse" else ("values", *(f"{_SPLITS}{i}" for i in range(len(parts) - 1)))
    if len(parts) < 2 or any(label not in parts for label in labels):
        missing = next((label for label in labels if label not in parts), f"{_SPLITS}0")
        full_name = missing if name is None else f"{name}/{missing}"
        raise missing_component(kind, f"there is no {full_name[:80]!r}", name)
    first, *others = (parts[label] for label in labels)
    try:
        if kind == "sparse":
            return sparse_tensor(first, *others, name=name)
        return ragged_tensor(first, others, name=name)
    except InputError as error:
        raise error.shift(feature=name) from error.__cause__


def missing_component(kind: Literal["sparse", "ragged"], why: str, name: str | None = None) -> InputError:
    """The error of a body whose tensors make no tensor of `kind`."""
    return UnprocessableInput(
        f"{_TAKES[kind]} (each behind the tensor's name and a slash, where it has one), but {why}.",
        code="missing_component",
        feature=name,
    )


def sparse_tensor(
    indices: Array, values: Array, dense_shape: Array, *, name: str | None = None
) -> SparseTensor:
    """A sparse tensor from its components; indices may be integers of any width.

    Raises:
        InputError: components of another dtype or shape, or that contradict one another.
    """
    dims = _integers(dense_shape, "dense_shape", rank=1)
    shape = check_shape(dims.tolist())
    _require_rank(values, "values", 1)
    if indices.shape == (0,):  # as JSON shows no coordinates at all
        coordinates = np.zeros((0, len(shape)), np.int64)
    else:
        coordinates = _integers(indices, "indices", rank=2).reshape(indices.shape)
    return SparseTensor(shape, coordinates, replace(values, name=None), name)


def ragged_tensor(values: Array, row_splits: Iterable[Array], *, name: str | None = None) -> RaggedTensor:
    """A ragged tensor from its components; row splits may be integers of any width.

    Raises:
        InputError: components of another dtype or shape, or that contradict one another.
    """
    splits = tuple(_integers(cut, "row_splits", rank=1) for cut in row_splits)
    return RaggedTensor(replace(values, name=None), splits, name)


def _integers(array: Array, what: str, *, rank: int) -> NDArray[np.int64]:
    _require_rank(array, what, rank)
    if not array.dtype.is_integer:
        raise UnprocessableInput(
            f"The {what} of a sparse or ragged tensor are integers, not {array.dtype}.",
            code="dtype_mismatch",
        )
    values: NDArray[Any] = array.values
    return values.astype(np.int64, copy=False)  # a uint64 beyond it turns negative, which is out of bounds


def _require_rank(array: Array, what: str, rank: int) -> None:
    if len(array.shape) != rank:
        raise UnprocessableInput(
            f"The {what} of a sparse or ragged tensor have {rank} dimension{'s' * (rank > 1)}, not the shape "
            f"{list(array.shape)[:16]}.",
            code="shape_mismatch",
        )
