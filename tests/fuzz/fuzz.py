"""Fuzzes the decoders with atheris (libFuzzer's coverage guidance for Python), a process a target.

    python -m tests.fuzz.fuzz --seconds 20 --jobs 2       all targets, 20 s each, two at a time
    python -m tests.fuzz.fuzz --runs 50000 records-npz    one target, so many executions
    python -m tests.fuzz.fuzz --reproduce FILE records-npz

A crash, a hang (10 s for one input), an exception that is not documented or memory that grows ends with
status 1; the input that did it stays in `--findings`. The seeds in corpus/ are read, never written.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

CORPUS: Final = Path(__file__).parent / "corpus"
MAX_INPUT_BYTES: Final = 4096
SECONDS_FOR_ONE_INPUT: Final = 10
#: What a target may take: the interpreter with numba and pyarrow is a third of it.
RSS_LIMIT_MB: Final = 1024
#: From the seeds to the end. atheris 3.0 keeps what comparing a numpy array gives (`array == 1`): some
#: 3 kB for each execution of CSV, none without it (test_corpus.py).
MAX_GROWTH_MB: Final = 192
#: Of every so many changes, one is of the first byte, which chooses the variant and the output.
_CHANGES_PER_CHOICE: Final = 8
#: Of the log of a failure: the traceback, and a short input in hexadecimal and base64.
_LOG_SHOWN: Final = 4000


@dataclass(frozen=True, slots=True)
class Result:
    """What one process has done.

    Attributes:
        peak_mb: the most memory that was resident.
        growth_mb: what was resident at the end, less what was once the seeds were read.
        found: what is wrong; empty where nothing is.
    """

    name: str
    executions: int
    seconds: float
    peak_mb: int
    growth_mb: int
    found: str

    def __str__(self) -> str:
        return (
            f"{self.name:26} {self.executions:9,} executions in {self.seconds:4.0f} s, "
            f"{self.peak_mb:4} MiB at most, {self.growth_mb:+4} MiB  {self.found or 'ok'}"
        )


def load_targets() -> dict[str, Target]:
    """The targets, over code that tells libFuzzer where it has been."""
    try:
        import atheris
    except ImportError:
        raise SystemExit("atheris is missing; locks/dev.txt has it for Linux.") from None

    from app.codecs import kernels

    # The kernels are imported first: numba does not know instrumented bytecode.
    kernels.compile_all()
    with contextlib.redirect_stderr(io.StringIO()), atheris.instrument_imports(include=["app"]):
        from tests.fuzz.targets import TARGETS
    return TARGETS


def fuzz_one(target: Target, arguments: list[str]) -> NoReturn:
    """libFuzzer ends the process; it writes the input of a finding as the process exits in the usual way."""
    import atheris

    from tests.fuzz.framing import join, split
    from tests.fuzz.targets import run

    def test_one_input(data: bytes) -> None:
        run(target, data)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        """libFuzzer's own changes; in a framed input those of one payload, whose length stays right."""
        turn, choice = divmod(seed, _CHANGES_PER_CHOICE)
        if choice == 0:
            return bytes([turn % 256]) + data[1:]
        if target.framing is None or choice == 1 or not (payloads := split(data[1:])):
            return bytes(atheris.Mutate(data, max_size))
        chosen = turn % len(payloads)
        room = max(1, max_size - len(data) + len(payloads[chosen]))
        payloads[chosen] = bytes(atheris.Mutate(payloads[chosen], room))
        return (data[:1] + join(payloads))[:max_size]

    # Warm up before the clock of the first input runs.
    for seed in sorted((CORPUS / target.name).iterdir()):
        test_one_input(seed.read_bytes())
    atheris.Setup([sys.argv[0], *arguments], test_one_input, custom_mutator=mutate)
    atheris.Fuzz()
    raise SystemExit


def reproduce(name: str, file: Path) -> None:
    """Run one input without the fuzzer, so that a traceback shows."""
    from tests.fuzz.targets import TARGETS, run

    print(repr(run(TARGETS[name], file.read_bytes())))


def fuzz_all(targets: list[Target], options: argparse.Namespace) -> list[Result]:
    """Fuzz each target in a process of its own, `options.jobs` at a time, and print what came of it."""
    waiting, running, results = targets[::-1], dict[int, tuple[str, float]](), []
    while waiting or running:
        if waiting and len(running) < options.jobs:
            target = waiting.pop()
            running[_start(target, options)] = (target.name, time.monotonic())
            continue
        pid, status = os.wait()
        name, begin = running.pop(pid)
        log = (options.findings / name / "log").read_text("utf-8", "replace")
        result = _result(name, os.waitstatus_to_exitcode(status), time.monotonic() - begin, log)
        results.append(result)
        print(result, flush=True)
        if result.found:
            print(
                f"{log[-_LOG_SHOWN:]}\n(The whole log, and the input: {options.findings / name})", flush=True
            )
    return results


def _start(target: Target, options: argparse.Namespace) -> int:
    """Fork a process that fuzzes `target`, all of whose imports are done; its id.

    What libFuzzer finds interesting stays in the folder `grown` of the findings until the next time.
    """
    findings = options.findings / target.name
    grown = findings / "grown"
    shutil.rmtree(grown, ignore_errors=True)
    grown.mkdir(parents=True)
    arguments = [
        f"-artifact_prefix={findings}{os.sep}",
        f"-max_len={MAX_INPUT_BYTES}",
        f"-timeout={SECONDS_FOR_ONE_INPUT}",
        f"-rss_limit_mb={RSS_LIMIT_MB}",
        f"-seed={options.seed}",
        "-print_final_stats=1",
        *([f"-runs={options.runs}"] if options.runs else []),
        *([f"-max_total_time={options.seconds}"] if options.seconds else []),
        str(grown),
        str(CORPUS / target.name),
    ]
    if pid := os.fork():
        return pid
    log = os.open(findings / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    fuzz_one(target, arguments)


def _result(name: str, status: int, seconds: float, log: str) -> Result:
    figures = dict(re.findall(r"stat::(\w+):\s+(\d+)", log))
    executions = int(figures.get("number_of_executed_units", 0))
    sizes = [int(size) for size in re.findall(r"rss: (\d+)Mb", log)] or [0]
    growth = sizes[-1] - sizes[0]
    found = ""
    if status or not executions:
        found = f"ended with {status}: {_reason(log)}"
    elif growth > MAX_GROWTH_MB:
        found = f"more than {MAX_GROWTH_MB} MiB of growth"
    return Result(name, executions, seconds, int(figures.get("peak_rss_mb", 0)), growth, found)


def _reason(log: str) -> str:
    """The line of a log that says what happened, and at worst its last one."""
    lines = log.splitlines()
    marks = ("Uncaught Python exception", "ERROR: libFuzzer", "ModuleNotFoundError")
    for index, line in enumerate(lines):
        if any(mark in line for mark in marks):
            return " ".join(lines[index : index + 2])[:200]
    return lines[-1][:200] if lines else "nothing was said"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--findings", type=Path, default=Path(tempfile.gettempdir()) / "shardsmith-fuzz")
    parser.add_argument("--reproduce", type=Path)
    options = parser.parse_args()
    if not (options.seconds or options.runs or options.reproduce):
        parser.error("say --seconds or --runs")
    return options


def main() -> None:
    options = _options()
    if options.reproduce:
        reproduce(options.targets[0], options.reproduce)
        return
    targets = load_targets()
    results = fuzz_all([targets[name] for name in options.targets or sorted(targets)], options)
    failed = [result.name for result in results if result.found]
    total = sum(result.executions for result in results)
    print(f"{total:,} executions, {len(results)} targets, failed: {', '.join(failed) or 'none'}")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
