"""Searching rows: those in which a feature has a value, or one in a range. As far as there is time for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...codecs.columns import Batch, Column, Mask, Records, Strings
from ...codecs.content import extend_sign
from ...domain.feature import Feature


@dataclass(frozen=True, slots=True)
class Condition:
    """What a row has to have. Of a feature with several values, one of them suffices.

    Attributes:
        feature: by name.
        is_absent: the row has no such feature; nothing else is asked then.
        low, high: of numbers, both included; None: no bound.
        text: of strings.
        is_part: it is enough that a string has `text` in it.
    """

    feature: str
    is_absent: bool = False
    low: float | None = None
    high: float | None = None
    text: bytes | None = None
    is_part: bool = False

    def find(self, feature: Feature, column: Column, num_rows: int) -> Mask:
        """Which rows of a batch fit."""
        present = np.ones(num_rows, np.bool_) if column.present is None else column.present
        if self.is_absent:
            return ~present
        found = np.zeros(num_rows, np.bool_)
        if isinstance(column.values, Strings):
            hits = np.zeros(0, np.bool_) if self.text is None else self._find_text(column.values)
        else:
            is_float = feature.dtype.is_float
            values = column.values if is_float else extend_sign(column.values, feature.dtype)
            hits = self._find_numbers(values)
        if hits.size:
            before = np.concatenate(([0], np.cumsum(hits)))[column.value_bounds(num_rows)]
            found[present] = before[1:] > before[:-1]
        return found

    def _find_numbers(self, values: NDArray[Any]) -> Mask:
        hits = np.ones(values.size, np.bool_)
        if values.dtype.kind == "c":
            return np.zeros(values.size, np.bool_)
        if values.dtype.kind == "b":  # compares with small integers alone
            values = values.view(np.uint8)
        elif values.dtype.kind not in "iuf":  # narrow floats compare as wide ones
            values = values.astype(np.float32)
        is_float = values.dtype.kind == "f"
        with np.errstate(over="ignore"):  # what a narrow float does not reach is infinite there
            if self.low is not None:
                hits &= values >= (_as_float(self.low) if is_float else self.low)
            if self.high is not None:
                hits &= values <= (_as_float(self.high) if is_float else self.high)
        return hits

    def _find_text(self, strings: Strings) -> Mask:
        assert self.text is not None  # noqa: S101  # asked before
        sizes = np.diff(strings.offsets)
        hits = np.zeros(len(strings), np.bool_)
        if not self.is_part:
            for index in np.flatnonzero(sizes == len(self.text)).tolist():
                hits[index] = strings.part(index, index + 1).unpack()[0] == self.text
            return hits
        if not self.text:
            return np.ones(len(strings), np.bool_)
        data = strings.data.tobytes()
        at = data.find(self.text)
        while at >= 0:
            index = int(np.searchsorted(strings.offsets, at, "right")) - 1
            end = int(strings.offsets[index + 1])
            if at + len(self.text) <= end:
                hits[index] = True
                at = data.find(self.text, max(end, at + 1))
            else:
                at = data.find(self.text, at + 1)
        return hits


def _as_float(number: float) -> float:
    """An integer that no float64 reaches is infinite."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


class Search:
    """The rows that fit, one by one, until there are enough or it has taken long enough.

    Attributes:
        searched: rows that were looked at; a later search goes on behind them.
        is_whole: whether these were all.
    """

    def __init__(
        self, records: Records, condition: Condition, *, most: int, is_late: Callable[[], bool]
    ) -> None:
        self._records = records
        self._condition = condition
        self._most = most
        self._is_late = is_late
        self.searched = 0
        self.is_whole = False

    def rows(self) -> Iterator[tuple[int, Batch]]:
        """Each row and its number among those that were given; a row is valid until the next one is drawn."""
        [at] = [
            k for k, feature in enumerate(self._records.schema) if feature.name == self._condition.feature
        ]
        feature = self._records.schema.features[at]
        left, begin = self._most, 0
        for batch in self._records.batches:
            mask = self._condition.find(feature, batch.columns[at], batch.num_rows)
            for row in np.flatnonzero(mask).tolist():
                self.searched = begin + row + 1
                yield begin + row, batch.rows(row, row + 1)
                left -= 1
                if not left:
                    return
            begin += batch.num_rows
            self.searched = begin
            if self._is_late():
                return
        self.is_whole = True
