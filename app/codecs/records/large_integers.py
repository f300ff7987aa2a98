"""Integers that float32 does not hold exactly, noted as rows pass: they decide what an int64 may become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...domain.schema import Schema
from ..columns import Batch, Strings

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

    def watch(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches, each looked at before it is handed on."""
        for batch in batches:
            for name, index in list(self._columns.items()):
                values = batch.columns[index].values
                if not isinstance(values, Strings) and not _all_exact(values):
                    self.found.add(name)
                    del self._columns[name]
            yield batch


def _all_exact(values: NDArray[np.int64]) -> bool:
    if not len(values) or (int(values.min()) >= -_ALL_EXACT and int(values.max()) <= _ALL_EXACT):
        return True
    return bool(are_exact(values).all())


def are_exact(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the values float32 holds: those of at most 24 bits from the highest to the lowest."""
    magnitudes = np.where(values < 0, -values, values).view(np.uint64)  # of -2^63, too
    lowest_bits = np.maximum(magnitudes & (~magnitudes + np.uint64(1)), np.uint64(1))
    return np.asarray(magnitudes // lowest_bits < _ALL_EXACT)
