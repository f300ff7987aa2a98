"""The gate: what it keeps between runs, what it reports, and that hosted CI runs all of it."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CI = ROOT / ".ci"
CACHED = """
set -euo pipefail
python={python} logs={folder}/logs SHARDSMITH_GATE_CACHE={folder}/cache
mkdir -p "$logs"
. {ci}/cache.sh
fill() {{ cat "$2" >"$1/content"; [ "$(cat "$2")" != bad ]; }}
cached thing fill "$1"
"""
STEPS = """
set -euo pipefail
logs={folder}
. {ci}/steps.sh
{steps}
finish
{python} {ci}/report.py "$logs" "$logs/build/gate.json" 7 test
"""
PYTEST = "printf '%s\\n' '2.50s call     tests/a.py::test_b' '===== 3 passed in 2.61s ====='"


def cached(folder: Path, content: str) -> subprocess.CompletedProcess[str]:
    """Run `cached` with a file of that content."""
    given = folder / "given"
    given.write_text(content, "utf-8")
    script = CACHED.format(python=sys.executable, folder=folder, ci=CI)
    return subprocess.run(
        ["bash", "-c", script, "bash", given], capture_output=True, text=True, check=False, cwd=ROOT
    )


def folders(folder: Path) -> set[str]:
    return {path.name for path in (folder / "cache").iterdir() if path.is_dir()}


def ran(folder: Path, steps: str) -> tuple[int, str, dict[str, Any]]:
    """Exit status, output and gate.json of these steps."""
    script = STEPS.format(folder=folder, ci=CI, steps=steps, python=sys.executable)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    return done.returncode, done.stdout, json.loads((folder / "build" / "gate.json").read_text("utf-8"))


def test_what_is_cached_is_made_once(tmp_path: Path) -> None:
    first, second = cached(tmp_path, "a"), cached(tmp_path, "a")
    assert first.stdout == second.stdout
    assert Path(first.stdout.strip(), "content").read_text("utf-8") == "a"
    assert (tmp_path / "logs" / "made").read_text("utf-8") == "thing\n"
    assert (tmp_path / "logs" / "found").read_text("utf-8") == "thing\n"


def test_other_inputs_are_cached_apart_and_the_oldest_removed(tmp_path: Path) -> None:
    paths = [cached(tmp_path, content).stdout.strip() for content in ("a", "b", "c")]
    assert len(set(paths)) == 3
    assert folders(tmp_path) == {Path(path).name for path in paths[1:]}


def test_nothing_is_left_of_what_could_not_be_made(tmp_path: Path) -> None:
    failed = cached(tmp_path, "bad")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert folders(tmp_path) == set()


def test_steps_that_passed_are_reported_with_their_times_and_summaries(tmp_path: Path) -> None:
    status, out, gate = ran(tmp_path, f'begin tests sh -c "{PYTEST}"\nstep other true')
    assert status == 0
    assert "\ntests: ===== 3 passed in 2.61s =====\n" in out
    assert out.endswith("\nall checks passed\n")
    assert {step["name"]: step["passed"] for step in gate["steps"]} == {"tests": True, "other": True}
    assert all(step["seconds"] >= 0 and step["cpu_seconds"] >= 0 for step in gate["steps"])
    assert gate["slowest_tests"] == [{"test": "tests/a.py::test_b", "seconds": 2.5, "step": "tests"}]
    assert (gate["passed"], gate["seconds"], gate["jobs"]) == (True, 7, ["test"])


@pytest.mark.parametrize("how", ["begin", "step"])
def test_failed_step_fails_the_gate_and_is_named_last(tmp_path: Path, how: str) -> None:
    status, out, gate = ran(tmp_path, f"{how} bad false\n{how} good true")
    assert status == 1
    assert out.splitlines()[-1] == "failed: bad"
    assert {step["name"]: step["passed"] for step in gate["steps"]} == {"bad": False, "good": True}


def test_step_that_was_lost_fails_the_gate(tmp_path: Path) -> None:
    status, out, _ = ran(tmp_path, "echo gone >>$logs/begun")
    assert status == 1
    assert "gone" in out.splitlines()[-1]


def test_gate_without_steps_fails(tmp_path: Path) -> None:
    assert ran(tmp_path, "")[0] == 1


def test_unknown_job_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", CI / "run", "tests"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: .ci/run [--all] [JOB...]")


def test_hosted_ci_runs_every_job_and_every_python() -> None:
    [jobs] = re.findall(r"^all_jobs=\((.*)\)$", (CI / "run").read_text("utf-8"), re.MULTILINE)
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    gate, test = workflow["jobs"]["gate"], workflow["jobs"]["test"]
    assert [*gate["strategy"]["matrix"]["job"], "test"] == sorted(
        jobs.split(), key=lambda job: (job == "test", jobs.split().index(job))
    )
    assert test["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert {"run": "bin/test"} in test["steps"]
