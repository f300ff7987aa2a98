"""Imports that a service runs: one whose replica is gone is gone on with by another one."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.errors import StorageUnavailable
from app.services.datasets.imports.runs import SILENT_S, ImportRuns
from app.services.datasets.imports.status import ImportStatus
from app.services.datasets.objects.publish_options import PublishOptions
from app.storage.object_store import ObjectStore
from tests.support.dataset_rows import Client
from tests.support.faulty_store import FaultStore, Operation, When
from tests.support.waiting import wait_for
from tests.unit.services.datasets.imports.test_imports import World, write_ndjson

ROWS = 20


class Replicas:
    """Some replicas at one store, and a clock that passes only when a test says so."""

    def __init__(self, world: World, store: ObjectStore) -> None:
        self.now = 0.0
        self.store = store
        self.world = world
        write_ndjson(world.folder / "a.ndjson", 0, ROWS)
        self.import_id, _ = world.imports.begin("d", world.request(), "k")

    def replica(self, store: ObjectStore | None = None) -> ImportRuns:
        world = self.world if store is None else World(self.world.folder, Client(store))
        return ImportRuns(world.replica(), store or self.store, lambda: self.now)

    def follow(self) -> ImportStatus:
        return self.world.imports.follow("d", self.import_id)

    def says(self) -> list[str]:
        return [info.key for info in self.store.list("_imports")]

    def wait_until_over(self, runs: ImportRuns) -> None:
        wait_for(lambda: not runs.num_running)
        wait_for(lambda: not self.says())


@pytest.fixture
def replicas(tmp_path: Path, client: Client, store: FaultStore) -> Replicas:
    return Replicas(World(tmp_path, client), store)


class Held:
    """A store at which notes on ranges wait: before one that is done is written, after one that failed."""

    def __init__(self, store: ObjectStore) -> None:
        self.reached, self.may_go_on = threading.Event(), threading.Event()
        self.store = FaultStore(store, self._fault)

    def _fault(self, when: When, operation: Operation, key: str) -> None:
        if operation == "put" and (".done." if when == "before" else ".failed.") in key:
            self.reached.set()
            assert self.may_go_on.wait(120)


@pytest.fixture
def held(replicas: Replicas) -> Iterator[Held]:
    made = Held(replicas.store)
    yield made
    made.may_go_on.set()


def test_an_import_whose_replica_says_nothing_for_long_is_gone_on_with(
    replicas: Replicas, held: Held
) -> None:
    dead, other = replicas.replica(held.store), replicas.replica()
    dead.start("d", replicas.import_id, "c")
    assert held.reached.wait(120)
    for passed in (0.0, SILENT_S / 2, SILENT_S / 2 - 1):
        replicas.now += passed
        other.look()
        assert other.num_running == 0
    replicas.now += 1
    other.look()
    replicas.wait_until_over(other)
    status = replicas.follow()
    assert (status.state, status.num_records) == ("done", ROWS)
    assert replicas.world.read() == list(range(ROWS))
    # The one that was taken for dead comes back.
    held.may_go_on.set()
    wait_for(lambda: not dead.num_running)
    again = replicas.follow()
    assert (again.version, again.num_records) == (status.version, ROWS)
    assert replicas.world.read() == list(range(ROWS))


def test_an_import_whose_replica_says_that_it_runs_is_left_to_it(replicas: Replicas, held: Held) -> None:
    runs, other = replicas.replica(held.store), replicas.replica()
    runs.start("d", replicas.import_id, "c")
    assert held.reached.wait(120)
    for _ in range(5):
        runs.look()
        other.look()
        replicas.now += SILENT_S - 1
    assert other.num_running == 0
    held.may_go_on.set()
    replicas.wait_until_over(runs)
    assert replicas.follow().state == "done"


def test_an_import_that_is_to_go_on_just_as_it_stops_goes_on(replicas: Replicas, held: Held) -> None:
    runs = replicas.replica(held.store)
    [file] = replicas.world.folder.glob("*.ndjson")
    file.rename(file.with_suffix(".away"))
    runs.start("d", replicas.import_id, "c")
    assert held.reached.wait(120)
    assert replicas.follow().state == "stopped"
    file.with_suffix(".away").rename(file)
    runs.start("d", replicas.import_id, "c")
    held.may_go_on.set()
    replicas.wait_until_over(runs)
    assert replicas.follow().state == "done"


def test_an_import_that_goes_on_just_as_it_is_forgotten_is_said_to_run(replicas: Replicas) -> None:
    [file] = replicas.world.folder.glob("*.ndjson")
    away = file.rename(file.with_suffix(".away"))
    forgotten, said = threading.Event(), list[list[str]]()

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "delete" and not forgotten.is_set():
            if when == "before":
                away.rename(file)
                runs.start("d", replicas.import_id, "c")
            else:
                forgotten.set()
        elif operation == "put" and when == "before" and ".done." in key:
            assert forgotten.wait(120)
            said.append(replicas.says())

    runs = replicas.replica(FaultStore(replicas.store, fault))
    runs.start("d", replicas.import_id, "c")
    replicas.wait_until_over(runs)
    assert replicas.follow().state == "done"
    assert said
    assert all(said)


def test_import_of_an_ending_replica_continues_at_once(replicas: Replicas, held: Held) -> None:
    leaving, other = replicas.replica(held.store), replicas.replica()
    leaving.begin()
    leaving.start("d", replicas.import_id, "c")
    assert held.reached.wait(120)
    leaving.stop()
    other.look()
    replicas.wait_until_over(other)
    assert replicas.follow().state == "done"


def test_an_import_that_the_store_broke_off_is_tried_again_later(
    replicas: Replicas, store: FaultStore
) -> None:
    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "list" and key.endswith("/ranges"):
            raise StorageUnavailable("down")

    broken = FaultStore(replicas.store, fault)
    runs = replicas.replica(broken)
    runs.start("d", replicas.import_id, "c")
    wait_for(lambda: not runs.num_running)
    assert replicas.says() == [f"_imports/d/{replicas.import_id}"]
    broken.fault = None
    runs.look()
    replicas.now += SILENT_S
    runs.look()
    replicas.wait_until_over(runs)
    assert replicas.follow().state == "done"


def test_invalid_import_is_not_retried(replicas: Replicas) -> None:
    world = replicas.world
    request = world.request(publish=PublishOptions(divide="none", fractions={"a": "0.5", "b": "0.5"}))
    import_id, _ = world.imports.begin("e", request, "wrong")
    runs = replicas.replica()
    runs.start("e", import_id, "c")
    replicas.wait_until_over(runs)
    assert world.imports.follow("e", import_id).state == "stopped"


def test_an_import_from_where_this_replica_may_not_read_is_left_to_others(replicas: Replicas) -> None:
    """As after a restart with another SHARDSMITH_IMPORT_SOURCES."""
    replicas.store.put(f"_imports/d/{replicas.import_id}", b"")
    folder = replicas.world.folder.as_uri()

    def replica(allowed: str) -> ImportRuns:
        return ImportRuns(replicas.world.replica([allowed]), replicas.store, lambda: replicas.now)

    runs = replica(f"{folder}/other")
    runs.look()
    assert (runs.num_running, len(replicas.says())) == (0, 1)
    runs = replica(folder)
    runs.look()
    replicas.wait_until_over(runs)
    assert replicas.follow().state == "done"


@pytest.mark.parametrize("what", ["ended", "deleted"])
def test_ended_import_is_forgotten(replicas: Replicas, what: str) -> None:
    replicas.store.put(f"_imports/d/{replicas.import_id}", b"")
    if what == "ended":
        replicas.world.imports.cancel("d", replicas.import_id)
    else:
        replicas.world.client.datasets.delete("d")
    runs = replicas.replica()
    runs.look()
    assert (runs.num_running, replicas.says()) == (0, [])
