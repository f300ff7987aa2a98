"""Driving an import: several processes write the shards of its version, and some of them die."""

import contextlib
import json
import random
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from unittest import mock

import pytest

from app.domain.limits import Limits
from app.domain.manifest import Manifest
from app.errors import NotFound
from app.runtime.memory import MemoryPool
from app.runtime.spool import Spool
from app.services.datasets.imports import drive as driving
from app.services.datasets.imports.drive import drive
from app.services.datasets.imports.engines import (
    AnyOutcome,
    AnyTask,
    Engine,
    EngineDied,
    HereEngine,
    do,
)
from app.services.datasets.imports.imports import Imports, Outcome
from app.services.datasets.imports.request import ImportRequest
from app.services.datasets.imports.status import ImportStatus
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.publish.unwritten import UnwrittenShards
from app.storage.object_store import ObjectStore
from app.storage.obstore_store import open_store
from tests.support.dataset_rows import Client
from tests.support.faulty_store import FaultStore, KillAt, Killed, When

SHARDS = 7
PLAIN = PublishOptions(num_shards=SHARDS)
OPTIONS: dict[str, PublishOptions] = {
    "in order": PLAIN,
    "shuffled": PublishOptions(num_shards=SHARDS, shuffle=True, seed=7),
    "divided": PublishOptions(num_shards=SHARDS, fractions={"train": "0.7", "test": "0.3"}, seed=1),
    "compressed": PublishOptions(num_shards=SHARDS, compression="gzip"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for k in range(3):
        rows = ({"id": 100 * k + i, "t": "x" * i} for i in range(60))
        (tmp_path / f"{k}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def imports_at(store: ObjectStore) -> Imports:
    """Another process."""
    datasets = Client(store).datasets
    return Imports(datasets, limits=Limits(), spool=Spool(None, 1 << 30), memory=MemoryPool(1 << 40))


def begin(imports: Imports, folder: Path, options: PublishOptions) -> str:
    request = ImportRequest(source=f"file://{folder}", range_bytes=900, publish=options)
    return imports.begin("d", request, "k")[0]


def version_of(store: ObjectStore) -> tuple[Manifest, dict[str, bytes]]:
    manifest = Client(store).datasets.manifest("d", "latest")
    return manifest, {name: store.get(f"d/{manifest.version}/{name}") for name in manifest.by_file}


def run_alone(folder: Path, options: PublishOptions) -> tuple[Manifest, dict[str, bytes]]:
    store = open_store("memory://")
    imports = imports_at(store)
    drive(imports, "d", begin(imports, folder, options), HereEngine(imports))
    return version_of(store)


class Scattered:
    """Three processes: tasks are done in any order, some twice; at first a process dies now and then."""

    width = 3

    def __init__(self, store: ObjectStore, deaths: int) -> None:
        self.store = store
        self.deaths = deaths
        self.rng = random.Random(5)
        self.written: list[UnwrittenShards] = []

    def __call__(self, tasks: Sequence[AnyTask]) -> Generator[AnyOutcome, None, None]:
        todo = [*tasks, *self.rng.choices(tasks, k=2)] if tasks else []
        self.rng.shuffle(todo)
        for task in todo:
            if isinstance(task, UnwrittenShards) and self.deaths:
                self.deaths -= 1
                self._die_at(task)
                raise EngineDied
            yield do(imports_at(self.store), task)
            if isinstance(task, UnwrittenShards):
                self.written.append(task)

    def _die_at(self, task: UnwrittenShards) -> None:
        broken = FaultStore(self.store, KillAt(self.rng.randrange(3), self.rng.choice(["before", "after"])))
        with contextlib.suppress(Killed):  # of what it would write, some may be there
            imports_at(broken).write_shards(task)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_several_processes_write_the_version_that_one_would(folder: Path, options: PublishOptions) -> None:
    store = open_store("memory://")
    engine = Scattered(store, deaths=2)
    driver = FaultStore(store)
    imports = imports_at(driver)
    status = drive(imports, "d", begin(imports, folder, options), engine)
    assert status.state == "done"
    assert version_of(store) == run_alone(folder, options)
    assert {number for task in engine.written for number in task.numbers} == set(
        range(SHARDS * (2 if options.fractions else 1))
    )
    written_here = [key for operation, key in driver.requests if operation == "put_stream"]
    assert not any("tfrecord" in key for key in written_here)


def test_an_engine_that_dies_again_and_again_is_an_error_and_nothing_is_lost(folder: Path) -> None:
    store = open_store("memory://")
    imports = imports_at(store)
    import_id = begin(imports, folder, PLAIN)
    with pytest.raises(EngineDied):
        drive(imports, "d", import_id, Scattered(store, deaths=10**6))
    assert imports.follow("d", import_id).state == "publishing"
    assert drive(imports, "d", import_id, HereEngine(imports)).state == "done"
    assert version_of(store) == run_alone(folder, PLAIN)


@pytest.mark.parametrize("when", ["before", "after"])
def test_whoever_dies_at_a_shard_leaves_a_plan_that_can_be_finished(folder: Path, when: When) -> None:
    """At each write of it; a further process writes some shards, and another publishes."""
    wanted = run_alone(folder, PLAIN)
    index = 0
    while True:
        store = open_store("memory://")
        imports = imports_at(store)
        import_id = begin(imports, folder, PLAIN)
        kill = KillAt(index, when)
        shards = _planned(store, imports, import_id)
        try:
            imports_at(FaultStore(store, kill)).write_shards(shards)
        except Killed:
            imports_at(store).write_shards(shards.share(1, 2))
        assert imports_at(store).finish("d", import_id).state == "done"
        assert version_of(store) == wanted
        index += 1
        if kill.killed is None:
            break
    assert index > 2 * SHARDS


def _planned(store: ObjectStore, imports: Imports, import_id: str) -> UnwrittenShards:
    """All ranges are appended, and the version is planned by a driver that dies then."""
    planned: list[UnwrittenShards] = []

    def die(shards: UnwrittenShards, _: object) -> None:
        planned.append(shards)
        raise Killed

    for task in imports.tasks("d", import_id):
        imports.work(task)
    with pytest.raises(Killed):
        imports_at(store).finish("d", import_id, die)
    return planned[0]


def test_shards_of_no_plan_are_not_written(folder: Path) -> None:
    store = open_store("memory://")
    imports = imports_at(store)
    import_id = begin(imports, folder, PLAIN)
    shards = _planned(store, imports, import_id)
    with pytest.raises(NotFound):
        imports.write_shards(UnwrittenShards("d", "1.1.0", (0,), shuffled=False))
    imports.finish("d", import_id)
    before = version_of(store)
    imports.write_shards(shards)  # too late, which changes nothing
    assert version_of(store) == before


@pytest.mark.parametrize("width", [1, 2])
def test_processes_that_wait_for_one_another_each_write_their_shards(folder: Path, width: int) -> None:
    store = open_store("memory://")
    of = 3
    stores = [FaultStore(store) for _ in range(of)]
    ended: dict[int, ImportStatus] = {}

    def run(index: int) -> None:
        imports = imports_at(stores[index])
        engine: Engine = HereEngine(imports)
        if width > 1:
            engine = Scattered(stores[index], deaths=0)
        ended[index] = drive(
            imports, "d", begin(imports, folder, PLAIN), engine, index=index, of=of, wait=True
        )

    with mock.patch.object(driving, "_AGAIN_S", 0.01):
        threads = [threading.Thread(target=run, args=(index,)) for index in range(of)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [ended[index].state for index in range(of)] == ["done"] * of
    assert version_of(store) == run_alone(folder, PLAIN)
    for index in range(of):
        mine = {
            key.rpartition("tfrecord-")[2]
            for operation, key in stores[index].requests
            if operation == "put_stream" and "tfrecord-" in key
        }
        assert mine == {f"{number:05}-of-{SHARDS:05}" for number in range(index, SHARDS, of)}


def test_a_process_that_waits_finds_out_whether_what_had_failed_still_does(folder: Path) -> None:
    store = open_store("memory://")
    imports = imports_at(store)
    import_id = begin(imports, folder, PLAIN)

    def run(index: int, *, wait: bool = False) -> str:
        return drive(imports, "d", import_id, HereEngine(imports), index=index, of=2, wait=wait).state

    assert run(0) == "running"
    (folder / "2.ndjson").rename(folder / "away")
    assert run(1) == "stopped"
    assert run(0, wait=True) == "stopped"
    (folder / "away").rename(folder / "2.ndjson")
    with mock.patch.object(driving, "pause", side_effect=lambda _: run(1)):
        assert run(0, wait=True) == "done"
    assert version_of(store) == run_alone(folder, PLAIN)


def test_a_process_goes_on_if_another_one_could_do_what_failed_here(folder: Path) -> None:
    store = open_store("memory://")
    imports = imports_at(store)
    import_id = begin(imports, folder, PLAIN)
    file, away = folder / "0.ndjson", folder / "away"
    file.rename(away)
    failed: list[int] = []

    def mend(outcome: Outcome) -> None:
        if outcome.state == "failed":
            failed.append(outcome.index)
            away.rename(file)
            other = imports_at(store)
            for task in other.tasks("d", import_id, index=1, of=2):
                other.work(task)

    engine = HereEngine(imports)
    status = drive(imports, "d", import_id, engine, index=0, of=2, on_outcome=mend)
    assert (status.state, failed) == ("done", [0])
    assert version_of(store) == run_alone(folder, PLAIN)


def test_tasks_have_all_shards_once() -> None:
    shards = UnwrittenShards("d", "1.0.0", tuple(range(3, 30)), shuffled=False)
    for processes in (1, 2, 8, 100):
        dealt = shards.deal(processes)
        assert [number for task in dealt for number in task.numbers] == list(range(3, 30))
        assert len(dealt) == min(27, 4 * processes)
    shuffled = UnwrittenShards("d", "1.0.0", (1, 2, 3), shuffled=True)
    assert [task.numbers for task in shuffled.deal(2)] == [(1,), (2, 3)]
    assert shuffled.share(0, 5).deal(2) == []
