"""Arrays of JSON, nested or flat, to a dense or ragged tensor."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....domain.dtypes import STRING, DType
from ....domain.tensor import (
    MAX_RANK,
    Shape,
    check_shape,
)
from ....errors import InputError
from ...array import Array, RaggedTensor
from ...kernels.json.tape import ARRAY
from ..forms import fit_shape
from ..items import (
    convert,
    flatten,
    infer_dtype,
)
from ..tape import Items
from ..values import (
    ItemError,
    Reading,
    unravel,
)

_RAGGED_HINT: Final = " Rows of different lengths are a ragged tensor where kind=ragged says so."


def read_array(
    data: Items,
    dtype: DType | None,
    shape: Shape | None,
    pointer: str,
    reading: Reading,
    name: str | None = None,
) -> Array:
    """The array of a scalar or of nested arrays, or of flat ones of a declared shape.

    Args:
        data: one value.

    Raises:
        InputError: what is wrong with a value or with the shape; `pointer` says where.
    """
    nested: Shape = ()
    try:
        items, nested = flatten(data)
        dtype = dtype or _infer(items, reading)
        found = _without_parts(nested, items) if dtype.kind == "complex" else nested
        if len(found) > MAX_RANK:  # no dimension that is there in a text is too large
            _refuse_rank(found, pointer)
        shape = fit_shape(found, shape, pointer)
        values = convert(items, dtype, reading)
    except ItemError as error:
        path = unravel(error.index, nested) if error.path is None else error.path
        hint = _RAGGED_HINT if error.code == "ragged" else ""
        raise _located(error, path, pointer, hint) from None
    return Array(dtype, shape, values, name)


def _infer(items: Items, reading: Reading) -> DType:
    dtype = infer_dtype(items, reading)
    return STRING if dtype.is_string else dtype


def _located(error: ItemError, path: Shape, pointer: str, hint: str = "") -> InputError:
    return error.error(error.detail + hint, code=error.code, pointer="/".join([pointer, *map(str, path)]))


def _refuse_rank(shape: Shape, pointer: str) -> None:
    try:
        check_shape(shape)
    except InputError as error:
        error.location = replace(error.location, pointer=pointer)
        raise


def _without_parts(nested: Shape, items: Items) -> Shape:
    """The shape of complex numbers, each of which came as `[real, imaginary]`."""
    if not len(items):
        return nested
    if not nested or nested[-1] != 2:
        raise _not_complex(0)
    return nested[:-1]


def _not_complex(index: int) -> ItemError:
    return ItemError(
        index, "A complex number is an array of two numbers, [real, imaginary].", "type_mismatch"
    )


def is_nested(data: Items) -> bool:
    """Whether a value is arrays in an array."""
    return data.only(ARRAY) and data.children(0).has(ARRAY)


def read_ragged(data: Items, dtype: DType | None, pointer: str, reading: Reading) -> RaggedTensor:
    """Nested arrays, of which every axis behind the first may have rows of any length.

    As `tf.ragged.constant` reads them: an axis is cut even where all its rows are equally long.

    Raises:
        InputError: scalars beside arrays (`ragged`), or what is wrong with a value; `pointer` says where.
    """
    row_splits: list[NDArray[np.int64]] = []
    try:
        items = _flatten_ragged(data, row_splits)
        dtype = dtype or _infer(items, reading)
        cuts = _cuts_of_complex(row_splits) if dtype.kind == "complex" else row_splits
        values = convert(items, dtype, reading)
    except ItemError as error:
        raise _located(error, _path(error.index, row_splits), pointer) from None
    return RaggedTensor(Array(dtype, (len(values),), values), tuple(cuts))


def _flatten_ragged(data: Items, row_splits: list[NDArray[np.int64]]) -> Items:
    """The items; the splits of each axis are added to `row_splits` as they are found."""
    items, _ = data.open()
    while items.has(ARRAY):
        if not items.only(ARRAY):
            index = int(np.argmax(items.kinds != ARRAY))
            raise ItemError(
                index,
                f"The arrays are nested to different depths: {items.describe(index)} beside one.",
                "ragged",
            )
        items, counts = items.open()
        row_splits.append(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]))
    return items


def _cuts_of_complex(row_splits: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """The splits of complex numbers, each of which came as `[real, imaginary]`."""
    *cuts, parts = row_splits
    wrong = np.flatnonzero(np.diff(parts) != 2)
    if len(wrong) or not cuts:
        raise _not_complex(int(parts[wrong[0]]) if len(wrong) else 0)
    return cuts


def _path(index: int, row_splits: list[NDArray[np.int64]]) -> Shape:
    """The indices that lead to an item, outermost first."""
    path: list[int] = []
    for splits in reversed(row_splits):
        row = int(np.searchsorted(splits, index, "right")) - 1
        path.append(index - int(splits[row]))
        index = row
    return (index, *reversed(path))
