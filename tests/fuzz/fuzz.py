"""Fuzzes the decoders with atheris (libFuzzer's coverage guidance for Python), a process a target.

    python -m tests.fuzz.fuzz --seconds 20                all targets, 20 s each
    python -m tests.fuzz.fuzz --runs 50000 records-npz    one target, so many executions
    python -m tests.fuzz.fuzz --reproduce FILE records-npz

A crash, a hang (10 s for one input), an exception that is not documented or memory that grows ends with
status 1; the input that did it stays in `--findings`. The seeds in corpus/ are read, never written.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: In the first place, this makes the process that of one target; libFuzzer's own arguments follow.
_CHILD = "--child"
CORPUS = Path(__file__).parent / "corpus"
MAX_INPUT_BYTES = 4096
SECONDS_FOR_ONE_INPUT = 10
#: What a target may take: the interpreter with numba and pyarrow is a third of it.
RSS_LIMIT_MB = 1024
#: From the first thousands of executions to the end; libFuzzer's own corpus in memory is part of it.
MAX_GROWTH_MB = 192


def fuzz_one(name: str, arguments: list[str]) -> None:
    """Never returns: libFuzzer ends the process."""
    import atheris

    from app.codecs import kernels

    # The kernels are imported first: numba does not know instrumented bytecode.
    kernels.load()
    with atheris.instrument_imports(include=["app"]):
        from tests.fuzz.targets import TARGETS, run
    target = TARGETS[name]

    def test_one_input(data: bytes) -> None:
        run(target, data)

    # Compile and warm up before the clock of the first input runs.
    for seed in sorted((CORPUS / name).iterdir()):
        test_one_input(seed.read_bytes())
    atheris.Setup([sys.argv[0], *arguments], test_one_input)
    atheris.Fuzz()


def reproduce(name: str, file: Path) -> None:
    """Run one input without the fuzzer, so that a traceback shows."""
    from tests.fuzz.targets import TARGETS, run

    print(repr(run(TARGETS[name], file.read_bytes())))


def fuzz_in_process(name: str, options: argparse.Namespace) -> tuple[int, str]:
    """Executions done, and what was found (empty: nothing)."""
    findings = options.findings / name
    findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as grown:
        command = [
            sys.executable, "-m", "tests.fuzz.fuzz", _CHILD, name,
            f"-artifact_prefix={findings}{os.sep}",
            f"-max_len={MAX_INPUT_BYTES}",
            f"-timeout={SECONDS_FOR_ONE_INPUT}",
            f"-rss_limit_mb={RSS_LIMIT_MB}",
            f"-seed={options.seed}",
            "-print_final_stats=1",
            *([f"-runs={options.runs}"] if options.runs else []),
            *([f"-max_total_time={options.seconds}"] if options.seconds else []),
            grown, str(CORPUS / name),
        ]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    log = result.stdout + result.stderr
    (findings / "log").write_text(log, encoding="utf-8")
    executed = re.search(r"stat::number_of_executed_units:\s+(\d+)", log)
    count = int(executed[1]) if executed else 0
    if result.returncode != 0 or not count:
        return count, f"ended with {result.returncode}; see {findings}"
    sizes = [int(size) for size in re.findall(r"rss: (\d+)Mb", log)]
    if sizes and sizes[-1] - sizes[0] > MAX_GROWTH_MB:
        return count, f"memory grew from {sizes[0]} to {sizes[-1]} MiB"
    return count, ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--findings", type=Path, default=Path(tempfile.gettempdir()) / "shardsmith-fuzz")
    parser.add_argument("--reproduce", type=Path)
    options = parser.parse_args()
    if options.reproduce:
        reproduce(options.targets[0], options.reproduce)
        return
    if not (options.seconds or options.runs):
        parser.error("say --seconds or --runs")
    names = options.targets or sorted(path.name for path in CORPUS.iterdir())
    total, failed = 0, []
    for name in names:
        begin = time.monotonic()
        count, found = fuzz_in_process(name, options)
        total += count
        failed += [name] if found else []
        print(
            f"{name:24} {count:9,} executions in {time.monotonic() - begin:5.0f} s  {found or 'ok'}",
            flush=True,
        )
    print(f"{total:,} executions, {len(names)} targets, failed: {', '.join(failed) or 'none'}")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == [_CHILD]:
        fuzz_one(sys.argv[2], sys.argv[3:])
    main()
