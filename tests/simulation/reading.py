"""A client that reads what is published, and asks what became of appends."""

from __future__ import annotations

from app.errors import CorruptData, NotFound
from app.runtime.budget import Budget
from tests.simulation.cluster import Client
from tests.simulation.ledger import Version
from tests.simulation.scheduler import DAY, HOUR
from tests.support.arrow_rows import as_arrow

__all__ = ["Reading"]


class Reading(Client):
    """Reads the latest version, or an earlier one."""

    def run(self, dataset: str, times: int) -> None:
        for _ in range(times):
            self.pause(1.0, 30.0, 2 * HOUR, 30 * HOUR)
            choice = self.rng.random()
            if choice < 0.6:
                self.read(dataset)
            elif choice < 0.8:
                self.read_earlier(dataset)
            else:
                self.find_append(dataset)

    def read_earlier(self, dataset: str) -> None:
        versions = self.ledger.all_versions(dataset)
        if versions:
            self.read_rows(self.rng.choice(versions), self.scheduler.now)

    def find_append(self, dataset: str) -> None:
        """What became of an append; one that is acknowledged is there until its version is a week old."""
        begun = self.scheduler.now
        acknowledged = [append for append in self.ledger.appends if append.answers]
        known = [append for append in acknowledged if append.dataset == dataset]
        if not known:
            return
        append = self.rng.choice(known)
        answer = self.ask(lambda datasets: datasets.get_append(dataset, append.answers[0].append_id))
        if self.ledger.may_be_deleted(dataset, append.begun):
            return
        if answer.value is not None and answer.value["state"] == "dead":
            self.ledger.violate("answer", f"{append} is acknowledged, but said to be dead")
        if isinstance(answer.error, (NotFound, CorruptData)) and begun - append.begun < 7 * DAY:
            self.ledger.violate("answer", f"{append} is acknowledged, but {answer.error.code}")

    def read(self, dataset: str) -> None:
        begun = self.scheduler.now
        expected = self.ledger.latest(dataset)
        answer = self.ask(lambda datasets: datasets.manifest(dataset, "latest"))
        deleted = self.ledger.may_be_deleted(dataset, begun)
        if answer.value is None:
            if isinstance(answer.error, (NotFound, CorruptData)) and expected is not None and not deleted:
                self.ledger.violate("stale", f"latest of {dataset}: {answer.error.code}")
            return
        version = self.ledger.version(dataset, answer.value.version)
        if version is None:
            if deleted:
                return
            self.ledger.violate("torn", f"{answer.value.version} of {dataset} was read unpublished")
            return
        is_older = expected is not None and (version.generation, version.n) < (
            expected.generation,
            expected.n,
        )
        if expected is not None and is_older and not deleted:
            self.ledger.violate("stale", f"latest of {dataset} was {version.name}, not {expected.name}")
        self.read_rows(version, begun)

    def read_rows(self, version: Version, begun: float) -> None:
        """Some range of a split, against what was published."""
        if not version.rows:
            return  # all was left out
        split = self.rng.choice(list(version.rows))
        rows = version.rows[split]
        offset = int(self.rng.random() * len(rows)) if self.rng.random() < 0.5 else 0
        length = None if self.rng.random() < 0.5 else 1 + int(self.rng.random() * 4)
        answer = self.ask(
            lambda datasets: [
                value
                for batch in as_arrow(
                    datasets.read_records(
                        version.dataset, version.name, split, offset=offset, length=length, budget=Budget()
                    )
                )
                for value in batch.column("x").to_pylist()
            ]
        )
        wanted = list(rows[offset : None if length is None else offset + length])
        if answer.value is not None:
            if answer.value != wanted:
                self.ledger.violate("torn", f"{version.name}: {answer.value} instead of {wanted}")
        elif isinstance(answer.error, (NotFound, CorruptData)):
            deleted = self.ledger.may_be_deleted(version.dataset, begun)
            if not deleted and not self.ledger.is_retired(version):
                self.ledger.violate("torn", f"{version.name} of {version.dataset}: {answer.error.detail}")
