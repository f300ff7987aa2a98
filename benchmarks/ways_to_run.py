"""What do metrics, traces and a second worker cost a small request, and the process when idle?

Two real processes, one run plainly and one in another way, are asked in turns for a second each time, over 16
connections. Told are the processor time of a request, requests by the clock with the client on the same
machine, and memory that is no file's, before the first request. Each figure is the median of its turns, each
ratio the median of those of two turns that followed one another.
Run: python -m benchmarks.ways_to_run [--runs N] [part of the name of a way, or of a body]
"""

from __future__ import annotations

import re
import statistics
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench_appends import server
from benchmarks.bench_small_requests import FLOATS, PATH, ROW, requests_a_second
from benchmarks.measure import Session, main, memory_folder, processor_s
from tests.support.service import free_port

SECONDS = 1.0
ROUNDS = 9
#: A collector that is not there: what is recorded goes nowhere.
_TRACES = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_BSP_EXPORT_TIMEOUT": "100"}
#: Settings of each way, and the target for the processor time of a request, as a multiple.
WAYS: Mapping[str, tuple[Mapping[str, str], float | None]] = {
    "metrics": ({"SHARDSMITH_METRICS_PORT": str(free_port())}, 1.05),
    "traces of no request": (_TRACES | {"OTEL_TRACES_SAMPLER": "always_off"}, None),
    "traces of every request": (_TRACES | {"OTEL_TRACES_SAMPLER": "always_on"}, None),
    "two workers": ({"SHARDSMITH_WORKERS": "2"}, None),
}
#: Path and body of each kind of request.
BODIES = {
    "3 floats": (PATH, b"[0.25, 1.5, -3.125]"),
    "768 floats": (PATH, FLOATS),
    "one row": ("/v1/records/serialize", ROW),
}


@dataclass(frozen=True)
class Running:
    """A server, and the processes that it consists of."""

    url: str
    process_ids: tuple[int, ...]

    @classmethod
    def of(cls, url: str, process_id: int) -> Running:
        pgrep = ["pgrep", "-P", str(process_id)]
        workers = subprocess.run(pgrep, capture_output=True, text=True, check=False).stdout.split()
        return cls(url, (process_id, *map(int, workers)))

    @property
    def processor_s(self) -> float:
        return sum(map(processor_s, self.process_ids))

    @property
    def anonymous_mib(self) -> float:
        statuses = [Path(f"/proc/{pid}/status").read_text(encoding="ascii") for pid in self.process_ids]
        return sum(int(kib) for status in statuses for kib in re.findall(r"RssAnon:\s+(\d+)", status)) / 1024

    def ask(self, path: str, body: bytes) -> tuple[float, float]:
        """Seconds of the processor for a request, and requests in a second."""
        before = self.processor_s
        rate = requests_a_second(self.url, path, body, SECONDS)
        return (self.processor_s - before) / (rate * SECONDS), rate


def compare(plain: Running, other: Running, path: str, body: bytes, runs: int) -> str:
    """One line about both."""
    turns: list[list[tuple[float, float]]] = []
    for turn in range(runs + 1):
        order = (plain, other) if turn % 2 else (other, plain)
        asked = {running.url: running.ask(path, body) for running in order}
        if turn:
            turns.append([asked[plain.url], asked[other.url]])
    used, rate = (
        [statistics.median(turn[which][figure] for turn in turns) for which in range(2)]
        for figure in range(2)
    )
    more, faster = (
        statistics.median(turn[1][figure] / turn[0][figure] for turn in turns) for figure in range(2)
    )
    return (
        f"{1e6 * used[0]:.0f} -> {1e6 * used[1]:.0f} us of the processor ({more:.3f} x), "
        f"{rate[0]:,.0f} -> {rate[1]:,.0f} requests/s ({faster:.2f} x)"
    )


def measure(session: Session) -> None:
    for way, (settings, target) in WAYS.items():
        bodies = {name: sent for name, sent in BODIES.items() if session.wants(f"{way}, {name}")}
        if not bodies:
            continue
        with memory_folder() as folder:
            storage = (folder / "data").as_uri()
            with server(storage) as first, server(storage, **settings) as second:
                plain, other = Running.of(*first), Running.of(*second)
                idle = f"{plain.anonymous_mib:.0f} -> {other.anonymous_mib:.0f} MiB"
                print(f"{way}: idle {idle}" + (f"; target {target:.2f} x" if target else ""))
                for name, (path, body) in bodies.items():
                    found = compare(plain, other, path, body, session.runs or ROUNDS)
                    print(f"    {name}: {found}", flush=True)


if __name__ == "__main__":
    main(measure)
