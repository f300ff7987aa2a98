"""Records <-> named arrays whose first axis counts the rows: what NPZ, safetensors and OIP have in common.

An array always has its dtype, so nothing is guessed: without a schema a feature has the dtype of its
array and the shape of one row of it. With one, the values are converted to what it declares, exactly
or not at all (`convert.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.dtypes import WITHIN_FLOAT32
from ...domain.limits import MIB
from ...domain.schema import Feature, Schema, check_feature_names, default_encoding
from ...domain.tensor import Shape, num_elements
from ...errors import SchemaConflict, UnprocessableInput
from ...runtime.budget import Budget
from ..arrow.batches import arrow_schema, batches_from_arrow, batches_to_arrow
from ..columns import MAX_BATCH_ROWS, Records, without_features
from ..content import STRING_OVERHEAD
from ..convert import convert_values
from ..options import RecordsDecodeOptions
from ..records.arrays import keeps_shape, values_from_column
from ..tensor_stream import TensorStream
from .array import Array, ChunkedArray, FoundArray
from .array_columns import STREAMED_BYTES, column_of

__all__ = ["gather_arrays", "records_from_arrays"]

#: A batch of large rows has fewer of them: it is encoded in one block.
_BATCH_BYTES: Final = 16 * MIB
#: What even an empty record takes in a TFRecord.
_EMPTY_ROW_BYTES: Final = 16
#: What a list takes beside its items: its length and its offset.
_LIST_BYTES: Final = 16


def records_from_arrays(
    arrays: Mapping[str, FoundArray], options: RecordsDecodeOptions, budget: Budget
) -> Records:
    """The arrays as columns; batches are slices of those in memory, others are read as batches are drawn.

    Raises:
        UnprocessableInput: an array without a first axis (`no_rows`), arrays of different lengths
            (`row_count_mismatch`), and as `convert_values`.
        SchemaConflict: a feature that the schema has and the arrays lack, or the other way round,
            or one of another shape or dtype.
        InputError: while batches are drawn, as the arrays that are read then.
    """
    num_rows = _count_rows(arrays)
    if options.schema is None:
        schema = _inferred(arrays, budget).with_message(options.message)
    else:
        narrow = {name for name, array in arrays.items() if array.dtype.name in WITHIN_FLOAT32}
        schema = options.schema.with_message(options.message).as_read(narrow)
        arrays = _fitted(arrays, schema, options, budget)
    batch_rows = _batch_rows(schema, arrays, num_rows, budget)
    batches = _batches(schema, arrays, num_rows, batch_rows)
    return Records(schema, batches_from_arrow(schema, batches, budget), num_rows)


def _count_rows(arrays: Mapping[str, FoundArray]) -> int:
    first: str | None = None
    for name, array in arrays.items():
        if not array.shape:
            raise UnprocessableInput(
                f"Array {name!r} is a scalar; the first axis of every array counts the rows.",
                code="no_rows",
                feature=name,
            )
        first = name if first is None else first
        if array.shape[0] != arrays[first].shape[0]:
            raise UnprocessableInput(
                f"Array {name!r} has {array.shape[0]} rows, but {first!r} has {arrays[first].shape[0]}.",
                code="row_count_mismatch",
                feature=name,
            )
    return 0 if first is None else arrays[first].shape[0]


def _inferred(arrays: Mapping[str, FoundArray], budget: Budget) -> Schema:
    check_feature_names(list(arrays), budget.limits)
    return Schema(
        tuple(
            Feature(
                name, array.dtype, array.shape[1:], encoding=default_encoding(array.dtype, array.shape[1:])
            )
            for name, array in arrays.items()
        )
    )


def _fitted(
    arrays: Mapping[str, FoundArray], schema: Schema, options: RecordsDecodeOptions, budget: Budget
) -> dict[str, FoundArray]:
    """The arrays that the schema names; those in memory as the dtypes that it declares."""
    unnamed = [name for name in arrays if name not in schema.by_name]
    if unnamed and options.undeclared == "error":
        raise SchemaConflict(
            f"The schema does not declare the array {unnamed[0]!r}. Add it there, leave it out, or set "
            "?undeclared=drop.",
            feature=unnamed[0],
        )
    for name in unnamed:
        _read_to_its_end(arrays[name])
    return {
        feature.name: _fit(arrays[feature.name], feature, budget)
        for feature in schema
        if _is_present(feature, arrays)
    }


def _read_to_its_end(array: FoundArray) -> None:
    """What is wrong with an array is wrong with the body, whether the array is wanted or not."""
    if isinstance(array, TensorStream):
        for _ in array.content:
            pass


def _is_present(feature: Feature, arrays: Mapping[str, FoundArray]) -> bool:
    if feature.name in arrays or feature.nullable:
        return feature.name in arrays
    raise SchemaConflict(
        f"The schema declares {feature.name!r}, but there is no such array. Add it, or declare "
        "the feature nullable.",
        feature=feature.name,
    )


def _fit(array: FoundArray, feature: Feature, budget: Budget) -> FoundArray:
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
    if isinstance(array, TensorStream):
        return array
    if array.dtype.numpy != feature.dtype.numpy:
        budget.charge(len(array.values) * feature.dtype.itemsize, f"Feature {feature.name!r}, converted,")
    rows = array.values.reshape(array.shape[0], -1) if array.values.size else array.values
    values = convert_values(rows, array.dtype, feature.dtype, feature=feature.name)
    return Array(feature.dtype, array.shape, values.reshape(-1))


def _keeps_shape(feature: Feature, row_shape: Shape) -> bool:
    if feature.kind == "sequence":
        return keeps_shape(feature.step, row_shape[1:])
    return feature.kind == "ragged" or keeps_shape(feature, row_shape)


def _batches(
    schema: Schema, arrays: Mapping[str, FoundArray], num_rows: int, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    columns = [column_of(arrays.get(feature.name), feature) for feature in schema]
    for start in range(0, num_rows, batch_rows):
        count = min(batch_rows, num_rows - start)
        rows = [column.take(start, count) for column in columns]
        yield pa.RecordBatch.from_arrays(rows, schema=arrow_schema(schema))


def _batch_rows(schema: Schema, arrays: Mapping[str, FoundArray], num_rows: int, budget: Budget) -> int:
    """Rows of a batch; what its rows take beside the arrays is charged."""
    total = sum(map(_num_bytes, arrays.values()))
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
    streamed = {name: array for name, array in arrays.items() if isinstance(array, TensorStream)}
    read_bytes = sum(_read_bytes(array, schema.by_name[name]) for name, array in streamed.items())
    # A batch is there until the next one is made, if there is one.
    held_rows = min(num_rows, 2 * batch_rows)
    budget.charge(len(streamed) * STREAMED_BYTES + held_rows * read_bytes, "A batch of rows")
    return batch_rows


def _read_bytes(stream: TensorStream, feature: Feature) -> int:
    """What a row takes as it is read, and as what is declared."""
    itemsize = stream.dtype.itemsize
    if stream.dtype.numpy != feature.dtype.numpy:
        itemsize += feature.dtype.itemsize
    return num_elements(stream.shape[1:]) * itemsize


def _list_bytes(feature: Feature, row_shape: Shape) -> int:
    """What the lists of a row take beside their values: arrays of no value can be a great many lists."""
    if feature.kind == "dense":
        return 0
    num_lists = sum(num_elements(row_shape[:axis]) for axis in range(len(row_shape)))
    return num_lists * (_LIST_BYTES + 8 * len(row_shape))


def _num_bytes(array: FoundArray) -> int:
    if isinstance(array, TensorStream):
        return array.num_bytes
    return sum(map(len, array.values)) if array.dtype.is_string else int(array.values.nbytes)


def gather_arrays(records: Records, form: str, budget: Budget) -> list[ChunkedArray]:
    """All rows, one array a feature, in the order of the schema.

    Args:
        form: what cannot hold the rows, where it cannot, as errors call it.

    Raises:
        UnprocessableInput: a feature of variable length, one that a row lacks, or rows without any feature
            (`not_expressible`).
        LimitExceeded: more than the budget allows to be held.
    """
    shapes = {feature.name: _fixed_shape(feature, form) for feature in records.schema}
    chunks: dict[str, list[NDArray[Any]]] = {name: [] for name in shapes}
    num_steps: dict[str, int] = {}
    num_rows = 0
    for batch in batches_to_arrow(records.schema, records.batches, budget):
        for feature, column in zip(records.schema, batch.columns, strict=True):
            _require_present(column, feature, form, num_rows)
            if feature.kind == "sequence":
                _count_steps(column, feature, form, num_rows, num_steps)
            chunks[feature.name].append(_gathered(column, feature, form, budget))
        num_rows += batch.num_rows
    if num_rows and not shapes:
        raise without_features(form)
    return [
        ChunkedArray(
            feature.name,
            feature.dtype,
            (num_rows, *_row_shape(feature, shapes, num_steps)),
            chunks[feature.name],
        )
        for feature in records.schema
    ]


def _fixed_shape(feature: Feature, form: str) -> Shape:
    """The shape of a row, or of a step of a sequence."""
    if feature.kind in ("ragged", "sparse"):
        raise UnprocessableInput(
            f"Feature {feature.name!r} is {feature.kind}, and an array in {form} is not. Choose another "
            "output form: 'json', 'ndjson', 'arrow', 'parquet' or 'tfrecord'.",
            code="not_expressible",
            feature=feature.name,
        )
    expected = feature.step.shape if feature.kind == "sequence" else feature.shape
    shape = tuple(dim for dim in expected if dim is not None)
    if len(shape) != len(expected):
        raise UnprocessableInput(
            f"Feature {feature.name!r} has the shape {list(feature.shape)}, but the rows of an array in "
            f"{form} are all of one shape. Choose another output form.",
            code="not_expressible",
            feature=feature.name,
        )
    return shape


def _row_shape(feature: Feature, shapes: Mapping[str, Shape], num_steps: Mapping[str, int]) -> Shape:
    if feature.kind != "sequence":
        return shapes[feature.name]
    return num_steps.get(feature.name, 0), *shapes[feature.name]


def _count_steps(column: Any, feature: Feature, form: str, first_row: int, num_steps: dict[str, int]) -> None:
    """Note how many steps every row of a sequence has, which has to be the same number."""
    lengths = column.value_lengths().to_numpy()
    if not len(lengths):
        return
    expected = num_steps.setdefault(feature.name, int(lengths[0]))
    if (lengths != expected).any():
        index = int(np.argmax(lengths != expected))
        raise UnprocessableInput(
            f"Feature {feature.name!r} has {expected} steps in one row and {lengths[index]} in row "
            f"{first_row + index}, but the rows of an array in {form} are all of one shape. Choose another "
            "output form.",
            code="not_expressible",
            feature=feature.name,
            row=first_row + index,
        )


def _require_present(column: pa.Array[Any], feature: Feature, form: str, first_row: int) -> None:
    if column.null_count:
        absent = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
        raise UnprocessableInput(
            f"A row lacks feature {feature.name!r}, and an array in {form} has no way to say so. "
            f"Choose another output form.",
            code="not_expressible",
            feature=feature.name,
            row=first_row + int(np.argmax(absent)),
        )


def _gathered(column: Any, feature: Feature, form: str, budget: Budget) -> NDArray[Any]:
    """The column's values in memory of their own: a batch may be overwritten by the next one."""
    if feature.kind == "sequence":
        column, feature = column.flatten(), feature.step
    overhead = STRING_OVERHEAD * len(column) * (feature.num_values or 0) if feature.dtype.is_string else 0
    budget.charge(column.nbytes + overhead, f"The rows, gathered for {form},")
    values = values_from_column(column, feature)
    return values if feature.dtype.is_string else values.copy()
