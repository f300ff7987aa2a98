"""Below the routes everything waits in a way that lends the turn (`runtime/turns.py`)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

APP = Path(__file__).parents[2] / "app"
FOLDERS = ("codecs", "domain", "services", "storage")
MODULES = sorted(path for folder in FOLDERS for path in (APP / folder).rglob("*.py"))

#: Where a turn is lent, and what runs in threads that never have one.
ALLOWED = {
    ("codecs/kernels/table.py", "sleep"),
    ("runtime/turns.py", "sleep"),
    ("services/datasets/pieces/run_ahead.py", "map"),
    ("storage/probe.py", "map"),
}


def waits(tree: ast.AST) -> Iterator[str]:
    """Calls of `time.sleep`, and of `map` on a pool of threads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (alias.name for alias in node.names if alias.name == "sleep")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            if (node.func.attr == "sleep" and owner == "time") or (
                node.func.attr == "map" and owner.endswith("pool")
            ):
                yield node.func.attr


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(APP)))
def test_sleeps_through_pause_and_waits_for_threads_through_map_in(path: Path) -> None:
    name = path.relative_to(APP).as_posix()
    found = {(name, wait) for wait in waits(ast.parse(path.read_text(encoding="utf-8")))}
    assert found <= ALLOWED


def test_the_search_finds_what_it_looks_for() -> None:
    source = "import time\nfrom time import sleep\ntime.sleep(1)\nself._pool.map(str, [])\n"
    assert list(waits(ast.parse(source))) == ["sleep", "sleep", "map"]
