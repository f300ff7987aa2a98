"""Ragged and sparse columns to JSON: nested arrays, and `{"values", "indices", "dense_shape"}`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.schema import Feature
from ...domain.tensor import num_elements
from ..json_out import Spelling, nest, tokens
from ..json_values import ItemError
from .arrays import values_from_elements

__all__ = ["list_texts", "offsets_of", "ragged_texts", "sparse_texts"]


def ragged_texts(column: pa.Array[Any], feature: Feature, spelling: Spelling) -> list[str]:
    """Nested arrays, one text for each row of a column without nulls.

    Raises:
        ItemError: a value without text, with the index of the row.
    """
    cuts: list[NDArray[np.int64]] = []
    items: Any = column
    for _ in range(feature.num_partitions + 1):
        cuts.append(offsets_of(items))
        items = items.flatten()
    size = num_elements(feature.inner_shape)
    elements = items.flatten() if feature.inner_shape else items
    try:
        texts = tokens(values_from_elements(elements, feature.dtype), feature.dtype, spelling)
    except ItemError as error:
        index = error.index // size
        for offsets in reversed(cuts):
            index = int(np.searchsorted(offsets, index, side="right")) - 1
        raise ItemError(index, error.detail, error.code) from None
    if feature.inner_shape:
        nest(texts, feature.inner_shape)
        texts = [",".join(texts[start : start + size]) for start in range(0, len(texts), size)]
    for offsets in reversed(cuts):
        texts = list_texts(texts, offsets)
    return texts


def sparse_texts(column: pa.Array[Any], feature: Feature, spelling: Spelling) -> list[str]:
    """One object for each row of a column without nulls; its indices are arrays also where the rank is 1.

    Raises:
        ItemError: a value without text, with the index of the row.
    """
    struct: Any = column
    lists, coordinates = struct.field("values"), struct.field("indices").flatten()
    offsets = offsets_of(lists)
    try:
        values = tokens(values_from_elements(lists.flatten(), feature.dtype), feature.dtype, spelling)
    except ItemError as error:
        index = int(np.searchsorted(offsets, error.index, side="right")) - 1
        raise ItemError(index, error.detail, error.code) from None
    rank = len(feature.shape)
    numbers = list(map(str, coordinates.to_pylist()))
    indices = [f"[{','.join(numbers[start : start + rank])}]" for start in range(0, len(numbers), rank)]
    shape = ",".join(map(str, feature.shape))
    return [
        f'{{"values":{of_row},"indices":{places},"dense_shape":[{shape}]}}'
        for of_row, places in zip(list_texts(values, offsets), list_texts(indices, offsets), strict=True)
    ]


def list_texts(texts: list[str], offsets: NDArray[np.int64]) -> list[str]:
    """The texts in arrays: those from one offset to the next in each."""
    return [f"[{','.join(texts[start:stop])}]" for start, stop in pairwise(offsets.tolist())]


def offsets_of(lists: Any) -> NDArray[np.int64]:
    """Where each list of a column without nulls begins in `lists.flatten()`, and where the last one ends."""
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(lists.value_lengths().to_numpy(), out=offsets[1:])
    return offsets
