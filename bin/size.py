"""Prints the size of each folder and its budget: `size.py [FOLDER ...]`; exit 1 where one is exceeded.

The size is the number of AST nodes, docstrings left out, so that neither comments nor line breaks count. The
budgets are in pyproject.toml, `[tool.shardsmith.budgets]`; arguments name other folders to measure.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Size(NamedTuple):
    """Of the Python files of a folder; 90 % of its functions have at most `p90` lines."""

    nodes: int
    lines: int
    files: int
    p90: int


def measure(files: list[Path]) -> Size:
    nodes = lines = 0
    functions = []
    for file in files:
        source = file.read_text(encoding="utf-8")
        lines += source.count("\n")
        for node in ast.walk(ast.parse(source)):
            nodes += 1
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append((node.end_lineno or 0) - node.lineno + 1)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                # A docstring is an expression and a constant.
                nodes -= 2 * (ast.get_docstring(node, clean=False) is not None)
    functions.sort()
    return Size(nodes, lines, len(files), functions[int(len(functions) * 0.9)] if functions else 0)


def python_files(folder: str, root: Path = ROOT) -> list[Path]:
    """Of a folder and those in it; of `app/*.py` those files alone."""
    if folder.endswith(".py"):
        return sorted(root.glob(folder))
    return sorted((root / folder).rglob("*.py"))


def budgets(root: Path = ROOT) -> dict[str, int]:
    document = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, int] = document["tool"]["shardsmith"]["budgets"]
    return found


def exceeded(root: Path = ROOT) -> list[str]:
    """What is larger than its budget, one sentence each."""
    return [
        f"{folder} has {size.nodes} AST nodes; its budget is {budget}."
        for folder, budget in budgets(root).items()
        if (size := measure(python_files(folder, root))).nodes > budget
    ]


def main() -> None:
    known = budgets()
    print(f"{'folder':16} {'nodes':>8} {'budget':>8} {'lines':>8} {'files':>6} {'function p90':>13}")
    for folder in sys.argv[1:] or known:
        size = measure(python_files(folder))
        budget = known.get(folder.rstrip("/"), "")
        print(f"{folder:16} {size.nodes:8} {budget:>8} {size.lines:8} {size.files:6} {size.p90:13}")
    if too_large := exceeded():
        raise SystemExit("\n".join(too_large))


if __name__ == "__main__":
    main()
