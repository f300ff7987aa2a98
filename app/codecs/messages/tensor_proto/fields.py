"""The fields of a TensorProto as they stand in the message, gathered before anything is made of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ....domain.dtypes import DType
from ....domain.tensor import MAX_RANK, Shape, check_shape
from ....errors import MalformedInput, UnprocessableInput
from ....runtime.budget import Budget
from ... import kernels
from ...columns import Strings, join_strings
from ...content import STRING_OVERHEAD
from ..protobuf import FIXED32, FIXED64, LENGTH_DELIMITED, VARINT, Field, fields_of, to_signed

_DTYPE_FIELD: Final = 1
_SHAPE_FIELD: Final = 2
CONTENT_FIELD: Final = 4
STRING_FIELD: Final = 8
STRING_TAG: Final = STRING_FIELD << 3 | LENGTH_DELIMITED

#: Field -> (name without "_val", wire type of one value outside a packed field).
_VALUE_FIELDS: Final[dict[int, tuple[str, int]]] = {
    5: ("float", FIXED32),
    6: ("double", FIXED64),
    7: ("int", VARINT),
    9: ("scomplex", FIXED32),
    10: ("int64", VARINT),
    11: ("bool", VARINT),
    12: ("dcomplex", FIXED64),
    13: ("half", VARINT),
    16: ("uint32", VARINT),
    17: ("uint64", VARINT),
}
#: One byte a value, float4 included; not repeated, so that the last of several holds.
_FLOAT8_FIELD: Final = 18
#: Less than this is read faster one field at a time.
_PACKED_FROM: Final = 256
#: What a run of strings takes beside them: two arrays.
_RUN_OVERHEAD: Final = 400
#: Values of dtypes that are not read here; TensorFlow ignores them beside another dtype.
_FOREIGN_FIELDS: Final = {14: "resource_handle_val", 15: "variant_val"}

#: dtype -> the field that holds its values (tensor.proto); the others have a field of their own name.
_FIELD_OF_DTYPE: Final[dict[str, str]] = {
    "float32": "float",
    "float64": "double",
    "int32": "int",
    "int16": "int",
    "int8": "int",
    "uint16": "int",
    "uint8": "int",
    "float16": "half",
    "bfloat16": "half",
    "complex64": "scomplex",
    "complex128": "dcomplex",
    "float8_e5m2": "float8",
    "float8_e4m3fn": "float8",
    "float8_e4m3fnuz": "float8",
    "float8_e4m3b11fnuz": "float8",
    "float8_e5m2fnuz": "float8",
    "float4_e2m1fn": "float8",
    "int4": "int",
    "uint4": "int",
    "int2": "int",
    "uint2": "int",
    "qint8": "int",
    "quint8": "int",
    "qint16": "int",
    "quint16": "int",
    "qint32": "int",
}

_DIM_FIELD: Final = 2
_UNKNOWN_RANK_FIELD: Final = 3
_SIZE_FIELD: Final = 1
_NAME_FIELD: Final = 2


@dataclass(slots=True)
class TensorFields:
    """What a TensorProto says.

    Attributes:
        dtype: TensorFlow's number; 0 where there is none.
        content: begin and end of `tensor_content`; None where it is absent or empty.
        packed: name of a `*_val` field without "_val" -> its values as one packed field, never empty.
        string_runs: the values of `string_val`, those together that follow one another.
        last_strings: those behind the last run.
    """

    dtype: int = 0
    shape: Shape = ()
    content: tuple[int, int] | None = None
    packed: dict[str, bytearray] = field(default_factory=dict)
    string_runs: list[Strings] = field(default_factory=list)
    last_strings: list[bytes] = field(default_factory=list)

    @property
    def num_strings(self) -> int:
        return sum(map(len, self.string_runs)) + len(self.last_strings)

    @property
    def strings(self) -> Strings:
        """All values of `string_val`."""
        if self.last_strings or not self.string_runs:
            last = Strings.pack(self.last_strings)
            return join_strings([*self.string_runs, last]) if self.string_runs else last
        return self.string_runs[0] if len(self.string_runs) == 1 else join_strings(self.string_runs)

    @property
    def has_values(self) -> bool:
        return bool(self.packed or self.num_strings)

    def values_of(self, *, other_than: DType) -> list[str]:
        """The `*_val` fields that hold something, except the one for that dtype."""
        own = value_field(other_than)
        return [name for name in [*self.packed, *(["string"] if self.num_strings else [])] if name != own]


def value_field(dtype: DType) -> str:
    """The name of the field that holds values of `dtype`, without "_val"."""
    return _FIELD_OF_DTYPE.get(dtype.name, dtype.name)


def read_tensor_fields(data: memoryview, budget: Budget, *, offset: int) -> TensorFields:
    """The fields of the TensorProto that is the whole of `data`.

    As in protobuf, the last of several scalars holds, repeated fields add up, packed or not, and a
    known field of another wire type counts as unknown, which is ignored.

    Raises:
        MalformedInput: not a protobuf message, or a dimension out of range.
        UnprocessableInput: it holds resources or variants (`unsupported_dtype`), or its
            rank is unknown (`unknown_rank`).
        LimitExceeded: values larger than the budget, or too many dimensions.
    """
    found = TensorFields()
    dims: list[int] = []
    position = 0
    while position < len(data):
        position = _read_fields(found, dims, data, position, budget, offset)
        if position < len(data):
            position = _read_strings(found, data, position, budget)
    found.shape = check_shape(dims, offset=offset)
    return found


def _read_fields(
    found: TensorFields, dims: list[int], data: memoryview, position: int, budget: Budget, offset: int
) -> int:
    """Read the fields from `position` to the end, or to where many `string_val` may follow; where that is."""
    for entry in fields_of(data, position, len(data), offset=offset):
        number, wire, value, begin, end = entry
        if number == STRING_FIELD and wire == LENGTH_DELIMITED:
            budget.charge(STRING_OVERHEAD + end - begin, "The strings of the tensor")
            found.last_strings.append(bytes(data[begin:end]))
        elif number in _VALUE_FIELDS:
            _gather(found.packed, data, entry, budget, offset)
        elif number == _FLOAT8_FIELD and wire == LENGTH_DELIMITED:
            _replace(found.packed, data[begin:end], budget)
        elif number == _DTYPE_FIELD and wire == VARINT:
            found.dtype = value
        elif number == _SHAPE_FIELD and wire == LENGTH_DELIMITED:
            _append_dims(dims, data, begin, end, offset)
        elif number == CONTENT_FIELD and wire == LENGTH_DELIMITED:
            found.content = (begin, end) if end > begin else None
        elif number in _FOREIGN_FIELDS:
            raise UnprocessableInput(
                f"This TensorProto holds {_FOREIGN_FIELDS[number]}, which has no form here.",
                code="unsupported_dtype",
                offset=offset + begin,
            )
        if len(data) - end >= _PACKED_FROM and data[end] == STRING_TAG:
            return end
    return len(data)


def _read_strings(found: TensorFields, data: memoryview, position: int, budget: Budget) -> int:
    """Read the `string_val` that follow one another from `position`; the position behind them.

    One that is malformed is left to `fields_of`, which says what is wrong with it.
    """
    message = np.frombuffer(data, np.uint8)
    kernel = kernels.load()
    count, num_bytes, end = kernel.count_strings(message, position, STRING_TAG)
    budget.charge(2 * _RUN_OVERHEAD + STRING_OVERHEAD * count + num_bytes, "The strings of the tensor")
    strings = np.empty(num_bytes, np.uint8)
    offsets = np.empty(count + 1, np.int64)
    kernel.read_strings(message, position, strings, offsets)
    if found.last_strings:
        found.string_runs.append(Strings.pack(found.last_strings))
        found.last_strings = []
    found.string_runs.append(Strings(strings, offsets))
    return end


def _gather(
    packed: dict[str, bytearray], data: memoryview, entry: Field, budget: Budget, offset: int
) -> None:
    """Add the values of one `*_val` field, packed or single, to those that came before."""
    number, wire, _, begin, end = entry
    name, single = _VALUE_FIELDS[number]
    if wire not in (single, LENGTH_DELIMITED) or begin == end:
        return
    width = {FIXED32: 4, FIXED64: 8}.get(single)
    if (data[end - 1] >= 0x80) if width is None else ((end - begin) % width):
        raise MalformedInput(
            f"The packed field {name}_val ends inside a value.", code="truncated", offset=offset + end
        )
    budget.charge(end - begin, "The values of the tensor")
    packed.setdefault(name, bytearray()).extend(data[begin:end])


def _replace(packed: dict[str, bytearray], values: memoryview, budget: Budget) -> None:
    """Take these values of `float8_val` in place of those that came before."""
    packed.pop("float8", None)
    if values:
        budget.charge(len(values), "The values of the tensor")
        packed["float8"] = bytearray(values)


def _append_dims(dims: list[int], data: memoryview, begin: int, end: int, offset: int) -> None:
    """Add the dimensions of a TensorShapeProto, which may come in several pieces."""
    for number, wire, value, dim_begin, dim_end in fields_of(data, begin, end, offset=offset):
        if number == _DIM_FIELD and wire == LENGTH_DELIMITED:
            dims.append(_read_dim(data, dim_begin, dim_end, offset))
            if len(dims) > MAX_RANK:
                check_shape(dims, offset=offset + begin)
        elif number == _UNKNOWN_RANK_FIELD and wire == VARINT and value:
            raise UnprocessableInput(
                "The rank of this TensorProto is unknown.", code="unknown_rank", offset=offset + begin
            )


def _read_dim(data: memoryview, begin: int, end: int, offset: int) -> int:
    size = 0
    for number, wire, value, name_begin, name_end in fields_of(data, begin, end, offset=offset):
        if number == _SIZE_FIELD and wire == VARINT:
            size = to_signed(value)
        elif number == _NAME_FIELD and wire == LENGTH_DELIMITED:
            _check_utf8(data[name_begin:name_end], offset + name_begin)
    return size


def _check_utf8(name: memoryview, offset: int) -> None:
    """A message in which a `string` is not UTF-8 is none to protobuf."""
    try:
        str(name, "utf-8")
    except UnicodeDecodeError:
        raise MalformedInput(
            "The name of a dimension is not UTF-8.", code="invalid_protobuf", offset=offset
        ) from None
