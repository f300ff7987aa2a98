"""Records in memory: a stream of Arrow record batches, in a closed set of column layouts.

Every decoder of records yields these layouts and every encoder reads only them:

| value of a row            | column                                                             |
|---------------------------|--------------------------------------------------------------------|
| scalar                    | the storage type of the dtype                                      |
| all dimensions known      | `fixed_size_list(storage, product)`, row-major                     |
| one dimension unknown     | `list(storage)`, row-major; the dimension follows from the length  |
| several unknown           | `struct<shape: fixed_size_list(int64, rank), values: list(storage)>`|
| ragged                    | `list(list(... storage))`: one list for the row, one for each cut  |
| sparse                    | `struct<indices: list(int64), values: list(storage)>`              |
| sequence                  | `list(column of one step)`                                         |

Uniform dimensions of a ragged value, behind its last cut, are one `fixed_size_list(storage, product)` inside;
the coordinates of a sparse one lie row-major, `[n, rank]`; a step of a sequence is a dense value as above.

Storage is the Arrow type of the same name; bool is `uint8` (0 or 1; no bit-packing), bfloat16 is
`uint16` and float8 and float4 are `uint8` (their bits), int4 and int2 are `int8` and uint4 and uint2 `uint8`
(their values), a quantized integer is the one without the q, complex is `fixed_size_binary(8 or 16)`, text
and bytes are `binary`. A null stands for an absent feature and only ever at the top; `schema` keeps the
logical dtype and shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ...domain.dtypes import DType
from ...domain.schema import Feature, Schema, check_feature_names
from ...domain.tensor import num_elements
from ...errors import UnprocessableInput
from ...runtime.budget import Budget

__all__ = [
    "MAX_BATCH_ROWS",
    "Records",
    "arrow_schema",
    "check_columns",
    "column_type",
    "storage_type",
    "without_features",
]

#: Rows of a batch at most: 8 k rows of a hundred bytes stay in the second-level cache.
MAX_BATCH_ROWS: Final = 8192

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


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Rows on their way through a request.

    Attributes:
        schema: holds for every batch; known before the first one is drawn.
        batches: at most `MAX_BATCH_ROWS` rows each, columns in the order of `schema`, of the types
            of `arrow_schema(schema)`. Drawing one may read the body and may raise any InputError.
        num_rows: of all batches together, where that is known before they are drawn.
        is_declared: the schema stood in the body.
        dropped: features of the body that the inferred schema has not, since no row has a value of them.
    """

    schema: Schema
    batches: Iterator[pa.RecordBatch]
    num_rows: int | None = None
    is_declared: bool = False
    dropped: tuple[str, ...] = ()


def storage_type(dtype: DType) -> pa.DataType:
    """The Arrow type that holds one element of `dtype`."""
    return _STORAGE[dtype.name]


def column_type(feature: Feature) -> pa.DataType:
    """The Arrow type of the whole column, from the table above."""
    storage = storage_type(feature.dtype)
    if feature.kind == "ragged":
        return _ragged_type(feature)
    if feature.kind == "sparse":
        return pa.struct([("indices", pa.list_(pa.int64())), ("values", pa.list_(storage))])
    if feature.kind == "sequence":
        return pa.list_(column_type(feature.step))
    if feature.is_scalar:
        return storage
    if (num_values := feature.num_values) is not None:
        return pa.list_(storage, num_values)
    if feature.num_unknown == 1:
        return pa.list_(storage)
    return pa.struct([("shape", pa.list_(pa.int64(), len(feature.shape))), ("values", pa.list_(storage))])


def _ragged_type(feature: Feature) -> pa.DataType:
    nested: pa.DataType = storage_type(feature.dtype)
    if feature.inner_shape:
        nested = pa.list_(nested, num_elements(feature.inner_shape))
    for _ in range(feature.num_partitions + 1):
        nested = pa.list_(nested)
    return nested


def check_columns(names: list[str], budget: Budget) -> None:
    """Refuse too many columns, names that no feature can have, and two columns of one name.

    Raises:
        LimitExceeded: `too_many_features`.
        UnprocessableInput: `invalid_feature_name`, `duplicate_feature`.
    """
    check_feature_names(names, budget.limits)
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UnprocessableInput(
                f"Two columns have the name {name[:64]!r}. Rename one of them.",
                code="duplicate_feature",
                feature=name,
            )
        seen.add(name)


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of every batch."""
    fields: list[pa.Field[Any]] = [
        pa.field(feature.name, column_type(feature), nullable=True) for feature in schema
    ]
    return pa.schema(fields)


def without_features(form: str) -> UnprocessableInput:
    """Rows without any feature, of which a form made of columns would lose the number."""
    return UnprocessableInput(
        f"Rows without any feature do not go into {form}. Choose another output form.",
        code="not_expressible",
    )
