"""The one table of dtypes; every other mapping is derived from it.

Sources: TensorFlow 2.21 `tensorflow/core/framework/types.proto` (enum), Open Inference Protocol v2
(`datatype` names), the kernels of `tf.io.serialize_tensor` (which of them have a TensorProto form).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import ml_dtypes
import numpy as np

from ..errors import MalformedInput

__all__ = [
    "BOOL",
    "BYTES",
    "DTYPES",
    "FLOAT32",
    "FLOAT64",
    "INT64",
    "PRECISION",
    "STRING",
    "TEXT",
    "DType",
    "Kind",
    "dtype_from_numpy",
    "dtype_from_oip",
    "dtype_from_tf_enum",
    "parse_dtype",
    "parse_feature_dtype",
]

Kind = Literal["bool", "int", "uint", "float", "complex", "string"]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    Attributes:
        name: TensorFlow's name, `float32`; `text` and `bytes` are the two readings of `string`.
        kind: the family.
        tf_enum: the `DataType` number in TensorProto.
        itemsize: bytes an element takes, little-endian; 0 for strings.
        numpy: the little-endian numpy dtype; `object` (of `bytes`) for strings.
        oip: the Open Inference Protocol name, where there is one.
    """

    name: str
    kind: Kind
    tf_enum: int
    itemsize: int
    numpy: np.dtype[Any]
    oip: str | None = None

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


def _numeric(name: str, kind: Kind, tf_enum: int, numpy: Any, oip: str | None = None) -> DType:
    dtype = np.dtype(numpy)
    return DType(name, kind, tf_enum, dtype.itemsize, dtype, oip)


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
    )
}

#: Bits of the significand of a float, or of each part of a complex number, the implicit one included.
PRECISION: Final = {
    "float16": 11,
    "bfloat16": 8,
    "float32": 24,
    "float64": 53,
    "complex64": 24,
    "complex128": 53,
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
_BY_NUMPY: Final = {dtype.numpy: dtype for dtype in DTYPES.values() if not dtype.is_string}


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
    """The dtype of a feature: as for tensors, but `string` and `text` are UTF-8 text, `bytes` is bytes.

    Raises:
        MalformedInput: unknown name (`unknown_dtype`).
    """
    found = _FEATURE_ALIASES.get(name.lower())
    return found if found is not None else parse_dtype(name)


def dtype_from_tf_enum(number: int) -> DType | None:
    """The dtype of a TensorProto's `dtype` field, or None for one without a tensor form here."""
    return _BY_TF_ENUM.get(number)


def dtype_from_oip(name: str) -> DType | None:
    """The dtype of an Open Inference Protocol `datatype`, or None where it is unknown."""
    return _BY_OIP.get(name)


def dtype_from_numpy(dtype: np.dtype[Any]) -> DType | None:
    """The dtype of a numeric numpy dtype of any byte order, or None (strings included)."""
    return _BY_NUMPY.get(dtype.newbyteorder("<"))
