"""200 ranges by processes that are killed, stopped and started twice: the same version each time."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.local import open_local
from tests.waiting import PATIENCE_S, wait_for

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
        self.counts: Counter[str] = Counter()
        self.running = [(number, start(number)) for number in range(commands)]
        self.stopped: list[Any] = []

    def run(self, events: Mapping[str, Callable[[], bool]], count: int) -> None:
        """Have so many events happen while the first half of the ranges is done, then let all end."""
        names = self.rng.choices(list(events), k=count)
        for name, num_done in zip(
            names, sorted(self.rng.sample(range(1, RANGES // 2), k=count)), strict=True
        ):
            wait_for(lambda num_done=num_done: self.store.num_done >= num_done or not self._alive())  # type: ignore[misc]
            self.counts[name] += events[name]()
        self.go_on()
        for number, process in self.running:
            with process:
                output, errors = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0, f"{number}: {errors[-3000:]}"
            assert json.loads(output)["state"] in ("running", "publishing", "done")

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
        self.go_on()
        for _, process in self.rng.sample(self._alive(), k=min(1, len(self._alive()))):
            process.send_signal(signal.SIGSTOP)
            self.stopped.append(process)
        return bool(self.stopped)

    def start_twice(self) -> bool:
        number = self.rng.choice(self.running)[0]
        self.running.append((number, self.start(number)))
        return True

    def go_on(self) -> None:
        while self.stopped:
            self.stopped.pop().send_signal(signal.SIGCONT)

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
        chaos.run({"kill": chaos.kill, "stop": chaos.stop, "start twice": chaos.start_twice}, 10)
    assert set(+chaos.counts) == {"kill", "stop", "start twice"}
    assert store.manifest == wanted
