"""Run all benchmarks, each in a process of its own, and write what they found to `benchmarks/results/`.

With `--only`, their answers replace those of the same question, case and peer in the newest results.
Run: python -m benchmarks.run [--runs N] [--only bench_appends,bench_random_read]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.measure import Answer
from benchmarks.table import RESULTS, TABLE, Results, newest_results, read_results, results_table

ROOT = Path(__file__).resolve().parent.parent
#: In the order of the table.
BENCHMARKS = (
    "bench_example",
    "bench_tfrecord_package",
    "bench_sequence_example",
    "bench_tensor_proto",
    "bench_json",
    "bench_json_out",
    "bench_forms",
    "bench_crc32c",
    "bench_transforms",
    "bench_image_rows",
    "bench_store_write",
    "bench_appends",
    "bench_overload",
    "bench_probes",
    "bench_hostile",
    "bench_random_read",
    "bench_statistics",
    "bench_training_stream",
    "bench_feed",
    "bench_imports",
    "bench_afternoon",
    "bench_small_requests",
    "bench_stream_tensor",
)
LIBRARIES = (
    "numpy",
    "pyarrow",
    "numba",
    "tensorflow",
    "protobuf",
    "tfrecord",
    "orjson",
    "pysimdjson",
    "safetensors",
)


def cpu_model() -> str:
    """As the processor calls itself."""
    info = Path("/proc/cpuinfo")
    if info.exists() and (found := re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE)):
        return found[1].strip()
    return platform.processor() or platform.machine()


def machine() -> dict[str, str]:
    """What the figures depend on; nothing that says whose machine it is."""
    kernel = ".".join(platform.release().split(".")[:2])
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "processor": f"{cpu_model()} ({platform.machine()})",
        "cores": f"{os.cpu_count()}, of which one is used",
        "system": f"{platform.system()} {kernel}",
        "Python": platform.python_version(),
    } | {name: version(name) for name in LIBRARIES}


def results_path(found: dict[str, str]) -> Path:
    """One file for each day and processor."""
    cpu = re.sub(r"[^a-z0-9]+", "-", cpu_model().lower()).strip("-")
    return RESULTS / f"{found['date']}-{cpu}.jsonl"


def write_results(path: Path, results: Results) -> None:
    """One line for the machine, then one an answer."""
    lines = [results.machine, *(answer.to_json() for answer in results.answers)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def merged(old: Sequence[Answer], new: Sequence[Answer]) -> list[Answer]:
    """The old answers, each replaced where it was asked again; then what is new."""
    again = {answer.asked: answer for answer in new}
    return [again.pop(answer.asked, answer) for answer in old] + list(again.values())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, help="how often each is timed")
    parser.add_argument("--only", default="", help="names, with commas; what others found stays")
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else BENCHMARKS
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    options = [] if arguments.runs is None else ["--runs", str(arguments.runs)]
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder) / "answers"
        for name in names:
            command = [sys.executable, "-m", f"benchmarks.{name}", "--out", str(answers), *options]
            # Without TensorFlow's notes on the machine.
            subprocess.run(command, cwd=ROOT, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}, check=True)
        new = [
            Answer.from_json(json.loads(line)) for line in answers.read_text(encoding="utf-8").splitlines()
        ]
    path = newest_results() if arguments.only else results_path(machine())
    old = read_results(path) if arguments.only else Results(machine(), [])
    write_results(path, Results(old.machine, merged(old.answers, new)))
    TABLE.write_text(results_table(path), encoding="utf-8")


if __name__ == "__main__":
    main()
