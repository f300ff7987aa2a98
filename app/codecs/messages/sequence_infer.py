"""The schema of SequenceExamples that come without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ...domain.dtypes import FLOAT32
from ...domain.schema import Feature, Schema, check_feature_names
from ...errors import InputError, SchemaConflict, UnprocessableInput
from ...runtime.budget import Budget
from ..kernels.example_index import KIND_ABSENT
from ..kernels.sequence_index import KIND_MIXED, KIND_NONE
from ..records.lease import Lease
from .example_infer import DTYPES_OF_KINDS, Inference, check_num_cells, hold_head, kind_changed
from .framing import FrameBlock
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
    with Lease(budget) as context_lease, Lease(budget) as lists_lease:
        inference = _SequenceInference(budget, Inference(context_lease), _ListInference(lists_lease))
        frames = hold_head(frames, infer, budget, inference.add)
    schema = inference.schema()
    if infer == "all":
        check_num_cells(inference.context.num_rows, schema, budget)
    return schema, frames


class _SequenceInference:
    def __init__(self, budget: Budget, context: Inference, lists: _ListInference) -> None:
        self._budget = budget
        self.context = context
        self._lists = lists

    def add(self, block: FrameBlock, num_records: int) -> None:
        """Take the first `num_records` of the block into account."""
        with Lease(self._budget) as lease:
            try:
                self.context.add(contexts_of(block, 0, num_records, lease), num_records)
            except InputError as error:
                raise in_sequence_example(error, block) from None
        self._lists.add(block, num_records)

    def schema(self) -> Schema:
        """The features seen so far."""
        context = self.context.schema()
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


class _ListInference(Inference):
    """What the feature lists are."""

    index_class = ListIndex
    what = "feature lists"
    silent = (KIND_ABSENT, KIND_NONE)

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
        check_feature_names(list(self._kinds), self._limits)
        return tuple(
            Feature(name, DTYPES_OF_KINDS.get(kind, FLOAT32), (None, None), "sequence", nullable=True)
            for name, kind in self._kinds.items()
        )
