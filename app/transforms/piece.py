"""Some rows on their way through the steps of all features."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..codecs.columns import Batch, Column, Ints, join_batches
from ..codecs.records.lease import Lease
from ..domain.feature import Feature
from ..errors import InputError, Overloaded, UnprocessableInput
from ..runtime.budget import Budget
from ..runtime.images import EncodedImage, ImageCodecs
from .images.decode import ImageRun
from .parse import steps_of
from .step import RemoteStep, RowsRefused, Started, Step, Tools


class SkippedRows:
    """The rows that were left out so far, because a step did not take a value of theirs."""

    def __init__(self) -> None:
        #: Their numbers in the input, in order.
        self._numbers = array("q")
        self._is_drawing = False

    @property
    def count(self) -> int:
        return len(self._numbers)

    def add(self, numbers: Ints, budget: Budget) -> None:
        """Leave out rows behind those that were left out before."""
        budget.charge(numbers.nbytes, "The numbers of rows that were left out")
        self._numbers.extend(numbers.tolist())

    def draw(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The batches; what is raised while one is drawn names rows as the input has them."""
        self._is_drawing = True
        for batch in batches:
            self._is_drawing = False
            yield batch
            self._is_drawing = True
        self._is_drawing = False

    @contextmanager
    def numbering(self) -> Iterator[None]:
        """Let errors of what is done with the rows that are left name them as the input has them."""
        try:
            yield
        except InputError as error:
            if error.location.row is not None and not self._is_drawing:
                numbers = np.array(self._numbers)
                before = np.searchsorted(numbers - np.arange(len(numbers)), error.location.row, "right")
                error.renumber(error.location.row + int(before))
            raise


@dataclass(frozen=True, slots=True)
class Stage:
    """A step, or several that are done as one.

    Attributes:
        steps: which ones.
        first: the number of the first among the steps of the feature.
        work: does them.
        feature: what they are given.
    """

    steps: tuple[Step, ...]
    first: int
    work: Step
    feature: Feature


def stages_of(feature: Feature) -> tuple[Stage, ...]:
    """How the steps of a feature are done."""
    steps, stages, first = steps_of(feature.transforms), [], 0
    while first < len(steps):
        run = ImageRun.of(steps[first:], feature)
        work = steps[first] if run is None else run
        done = (steps[first],) if run is None else run.steps
        stages.append(Stage(done, first, work, feature))
        feature, first = work.result(feature), first + len(done)
    return tuple(stages)


#: What `DecodeImage.prepare` gives, by feature that begins with it.
Prepared = dict[int, list[EncodedImage | str]]


@dataclass(frozen=True, slots=True)
class Work:
    """What is done with all pieces of some rows.

    Attributes:
        stages: those of each feature.
        skipped: counts the rows that a step does not take; None if they are not left out.
        can_skip: the client may ask for that.
    """

    stages: tuple[tuple[Stage, ...], ...]
    images: ImageCodecs
    budget: Budget
    skipped: SkippedRows | None
    can_skip: bool


@dataclass(slots=True)
class _Moving:
    """A column on its way through the stages of its feature: how many are done, and what was started."""

    column: Column
    done: int = 0
    started: Started[Any] | None = None


@dataclass(slots=True, eq=False)
class Piece:
    """Some rows on their way through all steps.

    Attributes:
        numbers: of the rows, in the whole input.
        num_bytes: about what they take, where they take the most.
        prepared: their encoded images, as `Work` prepares them; empty once rows are left out.
    """

    work: Work
    batch: Batch
    numbers: Ints
    num_bytes: int
    prepared: Prepared
    lease: Lease = field(init=False)
    moving: list[_Moving] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lease = Lease(self.work.budget)

    def start(self) -> None:
        """Do the steps up to the first that is done elsewhere, and begin that one.

        What goes wrong is left for `finish` to find again, when earlier rows had no fault and hold no memory.
        """
        try:
            for index in range(len(self.batch.columns)):
                self._advance(self._begin(index), index)
        except (InputError, Overloaded, _StepRefused):
            self._stop()

    def finish(self) -> Batch:
        """The rows after all steps.

        Raises:
            InputError: a row that a step does not take, if rows are not to be skipped; more than the budget.
        """
        given = self.numbers
        while self.batch.num_rows:
            try:
                self.batch = self._finish_once()
                break
            except _StepRefused as refused:
                if self.work.skipped is None:
                    raise refused.error(self.numbers, can_skip=self.work.can_skip) from None
                self._stop()
                kept = np.setdiff1d(np.arange(self.batch.num_rows), refused.rows)
                self.batch, self.numbers = _take_rows(self.batch, kept), self.numbers[kept]
                self.prepared = {}
        if self.work.skipped is not None and len(self.numbers) < len(given):
            self.work.skipped.add(np.setdiff1d(given, self.numbers), self.work.budget)
        return self.batch

    def end(self) -> None:
        """Stop what goes on, and give the memory back."""
        self._stop()

    def _stop(self) -> None:
        for moving in self.moving:
            if moving.started is not None:
                moving.started.abandon()
        self.moving = []
        self.lease.release()

    def _finish_once(self) -> Batch:
        is_started = bool(self.moving)
        columns: list[Column] = []
        for index, stages in enumerate(self.work.stages):
            moving = self.moving[index] if is_started else self._begin(index)
            self._advance(moving, index)
            while moving.done < len(stages):
                self._collect(moving, stages[moving.done])
                self._advance(moving, index)
            columns.append(moving.column)
        return Batch(self.batch.num_rows, tuple(columns))

    def _begin(self, index: int) -> _Moving:
        moving = _Moving(self.batch.columns[index])
        self.moving.append(moving)
        return moving

    def _advance(self, moving: _Moving, index: int) -> None:
        """Do the stages up to the first that is done elsewhere, and begin that one."""
        stages, tools = self.work.stages[index], Tools(self.lease, self.work.images)
        while moving.started is None and moving.done < len(stages):
            stage, column = stages[moving.done], moving.column
            with _naming(stage, column):
                given = (column, stage.feature, self.batch.num_rows, tools)
                if isinstance(stage.work, ImageRun) and not moving.done:
                    moving.started = stage.work.start(*given, self.prepared.get(index))
                elif isinstance(stage.work, RemoteStep):
                    moving.started = stage.work.start(*given)
                else:
                    moving.column = stage.work.apply(*given)
                    moving.done += 1

    def _collect(self, moving: _Moving, stage: Stage) -> None:
        assert moving.started is not None  # noqa: S101  # else `_advance` went on; this is for the type
        started, moving.started = moving.started, None
        with _naming(stage, moving.column):
            moving.column = started.column()
        moving.done += 1


@contextmanager
def _naming(stage: Stage, column: Column) -> Iterator[None]:
    """Name the feature and the step in what goes wrong."""
    try:
        yield
    except RowsRefused as refused:
        number, step = stage.first + refused.step, stage.steps[refused.step]
        raise _StepRefused(refused, column, stage.feature.name, number, step.name) from None
    except InputError as error:
        raise error.shift(feature=stage.feature.name) from None


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


def _take_rows(batch: Batch, rows: Ints) -> Batch:
    """Some rows of a batch, in their order."""
    if not len(rows):
        return batch.rows(0, 0)
    ends = np.flatnonzero(np.append(np.diff(rows) != 1, True))
    begins = np.append(0, ends[:-1] + 1)
    runs = zip(rows[begins].tolist(), (rows[ends] + 1).tolist(), strict=True)
    return join_batches([batch.rows(first, last) for first, last in runs])
