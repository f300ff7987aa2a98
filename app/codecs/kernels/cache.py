"""Where compiled kernels are kept between processes.

`<base>/kernels-<digest>`: the digest covers all sources of the kernels and numba's version, because numba
looks only at the file of the outermost function and would keep a stale caller of a changed callee. It also
covers the name of this package: the same files are `app` to the tests and `shardsmith` to the installed
command, and what numba keeps imports the package by the name under which it was compiled.
The base is NUMBA_CACHE_DIR, else `shardsmith` in the user's cache folder, else a folder of this process.
numba needs to write beside what it reads, so a filled base that is read-only (an image) is copied.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path


def digest() -> str:
    """Of the kernels' sources, the name of their package, and numba's version."""
    hashed = hashlib.sha256(f"{version('numba')}\0{__package__}\0".encode())
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        hashed.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return hashed.hexdigest()[:16]


def base_folder() -> Path:
    """Where caches of all versions are kept."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(given)
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "shardsmith"
    try:
        return Path.home() / ".cache" / "shardsmith"
    except RuntimeError:  # a user without a home
        return Path(os.devnull)


@functools.cache
def writable_folder() -> Path | None:
    """The folder for this version of the kernels, or None where nothing can be written."""
    folder = base_folder() / f"kernels-{digest()}"
    return folder if _is_writable(folder) else _private_copy(folder)


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _private_copy(source: Path) -> Path | None:
    """A folder that ends with this process: in a shared one others could plant what numba unpickles."""
    try:
        parent = Path(tempfile.mkdtemp(prefix="shardsmith-"))
        atexit.register(shutil.rmtree, parent, ignore_errors=True)
        folder = parent / source.name
        folder.mkdir()
        for path in source.rglob("*"):
            if path.is_file():
                copy = folder / path.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
    except OSError:
        return None
    return folder
