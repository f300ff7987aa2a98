"""The schema of Examples that come without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, Final, Literal

import numpy as np

from ...domain.dtypes import BYTES, FLOAT32, INT64, DType
from ...domain.schema import Feature, Schema, check_feature_names
from ...errors import LimitExceeded, SchemaConflict
from ...runtime.amplification import CELL_BYTES, ROW_BYTES
from ...runtime.budget import Budget
from ..kernels.example_index import KIND_ABSENT, KIND_BYTES, KIND_FLOAT, KIND_INT64
from ..records.lease import Lease
from .example_index import ExampleIndex, cell_rows
from .example_values import KIND_NAMES
from .framing import FrameBlock

__all__ = [
    "DTYPES_OF_KINDS",
    "HEAD_RECORDS",
    "Inference",
    "check_num_cells",
    "hold_head",
    "infer_schema",
    "kind_changed",
]

#: Records from which a schema is inferred, however the input is chunked.
HEAD_RECORDS: Final = 1000

#: What the values of a Feature of each kind are.
DTYPES_OF_KINDS: Final[dict[int, DType]] = {KIND_BYTES: BYTES, KIND_FLOAT: FLOAT32, KIND_INT64: INT64}


def infer_schema(
    frames: Iterator[FrameBlock], infer: Literal["head", "all"], budget: Budget
) -> tuple[Schema, Iterator[FrameBlock]]:
    """The schema of the first 1,000 records, or of all, and the same blocks again.

    Every key becomes a nullable list of unknown length, in the order of first appearance: an Example does
    not tell a scalar from a list of one, nor text from bytes. A Feature without a kind says nothing.

    Raises:
        SchemaConflict: a feature changes its kind.
        LimitExceeded: `too_many_features`.
        UnprocessableInput: a name that no feature can have (`invalid_feature_name`).
        LimitExceeded: the records that must be held meanwhile exceed the budget.
        InputError: as `iter_frames` and `ExampleIndex.index`.
    """
    with Lease(budget) as lease:
        inference = Inference(lease)
        frames = hold_head(frames, infer, budget, inference.add)
    schema = inference.schema()
    if infer == "all":
        check_num_cells(inference.num_rows, schema, budget)
    return schema, frames


def check_num_cells(num_rows: int, schema: Schema, budget: Budget) -> None:
    """Refuse rows that would be too much for their body before the first of them is decoded.

    Raises:
        LimitExceeded: `amplification_exceeded`.
    """
    budget.check_amplified("decoded", (ROW_BYTES + CELL_BYTES * len(schema)) * num_rows)


def hold_head(
    frames: Iterator[FrameBlock],
    infer: Literal["head", "all"],
    budget: Budget,
    look: Callable[[FrameBlock, int], None],
) -> Iterator[FrameBlock]:
    """The same blocks again, after `look` has seen the first 1,000 records, or all.

    Args:
        look: called with each block and how many of its records to look at.

    Raises:
        LimitExceeded: the records that must be held meanwhile exceed the budget.
        InputError: as drawing a block, or `look`.
    """
    held: list[tuple[FrameBlock, Lease]] = []
    remaining = HEAD_RECORDS
    while remaining > 0 or infer == "all":
        block = next(frames, None)
        if block is None:
            break
        lease = Lease(budget)
        held.append((block, lease))
        lease.charge(len(block.data), "Records held to infer a schema")
        look(block, block.num_records if infer == "all" else min(remaining, block.num_records))
        remaining -= block.num_records
    return _again(held, frames)


def _again(held: list[tuple[FrameBlock, Lease]], frames: Iterator[FrameBlock]) -> Iterator[FrameBlock]:
    held.reverse()
    while held:
        block, lease = held.pop()
        with lease:
            yield block
    yield from frames


class Inference:
    """What the features of Examples are, as far as they have been seen.

    Args:
        lease: charged for the index alone.
    """

    index_class: ClassVar[type[ExampleIndex]] = ExampleIndex
    what: ClassVar[str] = "features"
    #: Kinds of cells that say nothing of the feature.
    silent: ClassVar[tuple[int, ...]] = (KIND_ABSENT,)

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._limits = lease.budget.limits
        self._kinds: dict[str, int] = {}
        self.num_rows = 0
        self._index_all()

    def _index_all(self) -> None:
        #: Those that the index knows.
        self._names = list(self._kinds)
        check_feature_names(self._names, self._limits)
        self._lease.release()
        self._index = self.index_class(
            self._names, max_unknown=self._limits.max_features + 1, lease=self._lease
        )
        #: How often the index has met features that it does not know.
        self._num_missed = 0

    def add(self, block: FrameBlock, num_records: int) -> None:
        """Take the first `num_records` of the block into account."""
        self.num_rows += num_records
        first = 0
        while first < num_records:
            last = min(num_records, first + cell_rows(len(self._names)))
            reached = self._add_range(block, first, last)
            # Not for each new feature: thousands of them can come one by one. But a broken record is refused
            # only once the index knows all its features.
            if self._num_missed > len(self._names) or reached == first:
                self._index_all()
            first = reached

    def _add_range(self, block: FrameBlock, first: int, last: int) -> int:
        reached = self._index.index(block, first, last)
        found = self._index.kinds()[:, : reached - first]
        silent = found == np.fromiter(self._kinds.values(), np.uint8, len(self._names))[:, None]
        for kind in self.silent:
            silent |= found == kind
        for number, row in np.argwhere(~silent).tolist():
            self._see(block.first_record + first + row, self._names[number], int(found[number, row]))
        unknown = self._index.unknown(block, first)
        if reached == first and len(unknown) > self._limits.max_features:
            raise LimitExceeded(
                f"Record {unknown[0].row} has more than {self._limits.max_features} {self.what}.",
                code="too_many_features",
                row=unknown[0].row,
            )
        self._num_missed += len(unknown)
        for feature in unknown:
            self._see(feature.row, feature.name, feature.kind)
        return reached

    def _see(self, row: int, name: str, kind: int) -> None:
        before = self._kinds.setdefault(name, kind)
        if kind != before:
            raise kind_changed(row, name, before, kind)

    def schema(self) -> Schema:
        """The features seen so far.

        Raises:
            LimitExceeded: `too_many_features`.
            UnprocessableInput: a name that no feature can have (`invalid_feature_name`).
        """
        check_feature_names(list(self._kinds), self._limits)
        return Schema(
            tuple(
                Feature(name, DTYPES_OF_KINDS[kind], (None,), nullable=True)
                for name, kind in self._kinds.items()
            )
        )


def kind_changed(row: int, name: str, before: int, now: int) -> SchemaConflict:
    """A Feature whose kind is `now`, where it was `before`."""
    return SchemaConflict(
        f"Record {row}: feature {name!r} is {KIND_NAMES[now]}, but was {KIND_NAMES[before]} before.",
        row=row,
        feature=name,
    )
