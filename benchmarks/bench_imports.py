"""How fast does a cluster of Ray turn Parquet into TFRecord shards, by `shardsmith import` and by Ray itself?

Both on the same cluster of two nodes with a processor each, in turns: rows of 64 float32 and two integers,
ours from some 512 MiB (`--size`, in MiB), the peer, `ray.data.read_parquet(...).write_tfrecords(...)`, from a
quarter of the rows, since it takes long. Ours has all of the command: the start of its process, the plan,
the appends and the version that is published of them. Of the peer it is what that line takes, once Ray is
connected. This is time by the clock. It needs the extra `ray`.
Run: python -m benchmarks.bench_imports
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import Answer, Session, main
from tests.campaign.parquet_rows import ROW_BYTES, write_source
from tests.campaign.ray_import import Cluster

MIB = 512
ROUNDS = 3
#: The peer gets one row of so many.
LESS = 4
PEER = """
import sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
begin = time.monotonic()
ray.data.read_parquet(sys.argv[2]).write_tfrecords(sys.argv[3])
print("seconds", time.monotonic() - begin)
"""


def ours(source: Path, address: str, out: Path) -> float:
    program = str(Path(sys.executable).with_name("shardsmith"))
    command = [program, "import", str(source), "--dataset", "d", "--data", str(out), "--engine", "ray"]
    begin = time.monotonic()
    subprocess.run(
        command, check=True, capture_output=True, env={**os.environ, "SHARDSMITH_RAY_ADDRESS": address}
    )
    return time.monotonic() - begin


def theirs(source: Path, address: str, out: Path) -> float:
    command = [sys.executable, "-c", PEER, address, str(source), str(out)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.rsplit("seconds ", 1)[1])


def seconds_a_row(
    run: Callable[[Path, str, Path], float], source: Path, num_rows: int, address: str
) -> float:
    out = source.parent / "out"
    try:
        return run(source, address, out) / num_rows
    finally:
        shutil.rmtree(out, ignore_errors=True)


def measure(session: Session) -> None:
    num_rows = (session.size or MIB) * 2**20 // ROW_BYTES
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory(prefix="ray") as short:
        whole, part = Path(name, "whole"), Path(name, "part")
        whole.mkdir()
        part.mkdir()
        write_source(whole, num_rows)
        write_source(part, num_rows // LESS)
        cluster = Cluster(Path(short))
        try:
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(session.runs or ROUNDS):
                times[0].append(seconds_a_row(ours, whole, num_rows, cluster.address))
                times[1].append(seconds_a_row(theirs, part, num_rows // LESS, cluster.address))
        finally:
            cluster.close()
    mean, peer = map(statistics.median, times)
    answer = Answer(
        "Parquet to TFRecord on Ray, by the clock",
        "64 float32 + 2 integers",
        "rows",
        mean,
        ROW_BYTES / mean / 1e9,
        None,
        "ray.data.write_tfrecords",
        peer,
        10,
    )
    print(
        f"{answer.question}: {1 / mean:,.0f} rows/s, {ROW_BYTES / mean / 1e6:.0f} MB/s, {answer.ratio:.3g} x "
        f"(target 10 x) {answer.peer}, {1 / peer:,.0f} rows/s"
    )
    session.answers.append(answer)


if __name__ == "__main__":
    main(measure)
