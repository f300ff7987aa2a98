"""Imports under a seeded schedule: several drivers do the ranges of one, die, pause and begin again."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from app.domain.limits import Limits
from app.errors import ShardsmithError
from app.runtime.memory import MemoryPool
from app.services.datasets.append.attempt import id_of_key
from app.services.datasets.datasets import Datasets
from app.services.datasets.imports.imports import Imports, Task
from app.services.datasets.imports.request import ImportRequest
from app.services.datasets.imports.status import ImportStatus
from app.services.datasets.publish.unwritten import UnwrittenShards
from tests.simulation.care import Collecting
from tests.simulation.cluster import SPOOL, Client, Cluster
from tests.simulation.ledger import Ledger
from tests.simulation.scheduler import HOUR, Scheduler
from tests.simulation.simulate import draw_events
from tests.simulation.store import Faults

__all__ = ["SHARDS", "ImportRun"]

DATASET = "d"
KEY = "import-1"
#: Of the version.
SHARDS = 3
NOT_THERE = ("dataset_not_found", "version_not_found")
#: How often a driver begins again before it leaves the rest to others.
_LIVES = 8


def imports_of(datasets: Datasets) -> Imports:
    return Imports(datasets, limits=Limits(), spool=SPOOL, memory=MemoryPool(sys.maxsize))


class Importing(Client):
    """One driver: it asks one replica after the other to do a range, some of them twice and in any order."""

    def __init__(self, cluster: Cluster, request: ImportRequest) -> None:
        super().__init__(cluster)
        self.request = request

    def run(self) -> None:
        for _ in range(_LIVES):
            self.pause(1.0, 30.0, 2 * HOUR)
            begun = self.ask(lambda datasets: imports_of(datasets).begin(DATASET, self.request, KEY))
            if begun.value is None:
                self.judge(begun.error)
                continue
            if self.drive(begun.value[0]):
                return

    def drive(self, import_id: str) -> bool:
        """Whether the import has ended."""
        tasks = self.ask(lambda datasets: imports_of(datasets).tasks(DATASET, import_id))
        if tasks.value is None:
            self.judge(tasks.error)
            return False
        todo = [*tasks.value, *self.rng.choices(tasks.value, k=2)] if tasks.value else []
        self.rng.shuffle(todo)
        for task in todo:
            self.do(task)
        share = self.rng.randrange(2)
        ended = self.ask(
            lambda datasets: imports_of(datasets).finish(
                DATASET, import_id, lambda shards, write_here: write_here(shards.share(share, 2))
            )
        )
        self.judge(ended.error)
        return ended.value is not None and ended.value.has_ended

    def do(self, task: Task) -> None:
        outcome = self.ask(lambda datasets: imports_of(datasets).work(task))
        self.judge(outcome.error)
        if outcome.value is not None and outcome.value.state not in ("done", "ended"):
            self.ledger.violate("answer", f"range {task.index} is {outcome.value}")

    def judge(self, error: ShardsmithError | None) -> None:
        """Only what the store does to it may come in its way."""
        allowed = (
            "storage_unavailable", "storage_denied", "outcome_unknown", "corrupt_data", "append_in_progress",
            "publish_in_progress", "publish_aborted", "append_expired", "too_many_publications",
        )  # fmt: skip
        if error is not None and error.code not in allowed:
            self.ledger.violate("answer", f"{error.code}: {error.detail}")


class WritingShards(Importing):
    """Has replicas write some shards of the version, also before it is planned and once it is published."""

    def run(self) -> None:
        for _ in range(2 * _LIVES):
            self.pause(1.0, 30.0, HOUR)
            numbers = tuple(self.rng.sample(range(SHARDS), k=self.rng.randrange(1, SHARDS + 1)))
            shards = UnwrittenShards(DATASET, "1.0.0", numbers, shuffled=True)
            written = self.ask(lambda datasets, shards=shards: datasets.write_shards(shards))  # type: ignore[misc]
            if written.error is not None and written.error.code not in NOT_THERE:
                self.judge(written.error)


class Cancelling(Importing):
    """Cancels the import, once."""

    told: str | None = None

    def run(self) -> None:
        for _ in range(_LIVES):
            self.pause(1.0, 30.0, HOUR)
            asked = self.ask(lambda datasets: imports_of(datasets).cancel(DATASET, id_of_key(KEY)))
            if asked.value is not None:
                self.told = asked.value.state
                return
            if asked.error is not None and asked.error.code == "import_publishing":
                self.told = asked.error.code
                return
            if asked.error is not None and asked.error.code not in (*NOT_THERE, "import_not_found"):
                self.judge(asked.error)


class ImportRun:
    """An import from a folder under the schedule of a seed.

    Args:
        cancels: somebody cancels it.

    Attributes:
        status: of the import in the end.
        shards: the digests of all shards of its version; None if it has none.
        told: what who cancelled it was told, if anything.
    """

    def __init__(
        self, seed: int | None, folder: Path, request: ImportRequest, *, cancels: bool = False
    ) -> None:
        self.rng = rng = random.Random(seed)
        calm = seed is None
        self.scheduler = Scheduler(
            rng,
            switching=0.0 if calm else rng.choice((0.05, 0.2, 0.5)),
            latency=0.01 if calm else rng.choice((0.01, 0.1, 1.0)),
            events={} if calm else draw_events(rng),
        )
        self.ledger = Ledger()
        faults = Faults() if calm else Faults(
            writes=rng.choice((0.0, 0.0, 0.02, 0.1)),
            reads=rng.choice((0.0, 0.0, 0.02)),
            flips=rng.choice((0.0, 0.0, 0.01)),
            page=rng.choice((2, 1000)),
        )  # fmt: skip
        self.cluster = Cluster(self.scheduler, self.ledger, faults, rng.choice((1, 3, 16)))
        self.request = request
        self.cancelling = Cancelling(self.cluster, request) if cancels else None
        for name in "ab":
            self.cluster.start(name, 0.0 if calm else rng.choice((0.0, 5 * HOUR)) * rng.uniform(-1, 1))

    def play(self) -> None:
        """Drive it, then once more when all is calm."""
        with self.scheduler.clocks():
            for number in range(3):
                self.scheduler.spawn(f"driver{number}", Importing(self.cluster, self.request).run)
            for number in range(2):
                self.scheduler.spawn(f"writer{number}", WritingShards(self.cluster, self.request).run)
            if self.cancelling is not None:
                self.scheduler.spawn("cancel", self.cancelling.run)
            if self.rng.random() < 0.5:
                self.scheduler.spawn("collect", lambda: Collecting(self.cluster).run(DATASET, 4))
            self.scheduler.run()
            self.scheduler.calm = True
            self.cluster.faults.writes = self.cluster.faults.reads = self.cluster.faults.flips = 0.0
            self.scheduler.settle()
            self.cluster.replicas.clear()
            fresh = self.cluster.start("z", 0.0)
            self.scheduler.sleep(90.0)  # after which a plan that stands still is anybody's
            imports = imports_of(fresh.datasets)
            import_id, _ = imports.begin(DATASET, self.request, KEY)
            for task in imports.tasks(DATASET, import_id):
                imports.work(task)
            self.status: ImportStatus = imports.finish(DATASET, import_id)
            self.told = None if self.cancelling is None else self.cancelling.told
            self.shards = _shards_of(fresh.datasets)


def _shards_of(datasets: Datasets) -> dict[str, list[str]] | None:
    if not datasets.versions(DATASET):
        return None
    splits = datasets.manifest(DATASET, "latest").splits
    return {name: [shard.sha256 for shard in split.shards] for name, split in splits.items()}
