"""The seeds that the fuzzer starts from: each is read as what it is, and every target has one."""

import gc
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS, run

CORPUS = Path(__file__).parent / "corpus"
SEEDS = sorted(CORPUS.glob("*/*"))


def test_every_target_has_seeds() -> None:
    assert {seed.parent.name for seed in SEEDS} == set(TARGETS)


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed.parent.name}-{seed.name}")
def test_seed_is_read(seed: Path) -> None:
    assert run(TARGETS[seed.parent.name], seed.read_bytes()) is None


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_changed_seeds_are_read_or_refused_without_leaks(name: str) -> None:
    run_changed_seeds(name)
    gc.collect()
    before = sys.getallocatedblocks()
    run_changed_seeds(name)
    gc.collect()
    # For most targets a thousand executions and more: one object kept by each would show.
    assert sys.getallocatedblocks() - before < 200


def run_changed_seeds(name: str) -> None:
    for seed in sorted((CORPUS / name).iterdir()):
        data = seed.read_bytes()
        for at in range(0, len(data), max(1, len(data) // 20)):
            run(TARGETS[name], data[:at])
            run(TARGETS[name], data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
