"""The schema of SequenceExamples that come without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ...domain.dtypes import FLOAT32
from ...domain.limits import Budget
from ...domain.schema import Feature, Schema, check_feature_names
from ...errors import InputError, LimitExceeded, SchemaConflict, UnprocessableInput
from ..kernels.example_index import KIND_ABSENT
from ..kernels.sequence_index import KIND_MIXED, KIND_NONE
from .example_index import cell_rows
from .example_infer import DTYPES_OF_KINDS, Inference, hold_head, kind_changed
from .framing import FrameBlock
from .lease import Lease
from .sequence_index import ListIndex, contexts_of, in_sequence_example

__all__ = ["infer_sequence_schema"]


def infer_sequence_schema(
    frames: Iterator[FrameBlock], infer: Literal["head", "all"], budget: Budget
) -> tuple[Schema, Iterator[FrameBlock]]:
    """The schema of the first 1,000 records, or of all, and the same blocks again.

    The context becomes what `infer_schema` makes of an Example's features. Every feature list becomes a
    nullable sequence whose steps are lists of unknown length; float32, where no step has a kind.

    Raises:
        SchemaConflict: a feature changes its kind, or one list has steps of two kinds.
        LimitExceeded: `too_many_features`.
        UnprocessableInput: a name that no feature can have, or one name in both parts
            (`duplicate_feature`).
        LimitExceeded: the records that must be held meanwhile exceed the budget.
        InputError: as `iter_frames`, `contexts_of` and `ListIndex.index`.
    """
    inference = _SequenceInference(budget)
    frames = hold_head(frames, infer, budget, inference.add)
    return inference.schema(), frames


class _SequenceInference:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._context = Inference(budget)
        self._lists = _ListInference(budget)

    def add(self, block: FrameBlock, num_records: int) -> None:
        """Take the first `num_records` of the block into account."""
        with Lease(self._budget) as lease:
            try:
                self._context.add(contexts_of(block, 0, num_records, lease), num_records)
            except InputError as error:
                raise in_sequence_example(error, block) from None
        self._lists.add(block, num_records)

    def schema(self) -> Schema:
        """The features seen so far."""
        context = self._context.schema()
        lists = self._lists.features()
        for feature in lists:
            if feature.name in context.by_name:
                raise UnprocessableInput(
                    f"{feature.name!r} is both a feature of the context and a feature list, but the features "
                    "of a schema have names of their own. Declare one of them, and set ?undeclared=drop.",
                    code="duplicate_feature",
                    feature=feature.name,
                )
        schema = Schema((*context, *lists), "sequence_example")
        check_feature_names(list(schema.names), self._budget.limits)
        return schema


class _ListInference:
    """What the feature lists are; the counterpart of `Inference`."""

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
                index = ListIndex(tuple(self._kinds), max_unknown=limit + 1, lease=lease)
                known = len(self._kinds)
                while first < last and len(self._kinds) == known:
                    first = self._add_range(index, block, first, last)
            check_feature_names(list(self._kinds), self._budget.limits)

    def _add_range(self, index: ListIndex, block: FrameBlock, first: int, last: int) -> int:
        reached = index.index(block, first, last)
        for number, (name, kind) in enumerate(list(self._kinds.items())):
            kinds = index.cells(number, block, first).kinds[: reached - first]
            silent = (kinds == KIND_ABSENT) | (kinds == KIND_NONE) | (kinds == kind)
            for row in (~silent).nonzero()[0].tolist():
                self._see(block.first_record + first + row, name, int(kinds[row]))
        unknown = index.unknown(block, first)
        if reached == first and len(unknown) > self._budget.limits.max_features:
            raise LimitExceeded(
                f"Record {unknown[0].row} has more than {self._budget.limits.max_features} feature lists.",
                code="too_many_features",
                row=unknown[0].row,
            )
        for feature in unknown:
            self._see(feature.row, feature.name, feature.kind)
        return reached

    def _see(self, row: int, name: str, kind: int) -> None:
        if kind == KIND_MIXED:
            raise SchemaConflict(
                f"Record {row}: feature list {name!r} has steps of two kinds.", row=row, feature=name
            )
        before = self._kinds.setdefault(name, kind)
        if before == KIND_NONE:
            self._kinds[name] = kind
        elif kind not in (KIND_NONE, before):
            raise kind_changed(row, name, before, kind)

    def features(self) -> tuple[Feature, ...]:
        """The feature lists seen so far."""
        return tuple(
            Feature(name, DTYPES_OF_KINDS.get(kind, FLOAT32), (None, None), "sequence", nullable=True)
            for name, kind in self._kinds.items()
        )
