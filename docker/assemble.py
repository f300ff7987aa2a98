"""Collects the root file system of the last stage: assemble.py ENVIRONMENT ROOT, in the build of the image.

It holds the environment, its Python with the standard library, the shared libraries that these load,
certificates and time zones, and nothing else of the base: no shell, no package manager, no compiler. The
Debian packages that its files come from stand in dpkg's list, for scanners, and in the bill of materials.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

#: Parts of the standard library for terminals, displays, compilers and tests.
STDLIB_UNUSED: Final = (
    *("__pycache__", "config-*", "curses", "dist-packages", "distutils", "ensurepip", "idlelib", "lib2to3"),
    *(
        "pydoc_data",
        "site-packages",
        "sqlite3",
        "test",
        "tests",
        "tkinter",
        "turtledemo",
        "_curses*",
        "_dbm*",
    ),
    *("_gdbm*", "_sqlite3*", "_test*", "_tkinter*", "_xx*", "readline*", "xxlimited*"),
)
#: Read at run time by those libraries: how names are resolved, whom to trust, when clocks change.
FILES: Final = (
    *("/etc/debian_version", "/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/ssl/certs/ca-certificates.crt"),
    *("/usr/lib/os-release", "/usr/share/zoneinfo"),
)
DPKG: Final = Path("/var/lib/dpkg")
#: In the base too, the owner of nothing else.
USER: Final = 10001
SPOOL_AND_DATA: Final = ("var/lib/shardsmith", "var/lib/shardsmith/data", "var/lib/shardsmith/spool")


def assemble(environment: Path, root: Path) -> None:
    """Fill `root`, which is not there yet."""
    # Debian has had /lib and /lib64 as links into /usr since 2019.
    for name in ("lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    interpreter, stdlib = Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))
    _copy(environment, root)
    _copy(interpreter, root)
    python = _placed(root, environment / "bin" / "python3")
    python.unlink()
    python.symlink_to(interpreter)
    shutil.copytree(stdlib, _placed(root, stdlib), ignore=shutil.ignore_patterns(*STDLIB_UNUSED))
    # Nothing is written in a container, so what is not compiled here would be compiled at each start.
    compile_all = [
        "-m",
        "compileall",
        "-q",
        "--invalidation-mode",
        "unchecked-hash",
        "-s",
        str(root),
        "-p",
        "/",
    ]
    subprocess.run([sys.executable, *compile_all, _placed(root, stdlib)], check=True)  # noqa: S603  # in a build
    for path in [*_libraries([interpreter, *root.rglob("*.so*")], root), *map(Path, FILES)]:
        if path.exists():
            _copy(path, root)
    (root / "etc/passwd").write_text(f"shardsmith:x:{USER}:{USER}::/var/lib/shardsmith:/\n", "utf-8")
    (root / "etc/group").write_text(f"shardsmith:x:{USER}:\n", "utf-8")
    (root / "etc/os-release").symlink_to("../usr/lib/os-release")
    for name in SPOOL_AND_DATA:
        (root / name).mkdir(parents=True)
        os.chown(root / name, USER, USER)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    _list_packages(root, _placed(root, environment / "sbom.cdx.json"))


def _placed(root: Path, path: Path) -> Path:
    return root / path.parent.resolve().relative_to("/") / path.name


def _copy(path: Path, root: Path) -> None:
    """Copy a folder as it is, or a file under that name, also where the name is a link."""
    target = _placed(root, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, target, symlinks=True, ignore=shutil.ignore_patterns("right", "posix"))
    elif not target.exists():
        shutil.copy2(path, target)


def _libraries(binaries: Iterable[Path], root: Path) -> set[Path]:
    """The shared libraries of the base that these load, and those that load them."""
    named = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=True)  # noqa: S603, S607
    if missing := re.findall(r"(\S+) => not found", named.stdout):
        raise SystemExit(f"The base has no {', '.join(sorted(set(missing)))}.")
    paths = {Path(path) for path in re.findall(r"(/\S+) \(0x", named.stdout)}
    return {path for path in paths if not path.is_relative_to(root)}


def _list_packages(root: Path, bill: Path) -> None:
    """List the Debian packages that files of `root` come from, for dpkg and, with Python, in `bill`."""
    present = set(_names_of_packages(root))
    stanzas = (DPKG / "status").read_text("utf-8").strip().split("\n\n")
    fields = [dict(re.findall(r"^(\S+): (.*)$", stanza, re.MULTILINE)) for stanza in stanzas]
    kept = [index for index, package in enumerate(fields) if package["Package"] in present]
    (root / DPKG.relative_to("/")).mkdir(parents=True)
    status = "\n\n".join(stanzas[index] for index in kept)
    (root / DPKG.relative_to("/") / "status").write_text(f"{status}\n", "utf-8")

    document = json.loads(bill.read_text("utf-8"))
    python = platform.python_version()
    document["components"] += [
        {"type": "platform", "name": "python", "version": python, "purl": f"pkg:generic/python@{python}"},
        *(_component(fields[index]) for index in kept),
    ]
    bill.write_text(json.dumps(document, indent=1), "utf-8")


def _names_of_packages(root: Path) -> Iterator[str]:
    for owned in (DPKG / "info").glob("*.list"):
        files = map(Path, owned.read_text("utf-8").splitlines())
        if any(path.is_file() and _placed(root, path).is_file() for path in files):
            yield owned.stem.partition(":")[0]


def _component(package: dict[str, str]) -> dict[str, str]:
    name, version = package["Package"], package["Version"]
    purl = f"pkg:deb/debian/{name}@{version}?arch={package['Architecture']}"
    return {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}


if __name__ == "__main__":
    assemble(Path(sys.argv[1]), Path(sys.argv[2]))
