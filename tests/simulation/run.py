"""The simulation from the command line.

python -m tests.simulation.run --runs 100000 --seed 1 --jobs 2
python -m tests.simulation.run --replay 4711
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from typing import Final

from tests.simulation.mutations import MUTATIONS, intact
from tests.simulation.simulate import Outcome, simulate, small_sizes

_BATCH: Final = 250
#: Left to itself, the collector of garbage walks everything imported some hundred times a second.
_RUNS_BETWEEN_COLLECTIONS: Final = 25


def outcomes(seeds: Iterable[int], mutation: str | None = None) -> list[Outcome]:
    """Run each seed, with the code broken as a mutation says."""
    with small_sizes(), MUTATIONS.get(mutation or "", intact)() as prepare:
        return [simulate(seed, prepare=prepare) for seed in seeds]


def _batch(seeds: list[int], mutation: str | None) -> list[Outcome]:
    """`outcomes`, in a process of its own."""
    gc.disable()
    found = []
    for first in range(0, len(seeds), _RUNS_BETWEEN_COLLECTIONS):
        found += outcomes(seeds[first : first + _RUNS_BETWEEN_COLLECTIONS], mutation)
        gc.collect()
    return found


def replay(seed: int, mutation: str | None) -> int:
    """Print every step of one run."""
    with small_sizes(), MUTATIONS.get(mutation or "", intact)() as prepare:
        outcome = simulate(seed, prepare=prepare, trace=print)
    for violation in outcome.violations:
        print(f"VIOLATION {violation}")
    return 1 if outcome.violations else 0


def campaign(first: int, runs: int, jobs: int, mutation: str | None) -> int:
    """Run `runs` seeds from `first`; prints what they show, and returns how many are wrong."""
    seeds = iter(range(first, first + runs))
    batches = list(iter(lambda: list(islice(seeds, _BATCH)), []))
    begun, done, wrong, total = time.monotonic(), 0, 0, Counter[str]()
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for batch in pool.map(_batch, batches, [mutation] * len(batches)):
            for outcome in batch:
                done += 1
                wrong += bool(outcome.violations)
                total.update(outcome.counts())
                _report(outcome, mutation)
            passed = time.monotonic() - begun
            figures = ", ".join(f"{count} {name}" for name, count in total.items())
            print(f"{done}/{runs} runs in {passed:.0f} s, {wrong} with violations; {figures}", flush=True)
    return wrong


def _report(outcome: Outcome, mutation: str | None) -> None:
    for violation in outcome.violations:
        print(f"seed {outcome.seed}: {violation}")
    if outcome.violations:
        option = "" if mutation is None else f" --mutation {mutation!r}"
        print(f"  python -m tests.simulation.run --replay {outcome.seed}{option}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulate the storage protocol under seeded schedules.")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="the first one; the others follow it")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--replay", type=int, metavar="SEED", help="print every step of one run")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="break the code there")
    asked = parser.parse_args()
    if asked.replay is not None:
        return replay(asked.replay, asked.mutation)
    return 1 if campaign(asked.seed, asked.runs, asked.jobs, asked.mutation) else 0


if __name__ == "__main__":
    sys.exit(main())
