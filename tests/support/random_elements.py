"""Elements of any dtype out of any bytes, for tests that draw them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.codecs.array import Array
from app.codecs.columns import Strings
from app.domain.dtypes import BOOL, DType


def element_bytes(content: bytes, dtype: DType) -> bytes:
    """The same bytes without bits that an element of `dtype` does not have, as TensorFlow holds them."""
    if dtype is BOOL:
        return bytes(byte & 1 for byte in content)
    if dtype.is_narrow:
        return bytes(byte & (1 << dtype.num_bits) - 1 for byte in content)
    return content


def numpy_values(array: Array) -> NDArray[Any]:
    """The elements of an array in memory, flat; strings as objects."""
    elements = array.elements
    if not isinstance(elements, Strings):
        return elements
    values = np.empty(len(elements), object)
    values[:] = elements.unpack()
    return values
