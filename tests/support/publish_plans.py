"""Versions of a dataset made by a plan that a test lays down itself."""

from collections.abc import Callable
from dataclasses import replace

from app.domain.compression import SUFFIXES
from app.domain.manifest import Manifest
from app.domain.sharding.shard_plan import ShardPlan
from app.runtime.memory import MemoryPool
from app.services.datasets.datasets import Datasets
from app.services.datasets.objects.log import Aborted
from app.services.datasets.objects.plan import Plan, Work
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.publish.executor import Executor
from app.services.datasets.publish.publisher import Publisher
from app.services.datasets.publish.room import Room

#: Makes of a plan's work the work that a test wants.
Change = Callable[[Work], Work]


def copying(base: Manifest) -> Change:
    """All shards of the base copied, and behind them, in each split, one with the new records."""

    def change(work: Work) -> Work:
        total: dict[str, int] = {}
        for shard in work.shards:
            total[shard.split] = max(total.get(shard.split, 0), shard.stop)
        plans: list[ShardPlan] = []
        for split, stop in total.items():
            entries = base.splits[split].shards if split in base.splits else ()
            ranges: list[tuple[int, int, str | None]] = []
            start = 0
            for entry in entries:
                ranges.append((start, start + entry.num_records, entry.file))
                start += entry.num_records
            if start < stop:
                ranges.append((start, stop, None))
            suffix = SUFFIXES[work.compression]
            plans += [
                ShardPlan(
                    split,
                    f"{base.dataset}-{split}.tfrecord-{number:05d}-of-{len(ranges):05d}{suffix}",
                    first,
                    last,
                    copy_of,
                )
                for number, (first, last, copy_of) in enumerate(ranges)
            ]
        return replace(work, shards=tuple(plans))

    return change


def publisher(datasets: Datasets, name: str = "d") -> Publisher:
    return Publisher(datasets._backend.open(name), Room(MemoryPool(1 << 40)))


def executor(datasets: Datasets, name: str = "d") -> Executor:
    return publisher(datasets, name)._executor


def lay_down(
    datasets: Datasets, *changes: Change, options: PublishOptions | None = None, name: str = "d"
) -> Plan:
    """Store the next plan, of all that was appended, with its work changed; nobody executes it yet."""
    publishing = publisher(datasets, name)
    log, layout = publishing._log, publishing._layout
    n = log.newest() + 1
    published = log.newest_published(n - 1)
    seen = log.seen(published)
    listed, commits = publishing._new.find(seen)
    after = publishing._new.after(n, seen, listed, commits, [], None)
    plan = publishing._drafter.draft(n, published or None, after, commits, options or PublishOptions())
    assert plan.work is not None
    work = plan.work
    for change in changes:
        work = change(work)
    plan = replace(plan, work=work)
    datasets._backend.store.create(layout.plan(plan.n), plan.serialize())
    return plan


def publish(
    datasets: Datasets, *changes: Change, options: PublishOptions | None = None, name: str = "d"
) -> Manifest:
    """Lay down a plan and execute it."""
    plan = lay_down(datasets, *changes, options=options, name=name)
    verdict = executor(datasets, name).execute(plan)
    assert not isinstance(verdict, Aborted), verdict
    return verdict
