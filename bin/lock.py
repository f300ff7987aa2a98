"""Writes the lock files from pyproject.toml, or checks that they are in step with it.

    bin/lock                    resolve again, keeping the locked versions where they still fit
    bin/lock --upgrade          ... taking the newest (also: --upgrade-package NAME)
    bin/lock --check            exit 1 unless all locks were made from this pyproject.toml

`locks/bench.txt` holds everything; `locks/dev.txt` what `bin/test --all` and `bin/lint` need, with
TensorFlow; `locks/test.txt` what `bin/test` needs; `locks/image.txt` what the container image holds; and
`locks/serve.txt` what the service needs: all at the same versions. They are universal (every platform, every
supported Python), hashed, and name no index. Writing needs uv (https://docs.astral.sh/uv/); checking needs
Python alone.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
#: Lock -> what it holds; each is part of the one before.
LOCKS = {
    "locks/bench.txt": ("--group", "bench", "--all-extras"),
    "locks/dev.txt": ("--group", "dev", "--all-extras"),
    "locks/test.txt": (
        "--group",
        "test",
        "--extra",
        "service",
        "--extra",
        "botocore",
        "--extra",
        "otel",
    ),
    "locks/image.txt": (
        "--group",
        "build",
        "--extra",
        "service",
        "--extra",
        "botocore",
        "--extra",
        "otel",
    ),
    "locks/serve.txt": ("--group", "build", "--extra", "service"),
}
HEADER = """\
# Made by bin/lock from pyproject.toml; do not edit.
# Dependency tables: sha256:{digest}
"""
COMPILE = (
    "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-header",
    # One version of a package for every Python where that is possible.
    "--fork-strategy", "fewest",
    "--no-emit-index-url", "--no-emit-find-links",
)  # fmt: skip


def dependency_digest() -> str:
    """Of the tables of pyproject.toml that the locks are resolved from."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = document["project"]
    tables = [
        document["build-system"]["requires"],
        project["requires-python"],
        project["dependencies"],
        project["optional-dependencies"],
        document["dependency-groups"],
    ]
    return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()


def write(options: list[str]) -> None:
    uv = find_uv()
    # Without a configuration file of this machine: the result depends on pyproject.toml and the index.
    resolve = [*uv, *COMPILE, "--no-config", "pyproject.toml"]
    larger: list[str] = []
    for name, further in LOCKS.items():
        # Each can only choose what the larger one chose.
        run([*resolve, *further, *larger, "--output-file", name, *options])
        larger = ["--constraint", name]
    for name in LOCKS:
        lock = ROOT / name
        body = lock.read_text(encoding="utf-8")
        lock.write_text(HEADER.format(digest=dependency_digest()) + body, encoding="utf-8")


def find_uv() -> list[str]:
    if uv := shutil.which("uv"):
        return [uv]
    if find_spec("uv") is None:
        fail(
            "bin/lock needs uv. Get it with `pipx install uv`, or\n"
            "`python3 -m venv /tmp/uv && /tmp/uv/bin/pip install uv && PATH=/tmp/uv/bin:$PATH bin/lock`."
        )
    return [sys.executable, "-m", "uv"]


def run(command: list[str]) -> None:
    if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode != 0:
        fail(f"Failed: {' '.join(command)}")


def check() -> list[str]:
    """What is wrong with the locks, one sentence each."""
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in LOCKS}
    header = HEADER.format(digest=dependency_digest())
    wrong = [
        f"{name} was not made from this pyproject.toml."
        for name, text in texts.items()
        if not text.startswith(header)
    ]
    for larger, smaller in pairwise(LOCKS):
        if strange := sorted(pins(texts[smaller]) - pins(texts[larger])):
            wrong.append(f"{smaller} has what {larger} has not: {', '.join(strange)}.")
    for name, text in texts.items():
        if unhashed := [line for line in text.splitlines() if "==" in line and not line.endswith("\\")]:
            wrong.append(f"{name} has entries without a hash: {', '.join(unhashed)}.")
        if re.search(r"^\s*--(?!hash)|://|file:", text, re.MULTILINE):
            wrong.append(f"{name} names an index, a host or a file.")
    return wrong


def pins(lock: str) -> set[str]:
    """The `name==version` of every entry; an entry may stand there once per marker."""
    return set(re.findall(r"^[A-Za-z0-9._-]+==[^ \\]+", lock, re.MULTILINE))


def fail(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(1)


def main() -> None:
    options = sys.argv[1:]
    if "--check" not in options:
        write(options)
    elif wrong := check():
        fail("\n".join([*wrong, "Run bin/lock and commit the result."]))


if __name__ == "__main__":
    main()
