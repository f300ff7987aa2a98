"""Applying transforms to batches of rows.

Rows are taken a few at a time, so that what steps make of them fits into memory: some megabytes of encoded
images are a gigabyte of pixels. While other processes work at the images of one piece, the next pieces are
begun, so that each of them has something to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from ..codecs.columns import Batch, Ints, Records, Strings
from ..domain.limits import MIB
from ..runtime.budget import Budget
from ..runtime.images import EncodedImage, ImageCodecs
from .images.decode import ImageRun
from .parse import check_transforms, resulting_schema
from .piece import Piece, Prepared, Work, stages_of
from .piece import SkippedRows as SkippedRows
from .step import RemoteStep, strings_of

#: What becomes of rows that a step does not take: an error, or they are left out and counted.
OnError = Literal["fail", "skip"]

#: What the values of some rows take at most, in the widest form that they go through; one row may take more.
#: The arrays of a column stay below what the allocator takes from the system anew each time.
PIECE_BYTES: Final = 4 * MIB
_MAX_PIECE_ROWS: Final = 1024
#: Pieces that are begun at a time, where other processes do some of the steps: one for each, and one to go on
#: with while the first is on its way out.
_AT_ONCE: Final = 3
#: A batch is cut into pieces for them, unless those would be smaller than this.
_LEAST_PIECE_BYTES: Final = MIB // 2
#: What pieces that are begun at a time take together: two images of a megapixel.
_MOST_BYTES: Final = 3 * PIECE_BYTES
#: What a piece is charged at most, in times of its size: what is encoded and decoded is in two places.
_CHARGED: Final = 8


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
        skipped: told of rows that a step does not take, which are left out; None makes the first of them an
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
        self._stages = tuple(map(stages_of, schema))
        is_remote = any(isinstance(stage.work, RemoteStep) for stages in self._stages for stage in stages)
        self._at_once = _AT_ONCE if is_remote else 1
        self._budget = budget
        self._work = Work(self._stages, images, budget, skipped, can_skip)
        self.records = replace(
            records,
            schema=resulting_schema(schema),
            batches=self._batches() if skipped is None else skipped.draw(self._batches()),
            num_rows=records.num_rows if skipped is None else None,
        )

    def _batches(self) -> Iterator[Batch]:
        begin = 0
        for batch in self._source:
            yield from self._batches_of(batch, begin)
            begin += batch.num_rows

    def _batches_of(self, batch: Batch, begin: int) -> Iterator[Batch]:
        """The batch after all steps, in pieces; `begin` is the number of its first row."""
        running: deque[Piece] = deque()
        try:
            for piece in self._pieces(batch, begin):
                while running and not self._fits_beside(running, piece):
                    yield from _rows_of(running.popleft())
                running.append(piece)  # before it begins, so that it is ended whatever goes wrong
                if self._at_once > 1:
                    piece.start()
            while running:
                yield from _rows_of(running.popleft())
        finally:
            for piece in running:
                piece.end()

    def _fits_beside(self, running: Sequence[Piece], piece: Piece) -> bool:
        """Whether a piece may be begun beside others: none is large, and a great deal of memory is free."""
        needed = _CHARGED * piece.num_bytes
        together = sum(other.num_bytes for other in running) + piece.num_bytes
        if len(running) >= self._at_once or together > _MOST_BYTES:
            return False
        if needed > self._budget.remaining or not self._budget.reserve_spare(needed):
            return False
        self._budget.release_reserved(needed)
        return True

    def _pieces(self, batch: Batch, begin: int) -> Iterator[Piece]:
        """The rows that are worked on together."""
        prepared = self._prepare(batch)
        sizes = self._sizes(batch, prepared)
        totals, first = sizes.cumsum(), 0
        most = PIECE_BYTES
        if self._at_once > 1 and len(totals):
            most = min(most, max(int(totals[-1]) // self._at_once + 1, _LEAST_PIECE_BYTES))
        while first < batch.num_rows:
            before = int(totals[first] - sizes[first])
            fitting = int(np.searchsorted(totals, before + most, "right"))
            end = min(max(first + 1, fitting), first + _MAX_PIECE_ROWS)
            numbers = np.arange(begin + first, begin + end)
            images = {
                index: found[slice(*_values(batch, index, first, end))] for index, found in prepared.items()
            }
            yield Piece(self._work, batch.rows(first, end), numbers, int(totals[end - 1]) - before, images)
            first = end

    def _prepare(self, batch: Batch) -> Prepared:
        """The encoded images of features that begin with them; their headers are read once."""
        prepared: Prepared = {}
        for index, stages in enumerate(self._stages):
            if stages and isinstance(stages[0].work, ImageRun):
                prepared[index] = stages[0].work.decode.prepare(strings_of(batch.columns[index]))
        return prepared

    def _sizes(self, batch: Batch, prepared: Prepared) -> Ints:
        """About what each row's values take, where they take the most."""
        sizes = np.zeros(batch.num_rows, np.int64)
        for index, (stages, column) in enumerate(zip(self._stages, batch.columns, strict=True)):
            if not stages:
                continue
            results = [stage.work.result(stage.feature) for stage in stages]
            sizes += max(result.known_values * max(result.dtype.itemsize, 8) for result in results)
            present = np.arange(batch.num_rows) if column.present is None else np.flatnonzero(column.present)
            bounds = column.value_bounds(batch.num_rows)
            if index in prepared:
                run = stages[0].work
                assert isinstance(run, ImageRun)  # noqa: S101  # it was prepared for one; this is for the type
                sizes[present] += np.array([_image_bytes(run, image) for image in prepared[index]], np.int64)
            elif isinstance(column.values, Strings):
                sizes[present] += np.diff(column.values.offsets[bounds])
            else:
                sizes[present] += np.diff(bounds) * 8
        return sizes


def _values(batch: Batch, index: int, first: int, end: int) -> tuple[int, int]:
    """Which values of a feature of one value a row are those of rows `first` to `end`."""
    present = batch.columns[index].present
    if present is None:
        return first, end
    before = int(np.count_nonzero(present[:first]))
    return before, before + int(np.count_nonzero(present[first:end]))


def _image_bytes(run: ImageRun, image: EncodedImage | str) -> int:
    if isinstance(image, str):
        return 0
    return len(image.data) + image.header.num_bytes + run.kept_bytes(image)


def _rows_of(piece: Piece) -> Iterator[Batch]:
    """The rows of a piece after all steps, whose memory is given back afterwards."""
    try:
        batch = piece.finish()
        if batch.num_rows:
            yield batch
    finally:
        piece.end()
