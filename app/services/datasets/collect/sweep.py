"""One run over leftovers: deletes what is decided to go, counts it, and outlives what fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Final, Literal

from typing_extensions import TypedDict

from ....errors import OutcomeUnknown, ShardsmithError
from ....storage.object_store import ObjectInfo, ObjectStore
from ..pieces.run_ahead import map_in

logger = logging.getLogger(__name__)

Kind = Literal[
    "parts",
    "slots",
    "log_files",
    "aborted_version_files",
    "deleted_version_files",
    "deleted_dataset_files",
    "probes",
]

#: The kind under which an object goes; None keeps it.
Decision = Callable[[ObjectInfo], Kind | None]

#: Objects decided at a time: all that is held of a listing, however long.
_BATCH: Final = 64
#: Failures that a report names; further ones are counted.
_NAMED_FAILURES: Final = 100


class DeletedJson(TypedDict):
    """Objects that are gone, or would be."""

    objects: int
    bytes: int


class SweepFailureJson(TypedDict):
    """What could not be done: an object or a step, and the code of the error."""

    object: str
    code: str


class SweepJson(TypedDict):
    """What one run did to one dataset, or would have done."""

    dataset: str
    dry_run: bool
    deleted: dict[Kind, DeletedJson]
    closed_slots: int
    retired_versions: list[str]
    aborted_uploads: int
    outcome_unknown: int
    num_failures: int
    failures: list[SweepFailureJson]


@dataclass(slots=True)
class SweepReport:
    """What one run did to one dataset, or would have done.

    Attributes:
        deleted: objects and bytes by kind.
        closed_slots: slots taken so that an attempt of unknown fate can never commit.
        retired_versions: published versions deleted because newer ones are enough.
        aborted_uploads: multipart uploads that were never completed.
        outcome_unknown: how often a write was not confirmed, so that all it decides stays.
        failures: the first of them, by object or step.
        num_failures: all of them, those of unknown outcome included.
    """

    dataset: str
    dry_run: bool
    deleted: dict[Kind, list[int]] = field(default_factory=dict)
    closed_slots: int = 0
    retired_versions: list[str] = field(default_factory=list)
    aborted_uploads: int = 0
    outcome_unknown: int = 0
    failures: list[SweepFailureJson] = field(default_factory=list)
    num_failures: int = 0

    def count(self, kind: Kind, num_bytes: int) -> None:
        """Note an object that is gone."""
        counted = self.deleted.setdefault(kind, [0, 0])
        counted[0] += 1
        counted[1] += num_bytes

    def to_json(self) -> SweepJson:
        return {
            "dataset": self.dataset,
            "dry_run": self.dry_run,
            "deleted": {
                kind: {"objects": objects, "bytes": num_bytes}
                for kind, (objects, num_bytes) in sorted(self.deleted.items())
            },
            "closed_slots": self.closed_slots,
            "retired_versions": self.retired_versions,
            "aborted_uploads": self.aborted_uploads,
            "outcome_unknown": self.outcome_unknown,
            "num_failures": self.num_failures,
            "failures": self.failures,
        }


class Sweep:
    """Deletes objects in batches, and keeps the report.

    What fails is noted and left as it is; a later run takes it up again.

    Args:
        now: by the store's clock.
        dry_run: decide and count alone.
        stopped: asked between batches; once true, nothing more is done.
    """

    def __init__(
        self,
        store: ObjectStore,
        pool: ThreadPoolExecutor,
        dataset: str,
        now: datetime,
        *,
        dry_run: bool,
        stopped: Callable[[], bool],
    ) -> None:
        self.store = store
        self.pool = pool
        self.now = now
        self.dry_run = dry_run
        self.report = SweepReport(dataset, dry_run)
        self._stopped = stopped

    def step(self, name: str, work: Callable[[], None]) -> None:
        """Do one step of the run; where it fails, the others are done all the same."""
        if self._stopped():
            return
        try:
            work()
        except ShardsmithError as error:
            self.fail(name, error)

    def fail(self, what: str, error: ShardsmithError) -> None:
        """Note that an object or a step was left as it is."""
        report = self.report
        report.num_failures += 1
        report.outcome_unknown += isinstance(error, OutcomeUnknown)
        if len(report.failures) < _NAMED_FAILURES:
            report.failures.append({"object": what, "code": error.code})
        logger.warning("collection of %s: %s is left: %s", report.dataset, what, error.detail)

    def batches(self, objects: Iterable[ObjectInfo]) -> Iterator[list[ObjectInfo]]:
        """A listing, a little at a time, until the run is stopped."""
        iterator = iter(objects)
        while not self._stopped() and (batch := list(islice(iterator, _BATCH))):
            yield batch

    def each(self, objects: Iterable[ObjectInfo], decide: Decision) -> None:
        """Delete every object for which `decide`, called from several threads, names a kind."""
        for batch in self.batches(objects):
            self.delete(batch, decide)

    def delete(self, batch: Iterable[ObjectInfo], decide: Decision) -> None:
        """The same for a few objects."""
        batch = list(batch)
        for info, outcome in zip(batch, map_in(self.pool, partial(self._try, decide), batch), strict=True):
            if isinstance(outcome, ShardsmithError):
                self.fail(info.key, outcome)
            elif outcome is not None:
                self.report.count(outcome, info.size)

    def _try(self, decide: Decision, info: ObjectInfo) -> Kind | ShardsmithError | None:
        try:
            kind = decide(info)
            if kind is not None and not self.dry_run:
                self.store.delete(info.key)
        except ShardsmithError as error:
            return error
        return kind
