"""The storage protocol under seeded schedules: nothing acknowledged is lost, doubled or torn.

`python -m tests.simulation.run` runs as many as one likes.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.ledger import Ledger
from tests.simulation.mutations import MUTATIONS
from tests.simulation.simulate import simulate, small_sizes

ROOT = Path(__file__).resolve().parents[2]
#: Of which `bin/test` does the first, and `bin/test --rest` the others.
RUNS = 300
QUICK_RUNS = 20
#: What a client notices by itself.
NOTICED = {"lost", "duplicate", "unexpected", "torn", "changed", "stale", "answer", "aborted", "stuck"}


@pytest.mark.parametrize(
    "seeds",
    [range(QUICK_RUNS), pytest.param(range(QUICK_RUNS, RUNS), marks=pytest.mark.exhaustive)],
    ids=str,
)
def test_no_schedule_breaks_a_promise(seeds: range) -> None:
    with small_sizes():
        wrong = [outcome for seed in seeds if (outcome := simulate(seed)).violations]
    assert not wrong, f"replay with: python -m tests.simulation.run --replay {wrong[0].seed}"


@pytest.mark.sampled
@pytest.mark.parametrize("name", MUTATIONS)
def test_broken_code_is_found(name: str, record_property: Callable[[str, object], None]) -> None:
    with small_sizes(), MUTATIONS[name]() as prepare:
        for seed in range(3000):
            found = {violation.kind for violation in simulate(seed, prepare=prepare).violations}
            if found & NOTICED:
                record_property("found", f"{', '.join(sorted(found))} after {seed + 1} runs")
                return
    pytest.fail(f"not found in {seed + 1} runs: {name}")


@pytest.mark.exhaustive
def test_a_seed_replays_exactly() -> None:
    command = [sys.executable, "-m", "tests.simulation.run", "--replay", "17"]
    traces = [
        subprocess.run(command, cwd=ROOT, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True)
        for seed in ("1", "2")
    ]
    assert len(traces[0].stdout) > 10_000
    assert traces[0].stdout == traces[1].stdout


@pytest.mark.parametrize(
    "manifest", [b"{}", b'{"splits":{"train":{}},"files":[]}', b'{"splits":{},"files":[]}']
)
def test_a_manifest_that_makes_no_sense_is_a_violation(manifest: bytes) -> None:
    ledger = Ledger()  # which knows of no plan either
    ledger.objects.create("d/1.0.0/_manifest.json", manifest, 0.0)
    assert [violation.kind for violation in ledger.violations] == ["torn"]
