"""The one table of dtypes; every other mapping is derived from it.

Sources: TensorFlow 2.21 `tensorflow/core/framework/types.proto` (enum), Open Inference Protocol v2
(`datatype` names), the kernels of `tf.io.serialize_tensor`, and what reads a TensorProto back:

| dtypes                         | written by                      | read by                            |
|--------------------------------|---------------------------------|------------------------------------|
| the 16 with a kernel           | `tf.io.serialize_tensor`        | `parse_tensor`, `make_ndarray`     |
| float8_*, float4_e2m1fn        | `make_tensor_proto`             | both; but not the `float8_val` of  |
|                                |                                 | `*fnuz` by `make_ndarray`          |
| int4, uint4, int2, uint2       | `make_tensor_proto` (`int_val`) | both                               |
| qint8, quint8, qint16,         | `make_tensor_proto`             | both; `make_ndarray` gives them as |
| quint16, qint32                |                                 | a structure of one field           |

Resources and variants are not arrays of values. An element of 4 or 2 bits takes a byte, as in TensorFlow's
memory and in `tensor_content`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import ml_dtypes
import numpy as np

from ..errors import MalformedInput

Kind = Literal["bool", "int", "uint", "float", "complex", "string"]
#: `text` and `bytes` are the two readings of `string`.
DTypeName = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "string",
    "text",
    "bytes",
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e4m3b11fnuz",
    "float8_e5m2fnuz",
    "float4_e2m1fn",
    "int4",
    "uint4",
    "int2",
    "uint2",
    "qint8",
    "quint8",
    "qint16",
    "quint16",
    "qint32",
]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    Attributes:
        name: TensorFlow's name, `float32`; `text` and `bytes` are the two readings of `string`.
        kind: the family.
        tf_enum: the `DataType` number in TensorProto.
        itemsize: bytes an element takes, little-endian; 0 for strings.
        numpy: the little-endian numpy dtype; `object` (of `bytes`) for strings.
        oip: the Open Inference Protocol name, if there is one.
        has_kernel: `tf.io.serialize_tensor` writes it.
        num_bits: bits of an element; if fewer than 8, each element still takes a byte.
    """

    name: DTypeName
    kind: Kind
    tf_enum: int
    itemsize: int
    numpy: np.dtype[Any]
    oip: str | None = None
    has_kernel: bool = True
    num_bits: int = 0

    def __str__(self) -> str:
        return self.name

    @property
    def is_string(self) -> bool:
        return self.kind == "string"

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_narrow(self) -> bool:
        """Whether an element has fewer bits than the byte that it takes."""
        return 0 < self.num_bits < 8

    @property
    def in_numpy(self) -> bool:
        """Whether numpy itself has this element type, under the same name."""
        return self.has_kernel and self.numpy.isbuiltin == 1

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value of an integer, or of a bool."""
        if self.kind == "bool":
            return 0, 1
        if self.kind == "int":
            return -(1 << self.num_bits - 1), (1 << self.num_bits - 1) - 1
        return 0, (1 << self.num_bits) - 1

    @property
    def has_infinity(self) -> bool:
        return self.name not in _FINITE

    @property
    def has_nan(self) -> bool:
        return self.name != "float4_e2m1fn"


#: Floats without infinities; "fn" stands for finite, with NaN (but float4 has none), "uz" for no -0.
_FINITE: Final = frozenset(
    {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "float4_e2m1fn"}
)


def _numeric(name: DTypeName, kind: Kind, tf_enum: int, numpy: Any, oip: str | None = None) -> DType:
    dtype = np.dtype(numpy)
    return DType(name, kind, tf_enum, dtype.itemsize, dtype, oip, num_bits=8 * dtype.itemsize)


def _beyond(
    name: DTypeName, kind: Kind, tf_enum: int, numpy: Any = None, *, num_bits: int | None = None
) -> DType:
    """A dtype that `tf.io.serialize_tensor` has no kernel for; mostly one of `ml_dtypes`."""
    dtype = np.dtype(getattr(ml_dtypes, name) if numpy is None else numpy)
    bits = 8 * dtype.itemsize if num_bits is None else num_bits
    return DType(name, kind, tf_enum, dtype.itemsize, dtype, has_kernel=False, num_bits=bits)


BOOL: Final = _numeric("bool", "bool", 10, "?", "BOOL")
INT64: Final = _numeric("int64", "int", 9, "<i8", "INT64")
FLOAT32: Final = _numeric("float32", "float", 1, "<f4", "FP32")
FLOAT64: Final = _numeric("float64", "float", 2, "<f8", "FP64")
#: TensorFlow's DT_STRING: arbitrary bytes. The dtype of a tensor of strings.
STRING: Final = DType("string", "string", 7, 0, np.dtype(object), "BYTES")
#: A feature that holds UTF-8 text; leaves as JSON strings.
TEXT: Final = DType("text", "string", 7, 0, np.dtype(object), "BYTES")
#: A feature that holds arbitrary bytes; leaves as `{"b64": ...}` in JSON.
BYTES: Final = DType("bytes", "string", 7, 0, np.dtype(object), "BYTES")

#: Name -> dtype, in the order in which documentation lists them.
DTYPES: Final[dict[str, DType]] = {
    dtype.name: dtype
    for dtype in (
        BOOL,
        _numeric("int8", "int", 6, "<i1", "INT8"),
        _numeric("int16", "int", 5, "<i2", "INT16"),
        _numeric("int32", "int", 3, "<i4", "INT32"),
        INT64,
        _numeric("uint8", "uint", 4, "<u1", "UINT8"),
        _numeric("uint16", "uint", 17, "<u2", "UINT16"),
        _numeric("uint32", "uint", 22, "<u4", "UINT32"),
        _numeric("uint64", "uint", 23, "<u8", "UINT64"),
        _numeric("float16", "float", 19, "<f2", "FP16"),
        _numeric("bfloat16", "float", 14, ml_dtypes.bfloat16, "BF16"),
        FLOAT32,
        FLOAT64,
        _numeric("complex64", "complex", 8, "<c8"),
        _numeric("complex128", "complex", 18, "<c16"),
        STRING,
        _beyond("float8_e5m2", "float", 24),
        _beyond("float8_e4m3fn", "float", 25),
        _beyond("float8_e4m3fnuz", "float", 26),
        _beyond("float8_e4m3b11fnuz", "float", 27),
        _beyond("float8_e5m2fnuz", "float", 28),
        _beyond("float4_e2m1fn", "float", 33, num_bits=4),
        _beyond("int4", "int", 29, num_bits=4),
        _beyond("uint4", "uint", 30, num_bits=4),
        _beyond("int2", "int", 31, num_bits=2),
        _beyond("uint2", "uint", 32, num_bits=2),
        _beyond("qint8", "int", 11, "<i1"),
        _beyond("quint8", "uint", 12, "<u1"),
        _beyond("qint16", "int", 15, "<i2"),
        _beyond("quint16", "uint", 16, "<u2"),
        _beyond("qint32", "int", 13, "<i4"),
    )
}

#: Floats of which float32 holds every value.
WITHIN_FLOAT32: Final = frozenset({"float16", "bfloat16", "float32"})

#: Bits of the significand of a float, or of each part of a complex number, the implicit one included.
PRECISION: Final = {
    "float16": 11,
    "bfloat16": 8,
    "float32": 24,
    "float64": 53,
    "complex64": 24,
    "complex128": 53,
    "float8_e5m2": 3,
    "float8_e4m3fn": 4,
    "float8_e4m3fnuz": 4,
    "float8_e4m3b11fnuz": 4,
    "float8_e5m2fnuz": 3,
    "float4_e2m1fn": 2,
}

#: Other spellings that clients use, in any case.
_ALIASES: Final[dict[str, str]] = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "boolean": "bool",
    "bytes": "string",
    "text": "string",
    "str": "string",
    "utf8": "string",
    "binary": "string",
}

_FEATURE_ALIASES: Final[dict[str, DType]] = {
    "text": TEXT,
    "string": TEXT,
    "str": TEXT,
    "utf8": TEXT,
    "bytes": BYTES,
    "binary": BYTES,
}

_BY_TF_ENUM: Final = {dtype.tf_enum: dtype for dtype in DTYPES.values()}
_BY_OIP: Final = {dtype.oip: dtype for dtype in DTYPES.values() if dtype.oip is not None}
#: Quantized integers are those of numpy with another meaning.
#: Types that no array holds.
_REFUSED_TF_NAMES: Final = {20: "resource", 21: "variant"}


def parse_dtype(name: str) -> DType:
    """The dtype of a tensor, by TensorFlow's name, a common alias or the OIP name.

    Raises:
        MalformedInput: unknown name (`unknown_dtype`).
    """
    lowered = name.lower()
    found = DTYPES.get(_ALIASES.get(lowered, lowered)) or _BY_OIP.get(name.upper())
    if found is None:
        raise MalformedInput(
            f"Unknown dtype {name[:64]!r}. Use one of: {', '.join(DTYPES)}.", code="unknown_dtype"
        )
    return found


def parse_feature_dtype(name: str) -> DType:
    """The dtype of a feature. Here `string` and `text` are UTF-8 text, and `bytes` is bytes.

    Raises:
        MalformedInput: unknown name (`unknown_dtype`).
    """
    found = _FEATURE_ALIASES.get(name.lower())
    return found if found is not None else parse_dtype(name)


def dtype_from_tf_enum(number: int) -> DType | None:
    """The dtype of a TensorProto's `dtype` field, or None for one without a tensor form here."""
    return _BY_TF_ENUM.get(number)


def tf_enum_name(number: int) -> str:
    """TensorFlow's name for a `DataType` that is not read here, for errors."""
    return _REFUSED_TF_NAMES.get(number, f"number {number}")
