"""Integers that float32 does not hold exactly, noted as rows pass: they decide what an int64 may become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.schema import Schema

__all__ = ["LargeIntegers", "are_exact"]

#: float32 holds every integer up to this one.
_ALL_EXACT: Final = 2**24


class LargeIntegers:
    """Looks at those int64 features of rows that may become float32 in a dataset.

    Args:
        schema: of the rows.
        stored: of the dataset, as far as it is known; another feature may turn out to be one of those.

    Attributes:
        found: the features of which a value so far is an integer that float32 does not hold exactly.
    """

    def __init__(self, schema: Schema, stored: Schema | None) -> None:
        known = {} if stored is None else stored.by_name
        self.found: set[str] = set()
        self._columns: dict[str, int] = {}
        for index, feature in enumerate(schema):
            new = replace(feature, inferred=True, beyond_float32=False)
            if new.may_become_float32 and known.get(feature.name, new).may_become_float32:
                self._columns[feature.name] = index

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, each looked at before it is handed on."""
        for batch in batches:
            for name, index in list(self._columns.items()):
                if not _all_exact(_integers(batch.column(index))):
                    self.found.add(name)
                    del self._columns[name]
            yield batch


def _integers(column: pa.Array[Any]) -> NDArray[np.int64]:
    """The integers in all rows of a column, however they are nested."""
    while not pa.types.is_integer(column.type):
        column = column.flatten()  # type: ignore[attr-defined]  # it is a list
    if not len(column):
        return np.empty(0, np.int64)
    values: NDArray[np.int64] = np.frombuffer(cast("Any", column.buffers()[1]), np.int64)
    values = values[column.offset : column.offset + len(column)]
    return values[column.is_valid().to_numpy(zero_copy_only=False)] if column.null_count else values


def _all_exact(values: NDArray[np.int64]) -> bool:
    if not len(values) or (int(values.min()) >= -_ALL_EXACT and int(values.max()) <= _ALL_EXACT):
        return True
    return bool(are_exact(values).all())


def are_exact(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the values float32 holds: those of at most 24 bits from the highest to the lowest."""
    magnitudes = np.where(values < 0, -values, values).view(np.uint64)  # of -2^63, too
    lowest_bits = np.maximum(magnitudes & (~magnitudes + np.uint64(1)), np.uint64(1))
    return np.asarray(magnitudes // lowest_bits < _ALL_EXACT)
