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

from dataclasses import replace
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import INT64, STRING, DType
from ...errors import InputError, MalformedInput, UnprocessableInput
from ..array import Array, RaggedTensor, SparseTensor
from ..options import TensorDecodeOptions
from ..tensors.components import ragged_tensor, sparse_tensor
from .convert import convert_items
from .forms import DataForm, member_pointer, read_data_form
from .tensor_array import read_array
from .values import ItemError, Reading, described, infer_dtype

__all__ = ["is_nested", "is_ragged", "is_sparse", "read_nested_ragged", "read_parts"]

_SPARSE: Final = frozenset({"values", "indices", "dense_shape"})
_RAGGED: Final = frozenset({"values", "row_splits"})


def is_sparse(value: dict[str, Any]) -> bool:
    """Whether an object has the members of a sparse tensor."""
    return value.keys() >= _SPARSE


def is_ragged(value: dict[str, Any]) -> bool:
    """Whether an object has the members of a ragged tensor."""
    return value.keys() >= _RAGGED


def is_nested(data: object) -> bool:
    """Whether these are arrays in an array."""
    return isinstance(data, list) and any(isinstance(item, list) for item in data)


def read_parts(
    value: dict[str, Any], pointer: str, options: TensorDecodeOptions
) -> SparseTensor | RaggedTensor:
    """The sparse or ragged tensor of an object that has the members of one.

    Raises:
        MalformedInput: a member that is unknown or of the wrong type (`invalid_tensor`).
        InputError: what is wrong with a component or with all of them together; `pointer` says where.
    """
    parts = _SPARSE if is_sparse(value) else _RAGGED
    members = {"data": value["values"], **{key: value[key] for key in value.keys() - parts}}
    form = read_data_form(members, pointer)
    dtype = _agreed_dtype(form, options, pointer)
    reading = Reading.of(options.nonfinite, declared=dtype is not None)
    shape = None if parts is _SPARSE else form.shape
    values = read_array(value["values"], dtype, shape, member_pointer(pointer, "values"), reading)
    try:
        tensor = (
            _read_sparse(value, values, pointer, form.name)
            if parts is _SPARSE
            else ragged_tensor(values, _read_splits(value["row_splits"], pointer), name=form.name)
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


def _read_sparse(value: dict[str, Any], values: Array, pointer: str, name: str | None) -> SparseTensor:
    indices, dense_shape = (
        read_array(value[key], INT64, None, member_pointer(pointer, key), Reading())
        for key in ("indices", "dense_shape")
    )
    return sparse_tensor(indices, values, dense_shape, name=name)


def _read_splits(splits: object, pointer: str) -> list[Array]:
    pointer = member_pointer(pointer, "row_splits")
    if not isinstance(splits, list) or not splits or not all(isinstance(cut, list) for cut in splits):
        raise MalformedInput(
            '"row_splits" takes a list of one or more arrays, outermost first.',
            code="invalid_tensor",
            pointer=pointer,
        )
    return [
        read_array(cut, INT64, None, member_pointer(pointer, level), Reading())
        for level, cut in enumerate(splits)
    ]


def read_nested_ragged(
    data: list[Any], dtype: DType | None, pointer: str, options: TensorDecodeOptions
) -> RaggedTensor:
    """Nested arrays, of which every axis behind the first may have rows of any length.

    As `tf.ragged.constant` reads them: an axis is cut even where all its rows are equally long.

    Raises:
        InputError: scalars beside arrays (`ragged`), or what is wrong with a value; `pointer` says where.
    """
    reading = Reading.of(options.nonfinite, declared=dtype is not None)
    row_splits: list[NDArray[np.int64]] = []
    try:
        items = _flatten(data, row_splits)
        if dtype is None:
            dtype = infer_dtype(items, reading)
            dtype = STRING if dtype.is_string else dtype
        cuts = _without_parts(row_splits) if dtype.kind == "complex" else row_splits
        values = convert_items(items, dtype, reading)
    except ItemError as error:
        path = _path(error.index, row_splits)
        raise error.error(
            error.detail, code=error.code, pointer="/".join([pointer, *map(str, path)])
        ) from None
    return RaggedTensor(Array(dtype, (len(values),), values), tuple(cuts))


def _flatten(data: list[Any], row_splits: list[NDArray[np.int64]]) -> list[Any]:
    """The items; the splits of each axis are added to `row_splits` as they are found."""
    items = data
    while list in (types := set(map(type, items))):
        if len(types) > 1:
            index = next(i for i, item in enumerate(items) if type(item) is not list)
            raise ItemError(
                index,
                f"The arrays are nested to different depths: {described(items[index])} beside one.",
                "ragged",
            )
        lengths = np.fromiter(map(len, items), np.int64, len(items))
        row_splits.append(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))
        items = list(chain.from_iterable(items))
    return items


def _without_parts(row_splits: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """The splits of complex numbers, each of which came as `[real, imaginary]`."""
    *cuts, parts = row_splits
    wrong = np.flatnonzero(np.diff(parts) != 2)
    if len(wrong) or not cuts:
        raise ItemError(
            int(parts[wrong[0]]) if len(wrong) else 0,
            "A complex number is an array of two numbers, [real, imaginary].",
            "type_mismatch",
        )
    return cuts


def _path(index: int, row_splits: list[NDArray[np.int64]]) -> list[int]:
    """The indices that lead to an item, outermost first."""
    path: list[int] = []
    for splits in reversed(row_splits):
        row = int(np.searchsorted(splits, index, "right")) - 1
        path.append(index - int(splits[row]))
        index = row
    return [index, *reversed(path)]
