"""What clients were told, as they were told it: the record that the end is judged by."""

import json
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.campaign.workload import AppendSpec

__all__ = ["Attempt", "Fate", "Journal", "Outcome", "PublishedAt"]

Outcome = Literal["acknowledged", "refused", "unknown"]


@dataclass
class Attempt:
    """One try of a request. `status` is 0 where there was no answer."""

    replica: int
    start: int
    sent: float
    ended: float
    status: int
    code: str = ""


@dataclass
class Fate:
    """What a client knows of an append."""

    spec: AppendSpec
    attempts: list[Attempt] = field(default_factory=list)
    outcome: Outcome = "unknown"
    append_id: str | None = None


@dataclass(frozen=True)
class PublishedAt:
    """A publication that began when all of `before` were acknowledged, and was answered with `version`."""

    dataset: str
    version: str
    before: frozenset[str]


class Journal:
    """Everything that was observed, also written to a file line by line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self.fates: dict[int, Fate] = {}
        self.manifests: dict[tuple[str, str], str] = {}
        self.newest: dict[str, int] = {}
        self.publications: list[PublishedAt] = []
        self.violations: list[str] = []
        self.answers: Counter[str] = Counter()
        #: Downloads whose bytes were not those that the answer's own digest stated.
        self.damaged_downloads = 0

    def close(self) -> None:
        self._file.close()

    def note(self, what: str, **members: Any) -> None:
        """A line of the log."""
        self._file.write(json.dumps({"at": round(time.monotonic(), 3), "what": what, **members}) + "\n")
        self._file.flush()

    def violation(self, text: str) -> None:
        self.violations.append(text)
        self.note("violation", text=text)

    def decide(self, fate: Fate) -> None:
        """An append is over, as far as its client is concerned."""
        self.fates[fate.spec.index] = fate
        self.answers[fate.outcome] += 1
        self.note(
            "append",
            spec={**asdict(fate.spec)},
            outcome=fate.outcome,
            append_id=fate.append_id,
            attempts=[asdict(attempt) for attempt in fate.attempts],
        )

    def see_manifest(self, manifest: dict[str, Any], *, oldest: int = 0) -> None:
        """A version was served; every later answer has to be the same.

        Args:
            oldest: where the answer is to be the latest: what was published before it was asked for.
        """
        dataset, version = manifest["dataset"], manifest["version"]
        told = {name: manifest[name] for name in ("splits", "schema", "files", "compression")}
        text = json.dumps(told, sort_keys=True)
        if self.manifests.setdefault((dataset, version), text) != text:
            self.violation(f"version {version} of {dataset} is not what it was")
        minor = int(version.split(".")[1])
        if minor < oldest:
            self.violation(f"{dataset} answered {version} as latest, after 1.{oldest}.0 was published")
        self.newest[dataset] = max(minor, self.newest.get(dataset, -1))

    def acknowledged(self, dataset: str) -> frozenset[str]:
        return frozenset(
            fate.append_id
            for fate in self.fates.values()
            if fate.spec.dataset == dataset and fate.outcome == "acknowledged" and fate.append_id
        )
