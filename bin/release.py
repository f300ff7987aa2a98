"""Prepares a release: `release.py X.Y.Z`, in a clean checkout with a `.venv`; CONTRIBUTING.md has the rest.

The version has one source, `__version__` of app/__init__.py, which packages and code read. Files that cannot
read it (chart, manifests, Dockerfile, pages, a recorded example) are rewritten here, and compared by a test.
"""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "app/__init__.py"
#: Where a version of Shardsmith is written: a glob for each kind of file.
FILES = (
    SOURCE,
    "Dockerfile",
    "deploy/helm/shardsmith/Chart.yaml",
    "deploy/kustomize/**/*.yaml",
    "docs/**/*.md",
    "openapi/examples/*.yaml",
)
#: What comes before it, so that no version of anything else is meant.
VERSION = re.compile(
    r'(?<=^__version__ = ")[\d.]+'
    r"|(?<=^ARG VERSION=)[\d.]+"
    r"|(?<=^version: )[\d.]+|(?<=^appVersion: )[\d.]+"
    r'|(?<=app\.kubernetes\.io/version: ")[\d.]+'
    r"|(?<=shardsmith:)\d+\.\d+\.\d+|(?<=shardsmith-ray:)\d+\.\d+\.\d+"
    r'|(?<="name":"shardsmith","version":")[\d.]+',
    re.MULTILINE,
)
UNRELEASED = "## Unreleased\n"
NEXT = """\
Version {0} is written. Next:
  1. Read `git diff`. If what is stored has changed since the last release, make tests/stored/{0}:
     .venv/bin/python -m tests.stored.make tests/stored/{0}
  2. Run .ci/run, and commit: git commit -am 'release: {0}'
  3. Tag it: git tag -a v{0} -m 'Shardsmith {0}'
  4. Build the wheel and the sdist (python -m build), the image (docker build --tag shardsmith:{0} .) and the
     chart (helm package deploy/helm/shardsmith). Publish them with the tag.
"""


def files(root: Path = ROOT) -> list[Path]:
    return sorted(file for pattern in FILES for file in root.glob(pattern))


def versions(root: Path = ROOT) -> dict[str, set[str]]:
    """File -> the versions of Shardsmith in it, for each file that has one."""
    found = {str(file.relative_to(root)): VERSION.findall(file.read_text("utf-8")) for file in files(root)}
    return {name: set(written) for name, written in found.items() if written}


def check(version: str) -> None:
    """End the program if this version cannot be released now."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        fail(f"{version!r} is not a version: expected X.Y.Z.")
    [current] = versions()[SOURCE]
    if as_numbers(version) < as_numbers(current):
        fail(f"{version} is older than {current}, which the code has.")
    if run("git", "tag", "--list", f"v{version}"):
        fail(f"The tag v{version} exists. A release is never made a second time.")
    if run("git", "status", "--porcelain"):
        fail("The checkout has changes. Commit or stash them first.")
    if UNRELEASED not in (ROOT / "CHANGELOG.md").read_text("utf-8"):
        fail("CHANGELOG.md has no section '## Unreleased' to become the one of this release.")
    if not (ROOT / ".venv" / "bin" / "python").exists():
        fail("There is no .venv to regenerate openapi/ with. Run bin/lint first.")


def as_numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def write(version: str, root: Path = ROOT) -> None:
    """Write the version everywhere, and give the changelog's newest section its name and date."""
    for name in versions(root):
        file = root / name
        file.write_text(VERSION.sub(version, file.read_text("utf-8")), "utf-8")
    today = dt.datetime.now(dt.UTC).date()
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text("utf-8").replace(UNRELEASED, f"## {version} ({today})\n", 1)
    changelog.write_text(text, "utf-8")


def run(*command: str) -> str:
    """What `command` prints; the program ends where it fails."""
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        fail(f"{result.stdout}{result.stderr}Failed: {' '.join(command)}")
    return result.stdout


def fail(message: str) -> NoReturn:
    raise SystemExit(message)


def main() -> None:
    if len(sys.argv) != 2:
        fail("Usage: bin/release X.Y.Z")
    [version] = sys.argv[1:]
    check(version)
    write(version)
    run("bin/openapi")
    print(NEXT.format(version), end="")


if __name__ == "__main__":
    main()
