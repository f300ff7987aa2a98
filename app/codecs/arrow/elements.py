"""Convert between the flat values of a column and Arrow's arrays.

Storage is the Arrow type of the same name; bool is `uint8` (0 or 1), bfloat16 is `uint16` and float8 and
float4 are `uint8` (their bits), int4 and int2 are `int8` and uint4 and uint2 `uint8` (their values), a
quantized integer is the one without the q, complex is `fixed_size_binary(8 or 16)`, text and bytes are
`binary`. Files for others have `bool` and `utf8` instead.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.dtypes import BOOL, TEXT, DType
from ...errors import LimitExceeded
from ..columns import Strings, no_values
from ..content import content_view, extend_sign
from ..records.lease import Lease

#: Arrow counts the items of lists and the bytes of strings by int32.
MAX_OFFSET: Final = 2**31 - 1

_STORAGE: Final[dict[str, pa.DataType]] = {
    "bool": pa.uint8(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "bfloat16": pa.uint16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "complex64": pa.binary(8),
    "complex128": pa.binary(16),
    "float8_e5m2": pa.uint8(),
    "float8_e4m3fn": pa.uint8(),
    "float8_e4m3fnuz": pa.uint8(),
    "float8_e4m3b11fnuz": pa.uint8(),
    "float8_e5m2fnuz": pa.uint8(),
    "float4_e2m1fn": pa.uint8(),
    "int4": pa.int8(),
    "uint4": pa.uint8(),
    "int2": pa.int8(),
    "uint2": pa.uint8(),
    "qint8": pa.int8(),
    "quint8": pa.uint8(),
    "qint16": pa.int16(),
    "quint16": pa.uint16(),
    "qint32": pa.int32(),
    "string": pa.binary(),
    "text": pa.binary(),
    "bytes": pa.binary(),
}


def storage_type(dtype: DType) -> pa.DataType:
    """The Arrow type that holds one element of `dtype`."""
    return _STORAGE[dtype.name]


def natural_type(dtype: DType) -> pa.DataType:
    """The Arrow type of one element in files for others."""
    if dtype is BOOL:
        return pa.bool_()
    return pa.string() if dtype is TEXT else storage_type(dtype)


def read_elements(dtype: DType, array: Any, lease: Lease) -> NDArray[Any] | Strings:
    """The values of an array of the storage type or `utf8`, without nulls; all but the offsets are views.

    Raises:
        LimitExceeded: more than the budget.
    """
    if not len(array):
        return no_values(dtype)
    if not dtype.is_string:
        memory = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * dtype.itemsize :]
        return memory[: len(array) * dtype.itemsize].view(dtype.numpy)
    lease.charge(8 * (len(array) + 1), "The offsets of strings")
    _, found, data = array.buffers()
    offsets = np.frombuffer(found, np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)
    memory = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    memory = memory[offsets[0] : offsets[-1]]
    offsets -= offsets[0]
    return Strings(memory, offsets)


def write_elements(
    dtype: DType, values: NDArray[Any] | Strings, name: str, validity: pa.Buffer | None = None
) -> pa.Array[Any]:
    """The values as an array of the natural type; numbers and the bytes of strings are not copied.

    Args:
        values: text is UTF-8.
        name: of the feature, for errors.
        validity: a bit for each value; None where all are valid.

    Raises:
        LimitExceeded: strings of more bytes than an Arrow column holds (`column_too_large`).
    """
    if isinstance(values, Strings):
        buffers = [validity, offsets_buffer(values.offsets, name), pa.py_buffer(values.data.data)]
    elif dtype is BOOL:
        buffers = [validity, pa.py_buffer(np.packbits(values, bitorder="little").data)]
    else:
        buffers = [validity, pa.py_buffer(content_view(extend_sign(values, dtype)))]
    return pa.Array.from_buffers(natural_type(dtype), len(values), buffers)


def offsets_buffer(bounds: NDArray[np.int64], name: str) -> pa.Buffer:
    """The bounds of lists or strings as Arrow's offsets.

    Raises:
        LimitExceeded: more than an Arrow column counts (`column_too_large`).
    """
    if bounds[-1] > MAX_OFFSET:
        raise LimitExceeded(
            f"Rows of feature {name!r} are too large for one column.", code="column_too_large", feature=name
        )
    return pa.py_buffer(bounds.astype(np.int32).data)


def first_not_utf8(strings: Strings) -> int | None:
    """The index of the first string that is not UTF-8."""
    if _is_utf8(strings):
        return None
    first, last = 0, len(strings)
    while last - first > 1:
        middle = (first + last) // 2
        if _is_utf8(strings.part(first, middle)):
            first = middle
        else:
            last = middle
    return first


def _is_utf8(strings: Strings) -> bool:
    """Whether all strings are UTF-8. Needs no copy and releases the interpreter's lock."""
    if strings.data.max(initial=0) < 0x80:  # four times as fast as Arrow, which looks at each string
        return True
    buffers = [None, pa.py_buffer(strings.offsets.data), pa.py_buffer(strings.data.data)]
    try:
        pa.Array.from_buffers(pa.large_utf8(), len(strings), buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
