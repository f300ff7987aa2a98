"""Sparse and ragged tensors as JSON.

| kind   | members                                                                                  |
|--------|------------------------------------------------------------------------------------------|
| sparse | `values`, `indices` (one array of coordinates for each value), `dense_shape`, `dtype`    |
| ragged | `values`, `row_splits` (a list of arrays, outermost first), `dtype`                      |

Either may have a `name`. `values` of a ragged tensor are nested arrays where their inner dimensions are
uniform; a `shape` says which these are where there are no values to show it. Nested arrays of different
lengths are a ragged tensor where the client declares so.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Final

from ....domain.dtypes import INT64, DType
from ....errors import (
    InputError,
    MalformedInput,
    UnprocessableInput,
)
from ...array import (
    Array,
    RaggedTensor,
    SparseTensor,
)
from ...kernels.json.tape import ARRAY
from ...options import TensorDecodeOptions
from ...tensors.components import ragged_tensor, sparse_tensor
from ..forms import DataForm, read_data_form
from ..tape import Items
from ..values import Reading
from .array import read_array

_SPARSE: Final = frozenset({"values", "indices", "dense_shape"})
_RAGGED: Final = frozenset({"values", "row_splits"})
_DECLARED: Final = Reading()


def are_parts(names: Set[str]) -> bool:
    """Whether these are the members of a sparse or a ragged tensor."""
    return names >= _SPARSE or names >= _RAGGED


def read_parts(
    members: Mapping[str, Items], pointer: str, options: TensorDecodeOptions
) -> SparseTensor | RaggedTensor:
    """The sparse or ragged tensor of an object that has these members.

    Raises:
        MalformedInput: a member that is unknown or of the wrong type (`invalid_tensor`).
        InputError: what is wrong with a component or with all of them together; `pointer` says where.
    """
    is_sparse = members.keys() >= _SPARSE
    form = read_data_form(members, pointer, data="values", beside=_SPARSE if is_sparse else _RAGGED)
    dtype = _agreed_dtype(form, options, pointer)
    reading = Reading.of(options.nonfinite, declared=dtype is not None)
    shape = None if is_sparse else form.shape
    values = read_array(form.data, dtype, shape, pointer + "/values", reading)
    try:
        tensor = (
            _read_sparse(members, values, pointer, form.name)
            if is_sparse
            else ragged_tensor(values, _read_splits(members, pointer), name=form.name)
        )
        _check_shape(tensor, form, options)
    except InputError as error:
        if error.location.pointer is None:
            error.location = replace(error.location, pointer=pointer)
        raise
    return tensor


def _agreed_dtype(form: DataForm, options: TensorDecodeOptions, pointer: str) -> DType | None:
    if form.dtype is not None and options.dtype is not None and form.dtype != options.dtype:
        raise UnprocessableInput(
            f"The body says dtype {form.dtype}, but {options.dtype} was declared beside it.",
            code="dtype_mismatch",
            pointer=pointer,
        )
    return form.dtype or options.dtype


def _check_shape(tensor: SparseTensor | RaggedTensor, form: DataForm, options: TensorDecodeOptions) -> None:
    if isinstance(tensor, SparseTensor):
        if form.shape is not None:
            raise MalformedInput("The shape of a sparse tensor is its dense_shape.", code="invalid_tensor")
        if options.shape in (None, tensor.dense_shape):
            return
    elif options.shape is None:
        return
    found = (
        f"has the dense_shape {list(tensor.dense_shape)}" if isinstance(tensor, SparseTensor) else "has none"
    )
    raise UnprocessableInput(
        f"A shape was declared beside the body, but the tensor {found}.", code="shape_mismatch"
    )


def _read_sparse(members: Mapping[str, Items], values: Array, pointer: str, name: str | None) -> SparseTensor:
    indices, dense_shape = (
        read_array(members[key], INT64, None, f"{pointer}/{key}", _DECLARED)
        for key in ("indices", "dense_shape")
    )
    return sparse_tensor(indices, values, dense_shape, name=name)


def _read_splits(members: Mapping[str, Items], pointer: str) -> list[Array]:
    pointer += "/row_splits"
    splits = members["row_splits"]
    cuts = splits.children(0) if splits.only(ARRAY) else Items.none()
    if not len(cuts) or not cuts.only(ARRAY):
        raise MalformedInput(
            '"row_splits" takes a list of one or more arrays, outermost first.',
            code="invalid_tensor",
            pointer=pointer,
        )
    return [
        read_array(cut, INT64, None, f"{pointer}/{level}", _DECLARED) for level, cut in enumerate(cuts.each())
    ]
