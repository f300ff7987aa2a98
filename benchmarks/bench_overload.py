"""How much of what a replica sustains does it still do when ten times as much is asked of it?

A real server process on this machine. First clients that wait for their answers find out how much it
sustains. Then others send ten times as many requests a second, whatever comes back: most are refused. What
counts is how many are not (goodput), how soon a refusal comes, how probes fare, and what memory is taken.
Time is by the clock, over all cores, with the clients on the same machine. The requests have small bodies and
take a quarter of a second, so that clients, network and refusals take little of it.
Run: python -m benchmarks.bench_overload
"""

from __future__ import annotations

import asyncio
import gzip
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.bench_appends import server
from benchmarks.measure import Answer, Session, main, memory_folder
from benchmarks.open_loop import Outcome, ask_in_turn, ask_on_time, probed, quantile, request

CLIENTS = 16
SECONDS = 20.0
#: When the load stands: at first a replica begins as many as it has workers for, and ends none.
STANDS_S = 5.0
ROUNDS = 3
TIMES = 10
PROBES = ("/livez", "/readyz")
#: Rows that take many times the room once they are inflated, and take a quarter of a second as NDJSON.
ROWS = b'{"x": [0.25, -1.5, 3.125, 0.0625], "n": 12345, "text": "some words of a row"}\n' * 400_000
REQUEST = request(
    "/v1/records/describe",
    "application/x-ndjson",
    gzip.compress(ROWS, mtime=0),
    fields="Content-Encoding: gzip\r\n",
)


def goodput(outcomes: Sequence[Outcome], begin: float) -> float:
    """Requests done a second, of those that began at `begin`, once the load stands and as long as it does."""
    done = [outcome.at - begin for outcome in outcomes if outcome.status == 200]
    return sum(STANDS_S < at < SECONDS for at in done) / (SECONDS - STANDS_S)


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1])
    return pages * 4096 / 2**20


async def overload(port: int, rate: float) -> tuple[list[Outcome], list[Outcome]]:
    """What came of so many requests a second, and of probes meanwhile."""
    done = asyncio.Event()
    probing = asyncio.create_task(probed(port, PROBES, done))
    outcomes = await ask_on_time(port, REQUEST, rate=rate, seconds=SECONDS)
    done.set()
    return outcomes, await probing


def report(outcomes: Sequence[Outcome], probes: Sequence[Outcome], mib: float) -> None:
    refused = [outcome for outcome in outcomes if outcome.status in (429, 503)]
    other = len(outcomes) - len(refused) - sum(outcome.status == 200 for outcome in outcomes)
    print(
        f"{len(outcomes)} sent, {len(refused)} refused (p99 {1e3 * quantile(refused, 0.99):.0f} ms, median "
        f"{1e3 * quantile(refused, 0.5):.0f} ms), {other} neither; {len(probes)} probes, "
        f"{sum(probe.status != 200 for probe in probes)} failed (p99 {1e3 * quantile(probes, 0.99):.0f} ms); "
        f"{mib:.0f} MiB"
    )


def measure(session: Session) -> None:
    peaks, kept = [], []
    with memory_folder() as folder, server((folder / "data").as_uri()) as (url, pid):
        port = urlsplit(url).port or 80
        asyncio.run(ask_in_turn(port, REQUEST, clients=CLIENTS, seconds=STANDS_S))
        for _ in range(session.runs or ROUNDS):
            begin = time.monotonic()
            done = asyncio.run(ask_in_turn(port, REQUEST, clients=CLIENTS, seconds=SECONDS))
            peaks.append(goodput(done, begin))
            begin = time.monotonic()
            outcomes, probes = asyncio.run(overload(port, TIMES * peaks[-1]))
            kept.append(goodput(outcomes, begin))
            print(f"{peaks[-1]:.1f} a second sustained, {kept[-1]:.1f} of {TIMES} times as many: ", end="")
            report(outcomes, probes, resident_mib(pid))
    session.answers.append(
        Answer(
            f"Requests done of {TIMES} times as many as are sustained, by the clock",
            "statistics of 400,000 rows",
            "requests",
            1 / statistics.median(kept),
            None,
            None,
            "as many as are sustained",
            1 / statistics.median(peaks),
            0.9,
        )
    )


if __name__ == "__main__":
    main(measure)
