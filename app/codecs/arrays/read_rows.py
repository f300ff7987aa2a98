"""Read named arrays whose first axis counts the rows as rows: records as NPZ, safetensors and OIP.

An array always has its dtype, so nothing is guessed: without a schema a feature has the dtype of its array
and the shape of one row of it. With one, the values are converted to what it declares, exactly or not at all
(`convert.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ...domain.dtypes import WITHIN_FLOAT32
from ...domain.feature import Feature, default_encoding
from ...domain.limits import MIB
from ...domain.schema import Schema, check_feature_names
from ...domain.tensor import Shape, num_elements
from ...errors import InputError, MalformedInput, SchemaConflict, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import WholeBody
from ..array import Array, ElementReader
from ..columns import (
    MAX_BATCH_ROWS,
    AbsentColumns,
    Batch,
    Column,
    Ints,
    Records,
    Strings,
    even_bounds,
    item_width,
)
from ..convert import convert_strings, convert_values
from ..options import (
    RecordsDecodeOptions,
    TensorDecodeOptions,
)
from ..records.body_schema import with_body_schema
from ..records.named_columns import refuse_undeclared, require_present
from . import oip

#: Arrays of at least this size are read as their rows are drawn.
_STREAMED_FROM: Final = 8 * MIB
#: The most bytes that reading an array takes: a piece, one that is left over, and as much compressed.
_STREAMED_BYTES: Final = 3 * MIB
#: A batch of large rows has fewer of them: it is encoded in one block.
_BATCH_BYTES: Final = 16 * MIB
#: The bytes of an empty record in a TFRecord.
_EMPTY_ROW_BYTES: Final = 16
#: The bytes that a list takes beside its items: its length and its offset.
_LIST_BYTES: Final = 16
_SCHEMA: Final = "schema"

Reader = Callable[[WholeBody, TensorDecodeOptions, Budget], Iterable[Array]]


def reader_of(read: Reader) -> Callable[[WholeBody, RecordsDecodeOptions, Budget], Records]:
    """A reader of records in a form of arrays that has the arrays' reader `read`."""

    def read_rows(body: WholeBody, options: RecordsDecodeOptions, budget: Budget) -> Records:
        return _rows_of(list(read(body, _array_options(options), budget)), options, budget)

    return read_rows


def read_oip(body: WholeBody, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The inputs of an Open Inference request as columns; a schema may stand beside them.

    BYTES are bytes unless the schema says text; those that stand in the JSON as strings are text.

    Raises:
        MalformedInput: an input without a name (`invalid_tensor`), or a body that contradicts the protocol.
        UnprocessableInput: a raw tensor, which has no columns (`no_rows`); inputs of different lengths.
        SchemaConflict: the inputs do not fit the schema.
    """
    if options.json_bytes == 0:
        raise UnprocessableInput(
            "One raw tensor has no named columns. Convert it as a tensor, or name it as an input.",
            code="no_rows",
        )
    found = oip.read_body(body, _array_options(options), budget, members=frozenset({_SCHEMA}))
    if _SCHEMA in found.members:
        options = with_body_schema(found.members[_SCHEMA], options, budget.limits)
    for array, pointer in zip(found.arrays, found.pointers, strict=True):
        if array.name is None:
            raise MalformedInput('An input needs a "name".', code="invalid_tensor", pointer=pointer)
    return replace(_rows_of(found.arrays, options, budget), is_declared=_SCHEMA in found.members)


def _array_options(options: RecordsDecodeOptions) -> TensorDecodeOptions:
    declared = {feature.name: feature.dtype for feature in options.schema or ()}
    return TensorDecodeOptions(nonfinite=options.nonfinite, json_bytes=options.json_bytes, dtypes=declared)


def _rows_of(found: Sequence[Array], options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The arrays as columns; large arrays of numbers are read as batches are drawn.

    Raises:
        UnprocessableInput: an array without a first axis (`no_rows`), arrays of different lengths
            (`row_count_mismatch`), a value that the declared dtype does not hold.
        SchemaConflict: a feature that the schema has and the arrays lack, or the other way round,
            or one of another shape or dtype.
        InputError: while batches are read, an array cannot be read.
    """
    arrays = {array.name or "": _hold_if_small(array, budget) for array in found}
    num_rows = _count_rows(arrays)
    if options.schema is None:
        schema = _infer(arrays, budget).with_message(options.message)
    else:
        narrow = {name for name, array in arrays.items() if array.dtype.name in WITHIN_FLOAT32}
        schema = options.schema.with_message(options.message).as_read(narrow)
        arrays = _fit_all(arrays, schema, options, budget)
    batch_rows = _batch_rows(schema, arrays, num_rows, budget)
    return Records(schema, _batches(schema, arrays, num_rows, batch_rows), num_rows)


def _hold_if_small(array: Array, budget: Budget) -> Array:
    if array.dtype.is_string:
        return replace(array, content=array.strings)
    return array.read(budget) if array.num_bytes < _STREAMED_FROM else array


def _count_rows(arrays: Mapping[str, Array]) -> int:
    first: str | None = None
    for name, array in arrays.items():
        if not array.shape:
            raise UnprocessableInput(
                f"Array {name!r} is a scalar, but the first axis of every array counts the rows. "
                "Send an array with a value for each row.",
                code="no_rows",
                feature=name,
            )
        first = name if first is None else first
        if array.shape[0] != arrays[first].shape[0]:
            raise UnprocessableInput(
                f"Array {name!r} has {array.shape[0]} rows, but {first!r} has {arrays[first].shape[0]}. "
                "Send arrays of the same length.",
                code="row_count_mismatch",
                feature=name,
            )
    return 0 if first is None else arrays[first].shape[0]


def _infer(arrays: Mapping[str, Array], budget: Budget) -> Schema:
    check_feature_names(list(arrays), budget.limits)
    return Schema(
        tuple(
            Feature(
                name, array.dtype, array.shape[1:], encoding=default_encoding(array.dtype, array.shape[1:])
            )
            for name, array in arrays.items()
        )
    )


def _fit_all(
    arrays: Mapping[str, Array], schema: Schema, options: RecordsDecodeOptions, budget: Budget
) -> dict[str, Array]:
    """The arrays that the schema names; those in memory as the dtypes that it declares."""
    if options.undeclared == "error":
        refuse_undeclared(arrays, schema, "array")
    require_present(arrays, schema, "array")
    for name, array in arrays.items():
        if name not in schema.by_name and array.is_arriving:
            for _ in array.pieces():  # a fault in it is a fault of the body, whether it is wanted or not
                pass
    return {
        feature.name: _fit(arrays[feature.name], feature, budget)
        for feature in schema
        if feature.name in arrays
    }


def _fit(array: Array, feature: Feature, budget: Budget) -> Array:
    if feature.kind == "sparse":
        raise UnprocessableInput(
            f"Feature {feature.name!r} is declared sparse, but an array holds a value at every place. Send "
            "coordinates and values in JSON, or declare the feature dense.",
            code="unsupported_kind",
            feature=feature.name,
        )
    row_shape = array.shape[1:]
    if (
        len(row_shape) != len(feature.shape)
        or any(
            declared not in (None, found) for declared, found in zip(feature.shape, row_shape, strict=True)
        )
        or not _keeps_shape(feature, row_shape)
    ):
        raise SchemaConflict(
            f"A row of {feature.name!r} has shape {list(row_shape)}; {list(feature.shape)} is declared.",
            feature=feature.name,
        )
    if array.is_arriving:
        return array
    if array.dtype.is_string:
        width = num_elements(row_shape)
        strings = convert_strings(
            array.strings, array.dtype, feature.dtype, feature=feature.name, width=width
        )
        return replace(array, dtype=feature.dtype, content=strings)
    if array.dtype.numpy != feature.dtype.numpy:
        budget.charge(len(array.values) * feature.dtype.itemsize, f"Feature {feature.name!r}, converted,")
    rows = array.values.reshape(array.shape[0], -1) if array.values.size else array.values
    values = convert_values(rows, array.dtype, feature.dtype, feature=feature.name)
    return replace(array, dtype=feature.dtype, content=values.reshape(-1))


def _keeps_shape(feature: Feature, row_shape: Shape) -> bool:
    """Whether a column determines the shape of its rows: a dimension of 0 hides an unknown one."""
    if feature.kind == "sequence":
        return _keeps_shape(feature.step, row_shape[1:])
    if feature.kind == "ragged" or feature.num_unknown != 1 or feature.known_values:
        return True
    return row_shape[feature.shape.index(None)] == 0


def _batches(schema: Schema, arrays: Mapping[str, Array], num_rows: int, batch_rows: int) -> Iterator[Batch]:
    readers = {name: _RowReader(array, schema.by_name[name]) for name, array in arrays.items()}
    for start in range(0, num_rows, batch_rows):
        count = min(batch_rows, num_rows - start)
        absent = AbsentColumns(count)
        columns = (
            readers[feature.name].take(start, count) if feature.name in readers else absent.column(feature)
            for feature in schema
        )
        yield Batch(count, tuple(columns))


class _RowReader:
    """An array as the column of a feature, some rows at a time.

    Args:
        array: in memory with the dtype of the feature, else with its own.
    """

    def __init__(self, array: Array, feature: Feature) -> None:
        self._array = array
        self._feature = feature
        self._row_shape = array.shape[1:]
        self._row_size = num_elements(self._row_shape)
        self._elements = ElementReader(array) if array.is_arriving else None

    def take(self, start: int, count: int) -> Column:
        """The next `count` rows, which begin with row `start`.

        Raises:
            InputError: the array cannot be read, or a value does not fit the declared dtype.
        """
        return _column(self._values(start, count), self._feature, self._row_shape, count)

    def _values(self, start: int, count: int) -> Any:
        content, feature = self._array.content, self._feature
        if self._elements is None:
            first, last = start * self._row_size, (start + count) * self._row_size
            if isinstance(content, Strings):
                return content.part(first, last)
            return self._array.values[first:last]
        rows = self._elements.take(count * self._row_size).reshape(count, -1)
        try:
            values = convert_values(rows, self._array.dtype, feature.dtype, feature=feature.name)
        except InputError as error:
            raise error.shift(rows=start) from None
        return values.reshape(-1)


def _column(values: Any, feature: Feature, row_shape: Shape, count: int) -> Column:
    """The column of `count` rows that all have the shape `row_shape`."""
    if feature.kind == "ragged":
        levels = range(feature.num_partitions + 1)
        cuts = (even_bounds(count * num_elements(row_shape[:level]), row_shape[level]) for level in levels)
        return Column(values, tuple(cuts), width=item_width(feature))
    outer: tuple[Ints, ...] = ()
    if feature.kind == "sequence":
        outer = (even_bounds(count, row_shape[0]),)
        feature, row_shape, count = feature.step, row_shape[1:], count * row_shape[0]
    if feature.num_unknown == 0:
        return Column(values, outer, width=item_width(feature))
    splits = (*outer, even_bounds(count, num_elements(row_shape)))
    if feature.num_unknown == 1:
        return Column(values, splits)
    return Column(values, splits, shapes=np.tile(np.array(row_shape, np.int64), (count, 1)))


def _batch_rows(schema: Schema, arrays: Mapping[str, Array], num_rows: int, budget: Budget) -> int:
    """Rows of a batch; what its rows take beside the arrays is charged."""
    total = sum(array.num_bytes for array in arrays.values())
    if not total:
        # 80 bytes can declare 2^60 rows of nothing, each of which would leave as a record.
        budget.charge(num_rows * _EMPTY_ROW_BYTES, "Rows without any value")
    absent = [feature for feature in schema if feature.name not in arrays]
    null_bytes = sum(
        feature.dtype.itemsize * (feature.num_values or 0) for feature in absent if feature.kind != "sparse"
    )
    list_bytes = sum(_list_bytes(schema.by_name[name], array.shape[1:]) for name, array in arrays.items())
    row_bytes = total // max(1, num_rows) + null_bytes + list_bytes
    batch_rows = max(1, min(MAX_BATCH_ROWS, _BATCH_BYTES // max(1, row_bytes)))
    budget.charge(batch_rows * (null_bytes + list_bytes), "A batch of rows")
    streamed = {name: array for name, array in arrays.items() if array.is_arriving}
    read_bytes = sum(_read_bytes(array, schema.by_name[name]) for name, array in streamed.items())
    # A batch is there until the next one is made, if there is one.
    held_rows = min(num_rows, 2 * batch_rows)
    budget.charge(len(streamed) * _STREAMED_BYTES + held_rows * read_bytes, "A batch of rows")
    return batch_rows


def _read_bytes(array: Array, feature: Feature) -> int:
    """What a row takes as it is read, and as what is declared."""
    itemsize = array.dtype.itemsize
    if array.dtype.numpy != feature.dtype.numpy:
        itemsize += feature.dtype.itemsize
    return num_elements(array.shape[1:]) * itemsize


def _list_bytes(feature: Feature, row_shape: Shape) -> int:
    """What the lists of a row take beside their values: arrays of no value can be a great many lists."""
    if feature.kind == "dense":
        return 0
    num_lists = sum(num_elements(row_shape[:axis]) for axis in range(len(row_shape)))
    return num_lists * (_LIST_BYTES + 8 * len(row_shape))
