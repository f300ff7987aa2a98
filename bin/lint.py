"""Runs every check of the code that starts no test: `lint.py [NAME ...]`; all of them without a name.

All run even where one fails. What a check prints is shown if it fails; the budgets are always shown. The
tools are those of the environment of the interpreter.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = Path(sys.executable).parent
#: Name -> command; the longest first.
CHECKS: dict[str, list[str | Path]] = {
    "mypy": [PROGRAMS / "mypy"],
    "ruff": [PROGRAMS / "ruff", "check"],
    "format": [PROGRAMS / "ruff", "format", "--check"],
    "imports": [PROGRAMS / "lint-imports"],
    "openapi": [ROOT / "bin" / "openapi", "--check"],
    "locks": [ROOT / "bin" / "lock", "--check"],
    "budgets": [sys.executable, ROOT / "bin" / "size.py"],
}


def check(name: str) -> tuple[bool, str]:
    """Whether it passed, and what it printed."""
    result = subprocess.run(
        CHECKS[name],
        cwd=ROOT,
        env={**os.environ, "PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return result.returncode == 0, result.stdout


def main() -> None:
    names = sys.argv[1:] or list(CHECKS)
    if unknown := [name for name in names if name not in CHECKS]:
        raise SystemExit(f"Unknown: {', '.join(unknown)}. The checks are {', '.join(CHECKS)}.")
    failed = []
    # mypy takes as long as all others together.
    with ThreadPoolExecutor(2) as pool:
        running = {pool.submit(check, name): name for name in names}
        for future in as_completed(running):
            passed, printed = future.result()
            name = running[future]
            print(f"== {name}: {'passed' if passed else 'failed'}", flush=True)
            if not passed or name == "budgets":
                print(printed, end="", flush=True)
            if not passed:
                failed.append(name)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")
    print("all checks passed")


if __name__ == "__main__":
    main()
