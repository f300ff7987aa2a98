"""What a run of the gate ends with: `report.py LOGS GATE_JSON SECONDS JOB...`.

Prints the seconds of each step, the slowest tests, pytest's summaries and what has failed; writes the same as
JSON. Exits with status 1 if a step has failed, or if there was none.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

#: A line of pytest's `--durations`.
DURATION = re.compile(r"^(\d+\.\d+)s (?:call|setup|teardown) +(\S.*)$", re.MULTILINE)
#: The last line of a run of pytest.
SUMMARY = re.compile(r"^=+ (?=.*\d (?:passed|failed|error)).* =+$|^\d+ (?:passed|failed)\b.*$", re.MULTILINE)
NUM_SLOWEST = 25


def steps_of(logs: Path) -> list[dict[str, Any]]:
    """Each step that was begun, in the order in which they finished; one that left no time has failed."""
    rows = [line.split("\t") for line in _lines(logs / "steps.tsv")]
    finished = {name for name, *_ in rows}
    rows += [[name, "0", "0", "lost"] for name in _lines(logs / "begun") if name not in finished]
    return [
        {
            "name": name,
            "seconds": float(seconds),
            "cpu_seconds": round(float(cpu_seconds), 1),
            "passed": status == "0",
        }
        for name, seconds, cpu_seconds, status in rows
    ]


def report(logs: Path, seconds: float, jobs: list[str]) -> dict[str, Any]:
    """What gate.json holds."""
    steps = steps_of(logs)
    made = sorted(set(_lines(logs / "made")))
    tests = [
        {"test": test.strip(), "seconds": float(taken), "step": step["name"]}
        for step in steps
        for taken, test in DURATION.findall(_text(logs, step["name"]))
    ]
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain")),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "jobs": jobs,
        "passed": bool(steps) and all(step["passed"] for step in steps),
        "seconds": seconds,
        "cpu_seconds": round(sum(step["cpu_seconds"] for step in steps), 1),
        "caches": {
            "warm": not made,
            "made": made,
            "found": sorted({*_lines(logs / "found")} - {*made}),
        },
        "steps": steps,
        "slowest_tests": sorted(tests, key=lambda test: -test["seconds"])[:NUM_SLOWEST],
    }


def print_report(gate: dict[str, Any], logs: Path) -> None:
    """Print it, with what has failed in the last line."""
    print("\n== slowest tests")
    for test in gate["slowest_tests"]:
        print(f"{test['seconds']:8.2f} s  {test['test']}")
    print("\n== steps: seconds, seconds of processors")
    for step in sorted(gate["steps"], key=lambda step: -step["seconds"]):
        failed = "" if step["passed"] else "  FAILED"
        print(f"{step['seconds']:8.0f} {step['cpu_seconds']:8.0f}  {step['name']}{failed}")
    caches = "warm" if gate["caches"]["warm"] else f"made {', '.join(gate['caches']['made'])}"
    print(f"{gate['seconds']:8.0f} {gate['cpu_seconds']:8.0f}  in all; caches: {caches}")
    print("\n== summary")
    for step in gate["steps"]:
        if found := SUMMARY.findall(_text(logs, step["name"])):
            print(f"{step['name']}: {found[-1]}")
    for line in _text(logs, "vulnerabilities").splitlines():
        print(f"vulnerabilities: {line}")
    if gate["passed"]:
        print("all checks passed")
    else:
        print(f"failed: {' '.join(step['name'] for step in gate['steps'] if not step['passed'])}")


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []


def _text(logs: Path, step: str) -> str:
    path = logs / f"{step}.log"
    return path.read_text("utf-8", "replace") if path.exists() else ""


def _git(*arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)  # noqa: S603, S607
    return ran.stdout.strip()


def main() -> int:
    logs, target, seconds, *jobs = sys.argv[1:]
    gate = report(Path(logs), float(seconds), jobs)
    Path(target).parent.mkdir(exist_ok=True)
    Path(target).write_text(f"{json.dumps(gate, indent=1)}\n", "utf-8")
    print_report(gate, Path(logs))
    return 0 if gate["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
