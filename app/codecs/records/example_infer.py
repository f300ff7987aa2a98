"""The schema of Examples that come without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal

from ...domain.dtypes import BYTES, FLOAT32, INT64, DType
from ...domain.limits import Budget
from ...domain.schema import Feature, Schema, check_feature_names
from ...errors import LimitExceeded, SchemaConflict
from ..kernels.example_index import KIND_ABSENT, KIND_BYTES, KIND_FLOAT, KIND_INT64
from .example_index import ExampleIndex, cell_rows
from .example_values import KIND_NAMES
from .framing import FrameBlock
from .lease import Lease

__all__ = ["DTYPES_OF_KINDS", "HEAD_RECORDS", "Inference", "hold_head", "infer_schema", "kind_changed"]

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
    inference = Inference(budget)
    frames = hold_head(frames, infer, budget, inference.add)
    return inference.schema(), frames


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
    """What the features of Examples are, as far as they have been seen."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._kinds: dict[str, int] = {}

    def add(self, block: FrameBlock, num_records: int) -> None:
        """Take the first `num_records` of the block into account."""
        limit = self._budget.limits.max_features
        first = 0
        while first < num_records:
            last = min(num_records, first + cell_rows(len(self._kinds)))
            with Lease(self._budget) as lease:
                index = ExampleIndex(tuple(self._kinds), max_unknown=limit + 1, lease=lease)
                known = len(self._kinds)
                while first < last and len(self._kinds) == known:
                    first = self._add_range(index, block, first, last)
            check_feature_names(list(self._kinds), self._budget.limits)

    def _add_range(self, index: ExampleIndex, block: FrameBlock, first: int, last: int) -> int:
        reached = index.index(block, first, last)
        for number, (name, kind) in enumerate(self._kinds.items()):
            kinds = index.cells(number, block, first).kinds[: reached - first]
            for row in ((kinds != KIND_ABSENT) & (kinds != kind)).nonzero()[0][:1]:
                raise kind_changed(block.first_record + first + int(row), name, kind, int(kinds[row]))
        unknown = index.unknown(block, first)
        if reached == first and len(unknown) > self._budget.limits.max_features:
            raise LimitExceeded(
                f"Record {unknown[0].row} has more than {self._budget.limits.max_features} features.",
                code="too_many_features",
                row=unknown[0].row,
            )
        for feature in unknown:
            kind = self._kinds.setdefault(feature.name, feature.kind)
            if kind != feature.kind:
                raise kind_changed(feature.row, feature.name, kind, feature.kind)
        return reached

    def schema(self) -> Schema:
        """The features seen so far."""
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
