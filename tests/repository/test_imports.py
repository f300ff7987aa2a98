"""What importing costs: the heavy packages are loaded when they are first needed, never before."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = ("keras", "llvmlite", "numba", "sklearn", "tensorflow", "tensorflow_datasets")
SERVICES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("", "convert", "datasets")
    for path in (ROOT / "app" / "services" / folder).glob("*.py")
    if path.stem != "__init__"
)


#: Imports modules in turn, and prints what heavy packages are there after each.
IMPORT = """
import importlib, json, sys
heavy, modules = map(str.split, sys.argv[1:])
there = {}
for name in modules:
    importlib.import_module(name)
    there[name] = [package for package in heavy if package in sys.modules]
print(json.dumps(there))
"""


def heavy_after(*modules: str) -> dict[str, list[str]]:
    """The heavy packages that are imported in a fresh interpreter after each of these modules."""
    command = [sys.executable, "-c", IMPORT, " ".join(HEAVY), " ".join(modules)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    found: dict[str, list[str]] = json.loads(result.stdout)
    return found


def test_import_leaves_heavy_packages_out() -> None:
    modules = ["app.codecs.forms", *SERVICES, "app.main"]
    assert heavy_after(*modules) == {module: [] for module in modules}


def test_heavy_packages_are_seen_where_they_are_imported() -> None:
    assert heavy_after("json", "numba") == {"json": [], "numba": ["llvmlite", "numba"]}
