"""What `bin/test` leaves out, `bin/test --rest` runs: together they are every test, and none is in both."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import SLOW

ROOT = Path(__file__).parents[2]
#: With quick tests and slow ones, and one that needs a store.
FILES = ("tests/e2e/test_serve.py", "tests/e2e/test_unsafe_store.py")


def collect(share: str, *paths: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", f"--share={share}", *paths]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def collected(share: str) -> tuple[set[str], str]:
    """The tests of some files, and what else is printed."""
    result = collect(share, *FILES)
    assert result.returncode == 0, result.stdout + result.stderr
    return set(re.findall(r"^tests/.*::.*$", result.stdout, re.MULTILINE)), result.stdout


def test_quick_tests_and_the_rest_are_all() -> None:
    (every, _), (quick, told), (rest, _) = map(collected, ("all", "quick", "rest"))
    assert quick | rest == every
    assert not quick & rest
    assert "tests/e2e/test_serve.py::test_probes_answer" in quick
    assert {test.partition("::")[0] for test in rest} == set(FILES)
    folders = "tests/differential and tests/e2e/ui, which need TensorFlow and Playwright"
    assert f"Left out: {folders}, and {len(rest)} slow tests." in told


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("tests/differential/test_golden.py", "tests/differential needs TensorFlow: add --all."),
        ("tests/e2e/ui/test_file.py", "tests/e2e/ui needs Playwright: add --all."),
    ],
)
def test_who_asks_for_tests_that_need_more_is_told_how(path: str, said: str) -> None:
    result = collect("quick", path)
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr


def test_every_marker_has_its_meaning() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    assert sorted(marker.partition(":")[0] for marker in settings["markers"]) == sorted(SLOW)
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert all(f"| `{name}` |" in contributing for name in SLOW)


@pytest.mark.parametrize("folder", ["unit", "contract", "simulation", "fuzz"])
def test_no_quick_test_imports_tensorflow(folder: str) -> None:
    for path in (ROOT / "tests" / folder).rglob("*.py"):
        assert not re.search(r"^(import|from) (tensorflow|keras)", path.read_text("utf-8"), re.MULTILINE), (
            path
        )
