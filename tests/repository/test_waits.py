"""Below the routes, threads are waited for in a way that lends the turn (`runtime/turns.py`).

Ruff finds `time.sleep`: `TID251` in pyproject.toml.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

APP = Path(__file__).parents[2] / "app"
FOLDERS = ("codecs", "domain", "services", "storage")
#: Where a turn is lent, and what runs in threads that never have one.
ALLOWED = {"services/datasets/pieces/run_ahead.py", "storage/probe.py"}


def maps(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls of `map` on a pool of threads."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="map")) if ast.unparse(owner).endswith("pool"):
                yield node


def test_pools_map_only_where_the_turn_is_lent() -> None:
    found = {
        path.relative_to(APP).as_posix()
        for folder in FOLDERS
        for path in (APP / folder).rglob("*.py")
        if ".map(" in (source := path.read_text("utf-8")) and any(maps(ast.parse(source)))
    }
    assert found == ALLOWED


def test_map_of_an_attribute_is_found() -> None:
    assert len(list(maps(ast.parse("self._pool.map(str, [])\nrows.map(str)")))) == 1
