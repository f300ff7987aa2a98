"""One array of JSON: nested or flat, with or without a dtype and a shape -> a dense tensor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ...domain.dtypes import STRING, DType
from ...domain.tensor import Shape, check_shape
from ...errors import InputError
from ..array import Array
from .convert import convert_items
from .forms import fit_shape
from .numbers import NumberArray
from .values import ItemError, Reading, flatten, infer_dtype, unravel

__all__ = ["read_array"]

_RAGGED_HINT: Final = " Rows of different lengths are a ragged tensor where kind=ragged says so."


def read_array(data: Any, dtype: DType | None, shape: Shape | None, pointer: str, reading: Reading) -> Array:
    """The array of a scalar or of nested arrays, or of flat ones of a declared shape.

    Raises:
        InputError: what is wrong with a value or with the shape; `pointer` says where.
        NotPlain: a `NumberArray` that may not fit the dtype.
    """
    if isinstance(data, NumberArray):
        dtype = dtype or data.infer_dtype()
        shape = fit_shape(_checked(data.shape, pointer), shape, pointer)
        return Array(dtype, shape, data.values_as(dtype))
    nested: Shape = ()
    try:
        items, nested = flatten(data) if isinstance(data, list) else ([data], ())
        if dtype is None:
            dtype = infer_dtype(items, reading)
            dtype = STRING if dtype.is_string else dtype
        found = _without_parts(nested, items) if dtype.kind == "complex" else nested
        shape = fit_shape(_checked(found, pointer), shape, pointer)
        values = convert_items(items, dtype, reading)
    except ItemError as error:
        path = unravel(error.index, nested) if error.path is None else error.path
        hint = _RAGGED_HINT if error.code == "ragged" else ""
        raise error.error(
            error.detail + hint, code=error.code, pointer="/".join([pointer, *map(str, path)])
        ) from None
    return Array(dtype, shape, values)


def _checked(shape: Shape, pointer: str) -> Shape:
    try:
        return check_shape(shape)
    except InputError as error:
        error.location = replace(error.location, pointer=pointer)
        raise


def _without_parts(nested: Shape, items: list[Any]) -> Shape:
    """The shape of complex numbers, each of which came as `[real, imaginary]`."""
    if not items:
        return nested
    if not nested or nested[-1] != 2:
        raise ItemError(0, "A complex number is an array of two numbers, [real, imaginary].", "type_mismatch")
    return nested[:-1]
