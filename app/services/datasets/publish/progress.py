"""How far a publication is. What its executors have stored tells, so any replica can answer."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from ....storage.object_store import ObjectNotFound
from ..objects.dataset import Dataset


class ProgressJson(TypedDict):
    """A version that is being published; `percent` of its records are in finished shards."""

    dataset: str
    state: Literal["publishing"]
    version: str
    shards_done: int
    shards_total: NotRequired[int]
    percent: NotRequired[int]
    updated_at: str


@dataclass(frozen=True, slots=True)
class Progress:
    """A publication that is planned and not decided yet.

    Attributes:
        percent: of the records, those in finished shards, rounded down; 99 at most. Like the number of
            shards, None where another release made the plan in a form that is not known here.
        updated_at: when the plan was made, or the last shard was finished, by the store's clock.
    """

    dataset: str
    version: str
    shards_done: int
    shards_total: int | None
    percent: int | None
    updated_at: datetime

    def to_json(self) -> ProgressJson:
        value: ProgressJson = {
            "dataset": self.dataset,
            "state": "publishing",
            "version": self.version,
            "shards_done": self.shards_done,
            "updated_at": self.updated_at.isoformat(timespec="milliseconds"),
        }
        if self.shards_total is not None:
            value["shards_total"] = self.shards_total
        if self.percent is not None:
            value["percent"] = self.percent
        return value


def notes_of(dataset: Dataset, n: int) -> tuple[Set[str], datetime]:
    """Which shards of plan `n` are noted as finished, and when it was made or a shard was last noted.

    Raises:
        ObjectNotFound: there is no such plan.
    """
    store, layout = dataset.store, dataset.layout
    planned = store.head(layout.plan(n)).last_modified
    folder = layout.all_done(n)
    notes = {info.key.removeprefix(f"{folder}/"): info.last_modified for info in store.list(folder)}
    return notes.keys(), max([planned, *notes.values()])


def progress_of(dataset: Dataset, n: int) -> Progress | None:
    """How far plan `n` is, if it is not decided; None where there is no such plan.

    Raises:
        CorruptData: the plan is not of the known form.
    """
    try:
        done, updated_at = notes_of(dataset, n)
    except ObjectNotFound:
        return None
    work = dataset.log.plan(n).work
    version = str(dataset.layout.version(n))
    if work is None:
        return Progress(dataset.name, version, len(done), None, None, updated_at)
    finished = [shard for shard in work.shards if shard.file in done]
    num_records = sum(shard.num_records for shard in finished)
    # What follows the last shard is a moment's work, but it can fail: only the manifest is the end.
    percent = min(99, 100 * num_records // max(1, sum(shard.num_records for shard in work.shards)))
    return Progress(dataset.name, version, len(finished), len(work.shards), percent, updated_at)
