"""What importing costs: the heavy packages are loaded when they are first needed, never before."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"keras", "llvmlite", "numba", "sklearn", "tensorflow", "tensorflow_datasets"}
SERVICES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("", "convert", "datasets")
    for path in (ROOT / "app" / "services" / folder).glob("*.py")
    if path.stem != "__init__"
)


def imported_by(module: str) -> set[str]:
    """The top-level packages in `sys.modules` of a fresh interpreter after importing `module`."""
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


@pytest.mark.parametrize("module", ["app.main", "app.codecs.forms", *SERVICES])
def test_import_leaves_heavy_packages_out(module: str) -> None:
    imported = imported_by(module)
    assert "app" in imported
    assert imported & HEAVY == set()


def test_heavy_packages_are_seen_where_they_are_imported() -> None:
    assert "numba" in imported_by("numba")
