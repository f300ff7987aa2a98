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
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import INT64
from ...domain.tensor import (
    AnyTensor,
    NamedAny,
    NamedTensor,
    RaggedTensor,
    SparseTensor,
    Tensor,
    check_shape,
    tensor_from_array,
)
from ...errors import InputError, UnprocessableInput

__all__ = ["assemble", "components_of", "missing_component", "ragged_tensor", "sparse_tensor"]

_SPARSE: Final = ("indices", "values", "dense_shape")
_SPLITS: Final = "row_splits_"
_TAKES: Final = {
    "sparse": "A sparse tensor is three tensors: indices, values, dense_shape",
    "ragged": "A ragged tensor is its values and one or more row splits: values, row_splits_0, ...",
}


def components_of(named: NamedAny) -> list[NamedTensor]:
    """The dense tensors that a tensor consists of; of a dense one, itself."""
    tensor = named.tensor
    if isinstance(tensor, Tensor):
        return [NamedTensor(tensor, named.name)]
    prefix = "" if named.name is None else f"{named.name}/"
    return [NamedTensor(part, prefix + label) for label, part in _labelled(tensor)]


def _labelled(tensor: SparseTensor | RaggedTensor) -> list[tuple[str, Tensor]]:
    if isinstance(tensor, SparseTensor):
        values = Tensor(tensor.dtype, (len(tensor.values),), tensor.values)
        shape = tensor_from_array(np.array(tensor.dense_shape, np.int64), INT64)
        return list(zip(_SPARSE, (tensor_from_array(tensor.indices, INT64), values, shape), strict=True))
    splits = [tensor_from_array(cut, INT64) for cut in tensor.row_splits]
    return [("values", tensor.values), *((f"{_SPLITS}{level}", cut) for level, cut in enumerate(splits))]


def assemble(tensors: Sequence[NamedTensor], kind: Literal["sparse", "ragged"]) -> list[NamedAny]:
    """The tensors whose components these are; what is no component by its name stays a dense tensor.

    Without names: as many sparse tensors as there are threes, or one ragged tensor.

    Raises:
        UnprocessableInput: a component is missing or is one too many (`missing_component`), is not of
            integers (`dtype_mismatch`), or does not fit the others (`shape_mismatch`,
            `index_out_of_bounds`, `invalid_row_splits`).
        MalformedInput, LimitExceeded: a dense_shape that is none.
    """
    if all(named.name is None for named in tensors):
        return [NamedAny(tensor) for tensor in _by_position([named.tensor for named in tensors], kind)]
    groups: dict[str | None, dict[str, Tensor]] = {}
    found: list[NamedAny] = []
    for named in tensors:
        prefix, label = _split_name(named.name or "")
        if _is_component(label, kind):
            groups.setdefault(prefix, {})[label] = named.tensor
        else:
            found.append(named)
    if not groups:
        raise missing_component(kind, "none of the tensors is called so")
    return [*(NamedAny(_from_names(name, parts, kind), name) for name, parts in groups.items()), *found]


def _split_name(name: str) -> tuple[str | None, str]:
    prefix, slash, label = name.rpartition("/")
    return (prefix if slash else None), label


def _is_component(label: str, kind: str) -> bool:
    if kind == "sparse":
        return label in _SPARSE
    return label == "values" or (label.startswith(_SPLITS) and label.removeprefix(_SPLITS).isdecimal())


def _by_position(tensors: list[Tensor], kind: Literal["sparse", "ragged"]) -> list[AnyTensor]:
    if kind == "ragged":
        if len(tensors) < 2:
            raise missing_component(kind, f"there are {len(tensors)} tensors")
        return [ragged_tensor(tensors[0], tensors[1:])]
    if not tensors or len(tensors) % 3:
        raise missing_component(kind, f"{len(tensors)} tensors are not threes of them")
    return [sparse_tensor(*tensors[start : start + 3]) for start in range(0, len(tensors), 3)]


def _from_names(name: str | None, parts: dict[str, Tensor], kind: Literal["sparse", "ragged"]) -> AnyTensor:
    labels = _SPARSE if kind == "sparse" else ("values", *(f"{_SPLITS}{i}" for i in range(len(parts) - 1)))
    if len(parts) < 2 or any(label not in parts for label in labels):
        missing = next((label for label in labels if label not in parts), f"{_SPLITS}0")
        full_name = missing if name is None else f"{name}/{missing}"
        raise missing_component(kind, f"there is no {full_name[:80]!r}", name)
    ordered = [parts[label] for label in labels]
    try:
        return sparse_tensor(*ordered) if kind == "sparse" else ragged_tensor(ordered[0], ordered[1:])
    except InputError as error:
        raise error.shifted(feature=name) from error.__cause__


def missing_component(kind: Literal["sparse", "ragged"], why: str, name: str | None = None) -> InputError:
    """The error of a body whose tensors make no tensor of `kind`."""
    return UnprocessableInput(
        f"{_TAKES[kind]} (each behind the tensor's name and a slash, where it has one), but {why}.",
        code="missing_component",
        feature=name,
    )


def sparse_tensor(indices: Tensor, values: Tensor, dense_shape: Tensor) -> SparseTensor:
    """A sparse tensor from its components; indices may be integers of any width.

    Raises:
        InputError: as `assemble`.
    """
    dims = _integers(dense_shape, "dense_shape", rank=1)
    shape = check_shape(dims.tolist())
    _require_rank(values, "values", 1)
    if indices.shape == (0,):  # as JSON shows no coordinates at all
        coordinates = np.zeros((0, len(shape)), np.int64)
    else:
        coordinates = _integers(indices, "indices", rank=2).reshape(indices.shape)
    return SparseTensor(values.dtype, shape, coordinates, values.values)


def ragged_tensor(values: Tensor, row_splits: Iterable[Tensor]) -> RaggedTensor:
    """A ragged tensor from its components; row splits may be integers of any width.

    Raises:
        InputError: as `assemble`.
    """
    return RaggedTensor(values, tuple(_integers(splits, "row_splits", rank=1) for splits in row_splits))


def _integers(tensor: Tensor, what: str, *, rank: int) -> NDArray[np.int64]:
    _require_rank(tensor, what, rank)
    if not tensor.dtype.is_integer:
        raise UnprocessableInput(
            f"The {what} of a sparse or ragged tensor are integers, not {tensor.dtype}.",
            code="dtype_mismatch",
        )
    values: NDArray[Any] = tensor.values
    return values.astype(np.int64, copy=False)  # a uint64 beyond it turns negative, which is out of bounds


def _require_rank(tensor: Tensor, what: str, rank: int) -> None:
    if len(tensor.shape) != rank:
        raise UnprocessableInput(
            f"The {what} of a sparse or ragged tensor have {rank} dimension{'s' * (rank > 1)}, not the shape "
            f"{list(tensor.shape)[:16]}.",
            code="shape_mismatch",
        )
