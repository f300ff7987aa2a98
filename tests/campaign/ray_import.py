"""An import on a Ray cluster of two nodes on this machine, of which one dies, and so does the driver.

    python -m tests.campaign.ray_import --gib 1

writes Parquet files of that size to a folder and imports them with `--engine ray`. When a quarter of the
ranges is done, the second node is killed with all its processes (`kill -9`), and another one joins; when half
of them are, the driver is killed and started again; once shards are being written, a worker is killed. In the
end TensorFlow reads all shards: every row has to be there once, by its id and by a hash of all rows. It takes
about three times that size on the disk, needs the extra `ray`, and ends with 1 where anything is wrong.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from tests.campaign.parquet_rows import ROW_BYTES, read_shards, write_source
from tests.support.child_processes import descendants
from tests.support.waiting import wait_for

__all__ = ["Cluster", "Report", "run"]

DATASET = "d"

# Read as Ray is imported. By default a node of a busy machine is given up after half a minute.
os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")


@dataclass(frozen=True)
class Report:
    """What happened.

    Attributes:
        seconds: from the first start of the driver to its last end.
        told: what the command says in the end.
        problems: what is wrong, in words.
    """

    num_rows: int
    num_bytes: int
    seconds: float
    told: dict[str, Any]
    problems: list[str]


class Cluster:
    """A Ray cluster of nodes with a processor each, all on this machine's loopback."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster as Nodes

        # Ray takes 127.0.0.1 for a mistake, and uses the address of the network in its place.
        self._args: dict[str, Any] = {
            "num_cpus": 1,
            "node_ip_address": "127.0.0.2",
            "include_dashboard": False,
        }
        # Ray notes an address below this too, in a folder that it does not make.
        self._environment = mock.patch.dict(os.environ, RAY_TMPDIR=str(folder))
        self._environment.start()
        self._nodes: Any = Nodes(initialize_head=True, head_node_args=self._args)
        self._second = self._join()

    def _join(self) -> Any:
        return self._nodes.add_node(**self._args)

    @property
    def address(self) -> str:
        return str(self._nodes.address)

    def kill_node(self) -> int:
        """Kill the second node, and have another one join; how many processes died."""
        [raylet] = self._second.all_processes["raylet"]
        pids = [raylet.process.pid, *descendants(raylet.process.pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._nodes.remove_node(self._second, allow_graceful=False)
        self._second = self._join()
        return len(pids)

    def tasks(self) -> list[int]:
        """The processes that are at a task. All others of the cluster are Ray's own, or have none."""
        found = []
        for node in (self._second, self._nodes.head_node):
            [raylet] = node.all_processes["raylet"]
            for pid in descendants(raylet.process.pid):
                with contextlib.suppress(OSError):
                    if b"ray::do_anywhere" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        found.append(pid)
        return found

    def kill_worker(self) -> bool:
        """Kill a process that does tasks; whether there was one."""
        for pid in self.tasks():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def close(self) -> None:
        self._nodes.shutdown()
        self._environment.stop()


class Import:
    """The command, and what it has done so far by the notes on the store."""

    def __init__(self, folder: Path, address: str, options: tuple[str, ...]) -> None:
        self._folder = folder
        self._data = folder / "data"
        program = str(Path(sys.executable).with_name("shardsmith"))
        self._command = [
            program, "import", str(folder / "source"), "--dataset", DATASET,
            "--engine", "ray", "--json", *options,
        ]  # fmt: skip
        # Of the driver alone: the nodes are told by it where the store is.
        self._environment = {
            **os.environ,
            "SHARDSMITH_RAY_ADDRESS": address,
            "SHARDSMITH_STORAGE_URL": self._data.as_uri(),
        }

    def start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self._command, env=self._environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    @property
    def ranges(self) -> tuple[int, int]:
        """How many are done, of how many."""
        done = len(list(self._data.glob(f"{DATASET}/_g1/imports/*/ranges/*.done.*")))
        plans = [json.loads(path.read_bytes()) for path in self._data.glob(f"{DATASET}/_g1/imports/*/plan")]
        return done, plans[0]["num_ranges"] if plans else sys.maxsize

    @property
    def num_shards(self) -> int:
        """Of the version, how many are written."""
        return len(list(self._data.glob(f"{DATASET}/_g1/log/1.done/*")))

    @property
    def shards(self) -> list[Path]:
        return sorted(self._data.glob(f"{DATASET}/1.0.0/{DATASET}-train.tfrecord-*"))


def run(
    folder: Path,
    num_rows: int,
    *options: str,
    within_s: float = 300,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Import so many rows, kill what is to be killed, and read what came out.

    Args:
        options: of the command.
        within_s: how long one step may take.
    """
    source = folder / "source"
    source.mkdir()
    began = time.monotonic()
    tally = write_source(source, num_rows)
    num_bytes = sum(file.stat().st_size for file in source.iterdir())
    say(f"{num_rows} rows in {num_bytes} bytes of Parquet, written in {time.monotonic() - began:.0f} s")
    with tempfile.TemporaryDirectory(prefix="ray") as short:  # a path of a socket has 107 bytes at most
        cluster = Cluster(Path(short))
        try:
            began = time.monotonic()
            told = _run_and_kill(Import(folder, cluster.address, options), cluster, within_s, say)
            seconds = time.monotonic() - began
        finally:
            cluster.close()
    say(
        f"imported in {seconds:.0f} s: {num_rows / seconds:,.0f} rows/s, {num_bytes / seconds / 1e6:.0f} MB/s"
    )
    problems = [] if (told.get("state"), told.get("rows")) == ("done", num_rows) else [f"it ended as {told}"]
    began = time.monotonic()
    problems += read_shards(Import(folder, "", ()).shards, num_rows).problems(tally)
    say(f"read by TensorFlow in {time.monotonic() - began:.0f} s")
    return Report(num_rows, num_bytes, seconds, told, problems)


def _run_and_kill(
    job: Import, cluster: Cluster, within_s: float, say: Callable[[str], None]
) -> dict[str, Any]:
    def is_done(share: float) -> bool:
        done, of = job.ranges
        return done >= share * of

    with job.start() as driver:
        wait_for(lambda: driver.poll() is not None or is_done(0.25), within_s=within_s)
        say(f"{job.ranges} ranges are done: killed {cluster.kill_node()} processes of a node")
        wait_for(lambda: driver.poll() is not None or is_done(0.5), within_s=within_s)
        driver.send_signal(signal.SIGKILL)
        say(f"{job.ranges} ranges are done: killed the driver")
    with job.start() as driver:
        wait_for(lambda: driver.poll() is not None or job.num_shards > 0, within_s=within_s)
        killed = cluster.kill_worker()
        say(f"{job.num_shards} shards are written: killed {'a' if killed else 'no'} worker")
        output, errors = driver.communicate(timeout=within_s)
    if driver.returncode:
        return {"state": f"exit {driver.returncode}", "errors": errors[-2000:]}
    found: dict[str, Any] = json.loads(output)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=1.0, help="of Parquet")
    parser.add_argument("--folder", type=Path, help="where everything goes; a temporary one by default")
    parser.add_argument("options", nargs="*", help="further ones of the command, behind --")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    report = run(
        folder,
        int(arguments.gib * 2**30 / ROW_BYTES),
        *arguments.options,
        within_s=3600,
        say=lambda line: print(line, flush=True),
    )
    for problem in report.problems:
        print(f"VIOLATION: {problem}")
    if report.problems:
        print(f"everything is in {folder}")
        return 1
    shutil.rmtree(folder)
    print("every row is there once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
