"""Tensors as Arrow IPC: one batch of one row with a column for each tensor.

A column is a `fixed_size_list` of all elements, of numbers under the canonical extension
`arrow.fixed_shape_tensor`, which carries the shape. What that cannot say (strings, bools, no elements) and
what Arrow has no type for (bfloat16, complex numbers, float8, int4, ...) stands in the metadata of the field:
`shardsmith:shape` and `shardsmith:dtype`. The metadata `shardsmith:tensors` marks such a batch.

Other Arrow is read as well: a column of R rows is a tensor whose first dimension is R.

Source: arrow.apache.org, "Canonical Extension Types", "Fixed shape tensor".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.dtypes import STRING, DType
from ...domain.feature import Feature
from ...domain.tensor import Shape, check_distinct, check_shape, num_elements
from ...errors import InputError, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream
from ..array import Array
from ..columns import Strings, join_values
from ..content import STRING_OVERHEAD
from ..json.text import parse_metadata
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..records.lease import Lease
from ..records.named_columns import check_columns
from .columns import ColumnReader
from .elements import natural_type, write_elements
from .features import DTYPE_KEY, has_arrow_type, value_dtype
from .flatten import flatten_arrow, unwrap
from .ipc import ArrowReader, arrow_faults, serialize_arrow

_MARK_KEY: Final = b"shardsmith:tensors"
_SHAPE_KEY: Final = b"shardsmith:shape"
#: The sizes of Arrow's fixed lists are int32.
_MAX_ELEMENTS: Final = 2**31 - 1


def read(source: ByteStream, _options: TensorDecodeOptions, budget: Budget) -> list[Array]:
    """The columns under their names.

    Raises:
        UnprocessableInput: a null (`null_value`), lists whose length varies (`ragged`), a type that no
            tensor has (`unsupported_type`).
        MalformedInput: not readable as Arrow (`invalid_arrow`), or cut short (`truncated`).
        LimitExceeded: larger than the budget.
    """
    reader = ArrowReader(source, budget)
    check_columns(reader.names, budget)
    columns = [_Column(field, name) for field, name in zip(reader.schema, reader.names, strict=True)]
    num_rows = 0
    for batch in reader:
        for index, column in enumerate(columns):
            with arrow_faults(f"Column {column.name[:64]!r}"):
                column.add(batch.column(index), num_rows, budget)
        num_rows += batch.num_rows
    marked = _MARK_KEY in (reader.schema.metadata or {})
    return [column.all_rows(num_rows, marked=marked) for column in columns]


class _Column:
    """Gathers one column over the batches."""

    def __init__(self, field: pa.Field[Any], name: str) -> None:
        self.name = name
        self._marks = field.metadata or {}
        self._chunks: list[NDArray[Any] | Strings] = []
        self._dtype: DType | None = None
        self._row_shape: Shape = ()

    def add(self, array: pa.Array[Any], first_row: int, budget: Budget) -> None:
        """Keep a copy of the values, charged to `budget`."""
        with Lease(budget) as lease:
            if not isinstance(array.type, pa.FixedShapeTensorType):
                array = unwrap(array, lease, self.name)
            self._add(array, first_row, budget, lease)

    def _add(self, array: pa.Array[Any], first_row: int, budget: Budget, lease: Lease) -> None:
        if array.null_count:
            row = first_row + int(np.argmax(np.asarray(array.is_null().to_numpy(zero_copy_only=False))))
            raise self._refusal(f"has a null in row {row}; a tensor has none", "null_value")
        rows = np.arange(first_row, first_row + len(array))
        flat = flatten_arrow(array, rows, lease, self.name)
        row_shape = tuple(level for level in flat.levels if isinstance(level, int))
        if len(row_shape) != len(flat.levels):
            raise self._refusal("has lists whose length may vary; write fixed-size lists", "ragged")
        source = value_dtype(flat.values.type, self._marks)
        if source is None:
            raise self._refusal(f"has the Arrow type {str(array.type)[:100]}", "unsupported_type")
        feature = Feature(self.name, source)
        values = ColumnReader(feature, self._marks, lease, rows).values(flat)
        overhead = STRING_OVERHEAD * len(values) if source.is_string else 0
        # Kept, and joined at the end.
        budget.charge(2 * values.nbytes + overhead, f"Column {self.name[:64]!r}")
        self._dtype = STRING if source.is_string else source
        self._row_shape = row_shape
        if isinstance(values, Strings):
            self._chunks.append(Strings(values.data.copy(), values.offsets))
        else:
            self._chunks.append(values.copy())

    def all_rows(self, num_rows: int, *, marked: bool) -> Array:
        """All rows as one array; of a marked batch the one row."""
        if self._dtype is None:
            raise self._refusal("comes without any batch, so that its shape is not known", "no_rows")
        values = self._chunks[0] if len(self._chunks) == 1 else join_values(self._chunks)
        shape = check_shape((num_rows, *self._row_shape))
        if marked and num_rows == 1:
            shape = _shape_in_metadata(self._marks, self.name, len(values))
        return Array(self._dtype, shape, values, self.name)

    def _refusal(self, what: str, code: str) -> UnprocessableInput:
        return _refusal(self.name, what, code)


def _refusal(name: str, what: str, code: str) -> UnprocessableInput:
    return UnprocessableInput(f"Column {name[:64]!r} {what}.", code=code, feature=name)


def _shape_in_metadata(marks: dict[bytes, bytes], name: str, count: int) -> Shape:
    """The shape of `count` elements in the metadata of a field.

    Raises:
        InputError: there is none or it is no shape (`invalid_shape`), or it takes another number of elements
            (`shape_mismatch`).
    """
    try:
        dims = parse_metadata(marks.get(_SHAPE_KEY, b""))
    except InputError:
        dims = None
    if not isinstance(dims, list):
        raise _refusal(name, f"has no shape in its metadata {_SHAPE_KEY.decode()!r}", "invalid_shape")
    shape = check_shape(dims)
    if num_elements(shape) != count:
        raise UnprocessableInput(
            f"Shape {list(shape)} takes {num_elements(shape)} elements, but there are {count}.",
            code="shape_mismatch",
        )
    return shape


def write(arrays: Sequence[Array], options: TensorEncodeOptions, budget: Budget) -> Iterator[Buffer]:
    """The arrays under their names; those without one are `tensor`, or `tensor_0`, `tensor_1`, ...

    All of them are read into memory.

    Raises:
        UnprocessableInput: two of one name (`duplicate_name`), more elements than a list of Arrow holds
            (`not_expressible`).
        LimitExceeded: strings of more than 2 GiB, or more than the budget.
    """
    arrays = [array.read(budget) for array in arrays]
    names = [_field_name(array.name, index, len(arrays)) for index, array in enumerate(arrays)]
    check_distinct(names)
    fields = [_field(name, array.dtype, array.shape) for name, array in zip(names, arrays, strict=True)]
    schema = pa.schema(fields, {_MARK_KEY: b"1"})
    columns = [
        pa.Array.from_buffers(field.type, 1, [None], children=[_elements(array)])
        for field, array in zip(fields, arrays, strict=True)
    ]
    batches = [pa.RecordBatch.from_arrays(columns, schema=schema)]
    return serialize_arrow(schema, batches, options.arrow)


def _field_name(name: str | None, index: int, count: int) -> str:
    """The name of a column: that of its tensor, or one by its position."""
    if name is not None:
        return name
    return "tensor" if count == 1 else f"tensor_{index}"


def _field(name: str, dtype: DType, shape: Shape) -> pa.Field[Any]:
    """The column of a tensor.

    Raises:
        UnprocessableInput: more elements than a list of Arrow holds (`not_expressible`).
    """
    size = num_elements(shape)
    if size > _MAX_ELEMENTS:
        raise UnprocessableInput(
            f"Tensor {name[:64]!r} has {size} elements; a list of Arrow holds at most {_MAX_ELEMENTS}. "
            "Choose another output format.",
            code="not_expressible",
            feature=name,
        )
    marks = {_SHAPE_KEY: json.dumps(shape).encode()}
    if not has_arrow_type(dtype):
        marks[DTYPE_KEY] = dtype.name.encode()
    if size and shape and (dtype.is_integer or dtype.is_float):
        extension = json.dumps({"shape": shape}, separators=(",", ":"))
        marks[b"ARROW:extension:name"] = b"arrow.fixed_shape_tensor"
        marks[b"ARROW:extension:metadata"] = extension.encode()
    item = pa.field("item", natural_type(STRING if dtype.is_string else dtype), nullable=False)
    return pa.field(name, pa.list_(item, size), nullable=False, metadata=marks)


def _elements(array: Array) -> pa.Array[Any]:
    if array.dtype.is_string:  # text, too, has the type of bytes
        return write_elements(STRING, array.strings, "")
    return write_elements(array.dtype, array.values, "")
