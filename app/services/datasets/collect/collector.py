"""Collection: the room of what no version and no append needs any more is given back.

Every decision reads objects that are created once and say it outright; age decides when, never
whether; and where an outcome is unknown all is left as it is. So any number of collectors may run at
a time, and any may die at any step: the next run does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final

from ....domain.manifest import Manifest
from ....domain.names import check_dataset_name
from ....errors import NotFound, ShardsmithError
from ....storage.create_once import PROBE_PREFIX, store_time
from ....storage.object_store import ObjectInfo, exists
from ..objects.dataset import Backend, Dataset
from ..objects.layout import Layout
from ..objects.seen import Seen
from ..pieces.run_ahead import map_in
from ..publish.executor import Executor
from .leftover_appends import sweep_parts, sweep_slots
from .leftover_versions import sweep_dead_incarnation, sweep_log, sweep_versions
from .sweep import Kind, Sweep, SweepReport

#: Of objects that live for a moment.
_PROBE_AGE: Final = timedelta(hours=1)
#: An upload of a shard that was begun so long ago; its executor, if it lives, does the shard again.
_UPLOAD_AGE: Final = timedelta(hours=24)


class Collector:
    """Collects the leftovers of datasets. Safe to use from several threads and replicas at a time."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._store = backend.store
        self._pool = backend.pool

    def collect(self, name: str, *, dry_run: bool, stopped: Callable[[], bool]) -> SweepReport:
        """See `Datasets.collect`."""
        check_dataset_name(name)
        now = store_time(self._store)
        sweep = Sweep(self._store, self._pool, name, now, dry_run=dry_run, stopped=stopped)
        # They are nobody's, be there a dataset or not.
        sweep.step(PROBE_PREFIX, partial(_sweep_probes, sweep))
        folders = self._store.list_children(name)
        if not folders:
            raise NotFound(f"There is no dataset {name!r}, and nothing of one.", code="dataset_not_found")
        generation = 1
        while exists(self._store, Layout(name, generation).end):
            layout = Layout(name, generation)
            sweep.step(layout.own, partial(sweep_dead_incarnation, sweep, layout, folders))
            generation += 1
        # This one lives, or never began: appends that were to begin it may have left parts.
        self._collect_living(sweep, Layout(name, generation))
        sweep.step(name, partial(self._abort_uploads, sweep, name))
        return sweep.report

    def _collect_living(self, sweep: Sweep, layout: Layout) -> None:
        log = self._backend.log(layout)
        try:
            newest = log.newest()
            published = log.newest_published(newest)
            seen = log.seen(published)
        except ShardsmithError as error:
            sweep.fail(layout.log, error)
            return
        incarnation = self._backend.catalog.at(layout)
        keep = None if incarnation is None else incarnation.options.keep_versions
        gone: set[int] = set()
        if incarnation is not None and published and not sweep.dry_run:
            sweep.step(
                layout.folder(published),
                partial(_finish, Dataset(self._backend, incarnation), published),
            )
        sweep.step(layout.all_parts, partial(sweep_parts, sweep, layout, seen))
        sweep.step(layout.dataset, lambda: gone.update(sweep_versions(sweep, layout, log, keep)))
        sweep.step(layout.log, lambda: sweep_log(sweep, layout, log, newest, gone))
        sweep.step(layout.all_slots, lambda: self._sweep_slots(sweep, layout, seen))

    def _sweep_slots(self, sweep: Sweep, layout: Layout, seen: Seen) -> None:
        numbers = sorted({fate.n for fate in seen.appends.values()})
        moments = map_in(self._pool, lambda n: self._store.head(layout.manifest(n)).last_modified, numbers)
        published_at = dict(zip(numbers, moments, strict=True))
        sweep_slots(sweep, layout, seen, published_at, self._backend.unpublished)

    def _abort_uploads(self, sweep: Sweep, name: str) -> None:
        if not sweep.dry_run:
            sweep.report.aborted_uploads += self._store.sweep(name, sweep.now - _UPLOAD_AGE)


def _sweep_probes(sweep: Sweep) -> None:
    def decide(info: ObjectInfo) -> Kind | None:
        return "probes" if info.last_modified < sweep.now - _PROBE_AGE else None

    sweep.each(sweep.store.list(PROBE_PREFIX), decide)


def _finish(dataset: Dataset, published: int) -> None:
    """Do what the publisher of the last version may not have come to."""
    manifest = dataset.log.verdict(published)
    if isinstance(manifest, Manifest):
        Executor(dataset).finish_if_needed(published, manifest)
