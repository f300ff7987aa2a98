"""Ragged and sparse columns to JSON: nested arrays, and `{"values", "indices", "dense_shape"}`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.dtypes import DType
from ...domain.schema import Feature
from ...domain.tensor import num_elements
from ..records.arrays import string_buffers, values_from_elements
from .spelling import Spelling, Strings, integer_texts, value_texts
from .texts import Texts, concatenated, in_lists
from .values import ItemError

__all__ = ["element_texts", "offsets_of", "ragged_texts", "sparse_texts"]


def element_texts(
    elements: pa.Array[Any], dtype: DType, spelling: Spelling, shape: Sequence[int] = ()
) -> Texts:
    """As `value_texts`, of a column of the storage type without nulls.

    Raises:
        ItemError: as `value_texts`.
    """
    if dtype.is_string:
        return value_texts(Strings(*string_buffers(elements)), dtype, spelling, shape)
    return value_texts(values_from_elements(elements, dtype), dtype, spelling, shape)


def ragged_texts(column: pa.Array[Any], feature: Feature, spelling: Spelling) -> Texts:
    """Nested arrays, one text for each row of a column without nulls.

    Raises:
        ItemError: a value without text, with the index of the row.
    """
    cuts: list[NDArray[np.int64]] = []
    items: Any = column
    for _ in range(feature.num_partitions + 1):
        cuts.append(offsets_of(items))
        items = items.flatten()
    elements = items.flatten() if feature.inner_shape else items
    try:
        texts = element_texts(elements, feature.dtype, spelling, feature.inner_shape)
    except ItemError as error:
        index = error.index // num_elements(feature.inner_shape)
        for offsets in reversed(cuts):
            index = int(np.searchsorted(offsets, index, side="right")) - 1
        raise ItemError(index, error.detail, error.code) from None
    for offsets in reversed(cuts):
        texts = in_lists(texts, offsets)
    return texts


def sparse_texts(column: pa.Array[Any], feature: Feature, spelling: Spelling) -> Texts:
    """One object for each row of a column without nulls; its indices are arrays also where the rank is 1.

    Raises:
        ItemError: a value without text, with the index of the row.
    """
    struct: Any = column
    lists, coordinates = struct.field("values"), struct.field("indices").flatten()
    offsets = offsets_of(lists)
    try:
        values = element_texts(lists.flatten(), feature.dtype, spelling)
    except ItemError as error:
        index = int(np.searchsorted(offsets, error.index, side="right")) - 1
        raise ItemError(index, error.detail, error.code) from None
    indices = integer_texts(coordinates.to_numpy(), (len(feature.shape),))
    shape = ",".join(map(str, feature.shape))
    parts: list[str | Texts] = [
        '{"values":',
        in_lists(values, offsets),
        ',"indices":',
        in_lists(indices, offsets),
        f',"dense_shape":[{shape}]}}',
    ]
    return concatenated(parts, len(column))


def offsets_of(lists: Any) -> NDArray[np.int64]:
    """Where each list of a column without nulls begins in `lists.flatten()`, and where the last one ends."""
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(lists.value_lengths().to_numpy(), out=offsets[1:])
    return offsets
