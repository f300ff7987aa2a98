"""How a codec reads and writes: one frozen value each, filled from the request by the services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..domain.dtypes import DType
from ..domain.schema import Schema
from ..domain.tensor import Shape

__all__ = [
    "ByteOrder",
    "Compression",
    "RecordsDecodeOptions",
    "RecordsEncodeOptions",
    "TensorDecodeOptions",
    "TensorEncodeOptions",
]

ByteOrder = Literal["little", "big"]
Compression = Literal["none", "gzip", "zlib"]


@dataclass(frozen=True, slots=True)
class TensorDecodeOptions:
    """For decoders of tensors.

    Attributes:
        dtype, shape: what the client declared. `raw` needs both (a missing shape is one dimension);
            untyped JSON takes them; a form that carries its own must agree (422 otherwise).
        byte_order: of `raw` input.
        nonfinite: `null` reads null as NaN, `bare` accepts the tokens NaN and Infinity in JSON.
        compression: of `tfrecord`; None detects it.
    """

    dtype: DType | None = None
    shape: Shape | None = None
    byte_order: ByteOrder = "little"
    nonfinite: Literal["error", "null", "bare"] = "error"
    compression: Compression | None = None


@dataclass(frozen=True, slots=True)
class TensorEncodeOptions:
    """For encoders of tensors.

    Attributes:
        layout: JSON: `flat` {dtype, shape, data}, `nested` arrays, `oip` Open Inference Protocol.
        nonfinite: JSON: as the strings "NaN", "Infinity", "-Infinity", as null, or refused.
        int64: JSON: 64-bit integers as numbers or as strings of digits.
        text: JSON: strings as {"b64": ...} or as UTF-8 text (422 where invalid).
        byte_order: of `raw`.
        compression: of `tfrecord`.
    """

    layout: Literal["flat", "nested", "oip"] = "flat"
    nonfinite: Literal["string", "null", "error"] = "string"
    int64: Literal["number", "string"] = "number"
    text: Literal["b64", "utf8"] = "b64"
    byte_order: ByteOrder = "little"
    compression: Compression = "none"


@dataclass(frozen=True, slots=True)
class RecordsDecodeOptions:
    """For decoders of records.

    Attributes:
        schema: declared by the client; None infers one.
        schema_of_dataset: the schema is that of the dataset appended to; a schema in the body is then
            no second declaration, but has to equal it.
        nonfinite: as for tensors.
        infer: from the first 1,000 rows, or from all of them.
        compression: of `tfrecord`; None detects it.
        undeclared: what happens to features of a TFRecord that a declared schema does not name.
    """

    schema: Schema | None = None
    schema_of_dataset: bool = False
    nonfinite: Literal["error", "null", "bare"] = "error"
    infer: Literal["head", "all"] = "head"
    compression: Compression | None = None
    undeclared: Literal["error", "drop"] = "error"


@dataclass(frozen=True, slots=True)
class RecordsEncodeOptions:
    """For encoders of records.

    Attributes:
        layout: JSON: `rows` [{...}] or `columns` {name: [...]}.
        nonfinite, int64: as for tensors.
        text: JSON: features of dtype bytes as {"b64": ...} or as UTF-8 text; text is always text.
        compression: of `tfrecord`.
        lossy: float64 may go into a FloatList and uint64 into an Int64List.
    """

    layout: Literal["rows", "columns"] = "rows"
    nonfinite: Literal["string", "null", "error"] = "string"
    int64: Literal["number", "string"] = "number"
    text: Literal["b64", "utf8"] = "b64"
    compression: Compression = "none"
    lossy: bool = False
