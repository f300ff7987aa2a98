"""What `bin/test` leaves out, `bin/test --rest` runs: together they are every test, and every example."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import SLOW, draw_fewer, sample

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


def test_property_tests_are_in_both() -> None:
    path = "tests/unit/api/downloads/test_ranges.py"
    quick, rest = (collect(share, path).stdout for share in ("quick", "rest"))
    assert re.findall(r"^tests/.*::(.*)$", rest, re.MULTILINE) == [
        "test_all_asked_for_is_there_once_and_no_more"
    ]
    assert "::test_all_asked_for_is_there_once_and_no_more\n" in quick


def test_property_tests_draw_a_quarter_of_their_examples_in_the_quick_share() -> None:
    drawn = []

    @settings(max_examples=80, database=None)
    @given(st.integers())
    def run(value: int) -> None:
        drawn.append(value)

    for _ in range(2):  # each case of a table is an item of the same function
        draw_fewer(run)
    run()
    assert 10 <= len(drawn) <= 20


def test_sampled_tests_keep_the_first_and_last_case_each_third_and_those_named() -> None:
    exhaustive = sample([f"case {n}" for n in range(9)], keep=("case 4",))
    assert exhaustive == {"case 1", "case 2", "case 5", "case 7"}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("tests/differential/test_golden.py", "tests/differential needs TensorFlow: add --all."),
        ("tests/e2e/ui/test_file.py", "tests/e2e/ui needs Playwright: add --all."),
    ],
)
def test_path_that_needs_more_packages_names_the_option(path: str, said: str) -> None:
    result = collect("quick", path)
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr


def test_every_marker_has_its_meaning() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    assert sorted(marker.partition(":")[0] for marker in options["markers"]) == sorted([*SLOW, "sampled"])
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert all(f"| `{name}` |" in contributing for name in SLOW)
    assert "marker `sampled`" in contributing


@pytest.mark.parametrize("folder", ["unit", "contract", "simulation", "fuzz"])
def test_no_quick_test_imports_tensorflow(folder: str) -> None:
    for path in (ROOT / "tests" / folder).rglob("*.py"):
        assert not re.search(r"^(import|from) (tensorflow|keras)", path.read_text("utf-8"), re.MULTILINE), (
            path
        )
