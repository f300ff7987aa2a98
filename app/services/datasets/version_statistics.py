"""Statistics of published versions: found once, shard by shard, and kept beside the version.

They are found in a thread that outlives an impatient client, as a publication is. What any replica finds
first is what all of them tell from then on.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, NotRequired, cast

from typing_extensions import TypedDict

from ...codecs.columns import Batch, join_batches
from ...codecs.records.lease import Lease
from ...domain.limits import KIB, MIB
from ...domain.manifest import Manifest
from ...domain.names import check_split_name
from ...domain.sharding.row_order import IN_ORDER
from ...errors import NotFound, Overloaded, StorageError
from ...runtime.budget import Budget
from ...runtime.memory import MemoryPool, MemoryShare
from ...runtime.turns import waiting
from ...storage.create_once import create_once, new_nonce
from ...storage.object_store import ObjectNotFound
from ..convert.distribution import Detail
from ..convert.drift import find_drift
from ..convert.statistics import DetailedStatisticsJson, FeatureStatistics
from ..deferred import settle
from .objects.dataset import Dataset
from .objects.kept import Kept
from .objects.stored_json import open_json, read_again, seal_json
from .pieces.stream import STORED_LIMITS
from .read.reader import Reader

#: Splits that are gone through at a time; so many more wait. Half of both are for one caller.
_RUNNING: Final = 2
_WAITING: Final = 32
#: Rows that are looked at together, and the memory for them and their columns, about.
_BLOCK_ROWS: Final = 16 * KIB
_BLOCK_BYTES: Final = 16 * MIB
#: Of statistics that were read, as they are stored.
_KEPT_BYTES: Final = 8 * MIB


class VersionStatisticsJson(TypedDict):
    """The statistics of a split of a published version; they never change."""

    dataset: str
    version: str
    split: str
    num_records: int
    features: dict[str, DetailedStatisticsJson]


class ComparedStatisticsJson(VersionStatisticsJson):
    """The same, next to those of another split or version.

    `drift` says of each feature how far apart the two are, from 0 to 1; null where that cannot be said.
    """

    against: NotRequired[VersionStatisticsJson]
    drift: NotRequired[dict[str, float | None]]


class ComputingJson(TypedDict):
    """Statistics that are being found; `percent` of the records of the split were read."""

    dataset: str
    version: str
    split: str
    state: Literal["computing"]
    percent: int


@dataclass(frozen=True, slots=True)
class Computing:
    """Statistics that are being found."""

    dataset: str
    version: str
    split: str
    percent: int

    def to_json(self) -> ComputingJson:
        return {
            "dataset": self.dataset,
            "version": self.version,
            "split": self.split,
            "state": "computing",
            "percent": self.percent,
        }


def compare(one: VersionStatisticsJson, other: VersionStatisticsJson) -> ComparedStatisticsJson:
    """The statistics of `one` next to those of `other`."""
    drift = {
        name: find_drift(found, other["features"][name]) if name in other["features"] else None
        for name, found in one["features"].items()
    }
    return {**one, "against": other, "drift": drift}


@dataclass(eq=False, slots=True)
class _Run:
    caller: str
    outcome: Future[VersionStatisticsJson] = field(default_factory=Future)
    num_read: int = 0


class VersionStatistics:
    """Finds statistics, or follows what finds them. Safe to use from several threads.

    Args:
        wait_s: how long who asks waits for them.
        memory: what all requests may hold, of which each run takes its part.
    """

    def __init__(self, wait_s: float, memory: MemoryPool) -> None:
        self._wait_s = wait_s
        self._memory = memory
        self._lock = threading.Lock()
        self._turns = threading.Condition()
        #: Of each caller, the splits that are gone through.
        self._running: Counter[str] = Counter()
        self._runs: dict[str, _Run] = {}
        self._kept: Kept[str, VersionStatisticsJson] = Kept(_KEPT_BYTES)

    def get(
        self, dataset: Dataset, version: str, split: str, caller: str, wait_s: float | None = None
    ) -> VersionStatisticsJson | Computing:
        """The statistics of a split, or how far they are.

        Args:
            caller: with whom they are counted as long as they are being found.
            wait_s: how long this caller waits; None: as long as others.

        Raises:
            NotFound: no such version or split (`version_not_found`, `split_not_found`).
            Overloaded: there is no memory for it, or too much waits.
            CorruptData: the stored rows do not match their checksums.
        """
        check_split_name(split)
        n, manifest = Reader(dataset).find(version)
        if split not in manifest.splits:
            raise NotFound(f"Version {manifest.version} has no split {split!r}.", code="split_not_found")
        key = dataset.layout.statistics(n, split)
        found = self._kept.get(key) or self._read(dataset, key)
        if found is not None:
            return found
        with self._lock:
            found = self._kept.get(key)  # by a run that has just ended
            if found is not None:
                return found
            run = self._runs.get(key) or self._start(dataset, manifest, split, key, caller)
        with waiting():
            wait([run.outcome], self._wait_s if wait_s is None else wait_s)
        if not run.outcome.done():
            num_records = manifest.splits[split].num_records
            return Computing(dataset.name, manifest.version, split, 100 * run.num_read // max(1, num_records))
        with self._lock:
            if self._runs.get(key) is run:
                del self._runs[key]
        return run.outcome.result()

    def _read(self, dataset: Dataset, key: str) -> VersionStatisticsJson | None:
        try:
            data, value = read_again(lambda: _open(dataset.store.get(key), key))
        except ObjectNotFound:
            return None
        return self._kept.put(key, value, len(data))

    def _start(self, dataset: Dataset, manifest: Manifest, split: str, key: str, caller: str) -> _Run:
        # Those that failed are kept until somebody asks, or another one begins.
        self._runs = {name: run for name, run in self._runs.items() if not run.outcome.done()}
        most, callers = _RUNNING + _WAITING, [run.caller for run in self._runs.values()]
        if len(callers) >= most or callers.count(caller) >= most // 2:
            raise Overloaded(
                "The statistics of too many versions are being found in this replica. Try again."
            )
        run = _Run(caller)
        work = partial(copy_context().run, self._work, run, dataset, manifest, split, key)
        # A daemon: on shutdown it just dies, and who asks next begins anew.
        threading.Thread(target=work, name=f"statistics-{dataset.name}", daemon=True).start()
        self._runs[key] = run
        return run

    def _work(self, run: _Run, dataset: Dataset, manifest: Manifest, split: str, key: str) -> None:
        def find() -> VersionStatisticsJson:
            with self._turn(run.caller):
                return self._find(run, dataset, manifest, split, key)

        settle(run.outcome, find)

    @contextmanager
    def _turn(self, caller: str) -> Iterator[None]:
        def is_free() -> bool:
            return self._running.total() < _RUNNING and self._running[caller] < _RUNNING // 2

        with self._turns:
            self._turns.wait_for(is_free)
            self._running[caller] += 1
        try:
            yield
        finally:
            with self._turns:
                self._running -= Counter([caller])  # which also forgets those that have none
                self._turns.notify_all()

    def _find(
        self, run: _Run, dataset: Dataset, manifest: Manifest, split: str, key: str
    ) -> VersionStatisticsJson:
        share = self._memory.share()
        try:
            features = self._go_through(run, dataset, manifest, split, share)
        finally:
            share.end()
        value: VersionStatisticsJson = {
            "dataset": dataset.name,
            "version": manifest.version,
            "split": split,
            "num_records": manifest.splits[split].num_records,
            "features": {
                feature.name: found.to_json()
                for feature, found in zip(manifest.schema, features, strict=True)
            },
        }
        data = seal_json({"nonce": new_nonce(), **value})
        try:
            winner = create_once(dataset.store, key, data)
        except StorageError as error:
            if error.code != "storage_denied":
                raise
            winner = None  # of a store that can only be read: kept in memory
        data, value = _open(data if winner is None else winner, key)
        return self._kept.put(key, value, len(data))

    def _go_through(
        self, run: _Run, dataset: Dataset, manifest: Manifest, split: str, share: MemoryShare
    ) -> Sequence[FeatureStatistics]:
        """The statistics of each feature: those of the shards, merged in their order."""
        reader, schema, entry = Reader(dataset), manifest.schema, manifest.splits[split]

        def begin(shard: int) -> list[FeatureStatistics]:
            details = (
                Detail.of(len(schema), entry.num_records * (feature.num_values or 1), shard)
                for feature in schema
            )
            return [
                FeatureStatistics(feature, detail) for feature, detail in zip(schema, details, strict=True)
            ]

        share.reserve(len(schema) * Detail.of(len(schema), entry.num_records).num_bytes)
        merged, offset = begin(len(entry.shards)), 0
        for number, shard in enumerate(entry.shards):
            found = begin(number)
            part = self._memory.share()
            try:
                budget = Budget(STORED_LIMITS, part)
                stored = reader.open_split(manifest.version, split)
                rows = stored.read(offset, shard.num_records, IN_ORDER, budget)
                for block in _gather(rows.batches, budget):
                    for column, of_feature in zip(block.columns, found, strict=True):
                        of_feature.add(column, block.num_rows)
                    run.num_read += block.num_rows
            finally:
                part.end()
            for whole, of_shard in zip(merged, found, strict=True):
                whole.merge(of_shard)
            offset += shard.num_records
        return merged


def _gather(batches: Iterable[Batch], budget: Budget) -> Iterator[Batch]:
    """The same rows, more at a time: a look at a column takes some time, however few rows it has."""
    gathered: list[Batch] = []
    with Lease(budget) as lease:
        for batch in batches:
            lease.charge(2 * batch.nbytes, "Rows that are looked at")  # and joined
            gathered.append(batch)
            if sum(part.num_rows for part in gathered) >= _BLOCK_ROWS or lease.held >= _BLOCK_BYTES:
                yield batch if len(gathered) == 1 else join_batches(gathered)
                gathered = []
                lease.release()
        if gathered:
            yield gathered[0] if len(gathered) == 1 else join_batches(gathered)


def _open(data: bytes, key: str) -> tuple[bytes, VersionStatisticsJson]:
    value: dict[str, Any] = open_json(data, key)
    del value["nonce"]
    return data, cast(VersionStatisticsJson, value)
