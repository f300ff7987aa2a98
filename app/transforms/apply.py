"""Applying transforms to batches of rows.

Rows are taken a few at a time, so that what steps make of them fits into memory: some megabytes of encoded
images are a gigabyte of pixels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal

import numpy as np

from ..codecs.columns import Batch, Column, Ints, Records, Strings, join_batches
from ..codecs.images.header import read_header
from ..codecs.records.lease import Lease
from ..domain.feature import Feature
from ..domain.limits import MIB
from ..errors import InputError, UnprocessableInput
from ..runtime.budget import Budget
from ..runtime.images import ImageCodecs
from ..runtime.turns import offer_turn
from .parse import check_transforms, resulting_schema, steps_of
from .step import RowsRefused, Step, Tools

#: What becomes of rows that a step does not take: an error, or they are left out and counted.
OnError = Literal["fail", "skip"]

#: What the values of some rows take at most, in the widest form that they go through; one row may take more.
#: The arrays of a column stay below what the allocator takes from the system anew each time.
PIECE_BYTES: Final = 4 * MIB
_MAX_PIECE_ROWS: Final = 1024


@dataclass(slots=True)
class SkippedRows:
    """How many rows were left out so far, because a step did not take a value of theirs."""

    count: int = 0


def apply_transforms(
    records: Records,
    images: ImageCodecs,
    budget: Budget,
    skipped: SkippedRows | None = None,
    *,
    can_skip: bool = True,
) -> Records:
    """The rows after the transforms of their schema; drawing them does the work.

    Args:
        skipped: counts rows that a step does not take, which are left out; None makes the first of them an
            error (`transform_failed`).
        can_skip: the client may ask for rows to be left out; the error then says so.

    Raises:
        InputError: as `check_transforms`; also as rows are drawn.
    """
    if not records.schema.has_transforms:
        return records
    return _Transformed(records, images, budget, skipped, can_skip=can_skip).records


class _Transformed:
    """Rows on their way through transforms."""

    def __init__(
        self,
        records: Records,
        images: ImageCodecs,
        budget: Budget,
        skipped: SkippedRows | None,
        *,
        can_skip: bool,
    ) -> None:
        schema = check_transforms(records.schema)
        self._source = records.batches
        #: Each feature as the rows have it, and its steps.
        self._features = [(feature, steps_of(feature.transforms)) for feature in schema]
        self._images = images
        self._budget = budget
        self._skipped = skipped
        self._can_skip = can_skip
        self.records = replace(
            records,
            schema=resulting_schema(schema),
            batches=self._batches(),
            num_rows=records.num_rows if skipped is None else None,
        )

    def _batches(self) -> Iterator[Batch]:
        begin = 0
        for batch in self._source:
            numbers = np.arange(begin, begin + batch.num_rows)
            begin += batch.num_rows
            first = 0
            for last in self._piece_ends(batch):
                with Lease(self._budget) as lease:
                    piece = self._apply(batch.rows(first, last), numbers[first:last], lease)
                    if piece.num_rows:
                        yield piece
                first = last

    def _piece_ends(self, batch: Batch) -> Iterator[int]:
        """Up to which rows they are worked on together."""
        sizes = np.zeros(batch.num_rows, np.int64)
        for (feature, steps), column in zip(self._features, batch.columns, strict=True):
            if steps:
                sizes += _sizes(column, feature, steps, batch.num_rows)
        totals, end = sizes.cumsum(), 0
        while end < batch.num_rows:
            before = int(totals[end] - sizes[end])
            fitting = int(np.searchsorted(totals, before + PIECE_BYTES, "right"))
            end = min(max(end + 1, fitting), end + _MAX_PIECE_ROWS)
            yield end

    def _apply(self, batch: Batch, numbers: Ints, lease: Lease) -> Batch:
        """The batch after all steps; `numbers` are those of its rows in the whole input."""
        tools = Tools(lease, self._images)
        while True:
            try:
                return self._apply_to_all(batch, tools)
            except _StepRefused as refused:
                if self._skipped is None:
                    raise refused.error(numbers, can_skip=self._can_skip) from None
                kept = np.setdiff1d(np.arange(batch.num_rows), refused.rows)
                self._skipped.count += batch.num_rows - len(kept)
                lease.release()
                batch, numbers = _take_rows(batch, kept), numbers[kept]
                if not batch.num_rows:
                    return batch

    def _apply_to_all(self, batch: Batch, tools: Tools) -> Batch:
        columns: list[Column] = []
        for (source, steps), source_column in zip(self._features, batch.columns, strict=True):
            feature, column = source, source_column
            for index, step in enumerate(steps):
                try:
                    column = step.apply(column, feature, batch.num_rows, tools)
                except RowsRefused as refused:
                    raise _StepRefused(refused, column, source.name, index, step.name) from None
                except InputError as error:
                    raise error.shift(feature=source.name) from None
                feature = step.result(feature)
            columns.append(column)
        return Batch(batch.num_rows, tuple(columns))


class _StepRefused(Exception):
    """Rows that a step of a feature does not take."""

    def __init__(self, refused: RowsRefused, column: Column, feature: str, index: int, step: str) -> None:
        super().__init__()
        present = None if column.present is None else np.flatnonzero(column.present)
        self.rows = [item if present is None else int(present[item]) for item in refused.reasons]
        self._reason = str(refused)
        self._feature = feature
        self._index = index
        self._step = step

    def error(self, numbers: Ints, *, can_skip: bool) -> UnprocessableInput:
        """What a client is told of the first of them."""
        row = int(numbers[self.rows[0]])
        hint = ", or leave out such rows with on_error=skip" if can_skip else ""
        return UnprocessableInput(
            f"Row {row} does not go through step {self._index} ({self._step}) of feature {self._feature!r}: "
            f"{self._reason}. Correct the row{hint}.",
            code="transform_failed",
            row=row,
            feature=self._feature,
            extra={"step": self._index},
        )


def _sizes(column: Column, feature: Feature, steps: tuple[Step, ...], num_rows: int) -> Ints:
    """About what each row's value takes, where it takes the most."""
    widest = 0
    for step in steps:
        feature = step.result(feature)
        widest = max(widest, feature.known_values * max(feature.dtype.itemsize, 8))
    sizes = np.full(num_rows, widest, np.int64)
    present = np.arange(num_rows) if column.present is None else np.flatnonzero(column.present)
    bounds = column.value_bounds(num_rows)
    if not isinstance(column.values, Strings):
        sizes[present] += np.diff(bounds) * 8
    elif steps[0].name == "decode_image":
        offsets = column.values.offsets.tolist()
        for row, (begin, end) in zip(present.tolist(), pairwise(offsets), strict=True):
            offer_turn()
            sizes[row] += _decoded_size(column.values.data[begin:end].tobytes())
    else:
        sizes[present] += np.diff(column.values.offsets[bounds])
    return sizes


def _decoded_size(data: bytes) -> int:
    try:
        return len(data) + read_header(data).num_bytes
    except InputError:
        return len(data)  # the step says why


def _take_rows(batch: Batch, rows: Ints) -> Batch:
    """Some rows of a batch, in their order."""
    if not len(rows):
        return batch.rows(0, 0)
    ends = np.flatnonzero(np.append(np.diff(rows) != 1, True))
    begins = np.append(0, ends[:-1] + 1)
    runs = zip(rows[begins].tolist(), (rows[ends] + 1).tolist(), strict=True)
    return join_batches([batch.rows(first, last) for first, last in runs])
