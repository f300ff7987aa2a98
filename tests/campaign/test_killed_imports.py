"""200 ranges by processes that are killed, stopped and started twice: the same version each time."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from app.local import open_local
from tests.support.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.campaign

RANGES = 200
OPTIONS = ("--shuffle", "--seed", "3", "--num-shards", "3", "--json", "--range-mib", "0.000001")
PROGRAM = str(Path(sys.executable).with_name("shardsmith"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a row in each range."""
    file = tmp_path_factory.mktemp("source") / "rows.ndjson"
    file.write_text("".join(json.dumps({"id": i, "x": [i / 4, -i]}) + "\n" for i in range(RANGES)))
    return file


class Store:
    """Where the rows go, and what is there."""

    def __init__(self, folder: Path, source: Path) -> None:
        self.folder = folder
        self.source = source

    def start(self, *options: str, **environment: str) -> "subprocess.Popen[str]":
        """Start the command."""
        where = ("--dataset", "d", "--data", str(self.folder))
        return subprocess.Popen(
            [PROGRAM, "import", str(self.source), *where, *OPTIONS, *options],
            env={**os.environ, **environment},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    @property
    def num_done(self) -> int:
        notes = self.folder.glob("d/_g1/imports/*/ranges/*.done.*")
        return len({note.name.partition(".")[0] for note in notes})

    @property
    def manifest(self) -> dict[str, Any]:
        """Of the version; it has the hash of each shard."""
        datasets = open_local({"storage_url": self.folder.as_uri()}).datasets
        assert datasets.versions("d") == ["1.0.0"]
        return dict(datasets.manifest("d", "1.0.0").to_json())


@pytest.fixture(scope="module")
def wanted(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process makes that nobody disturbs."""
    store = Store(tmp_path_factory.mktemp("wanted"), source)
    with store.start("--processes", "1") as process:
        told = json.loads(process.communicate()[0])
    assert (told["state"], told["ranges"], told["rows"]) == ("done", RANGES, RANGES)
    return store.manifest


class Chaos:
    """Some commands that do an import, what happens to them, and how often it did.

    Args:
        start: starts the command of that number.
    """

    def __init__(self, store: Store, rng: random.Random, start: Callable[[int], Any], commands: int) -> None:
        self.store = store
        self.rng = rng
        self.start = start
        self.counts: Counter[Callable[[], bool]] = Counter()
        self.running = [(number, start(number)) for number in range(commands)]
        self.stopped: list[int] = []

    def run(self, events: Mapping[Callable[[], bool], int]) -> None:
        """Have each event happen so often while the first half of the ranges is done, then let all end."""
        mixed = [event for event, count in events.items() for _ in range(count)]
        self.rng.shuffle(mixed)
        moments = sorted(self.rng.sample(range(1, RANGES // 2), k=len(mixed)))
        for event, num_done in zip(mixed, moments, strict=True):
            wait_for(lambda num_done=num_done: self.store.num_done >= num_done or not self._alive())  # type: ignore[misc]
            self.counts[event] += event()
        self.go_on()
        for number, process in self.running:
            with process:
                output, errors = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0, f"{number}: {errors[-3000:]}"
            assert json.loads(output)["state"] in ("running", "publishing", "done")
        assert set(+self.counts) == set(events)

    def kill(self) -> bool:
        """Kill a command, and start it again."""
        alive = self._alive()
        if not alive:
            return False
        number, process = self.rng.choice(alive)
        with process:
            process.kill()
        self.running = [
            (number, self.start(number)) if other is process else (n, other) for n, other in self.running
        ]
        return True

    def stop(self) -> bool:
        """Stop a command; those that were stopped before go on."""
        return self.send(signal.SIGSTOP, lambda: [process.pid for _, process in self._alive()])

    def send(self, number: signal.Signals, find: Callable[[], list[int]]) -> bool:
        """Kill or stop one of some processes, as soon as there is one; what was stopped before goes on."""
        self.go_on()
        wait_for(lambda: self._send(number, find()) or not self._alive())
        return bool(self._alive())

    def _send(self, number: signal.Signals, pids: list[int]) -> bool:
        if not pids:
            return False
        pid = self.rng.choice(pids)
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        if number == signal.SIGSTOP:
            self.stopped.append(pid)
        return True

    def start_twice(self) -> bool:
        number = self.rng.choice(self.running)[0]
        self.running.append((number, self.start(number)))
        return True

    def go_on(self) -> None:
        while self.stopped:
            with suppress(ProcessLookupError):  # it was killed
                os.kill(self.stopped.pop(), signal.SIGCONT)

    def close(self) -> None:
        """End what an assertion has left."""
        for _, process in self.running:
            process.kill()

    def _alive(self) -> list[tuple[int, Any]]:
        return [(number, process) for number, process in self.running if process.poll() is None]


@pytest.mark.parametrize("seed", range(3))
def test_every_nth_range(seed: int, source: Path, wanted: dict[str, Any], tmp_path: Path) -> None:
    store, of = Store(tmp_path, source), 4
    chaos = Chaos(
        store, random.Random(seed), lambda index: store.start("--index", str(index), "--of", str(of)), of
    )
    with closing(chaos):
        chaos.run({chaos.kill: 4, chaos.stop: 3, chaos.start_twice: 3})
    assert store.manifest == wanted


def test_tasks_of_a_ray_cluster(source: Path, wanted: dict[str, Any], tmp_path: Path) -> None:
    from tests.campaign.ray_import import Cluster

    pytest.importorskip("ray")

    store = Store(tmp_path, source)
    with (
        tempfile.TemporaryDirectory(prefix="ray") as short,  # a path of a socket has 107 bytes at most
        closing(Cluster(Path(short))) as cluster,
    ):
        address = {"SHARDSMITH_RAY_ADDRESS": cluster.address}
        chaos = Chaos(store, random.Random(0), lambda _: store.start("--engine", "ray", **address), 1)

        def kill_task() -> bool:
            return chaos.send(signal.SIGKILL, cluster.tasks)

        def stop_task() -> bool:
            return chaos.send(signal.SIGSTOP, cluster.tasks)

        with closing(chaos):
            chaos.run({kill_task: 7, stop_task: 2, chaos.kill: 1, chaos.start_twice: 1})
    assert store.manifest == wanted
