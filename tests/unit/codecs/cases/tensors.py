"""Tensors and what they look like, for tests of several forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.domain.dtypes import DTYPES
from app.domain.tensor import NamedAny, RaggedTensor, SparseTensor, Tensor, tensor_from_array
from tests.unit.codecs.seam import Refusal, Values, read_tensors


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


def show_dense(tensor: Tensor) -> str:
    """As `show`, of a tensor that was not read."""
    values = tensor.values
    if tensor.dtype.is_float:
        with np.errstate(invalid="ignore"):
            values = values.astype(np.float64)
    return f"{tensor.dtype}{list(tensor.shape)} {values.tolist()}"


def dense(name: str, shape: tuple[int, ...], values: Any) -> Tensor:
    dtype = DTYPES[name]
    array = np.empty(len(values), dtype.numpy)
    array[:] = values
    return Tensor(dtype, shape, array)


def ragged(values: Any, *row_splits: list[int], dtype: str = "int64") -> RaggedTensor:
    tensor = tensor_from_array(np.array(values, DTYPES[dtype].numpy), DTYPES[dtype])
    return RaggedTensor(tensor, tuple(np.array(splits, np.int64) for splits in row_splits))


def named(tensor: Any, name: str | None = None) -> NamedAny:
    return tensor if isinstance(tensor, NamedAny) else NamedAny(tensor, name)


SPARSE = SparseTensor(DTYPES["float32"], (3, 4), np.array([[0, 1], [2, 3]]), np.array([1, np.nan], "<f4"))
SPARSE_SHOWN = "float32[3, 4] [1.0, nan] [[0, 1], [2, 3]]"
SPARSE_JSON = {"dtype": "float32", "values": [1.0, "NaN"], "indices": [[0, 1], [2, 3]], "dense_shape": [3, 4]}
RAGGED = ragged([1, 2, 3], [0, 2, 2, 3])
RAGGED_SHOWN = "int64[3] [1, 2, 3] [[0, 2, 2, 3]]"
RAGGED_JSON = {"dtype": "int64", "values": [1, 2, 3], "row_splits": [[0, 2, 2, 3]]}
