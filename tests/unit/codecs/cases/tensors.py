"""Tensors and what they look like, for tests of several forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.codecs.array import Array, RaggedTensor, SparseTensor
from app.domain.dtypes import DTYPES
from tests.support.format_cases import Refusal, Values, read_tensors
from tests.support.random_elements import numpy_values


def read(text: bytes, **options: Any) -> list[str]:
    """The tensors of a JSON body, as `show` has them; `dtype` by its name."""
    found = _read(text, options)
    assert isinstance(found, list), found
    return [show(values) for values in found]


def refused(text: bytes, **options: Any) -> Refusal:
    """The error of a JSON body."""
    found = _read(text, options)
    assert isinstance(found, Refusal), found
    return found


def _read(text: bytes, options: dict[str, Any]) -> list[Values] | Refusal:
    if isinstance(options.get("dtype"), str):
        options["dtype"] = DTYPES[options["dtype"]]
    return read_tensors("json", text, **options)


def show(found: Values) -> str:
    """`name: dtype[shape] [values]`, then the indices of a sparse tensor or the splits of a ragged one."""
    name = "" if found.name is None else f"{found.name}: "
    parts = "" if found.parts is None else f" {found.parts}"
    return f"{name}{found.dtype}{list(found.shape)} {found.values}{parts}"


def show_dense(tensor: Array) -> str:
    """As `show`, of a tensor that was not read."""
    values = numpy_values(tensor)
    if tensor.dtype.is_float:
        with np.errstate(invalid="ignore"):
            values = values.astype(np.float64)
    return f"{tensor.dtype}{list(tensor.shape)} {values.tolist()}"


def dense(dtype_name: str, shape: tuple[int, ...], values: Any, name: str | None = None) -> Array:
    dtype = DTYPES[dtype_name]
    array = np.empty(len(values), dtype.numpy)
    array[:] = values
    return Array(dtype, shape, Array.of(array, dtype).content, name)  # numpy has fewer dimensions


def ragged(values: Any, *row_splits: list[int], dtype: str = "int64") -> RaggedTensor:
    tensor = Array.of(np.array(values, DTYPES[dtype].numpy), DTYPES[dtype])
    return RaggedTensor(tensor, tuple(np.array(splits, np.int64) for splits in row_splits))


SPARSE = SparseTensor((3, 4), np.array([[0, 1], [2, 3]]), Array.of(np.array([1, np.nan]), DTYPES["float32"]))
SPARSE_SHOWN = "float32[3, 4] [1.0, nan] [[0, 1], [2, 3]]"
SPARSE_JSON = {"dtype": "float32", "values": [1.0, "NaN"], "indices": [[0, 1], [2, 3]], "dense_shape": [3, 4]}
RAGGED = ragged([1, 2, 3], [0, 2, 2, 3])
RAGGED_SHOWN = "int64[3] [1, 2, 3] [[0, 2, 2, 3]]"
RAGGED_JSON = {"dtype": "int64", "values": [1, 2, 3], "row_splits": [[0, 2, 2, 3]]}
