"""Imports under seeded schedules: whoever dies or repeats what, the same shards come out."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from app.errors import ShardsmithError
from app.services.datasets.append.result import AppendResult
from app.services.datasets.datasets import Datasets
from app.services.datasets.imports.imports import Imports
from app.services.datasets.imports.notes import NoteBook
from app.services.datasets.imports.plan import ImportPlan
from app.services.datasets.imports.request import ImportRequest
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.publish.executor import Executor
from tests.simulation.importing import SHARDS, ImportRun
from tests.simulation.scheduler import StepLimit
from tests.simulation.simulate import small_sizes

RUNS = 200
QUICK_RUNS = 14
#: In which somebody cancels: as many as show all that one may be told.
CANCELLED_RUNS = 40
KINDS = {"answer", "rule", "changed", "aborted", "stuck"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("incoming")
    for k in range(2):
        rows = ({"id": 100 * k + i} for i in range(20))
        (found / f"{k}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return found


@pytest.fixture(scope="module")
def request_(folder: Path) -> ImportRequest:
    # Not divided: a second attempt of a range is another append, whose rows would go elsewhere.
    publish = PublishOptions(shuffle=True, seed=5, num_shards=SHARDS)
    return ImportRequest(source=f"file://{folder}", range_bytes=60, publish=publish)


def run(seed: int | None, folder: Path, request: ImportRequest) -> ImportRun:
    with small_sizes():
        found = ImportRun(seed, folder, request)
        found.play()
    return found


def is_right(found: ImportRun, wanted: ImportRun) -> bool:
    same = (found.status.state, found.status.num_records, found.shards) == ("done", 40, wanted.shards)
    # The ledger knows of no import, and so of none of these rows.
    return same and not any(violation.kind in KINDS for violation in found.ledger.violations)


@pytest.mark.parametrize(
    "seeds",
    [range(QUICK_RUNS), pytest.param(range(QUICK_RUNS, RUNS), marks=pytest.mark.exhaustive)],
    ids=str,
)
def test_every_schedule_gives_the_same_shards(seeds: range, folder: Path, request_: ImportRequest) -> None:
    wanted = run(None, folder, request_)
    assert wanted.status.plan.num_ranges == 8
    wrong = {}
    kills = 0
    for seed in seeds:
        found = run(seed, folder, request_)
        kills += found.scheduler.kills
        if not is_right(found, wanted):
            wrong[seed] = (found.status.to_json(), found.ledger.violations)
    assert not wrong
    assert kills > len(seeds) // 2


def _is_cancelled_or_published(found: ImportRun, wanted: ImportRun) -> bool:
    state, published = found.status.state, found.shards is not None
    as_told = {"cancelled": "cancelled", "import_publishing": "done", "done": "done"}
    right = state == ("done" if published else "cancelled") and found.shards in (None, wanted.shards)
    told = found.told is None or as_told[found.told] == state
    return right and told and not any(violation.kind in KINDS for violation in found.ledger.violations)


def _cancelled_runs(folder: Path, request: ImportRequest) -> Iterator[ImportRun]:
    for seed in range(CANCELLED_RUNS):
        with small_sizes():
            found = ImportRun(seed, folder, request, cancels=True)
            found.play()
        yield found


def test_cancellation_reports_the_outcome(folder: Path, request_: ImportRequest) -> None:
    wanted = run(None, folder, request_)
    runs = list(_cancelled_runs(folder, request_))
    assert [found.status.to_json() for found in runs if not _is_cancelled_or_published(found, wanted)] == []
    assert {found.told for found in runs} >= {"cancelled", "import_publishing"}


def test_a_version_that_appears_all_the_same_is_found(folder: Path, request_: ImportRequest) -> None:
    """The decision falls once the rows are published, which is too late."""
    wanted = run(None, folder, request_)
    publish = Datasets.publish

    def broken(datasets, *args, before_plan, **given):  # type: ignore[no-untyped-def]
        return publish(datasets, *args, **given)

    with mock.patch.object(Datasets, "publish", broken):
        runs = _cancelled_runs(folder, request_)
        assert not all(_is_cancelled_or_published(found, wanted) for found in runs)


def _random_keys() -> Callable[..., object]:
    """Each try is an append of its own."""
    import secrets

    return lambda plan, index, attempt: f"{secrets.token_hex(16)}.{index}"


def _noted_before() -> Callable[..., object]:
    """A range is noted as done before it is appended."""
    append = Imports._append
    stored = AppendResult("d", "train", "0" * 32, 1, 1)

    def broken(imports, dataset, plan, index, key, part):  # type: ignore[no-untyped-def]
        NoteBook(imports._datasets.open(dataset), plan.import_id).done(index, stored)
        return append(imports, dataset, plan, index, key, part)

    return broken


def _no_sequence() -> Callable[..., object]:
    """Ranges are in the order in which they were appended."""
    make = ImportRequest.append

    def broken(request, *args, sequence, **given):  # type: ignore[no-untyped-def]
        return make(request, *args, sequence=0, **given)

    return broken


def _copies_other_records() -> Callable[..., object]:
    """Whoever writes some shards writes the records of the first ones into them."""

    def broken(executor, n, work, numbers, inputs):  # type: ignore[no-untyped-def]
        first = [replace(work.shards[number], start=0) for number in numbers]
        executor._shards(n, work, first, inputs)

    return broken


@pytest.mark.parametrize(
    ("kind", "name", "broken"),
    [
        (ImportPlan, "key_of", _random_keys),
        (Imports, "_append", _noted_before),
        (ImportRequest, "append", _no_sequence),
        (Executor, "_write_some", _copies_other_records),
    ],
    ids=["random keys", "noted before", "no sequence", "other records"],
)
def test_broken_code_is_found(
    kind: type, name: str, broken: Callable[[], object], folder: Path, request_: ImportRequest
) -> None:
    wanted = run(None, folder, request_)
    with mock.patch.object(kind, name, broken()):
        for seed in range(RUNS):
            try:
                if not is_right(run(seed, folder, request_), wanted):
                    return
            except (StepLimit, ShardsmithError):
                return
    pytest.fail(f"not found in {RUNS} runs")
