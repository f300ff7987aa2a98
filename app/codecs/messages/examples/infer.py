"""The schema of Examples and SequenceExamples that come without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal

import numpy as np

from ....domain.dtypes import BYTES, FLOAT32, INT64, DType
from ....domain.feature import Feature, FeatureKind, FeatureShape
from ....domain.schema import LIST_PREFIX, Message, Schema, check_feature_names, message_keys
from ....errors import LimitExceeded, SchemaConflict, UnprocessableInput
from ....runtime.amplification import CELL_BYTES, ROW_BYTES
from ....runtime.budget import Budget
from ...kernels.messages.read import FEATURE_LISTS, FEATURES
from ...kernels.messages.wire import KIND_ABSENT, KIND_BYTES, KIND_FLOAT, KIND_INT64, KIND_MIXED, KIND_NONE
from ...records.lease import Lease
from ..framing import FrameBlock
from .cells import KIND_NAMES, MessageCells, Wanted, cell_rows

#: Records from which a schema is inferred, however the input is chunked.
HEAD_RECORDS: Final = 1000

#: What the values of a Feature of each kind are. A feature list without a value could be any.
_DTYPES: Final[dict[int, DType]] = {
    KIND_BYTES: BYTES,
    KIND_FLOAT: FLOAT32,
    KIND_INT64: INT64,
    KIND_NONE: FLOAT32,
}

#: More values than a record holds.
_MANY: Final = 2**62
#: A feature's part of the message, and its key there.
_Place = tuple[int, str]


def infer_schema(
    frames: Iterator[FrameBlock], message: Message, infer: Literal["head", "all"], budget: Budget
) -> tuple[Schema, Iterator[FrameBlock]]:
    """The schema of the first 1,000 records, or of all, and the same blocks again.

    A message does not tell a scalar from a list of one, nor text from bytes. From the first records every key
    becomes a nullable list of unknown length: later ones may have any length, or lack it. From all records a
    feature has the length that it has in each of them, of one value is a scalar, and is nullable where one
    lacks it; then it stays a list of unknown length unless it is a scalar. A feature list is a sequence whose
    steps have a length in the same way; float32 where no step has a kind. Features come in the order of first
    appearance, those of the context first; a feature list with the key of one of those is named
    `feature_lists/` and the key. A Feature without a kind says nothing.

    Errors:
        SchemaConflict: a feature changes its kind, or one list has steps of two kinds.
        LimitExceeded: `too_many_features`; the records that must be held meanwhile exceed the budget.
        UnprocessableInput: a name that no feature can have (`invalid_feature_name`), or that another feature
            list gets (`duplicate_feature`).
        InputError: damaged frames, or records that are no such messages.
    """
    with Lease(budget) as lease:
        inference = _Inference(message, lease)
        held = _hold_head(frames, infer, budget, inference.add)
        if infer == "all":
            inference.measure([block for block, _ in held])
    schema = inference.schema()
    if infer == "all":
        cells = (ROW_BYTES + CELL_BYTES * len(schema)) * inference.num_rows
        # Too much for the body is refused before the first row is decoded.
        budget.check_amplification("decoded", cells)
    return schema, _replay(held, frames)


def _hold_head(
    frames: Iterator[FrameBlock],
    infer: Literal["head", "all"],
    budget: Budget,
    look: Callable[[FrameBlock, int], None],
) -> list[tuple[FrameBlock, Lease]]:
    """The blocks of the first 1,000 records, or of all, after `look` has seen them.

    Args:
        look: called with each block and how many of its records to look at.

    Errors:
        LimitExceeded: the records that must be held meanwhile exceed the budget.
        InputError: damaged frames, and what `look` raises.
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
    return held


def _replay(held: list[tuple[FrameBlock, Lease]], frames: Iterator[FrameBlock]) -> Iterator[FrameBlock]:
    held.reverse()
    while held:
        block, lease = held.pop()
        with lease:
            yield block
    yield from frames


class _Inference:
    """What the features of messages are, as far as they have been seen.

    Args:
        lease: charged for what is looked up, and released by the caller.
    """

    def __init__(self, message: Message, lease: Lease) -> None:
        self._message: Message = message
        self._lease = lease
        self._limits = lease.budget.limits
        self._kinds: dict[_Place, int] = {}
        #: How many values each row has, or each step; absent where that is not known.
        self._widths: dict[_Place, int] = {}
        #: Features that a row lacks.
        self._lacked: set[_Place] = set()
        self._is_measured = False
        self.num_rows = 0
        self._look_for_all()

    def _look_for_all(self) -> None:
        #: Those that are looked for.
        self._places = list(self._kinds)
        self._check_names()
        self._lease.release()
        wanted = [
            Wanted(key, part, kind if part == FEATURES else KIND_ABSENT)
            for (part, key), kind in self._kinds.items()
        ]
        max_unknown = self._limits.max_features + 1
        self._messages = MessageCells(wanted, self._message, max_unknown=max_unknown, lease=self._lease)
        #: How often features were met that are not looked for.
        self._num_missed = 0

    def _check_names(self) -> None:
        for part in (FEATURES, FEATURE_LISTS):
            check_feature_names([key for of, key in self._kinds if of == part], self._limits)

    def add(self, block: FrameBlock, num_records: int) -> None:
        """Take the first `num_records` of the block into account."""
        self.num_rows += num_records
        first = 0
        while first < num_records:
            last = min(num_records, first + cell_rows(len(self._places)))
            reached = self._add_range(block, first, last)
            # Not for each new feature: thousands of them can come one by one. But a broken record is refused
            # only once all its features are known.
            if self._num_missed > len(self._places) or reached == first:
                self._look_for_all()
            first = reached

    def _add_range(self, block: FrameBlock, first: int, last: int) -> int:
        messages = self._messages
        with Lease(self._lease.budget) as lease:
            reached = messages.read(block, first, last, lease)
        found = messages.kinds()[:, : reached - first]
        known = np.fromiter((self._kinds[place] for place in self._places), np.uint8, len(self._places))
        silent = (found == known[:, None]) | (found == KIND_ABSENT) | (found == KIND_NONE)
        for number, row in np.argwhere(~silent).tolist():
            self._see(block.first_record + first + row, self._places[number], int(found[number, row]))
        unknown = messages.unknown(block, first)
        if reached == first and len(unknown) > self._limits.max_features:
            raise LimitExceeded(
                f"Record {unknown[0].row} has more than {self._limits.max_features} features.",
                code="too_many_features",
                row=unknown[0].row,
            )
        self._num_missed += len(unknown)
        for feature in unknown:
            self._see(feature.row, (feature.part, feature.key), feature.kind)
        return reached

    def _see(self, row: int, place: _Place, kind: int) -> None:
        name = place[1]
        if kind == KIND_MIXED:
            raise SchemaConflict(
                f"Record {row}: feature list {name!r} has steps of two kinds.", row=row, feature=name
            )
        before = self._kinds.setdefault(place, kind)
        if before == KIND_NONE:
            self._kinds[place] = kind
        elif kind not in (KIND_NONE, before):
            raise SchemaConflict(
                f"Record {row}: feature {name!r} is {KIND_NAMES[kind]}, but was {KIND_NAMES[before]} before.",
                row=row,
                feature=name,
            )

    def measure(self, blocks: list[FrameBlock]) -> None:
        """Note how many values the features have, and which of them a row lacks, now that all are known."""
        if self._num_missed:
            self._look_for_all()
        self._is_measured = True
        least = np.full(len(self._places), _MANY, np.int64)
        most = np.full(len(self._places), -1, np.int64)
        lacked = np.zeros(len(self._places), np.bool_)
        step = cell_rows(len(self._places))
        for block in blocks:
            for first in range(0, block.num_records, step):
                last = min(first + step, block.num_records)
                with Lease(self._lease.budget) as lease:
                    self._messages.read(block, first, last, lease)
                is_there, widths = self._messages.kinds() != KIND_ABSENT, self._messages.widths()
                lacked |= ~is_there.all(axis=1)
                # A feature list without steps says nothing of their width.
                says = is_there & (widths >= -1)
                np.minimum(least, np.where(says, widths, _MANY).min(axis=1), out=least)
                np.maximum(most, np.where(says, widths, -1).max(axis=1), out=most)
        known = (least == most) & (least > 0)
        self._widths = {self._places[number]: int(least[number]) for number in np.flatnonzero(known).tolist()}
        self._lacked = {self._places[number] for number in np.flatnonzero(lacked).tolist()}

    def schema(self) -> Schema:
        """The features seen so far.

        Errors:
            LimitExceeded: `too_many_features`.
            UnprocessableInput: `invalid_feature_name`, `duplicate_feature`.
        """
        self._check_names()
        ordered = [place for part in (FEATURES, FEATURE_LISTS) for place in self._kinds if place[0] == part]
        features = [self._feature(place) for place in ordered]
        schema = Schema(tuple(features), self._message)
        keys = message_keys(schema)
        for (_, key), feature in zip(ordered, schema, strict=True):
            if keys[feature.name] != key:
                raise UnprocessableInput(
                    f"A feature list is called {key!r}, which stands for the feature list "
                    f"{keys[feature.name]!r} here, since the context has that name, too. Declare a schema "
                    "without it, and set undeclared=drop.",
                    code="duplicate_feature",
                    feature=key,
                )
        check_feature_names(list(schema.names), self._limits)
        return schema

    def _feature(self, place: _Place) -> Feature:
        part, key = place
        name = LIST_PREFIX + key if part == FEATURE_LISTS and (FEATURES, key) in self._kinds else key
        dtype = _DTYPES[self._kinds[place]]
        kind: FeatureKind = "dense" if part == FEATURES else "sequence"
        shape: FeatureShape = (None,) if part == FEATURES else (None, None)
        nullable = not self._is_measured or place in self._lacked
        if self._is_measured:
            shape = shape_of_length(kind, self._widths.get(place), nullable=nullable)
        inferred = self._is_measured and part == FEATURES
        return Feature(name, dtype, shape, kind, nullable=nullable, inferred=inferred)


def shape_of_length(kind: FeatureKind, length: int | None, *, nullable: bool) -> FeatureShape:
    """The shape of an inferred feature of messages, once all of them have been seen.

    Args:
        length: how many values each row has that has any, or each step; None where they differ.
        nullable: whether a row lacks the feature.
    """
    shape: FeatureShape = (None,)
    if length == 1:
        shape = ()
    # One long value would give all rows without one its room, in forms with places for them (Arrow).
    elif length and not (nullable and kind == "dense"):
        shape = (length,)
    return (None, *shape) if kind == "sequence" else shape
