"""Write rows as named arrays whose first axis counts the rows: records as NPZ, safetensors and OIP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import DType
from ...domain.feature import Feature
from ...domain.schema import Schema
from ...errors import UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer
from ..array import Array
from ..columns import Column, Ints, Records, Strings
from ..options import RecordsEncodeOptions, TensorEncodeOptions
from ..records.named_columns import without_features
from ..schemas.suggest import OTHER_FORM, suggest_schema

Writer = Callable[[Sequence[Array], TensorEncodeOptions, Budget], Iterator[Buffer]]


def writer_of(
    write: Writer, label: str, check_dtype: Callable[[str, DType], None] | None = None
) -> Callable[[Records, RecordsEncodeOptions, Budget], Iterator[Buffer]]:
    """A writer of records in a form of arrays that has the arrays' writer `write`.

    All rows are collected in memory, as one array for each feature.

    Args:
        label: the name of the format in errors.
        check_dtype: refuses a feature by its name and dtype, before any row is drawn.
    """

    def write_rows(records: Records, _options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:
        if check_dtype is not None:
            for feature in records.schema:
                check_dtype(feature.name, feature.dtype)
        return write(_gather(records, label, budget), TensorEncodeOptions(), budget)

    return write_rows


def _gather(records: Records, label: str, budget: Budget) -> list[Array]:
    """All rows, one array a feature, in the order of the schema.

    Raises:
        UnprocessableInput: a feature of variable length, one that a row lacks, or rows without any feature
            (`not_expressible`).
        LimitExceeded: more than the budget allows to be held.
    """
    for declared in records.schema:
        _require_one_shape(declared, label, lambda: suggest_schema(records, _holds_arrays))
    gathered = [_Gathered(feature, label) for feature in records.schema]
    num_rows = 0
    for batch in records.batches:
        for feature, column in zip(gathered, batch.columns, strict=True):
            feature.add(column, num_rows, batch.num_rows, budget)
        num_rows += batch.num_rows
    if num_rows and not gathered:
        raise without_features(label)
    return [feature.array(num_rows, budget) for feature in gathered]


class _Gathered:
    """The values of one feature in memory of their own: a batch may be overwritten by the next one."""

    def __init__(self, feature: Feature, label: str) -> None:
        self._feature = feature
        self._label = label
        self._shape = tuple(dim for dim in _item(feature).shape if dim is not None)
        self._num_steps: int | None = None
        self._parts: list[NDArray[Any]] = []
        self._num_values = 0
        self._room: NDArray[Any] | None = None
        self._offsets = [np.zeros(1, np.int64)]
        self._num_bytes = 0

    def add(self, column: Column, first_row: int, num_rows: int, budget: Budget) -> None:
        """The rows of a batch."""
        if column.present is not None and not column.present.all():
            raise _not_expressible(
                self._feature,
                f"A row lacks feature {self._feature.name!r}, and an array in {self._label} has no way to "
                "say so.",
                row=first_row + int(np.argmin(column.present)),
            )
        if self._feature.kind == "sequence" and num_rows:
            self._check_steps(np.diff(column.splits[0]), first_row)
        values = column.values
        budget.charge(values.nbytes, f"The rows, gathered for {self._label},")
        if isinstance(values, Strings):
            self._offsets.append(values.offsets[1:] + self._num_bytes)
            values = values.data
            self._num_bytes += len(values)
        self._parts.append(self._copy(values))

    def _copy(self, values: NDArray[Any]) -> NDArray[Any]:
        """The values in memory that grows by doubling: of small arrays the system would clear each page."""
        size = len(values)
        if self._room is None or len(self._room) < size:
            self._room = np.empty(max(size, self._num_values), values.dtype)
        copied, self._room = self._room[:size], self._room[size:]
        copied[:] = values
        self._num_values += size
        return copied

    def array(self, num_rows: int, budget: Budget) -> Array:
        """All rows; what was gathered goes into the array."""
        feature = self._feature
        steps = () if feature.kind != "sequence" else (self._num_steps or 0,)
        shape = (num_rows, *steps, *self._shape)
        if not feature.dtype.is_string:
            return Array(feature.dtype, shape, tuple(self._parts), feature.name)
        held = sum(part.nbytes for part in (*self._parts, *self._offsets))
        budget.charge(held, f"The strings, joined for {self._label},")
        data = np.concatenate([np.empty(0, np.uint8), *self._parts])
        strings = Strings(data, np.concatenate(self._offsets))
        self._parts, self._offsets, self._room = [], [], None
        budget.release(held)
        return Array(feature.dtype, shape, strings, feature.name)

    def _check_steps(self, lengths: Ints, first_row: int) -> None:
        """Refuse a row with another number of steps than the first one has."""
        if self._num_steps is None:
            self._num_steps = int(lengths[0])
        if (lengths != self._num_steps).any():
            index = int(np.argmax(lengths != self._num_steps))
            row = first_row + index
            raise _not_expressible(
                self._feature,
                f"Feature {self._feature.name!r} has {self._num_steps} steps in one row and {lengths[index]} "
                f"in row {row}, but the rows of an array in {self._label} are all of one shape.",
                row=row,
            )


def _item(feature: Feature) -> Feature:
    return feature.step if feature.kind == "sequence" else feature


def _holds_arrays(schema: Schema) -> bool:
    """Whether each feature is an array whose first axis counts the rows."""
    return all(
        feature.kind in ("dense", "sequence") and not feature.nullable and not _item(feature).num_unknown
        for feature in schema
    )


def _require_one_shape(feature: Feature, label: str, advise: Callable[[], str]) -> None:
    """Refuse a feature whose rows, or steps, differ in shape.

    Args:
        advise: says what to do.
    """
    if feature.kind in ("ragged", "sparse"):
        raise _not_expressible(
            feature,
            f"Feature {feature.name!r} is {feature.kind}, and an array in {label} is not.",
            "Choose another output format: 'json', 'ndjson', 'arrow', 'parquet' or 'tfrecord'.",
        )
    if _item(feature).num_unknown:
        raise _not_expressible(
            feature,
            f"Feature {feature.name!r} has the shape {list(feature.shape)}, but the rows of an array in "
            f"{label} are all of one shape.",
            advise(),
        )


def _not_expressible(
    feature: Feature, why: str, advice: str = OTHER_FORM, row: int | None = None
) -> UnprocessableInput:
    return UnprocessableInput(f"{why} {advice}", code="not_expressible", feature=feature.name, row=row)
