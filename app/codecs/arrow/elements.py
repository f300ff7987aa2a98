"""Elements as numpy arrays <-> the Arrow types that hold them (`batches.storage_type`)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.dtypes import DType
from ...errors import LimitExceeded
from ..content import content_view, sign_extended
from .batches import storage_type

#: Arrow counts the bytes of strings by int32.
_MAX_OFFSET: Final = 2**31 - 1


def elements_from_values(values: NDArray[Any], dtype: DType, name: str) -> pa.Array[Any]:
    """The flat values of `dtype.numpy`, each an item of the storage type; numbers are not copied.

    Args:
        name: of the feature, for errors.

    Raises:
        LimitExceeded: strings of more bytes than one column holds (`column_too_large`).
    """
    storage = storage_type(dtype)
    if not dtype.is_string:
        memory = pa.py_buffer(content_view(sign_extended(values, dtype)))
        return pa.Array.from_buffers(storage, len(values), [None, memory])
    if sum(map(len, values)) > _MAX_OFFSET:
        raise LimitExceeded(
            f"Rows of feature {name!r} are too large for one column.", code="column_too_large", feature=name
        )
    return pa.array(values, storage)


def values_from_elements(elements: pa.Array[Any], dtype: DType) -> NDArray[Any]:
    """The values of an array of the storage type without nulls.

    Numbers are a view of its memory; strings an object array of `bytes`.
    """
    if dtype.is_string:
        strings = np.empty(len(elements), object)
        strings[:] = elements.to_pylist()
        return strings
    if not len(elements):
        return np.empty(0, dtype.numpy)
    memory: Any = elements.buffers()[1]  # declared as optional; only an empty array has none
    values = np.frombuffer(memory, np.uint8)[elements.offset * dtype.itemsize :]
    return values[: len(elements) * dtype.itemsize].view(dtype.numpy)
