"""What happens in a campaign, in order: everything here follows from the seed alone.

The order in which clients take up these operations is that of the script; how they then overtake one
another, and which request of which process a kill or a fault meets, is not repeatable.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.campaign.failpoints import Failpoint
from tests.campaign.faults_by_name import FAULTS
from tests.campaign.steps import COLLECTOR_STEPS, STEPS, Moment
from tests.campaign.workload import AppendSpec, Dataset, append_spec

__all__ = [
    "Arm",
    "Collect",
    "Freeze",
    "Kill",
    "Operation",
    "Publish",
    "Read",
    "Roll",
    "SetFaults",
    "datasets_of",
    "script",
]

#: Appends between two of each. Datasets that the first append creates live for a few appends.
_PUBLISH_EVERY = 20
_READ_EVERY = 6
_ARM_EVERY = 25
_KILL_EVERY = 150
_FREEZE_EVERY = 250
_ROLL_EVERY = 1500
_FAULTS_EVERY = 60
_COLLECT_EVERY = 200
_FRESH_EVERY = 40
_FRESH_APPENDS = 8
_LARGE_PUBLISH_EVERY = 500


@dataclass(frozen=True)
class Publish:
    dataset: str
    key: str | None
    dice: int


@dataclass(frozen=True)
class Read:
    dataset: str
    dice: int


@dataclass(frozen=True)
class Arm:
    replica: int
    failpoint: Failpoint


@dataclass(frozen=True)
class Kill:
    replica: int


@dataclass(frozen=True)
class Freeze:
    replica: int
    seconds: float


@dataclass(frozen=True)
class Roll:
    """A restart of all replicas, one after the other."""


@dataclass(frozen=True)
class Collect:
    """A collection of leftovers by a process to which everything is a day old; it may die of it."""

    dataset: str
    failpoint: Failpoint | None


@dataclass(frozen=True)
class SetFaults:
    name: str


Operation = AppendSpec | Publish | Read | Arm | Kill | Freeze | Roll | Collect | SetFaults


def datasets_of(appends: int, options: frozenset[str]) -> dict[str, Dataset]:
    """The datasets of a campaign.

    Args:
        options: the parameters that a publication takes in this release.
    """
    fresh = [Dataset(f"fresh-{k}", is_declared=False) for k in range(appends // _FRESH_EVERY + 1)]
    wished = (
        Dataset("small-0"),
        Dataset("small-1", options=(("num_shards", "3"),)),
        Dataset("steps", base="none"),
        Dataset("kept", keep_versions=2),
        Dataset("large", splits=("train",), keep_versions=4),
        Dataset("zipped", options=(("compression", "gzip"), ("num_shards", "2"))),
        Dataset("shuffled", options=(("shuffle", "true"), ("seed", "5"), ("num_shards", "3"))),
        Dataset("divided", options=(("fractions", "train:0.8,eval:0.2"),), splits=("train",)),
        *fresh,
    )
    return {dataset.name: dataset for dataset in wished if dict(dataset.options).keys() <= options}


def script(seed: int, appends: int, replicas: int, datasets: dict[str, Dataset]) -> Iterator[Operation]:
    """Every operation, in order."""
    steady = [name for name, dataset in datasets.items() if dataset.is_declared]
    small = [name for name in steady if name != "large"]
    dice = random.Random(f"{seed}:script")
    failpoints = _failpoints(random.Random(f"{seed}:failpoints"), STEPS - COLLECTOR_STEPS)
    deaths = _failpoints(random.Random(f"{seed}:deaths"), COLLECTOR_STEPS)
    for index in range(appends):
        fresh = f"fresh-{index // _FRESH_EVERY}"
        names = [fresh] if index % _FRESH_EVERY < _FRESH_APPENDS else small
        yield append_spec(seed, index, datasets, names)
        if index % _PUBLISH_EVERY == 5:
            key = f"publish-{seed}-{index}" if dice.random() < 0.7 else None
            yield Publish(dice.choice([*small, fresh]), key, dice.getrandbits(32))
        if index % _LARGE_PUBLISH_EVERY == 70:
            yield SetFaults("uploads")
            yield Publish("large", f"publish-{seed}-{index}", dice.getrandbits(32))
        if index % _READ_EVERY == 3:
            yield Read(dice.choice([*steady, fresh]), dice.getrandbits(32))
        if index % _ARM_EVERY == 2:
            yield Arm(dice.randrange(replicas), next(failpoints))
        if index % _KILL_EVERY == 100:
            yield Kill(dice.randrange(replicas))
        if index % _FREEZE_EVERY == 130:
            yield Freeze(dice.randrange(replicas), 70 if dice.random() < 0.1 else dice.uniform(1, 10))
        if index % _ROLL_EVERY == 180:
            yield Roll()
        if index % _COLLECT_EVERY == 150:
            yield Collect(dice.choice([*steady, "large"]), next(deaths) if dice.random() < 0.7 else None)
        if index % _FAULTS_EVERY == 10:
            yield SetFaults(dice.choice(list(FAULTS)))


def _failpoints(dice: random.Random, steps: frozenset[str]) -> Iterator[Failpoint]:
    """Each of the steps at every moment, in another order each time round."""
    moments: tuple[Moment, ...] = ("before", "during", "after")
    while True:
        every = [
            (step, moment)
            for step in sorted(steps)
            for moment in moments
            if moment != "during" or step.endswith("written")
        ]
        dice.shuffle(every)
        for step, moment in every:
            action = "freeze" if dice.random() < 0.15 else "kill"
            yield Failpoint(step, moment, dice.choice((1, 1, 2)), action)  # type: ignore[arg-type]  # as written
