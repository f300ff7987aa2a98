"""What all benchmarks share: one core, runs in turns, medians, a copy of the same bytes, one record of it.

Ours and its peers run one after the other, over and over, so that whatever slows the machine for a while
slows all of them. Time is that of the processor, of all threads of the process: on one core of an idle
machine it is what a clock would show, and on a busy one it leaves out the turns of others. Each figure is
the median of its runs; one run before them is not counted. Python collects no garbage meanwhile.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "Answer",
    "Peer",
    "Run",
    "Session",
    "counted",
    "drained",
    "main",
    "memory_folder",
    "pin_to_one_core",
    "processor_s",
]

#: Does something and answers how many items that were: rows, values, tensors, bytes.
Run = Callable[[], int]


@dataclass(frozen=True)
class Peer:
    """Another way to do the same, and how many times faster than it ours aims to be."""

    name: str
    run: Run
    target: float | None = None


@dataclass(frozen=True)
class Answer:
    """One question, of one case, next to one peer.

    Attributes:
        unit: what items are.
        seconds: of ours, for an item.
        gigabytes: of ours, in a second; None where bytes say nothing.
        memcpy: the share of the speed at which the same bytes are copied.
        peer_seconds: of the peer, for an item.
        target: the least ratio aimed at.
    """

    question: str
    case: str
    unit: str
    seconds: float
    gigabytes: float | None
    memcpy: float | None
    peer: str
    peer_seconds: float
    target: float | None = None

    @property
    def asked(self) -> tuple[str, str, str]:
        """What tells it from other answers."""
        return self.question, self.case, self.peer

    @property
    def ratio(self) -> float:
        """How many times faster than the peer ours is."""
        return self.peer_seconds / self.seconds

    @property
    def is_reached(self) -> bool:
        return self.target is None or self.ratio >= self.target

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Answer:
        return cls(**{name: member for name, member in value.items() if name != "ratio"})


class Session:
    """What the command line asks for, and the answers so far.

    Attributes:
        runs: how often each is timed; None is what the benchmark finds right.
        only: a part of the names of cases; others are left out.
        size: of what is measured, where the benchmark says in what; None is what it finds right.
    """

    def __init__(self, runs: int | None = None, only: str = "", size: int | None = None) -> None:
        self.runs = runs
        self.only = only
        self.size = size
        self.answers: list[Answer] = []

    def wants(self, case: str) -> bool:
        return self.only in case

    def ask(
        self,
        question: str,
        case: str,
        unit: str,
        ours: Run,
        peers: Sequence[Peer],
        *,
        num_bytes: int | None = None,
        least_gigabytes: float | None = None,
        repeats: int = 1,
        runs: int = 7,
    ) -> None:
        """Measure and print.

        Args:
            num_bytes: of the form in question, for what one run of ours does.
            least_gigabytes: in a second; a target without a peer.
            repeats: how often each does it again in one timed run; for what takes microseconds.
        """
        timed = {"": ours} | {peer.name: peer.run for peer in peers}
        if num_bytes is not None:
            timed["memcpy"] = _copying(num_bytes)
        timed = {name: _repeated(run, repeats) for name, run in timed.items()}
        item_bytes = None if num_bytes is None else num_bytes / ours()
        taken = medians(timed, self.runs or runs)
        seconds = taken[""]
        found = [
            Answer(
                question,
                case,
                unit,
                seconds,
                gigabytes=None if item_bytes is None else item_bytes / seconds / 1e9,
                memcpy=None if item_bytes is None else taken["memcpy"] * item_bytes / seconds,
                peer=peer.name,
                peer_seconds=taken[peer.name],
                target=peer.target,
            )
            for peer in peers
        ]
        if item_bytes is not None and least_gigabytes is not None:
            asked = item_bytes / least_gigabytes / 1e9
            found.append(replace(found[0], peer=f"{least_gigabytes:g} GB/s", peer_seconds=asked, target=1.0))
        self.answers += found
        _print(found)


def medians(timed: dict[str, Run], runs: int) -> dict[str, float]:
    """The median seconds of each for an item, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in timed}
    for run in timed.values():
        run()
    for _ in range(runs):
        for name, run in timed.items():
            # As timeit does: a collection would walk all of TensorFlow, in whoever's turn it falls.
            gc.collect()
            gc.disable()
            begin = time.process_time()
            items = run()
            times[name].append((time.process_time() - begin) / items)
            gc.enable()
    return {name: statistics.median(taken) for name, taken in times.items()}


def _copying(num_bytes: int) -> Run:
    source, target = np.ones(num_bytes, np.uint8), np.zeros(num_bytes, np.uint8)

    return counted(lambda: np.copyto(target, source), num_bytes)


def _repeated(run: Run, times: int) -> Run:
    return run if times == 1 else lambda: sum(run() for _ in range(times))


def counted(run: Callable[[], object], items: int = 1) -> Run:
    """`run`, which is `items` items."""

    def count() -> int:
        run()
        return items

    return count


def drained(pieces: Iterable[object], items: int) -> int:
    """Draw all of `pieces`, which are `items` items."""
    for _ in pieces:
        pass
    return items


def _print(answers: list[Answer]) -> None:
    first = answers[0]
    speed = f"{1 / first.seconds:,.0f} {first.unit}/s"
    if first.gigabytes is not None and first.memcpy is not None:
        speed += f", {first.gigabytes:.2f} GB/s, {first.memcpy:.2f} of memcpy"
    print(f"{first.question}, {first.case}: {speed}")
    for answer in answers:
        goal = "" if answer.target is None else f" (target {answer.target:g} x)"
        print(f"    {answer.ratio:.3g} x{goal} {answer.peer}, {1 / answer.peer_seconds:,.0f} {answer.unit}/s")


def pin_to_one_core() -> None:
    """For this process and its threads; before TensorFlow is imported, which counts the cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def processor_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder for the files of peers, in memory where there is /dev/shm."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def main(measure: Callable[[Session], None]) -> None:
    """Read the command line, measure, and write what it asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, help="a file that the answers are added to, a line of JSON each")
    parser.add_argument("--runs", type=int, help="how often each is timed")
    parser.add_argument("--size", type=int, help="of what is measured, where the benchmark takes one")
    parser.add_argument("only", nargs="?", default="", help="part of the name of a case")
    arguments = parser.parse_args()
    session = Session(arguments.runs, arguments.only, arguments.size)
    measure(session)
    if arguments.out:
        with arguments.out.open("a", encoding="utf-8") as out:
            for answer in session.answers:
                out.write(json.dumps(answer.to_json()) + "\n")
