"""One run: from a seed to the violations it shows."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from unittest import mock

from app.errors import Conflict, NotFound
from app.services.datasets.append import appends, parts
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.publish import new_appends
from app.services.datasets.publish.shards import shuffle, shuffle_pass
from app.services.datasets.publish.shards import writer as shard_writer
from tests.simulation.care import Aborting, Collecting, Creating, Deleting
from tests.simulation.cluster import Cluster
from tests.simulation.ledger import Append, Ledger, Violation
from tests.simulation.reading import Reading
from tests.simulation.scheduler import DAY, HOUR, Event, Scheduler, StepLimit
from tests.simulation.store import Faults
from tests.simulation.writing import PATIENCE_S, Appending, Publishing

__all__ = ["Outcome", "draw_events", "simulate", "small_sizes"]

#: Requests that the scheduler counts apart, so that something happens right at them.
_MOMENTS: Final = (
    "create slot", "put part", "create plan", "create manifest", "complete shard", "put done", "put inputs",
    "put seen", "create gen", "create schema", "list slot", "delete part", "delete slot", "create deleted",
    "answer", "any",
)  # fmt: skip
_PAUSES_S: Final = (1.0, 20.0, 90.0, 2 * HOUR, 26 * HOUR, 40 * HOUR)
#: A row takes 30 bytes: two fill a part, and more than two do not stay in the slot.
_PART_BYTES: Final = 64
#: Slots that are listed at once: some datasets have more, and their folders are listed side by side.
_PAGE: Final = 6


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    seed: int
    violations: tuple[Violation, ...]
    steps: int
    kills: int
    appends: int
    versions: int

    def counts(self) -> dict[str, int]:
        """How much happened."""
        return {
            "steps": self.steps,
            "kills": self.kills,
            "appends": self.appends,
            "versions": self.versions,
        }


@contextmanager
def _silence() -> Iterator[None]:
    """What fails after a publication is logged; here it is no news."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def small_sizes() -> Iterator[None]:
    """Parts and pieces of two rows, and pages of few slots, so that a few rows make several."""
    with ExitStack() as stack:
        for module, name in (
            (appends, "_SMALL_BODY"),
            (appends, "SMALL_BYTES"),
            (parts, "_PART_BYTES"),
            (parts, "INLINE_BYTES"),
            (parts, "SMALL_BYTES"),
            (shard_writer, "PIECE_BYTES"),
            (shuffle_pass, "_BATCH_BYTES"),
            (shuffle, "_BUCKET_BYTES"),
            (shuffle, "_MIN_BUCKET_BYTES"),
            (shuffle_pass, "_RUN_BYTES"),
        ):
            stack.enter_context(mock.patch.object(module, name, _PART_BYTES))
        stack.enter_context(mock.patch.object(new_appends, "_PAGE", _PAGE))
        yield


def simulate(
    seed: int,
    *,
    prepare: Callable[[Cluster], None] | None = None,
    trace: Callable[[str], None] | None = None,
) -> Outcome:
    """Run the service under the schedule of a seed, then look whether anything is wrong.

    Args:
        prepare: breaks what is to be broken.
        trace: told of every step.
    """
    run = _Run(random.Random(seed), trace)
    if prepare is not None:
        prepare(run.cluster)
    with run.scheduler.clocks(), _silence():
        try:
            run.play()
            run.heal()
        except StepLimit as error:
            run.ledger.violate("stuck", str(error))
    ledger, scheduler = run.ledger, run.scheduler
    versions = sum(map(len, ledger.versions.values()))
    return Outcome(
        seed, tuple(ledger.violations), scheduler.steps, scheduler.kills, len(ledger.appends), versions
    )


class _Run:
    def __init__(self, rng: random.Random, trace: Callable[[str], None] | None) -> None:
        self.rng = rng
        self.scheduler = Scheduler(
            rng,
            switching=rng.choice((0.05, 0.2, 0.5, 1.0)),
            latency=rng.choice((0.01, 0.1, 1.0)),
            events=draw_events(rng),
            trace=trace,
        )
        self.ledger = Ledger()
        faults = Faults(
            writes=rng.choice((0.0, 0.0, 0.02, 0.1, 0.3)),
            reads=rng.choice((0.0, 0.0, 0.0, 0.02, 0.1)),
            flips=rng.choice((0.0, 0.0, 0.01, 0.05)),
            page=rng.choice((1, 2, 1000)),
        )
        self.cluster = Cluster(self.scheduler, self.ledger, faults, rng.choice((1, 3, 16)))
        skew = rng.choice((0.0, 10.0, 5 * HOUR))
        for index in range(rng.choice((2, 2, 3))):
            self.cluster.start("abc"[index], skew * rng.uniform(-1, 1))

    def play(self) -> None:
        """Everybody does what they came for, while the store and the replicas fail."""
        rng, cluster, spawn = self.rng, self.cluster, self.scheduler.spawn
        self.evolving = rng.random() < 0.2
        datasets = ["d"] if rng.random() < 0.8 else ["d", "e"]
        for number in range(rng.choice((2, 3, 4))):
            appends = [self._append(rng.choice(datasets)) for _ in range(rng.choice((1, 2, 3)))]
            self.ledger.appends += appends
            spawn(f"append{number}", partial(Appending(cluster).run_appends, appends))
        self._rival()
        for number in range(rng.choice((1, 2, 3))):
            spawn(f"publish{number}", lambda: Publishing(cluster).run(rng.choice(datasets), 2))
        spawn("read", lambda: Reading(cluster).run(rng.choice(datasets), 3))
        for number in range(rng.choice((0, 1, 2))):
            spawn(f"collect{number}", lambda: Collecting(cluster).run(rng.choice(datasets), 4))
        if rng.random() < 0.3:
            spawn("retire", lambda: Deleting(cluster).run_version(rng.choice(datasets)))
        if rng.random() < 0.2:
            spawn("create", lambda: Creating(cluster).run(rng.choice(datasets)))
        if rng.random() < 0.1:
            spawn("abort", lambda: Aborting(cluster).run(rng.choice(datasets)))
        if rng.random() < 0.08:
            spawn("delete", lambda: Deleting(cluster).run(rng.choice(datasets)))
        self.scheduler.run()

    def _append(self, dataset: str) -> Append:
        rng = self.rng
        rows = self.ledger.new_rows(rng.choice((1, 2, 3, 5, 5)))
        append = Append(rows, dataset, rng.choice(("train", "train", "test")), None)
        append.key = f"key-{rows[0]}" if rng.random() < 0.7 else None
        append.sequence = rng.choice((-1, 0, 1)) if rng.random() < 0.1 else None
        append.padded = rng.random() < 0.3 if self.evolving else None
        return append

    def _rival(self) -> None:
        """Somebody who uses another's key for other rows."""
        if self.rng.random() >= 0.1:
            return
        keyed = [append for append in self.ledger.appends if append.key is not None]
        if keyed:
            taken = self.rng.choice(keyed)
            rival = Append(self.ledger.new_rows(2), taken.dataset, taken.split, taken.key)
            rival.padded = taken.padded
            self.ledger.appends.append(rival)
            self.scheduler.spawn("rival", lambda: Appending(self.cluster).run_appends([rival]))

    def heal(self) -> None:
        """All is calm: what is under way lands, and whatever is acknowledged gets published."""
        self.scheduler.calm = True
        self.cluster.faults.writes = self.cluster.faults.reads = 0.0
        self.scheduler.settle()
        for deletion in self.ledger.deletions:
            deletion.ended = deletion.ended or self.scheduler.now
        self.cluster.replicas.clear()
        fresh = self.cluster.start("z", 0.0)
        client = Appending(self.cluster)
        for append in self.ledger.appends:
            young = self.scheduler.now - append.begun < PATIENCE_S
            if append.key is not None and append.unknown and young and self.rng.random() < 0.5:
                client.append(append, fresh, first=False)
        for dataset in sorted({append.dataset for append in self.ledger.appends}):
            self._publish_rest(dataset)
            self.ledger.check(dataset)
            if self.ledger.latest(dataset) is not None:
                Reading(self.cluster).read(dataset)
        self._collect_rest()

    def _collect_rest(self) -> None:
        """Once all is old, nothing is left that nobody needs, and nothing is gone that somebody does."""
        datasets = sorted({append.dataset for append in self.ledger.appends})
        for wait in (26 * HOUR, 8 * DAY, 26 * HOUR, 8 * DAY, 26 * HOUR):
            self.scheduler.sleep(wait)
            for dataset in datasets:
                Collecting(self.cluster).collect(dataset)
        self.ledger.check_leftovers()
        for dataset in datasets:
            self._use_again(dataset)
            if self.ledger.latest(dataset) is not None:
                Reading(self.cluster).read(dataset)

    def _use_again(self, dataset: str) -> None:
        """A key that is forgotten may be used for other rows, which get published like any."""
        keyed = [append for append in self.ledger.appends if append.key is not None]
        known = [append for append in keyed if append.dataset == dataset]
        if not known or self.rng.random() < 0.5:
            return
        rows = self.ledger.new_rows(self.rng.choice((1, 5)))
        append = Append(rows, dataset, "train", self.rng.choice(known).key)
        append.begun, append.padded = self.scheduler.now, False if self.evolving else None
        self.ledger.appends.append(append)
        Appending(self.cluster).append(append, self.cluster.any(), first=False)
        if append.acknowledged is None:
            self.ledger.violate("stuck", f"{append}, whose key is forgotten, is refused")
        if self.rng.random() < 0.5:
            Collecting(self.cluster).collect(dataset)
        self._publish_rest(dataset)
        self.ledger.check(dataset)

    def _publish_rest(self, dataset: str) -> None:
        client = Publishing(self.cluster)
        for _ in range(10):
            answer = client.ask(lambda datasets: datasets.publish(dataset, PublishOptions()))
            error: Any = answer.error
            if isinstance(error, NotFound) or getattr(error, "code", "") == "nothing_to_publish":
                return
            if answer.value is None:
                if not isinstance(error, Conflict):
                    self.ledger.violate("stuck", f"publish of {dataset}: {error.code}: {error.detail}")
                    return
                self.scheduler.sleep(70.0)
        self.ledger.violate("stuck", f"publish of {dataset} does not come to an end")


def draw_events(rng: random.Random) -> dict[str, list[Event]]:
    events: dict[str, list[Event]] = {}
    for happening, most in (("kill", 3), ("pause", 3), ("crowd", 2)):
        for _ in range(int(rng.random() * (most + 1))):
            moment = rng.choice(_MOMENTS)
            count = 1 + int(rng.random() * (400 if moment == "any" else 8))
            pause = rng.choice(_PAUSES_S)
            events.setdefault(moment, []).append(Event(happening, count, pause))  # type: ignore[arg-type]
    if rng.random() < 0.3:  # acknowledged days after it was uploaded
        late = Event("pause", 1 + int(rng.random() * 5), 40 * HOUR)
        events.setdefault("create slot", []).append(late)
    return events
