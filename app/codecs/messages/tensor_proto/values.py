"""The `*_val` fields of a TensorProto -> its elements, the last of them repeated to fill the shape.

Source: tensorflow/core/framework/tensor.proto (which field holds what) and tensor.cc (`FromProtoField`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....domain.dtypes import DType
from ....domain.tensor import num_elements
from ....errors import UnprocessableInput
from ....runtime.budget import Budget
from ...columns import Strings
from ...content import STRING_OVERHEAD, check_content
from ..protobuf import count_varints, iter_varints
from .fields import TensorFields, value_field

#: Fields whose values are packed as they lie in memory.
_FIXED_WIDTH: Final = frozenset({"float", "double", "scomplex", "dcomplex", "float8"})


_MAX_HALF_BITS: Final = 2**16 - 1


def typed_values(
    fields: TensorFields, dtype: DType, budget: Budget, *, offset: int
) -> NDArray[Any] | Strings:
    """The elements of a TensorProto without `tensor_content`, as many as its shape asks for.

    Raises:
        MalformedInput: a varint that is none.
        UnprocessableInput: more values than the shape takes (`surplus_values`), half a complex
            number (`content_size_mismatch`), or a value that the dtype does not hold
            (`out_of_range`, `invalid_bool`).
        LimitExceeded: larger than the budget, or too much for the size of the body.
    """
    count = num_elements(fields.shape)
    if dtype.is_string:
        return _strings(fields, count, budget, offset)
    packed = fields.packed.get(value_field(dtype), bytearray())
    fixed = value_field(dtype) in _FIXED_WIDTH
    if fixed and len(packed) % dtype.itemsize:
        raise UnprocessableInput(
            f"{value_field(dtype)}_val holds half a complex number at its end.",
            code="content_size_mismatch",
            offset=offset,
        )
    given = len(packed) // dtype.itemsize if fixed else count_varints(packed, offset=offset)
    _check_surplus(given, count, fields, offset)
    if fixed:
        check_content(packed, dtype, offset=offset)
    budget.charge(count * dtype.itemsize, "The tensor")
    budget.amplify("decoded", count * dtype.itemsize, offset=offset)
    if given == 0:
        return np.zeros(count, dtype.numpy)
    values = np.empty(count, dtype.numpy)
    if fixed:
        values[:given] = np.frombuffer(packed, dtype.numpy)
    else:
        _fill_from_varints(values, packed, dtype, offset)
    values[given:] = values[given - 1]
    return values


def _strings(fields: TensorFields, count: int, budget: Budget, offset: int) -> Strings:
    given = fields.num_strings
    _check_surplus(given, count, fields, offset)
    strings = fields.strings
    missing, end = count - given, len(strings.data)
    last_size = end - int(strings.offsets[-2]) if given and missing else 0
    # A string that is repeated is there once, but what is made of the tensor holds each.
    repeated = missing * last_size
    budget.charge(8 * count + repeated, "The tensor")
    budget.amplify("decoded", STRING_OVERHEAD * count + repeated, offset=offset)
    if not missing:
        return strings
    data = np.empty(end + repeated, np.uint8)
    data[:end] = strings.data
    data[end:].reshape(missing, last_size)[:] = strings.data[end - last_size :]
    offsets = np.empty(count + 1, np.int64)
    offsets[: given + 1] = strings.offsets
    offsets[given + 1 :] = last_size
    np.cumsum(offsets[given:], out=offsets[given:])
    return Strings(data, offsets)


def _check_surplus(given: int, count: int, fields: TensorFields, offset: int) -> None:
    if given > count:
        raise UnprocessableInput(
            f"This TensorProto has {given} values, but its shape {list(fields.shape)} takes {count}.",
            code="surplus_values",
            offset=offset,
        )


def _fill_from_varints(values: NDArray[Any], packed: bytearray, dtype: DType, offset: int) -> None:
    """Write the values of a packed varint field to the beginning of `values`."""
    # half_val holds the bits of float16 and bfloat16.
    target = (
        values.view(np.uint16)
        if dtype.is_float
        else values.view(np.uint8)
        if dtype.kind == "bool"
        else values
    )
    start = 0
    for chunk in iter_varints(packed, offset=offset):
        _check_range(chunk, dtype, start, offset)
        target[start : start + len(chunk)] = chunk.astype(target.dtype)
        start += len(chunk)


def _check_range(chunk: NDArray[np.uint64], dtype: DType, start: int, offset: int) -> None:
    low, high = (0, _MAX_HALF_BITS) if dtype.is_float else dtype.bounds
    # A negative number is written as its 64 bits in two's complement.
    numbers = chunk if dtype.name == "uint64" else chunk.view(np.int64)
    invalid = (numbers > high) | (numbers < low)
    if invalid.any():
        where = int(np.argmax(invalid))
        raise UnprocessableInput(
            f"Value {start + where} of this TensorProto is {numbers[where]}, which {dtype} does not hold.",
            code="invalid_bool" if dtype.kind == "bool" else "out_of_range",
            offset=offset,
        )
