"""Clients that create, delete and collect."""

from __future__ import annotations

from app.errors import CorruptData, NotFound, StorageError
from app.services.datasets.objects.incarnation import DatasetOptions
from tests.simulation.cluster import Client
from tests.simulation.ledger import Deletion, Version
from tests.simulation.scheduler import DAY, HOUR
from tests.support.dataset_rows import SCHEMA

__all__ = ["Aborting", "Collecting", "Creating", "Deleting"]


class Creating(Client):
    """Creates a dataset, in a race with whoever appends to it."""

    def run(self, dataset: str) -> None:
        schema = SCHEMA if self.rng.random() < 0.5 else None
        options = DatasetOptions(keep_versions=self.rng.choice((None, 1, 2)))
        answer = self.ask(lambda datasets: datasets.create(dataset, schema, options))
        error = answer.error
        if error is not None and not isinstance(error, StorageError) and error.code != "dataset_exists":
            self.ledger.violate("answer", f"create {dataset}: {error.code}: {error.detail}")


class Deleting(Client):
    """Deletes a dataset, or a version that is not the last."""

    def run(self, dataset: str) -> None:
        self.pause(10.0, 2 * HOUR)
        deletion = Deletion(dataset, self.scheduler.now)
        self.ledger.deletions.append(deletion)
        while True:
            answer = self.ask(lambda datasets: datasets.delete(dataset))
            if answer.is_done or isinstance(answer.error, NotFound):
                deletion.ended = self.scheduler.now if answer.is_done else None
                break
            self.pause(5.0)

    def run_version(self, dataset: str) -> None:
        for _ in range(2):
            self.pause(60.0, 30 * HOUR)
            if versions := self.ledger.all_versions(dataset):
                self._delete_version(self.rng.choice(versions))

    def _delete_version(self, version: Version) -> None:
        begun = self.scheduler.now
        was_last = self.ledger.latest(version.dataset) is version
        answer = self.ask(lambda datasets: datasets.delete_version(version.dataset, version.name))
        is_last = was_last and self.ledger.latest(version.dataset) is version
        if answer.is_done and is_last and not self.ledger.may_be_deleted(version.dataset, begun):
            self.ledger.violate("answer", f"{version.name}, the last of {version.dataset}, was deleted")


class Aborting(Client):
    """Gives up the version that is being published, if any."""

    def run(self, dataset: str) -> None:
        self.pause(100.0, 2 * HOUR)
        latest = self.ledger.latest(dataset)
        generation, n = (1, 1) if latest is None else (latest.generation, latest.n + 1)
        version = f"{generation}.{n - 1}.0"
        self.ledger.given_up.add(f"{dataset}/{version}/_manifest.json")
        self.ask(lambda datasets: datasets.abort(dataset, version))


class Collecting(Client):
    """Collects what nobody needs any more."""

    def run(self, dataset: str, times: int) -> None:
        for _ in range(times):
            longest = self.rng.choice((2 * HOUR, 26 * HOUR, 26 * HOUR, 40 * HOUR, 9 * DAY))
            self.scheduler.sleep(longest * self.rng.uniform(0.7, 1.0))
            self.collect(dataset)

    def collect(self, dataset: str) -> None:
        answer = self.ask(lambda datasets: datasets.collect(dataset))
        if isinstance(answer.error, CorruptData):
            self.ledger.violate("answer", f"collect {dataset}: {answer.error.detail}")
