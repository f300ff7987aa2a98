"""Rows to JSON: one text, in rows or in columns, or one line a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import numpy as np

from ....domain.feature import Feature
from ....domain.limits import MIB
from ....domain.schema import Schema
from ....runtime.budget import Budget
from ....runtime.streams import Buffer
from ....runtime.turns import offer_turn
from ...columns import (
    Batch,
    Column,
    Ints,
    Records,
    Strings,
)
from ...options import RecordsEncodeOptions
from ...records.named_columns import without_features
from ..errors import cell_error
from ..texts import (
    Texts,
    concatenate,
    empty_lists,
    gather,
    in_lists,
    join,
    quote,
    spread,
)
from ..values import ItemError
from ..write import (
    Spelling,
    integer_texts,
    nested_texts,
    strings_bytes,
    value_texts,
)

#: What a bare object of columns cannot be named at the top, since the name says what the body is.
RESERVED: Final = frozenset({"instances", "inputs", "outputs", "columns", "schema", "b64"})
#: Bytes of text that are made at a time: enough that a slice costs little, beside what is in it.
_SLICE_TEXT: Final = 4 * MIB
#: Digits and brackets take at most about this many times the bytes of the values in memory.
_TEXT_PER_BYTE: Final = 4


def encode(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:
    """`[{...}, ...]` as the batches come, or with `layout=columns` `{"name": [...], ...}` at the end.

    Columns of which one has a name that is reserved at the top of a body come as `{"columns": {...}}`.

    Raises:
        UnprocessableInput: rows without any feature as columns (`not_expressible`).
        LimitExceeded: columns, or a row, that do not fit into the budget.
        InputError: a value that has no text under these options.
    """
    if options.layout == "columns":
        return gather(_gathered_columns(records, options, budget))
    return gather(_rows(records, options, budget, "[", ",\n", "]"))


def encode_lines(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:
    """One line a row, written as the batches come; with `layout=columns` one line of columns a batch.

    Raises:
        UnprocessableInput: rows without any feature as columns (`not_expressible`).
        LimitExceeded: a row whose text does not fit into the budget.
        InputError: a value that has no text under these options.
    """
    if options.layout == "columns":
        return gather(_lines_of_columns(records, options, budget))
    return gather(_rows(records, options, budget, "", "\n", ""))


def format_row(records: Records, options: RecordsEncodeOptions, budget: Budget) -> bytes:
    """The one row that there is as one JSON object.

    Raises:
        InputError: a value that has no text under these options.
    """
    (text,) = (
        texts[index]
        for batch in records.batches
        for texts in _row_texts(batch, records.schema, options, budget, 0)
        for index in range(len(texts))
    )
    return text


def _rows(
    records: Records, options: RecordsEncodeOptions, budget: Budget, begin: str, separator: str, end: str
) -> Iterator[str | Buffer]:
    """All rows; lines, each of which ends with the separator, have no text around them."""
    first_row = 0
    before = begin
    for batch in records.batches:
        for texts in _row_texts(batch, records.schema, options, budget, first_row, separator):
            yield before
            yield texts.data.data
            before = separator
        first_row += batch.num_rows
    if end:
        yield end if first_row else begin + end
    elif first_row:
        yield separator


def _row_texts(
    batch: Batch, schema: Schema, spelling: Spelling, budget: Budget, first_row: int, separator: str = ","
) -> Iterator[Texts]:
    """One JSON object for each row, for some rows at a time; what a row lacks is null.

    A row of a SequenceExample is `{"context": {...}, "feature_lists": {...}}`.

    Args:
        budget: charged for the text of a long row, twice: by itself, and put together.
        separator: what stands in the memory between the rows.

    Raises:
        LimitExceeded: the text of a row does not fit into the budget.
        InputError: a value that has no text under these options.
    """
    # Found once for all slices: a few bytes can name thousands of features that no row has.
    parts = _row_parts(batch, schema)
    columns = {part: batch.columns[part] for part in parts if isinstance(part, int)}
    shared = sum(len(part) for part in parts if isinstance(part, str))
    step = _rows_of_slice(list(columns.values()), batch.num_rows, shared)
    for start in range(0, batch.num_rows, step):
        stop = min(start + step, batch.num_rows)
        texts: list[str | Texts] = []
        some = {part: column.rows(start, stop) for part, column in columns.items()}
        num_bytes = 2 * sum(
            _long_text_bytes(column, schema.features[part], spelling) for part, column in some.items()
        )
        budget.charge(num_bytes, "The text of a row")
        for part in parts:
            if isinstance(part, str):
                texts.append(part)
                continue
            offer_turn()
            column, feature = some[part], schema.features[part]
            found = _cell_texts(column, stop - start, feature, spelling, first_row + start)
            texts.append(found if column.occurs else "null")
        yield concatenate(texts, stop - start, separator)
        budget.release(num_bytes)


def _long_text_bytes(column: Column, feature: Feature, spelling: Spelling) -> int:
    """How much text a column makes; 0 for one that `_rows_of_slice` keeps short."""
    if _TEXT_PER_BYTE * column.nbytes <= _SLICE_TEXT:
        return 0
    if isinstance(column.values, Strings):
        return strings_bytes(column.values, feature.dtype, spelling)
    return _TEXT_PER_BYTE * column.nbytes


def _rows_of_slice(columns: Sequence[Column], num_rows: int, shared: int) -> int:
    """How many rows have about `_SLICE_TEXT` of text, of which `shared` bytes stand in each."""
    num_bytes = sum(column.nbytes for column in columns)
    row_bytes = num_bytes // max(num_rows, 1) + 8 * len(columns) + 1
    return max(1, _SLICE_TEXT // (_TEXT_PER_BYTE * row_bytes + shared))


def _row_parts(batch: Batch, schema: Schema) -> list[str | int]:
    """Texts that all rows share, and the numbers of the columns whose cells stand between them."""
    context: list[str | int] = []
    lists: list[str | int] = []
    for index, feature in enumerate(schema):
        members = lists if feature.kind == "sequence" else context
        members.append(("," if members else "") + quote(feature.name) + ":")
        members.append(index if batch.columns[index].occurs else "null")
    parts: list[str | int] = ["{", *context, "}"]
    if schema.message == "sequence_example":
        parts = ['{"context":', *parts, ',"feature_lists":{', *lists, "}}"]
    joined: list[str | int] = []
    for is_text, group in groupby(parts, lambda part: isinstance(part, str)):
        some = list(group)
        joined += ["".join(map(str, some))] if is_text else some
    return joined


def _gathered_columns(
    records: Records, options: RecordsEncodeOptions, budget: Budget
) -> Iterator[str | Buffer]:
    batches: list[Batch] = []
    for batch in records.batches:
        budget.charge(batch.nbytes, "Rows gathered into columns")
        batches.append(batch)
    yield from _columns(records.schema, batches, options, budget, 0)


def _lines_of_columns(
    records: Records, options: RecordsEncodeOptions, budget: Budget
) -> Iterator[str | Buffer]:
    first_row = 0
    for batch in records.batches:
        yield from _columns(records.schema, [batch], options, budget, first_row)
        yield "\n"
        first_row += batch.num_rows


def _columns(
    schema: Schema, batches: Sequence[Batch], options: RecordsEncodeOptions, budget: Budget, first_row: int
) -> Iterator[str | Buffer]:
    """The rows of all batches as one object; `{"columns": {...}}` where a name is reserved."""
    num_rows = sum(batch.num_rows for batch in batches)
    if num_rows and not len(schema):
        raise without_features("JSON columns")
    enveloped = not RESERVED.isdisjoint(schema.names)
    yield '{"columns":{' if enveloped else "{"
    for index, feature in enumerate(schema):
        yield ("," if index else "") + quote(feature.name) + ":"
        separator, row = "[", first_row
        for batch in batches:
            column = batch.columns[index]
            step = _rows_of_slice([column], batch.num_rows, 0)
            for start in range(0, batch.num_rows, step):
                stop = min(start + step, batch.num_rows)
                yield separator
                some = column.rows(start, stop)
                num_bytes = 2 * _long_text_bytes(some, feature, options)
                budget.charge(num_bytes, "The text of a row")
                yield join(_cell_texts(some, stop - start, feature, options, row + start))
                budget.release(num_bytes)
                separator = ","
            row += batch.num_rows
        yield "]" if num_rows else "[]"
    yield "}}" if enveloped else "}"


def _cell_texts(column: Column, num_rows: int, feature: Feature, spelling: Spelling, first_row: int) -> Texts:
    """One JSON text for each row: a value, nested arrays, the object of a sparse value, or null.

    Args:
        first_row: the row of the first cell, for errors.

    Raises:
        InputError: a value that has no text under these options.
    """
    try:
        texts = (_sparse_texts if feature.kind == "sparse" else _array_texts)(
            column, num_rows, feature, spelling
        )
    except ItemError as error:
        row = column.find_row(column.value_bounds(num_rows), error.index)
        raise cell_error(error, feature.name, first_row + row) from None
    return texts if column.present is None else spread(texts, column.present)


def _array_texts(column: Column, num_rows: int, feature: Feature, spelling: Spelling) -> Texts:
    """A text for each row that has the feature. Raises ItemError with the index of the value."""
    item = feature.step if feature.kind == "sequence" else feature
    shape: Sequence[int] = ()
    levels = list(column.splits)
    if feature.kind == "ragged":
        shape = feature.inner_shape
    elif item.num_unknown:
        levels[-1:] = _levels_of_shapes(column, item)
    else:
        shape = [dim or 0 for dim in item.shape]
    return nested_texts(column.values, feature.dtype, spelling, shape, levels, column.count(num_rows))


def _levels_of_shapes(column: Column, item: Feature) -> Iterator[Ints]:
    """Where the lists of each axis are cut, of items some of whose dimensions are unknown."""
    shapes = column.shapes
    if shapes is None:
        unknown = np.diff(column.splits[-1]) // max(item.known_values, 1)
        dims = [unknown if dim is None else np.full(len(unknown), dim) for dim in item.shape]
        shapes = np.stack(dims, axis=1)
    for shape in np.unique(shapes[(shapes == 0).any(axis=1)], axis=0).tolist():
        empty_lists(shape)  # refuses what would be a great many empty arrays
    for axis in range(shapes.shape[1]):
        lengths = np.repeat(shapes[:, axis], shapes[:, :axis].prod(axis=1))
        yield np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def _sparse_texts(column: Column, num_rows: int, feature: Feature, spelling: Spelling) -> Texts:
    """One object for each row that has the feature; its indices are arrays also where the rank is 1.

    Raises ItemError with the index of the value.
    """
    (splits,) = column.splits
    values = value_texts(column.values, feature.dtype, spelling)
    coordinates = np.asarray(column.coordinates, np.int64)
    indices = integer_texts(coordinates.reshape(-1), (len(feature.shape),))
    shape = ",".join(map(str, feature.shape))
    parts: list[str | Texts] = [
        '{"values":',
        in_lists(values, splits),
        ',"indices":',
        in_lists(indices, splits),
        f',"dense_shape":[{shape}]}}',
    ]
    return concatenate(parts, column.count(num_rows))
