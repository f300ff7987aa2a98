"""Copies of the checkout in which a fault is put into the code, and tests are run.

A copy has a path of its own that is always the same, and files as old as those of the checkout: numba looks
up compiled kernels by both. The package is also found under the name `shardsmith`, before the installed
one, which is the checkout.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha1, sha256
from pathlib import Path
from typing import Final

from tests.mutations.entry import ROOT, Patch

FOLDER: Final = (
    Path(tempfile.gettempdir()) / f"shardsmith-mutations-{sha256(str(ROOT).encode()).hexdigest()[:8]}"
)
_WHERE: Final = "import app, shardsmith; print(app.__file__, shardsmith.__file__)"
_COMPILE: Final = "from app.codecs.kernels import compile_all; compile_all()"
#: Compiled kernels of all copies, kept from run to run.
_KERNELS: Final = FOLDER / "kernels"


@dataclass(frozen=True)
class Run:
    """What pytest said: its exit status, None where it was ended; its seconds; its last lines."""

    status: int | None
    seconds: float
    output: str

    @property
    def first_failure(self) -> str:
        """The id of the first test that failed."""
        return next(iter(self.failures), "")

    @property
    def failures(self) -> list[str]:
        """The ids of all tests that failed."""
        lines = (line.split(" ") for line in self.output.splitlines())
        return [words[1] for words in lines if words[0] in ("FAILED", "ERROR") and len(words) > 1]


class Tree:
    """A copy of the checkout as it is now, changes that are not committed included."""

    def __init__(self, number: int) -> None:
        self.root = FOLDER / str(number) / "checkout"
        self._packages = FOLDER / str(number) / "packages"
        self._running: subprocess.Popen[str] | None = None
        self._is_removed = False
        shutil.rmtree(FOLDER / str(number), ignore_errors=True)
        self._packages.mkdir(parents=True)
        (self._packages / "shardsmith").symlink_to(self.root / "app")
        # A repository, since some tests ask git which files there are.
        _run("git", "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(self.root))
        listed = _run("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for name in filter(None, listed.split("\0")):
            source, target = ROOT / name, self.root / name
            if source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        _run("git", "-C", str(self.root), "add", "--all")

    def check(self) -> None:
        """Make sure that both names of the package are those of this copy, in this process' children.

        Raises:
            RuntimeError: the code of the checkout would run.
        """
        command = [sys.executable, "-c", _WHERE]
        found = subprocess.run(
            command, cwd=self.root, env=self._environment(), capture_output=True, text=True, check=True
        )
        app, shardsmith = map(Path, found.stdout.split())
        if app != self.root / "app/__init__.py" or shardsmith != self._packages / "shardsmith/__init__.py":
            raise RuntimeError(f"The tests would run {found.stdout.strip()}, not the code with the fault.")

    def compile(self) -> None:
        """Compile the kernels, where the cache does not have them."""
        _run(sys.executable, "-c", _COMPILE, cwd=self.root, environment=self._environment())

    def take_kernels(self, other: Tree) -> None:
        """Take over what another copy has compiled.

        numba keeps it by the path of the sources: in a folder called as theirs, with the SHA-1 of the path.
        """
        for folder in {path.parent for path in (other.root / "app/codecs/kernels").rglob("*.py")}:
            ours = self.root / folder.relative_to(other.root)
            for compiled in _KERNELS.glob(f"*/{_cache_name(folder)}"):
                shutil.copytree(compiled, compiled.with_name(_cache_name(ours)), dirs_exist_ok=True)

    @contextmanager
    def patched(self, patch: Patch) -> Iterator[None]:
        """The fault is in the code for as long as this lasts."""
        path = self.root / patch.file
        code, written = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(patch.apply(code), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(code, encoding="utf-8")
            os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))

    def pytest(self, arguments: Sequence[str], *, uncompiled: bool = False, within_s: float) -> Run:
        """Run tests here. What takes longer than `within_s` is ended with all that it has started."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE", *arguments]
        environment = self._environment() | ({"NUMBA_DISABLE_JIT": "1"} if uncompiled else {})
        if self._is_removed:
            raise RuntimeError("the copy is gone: the run was ended")
        began = time.monotonic()
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=environment,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,
            )
            self._running = process
            try:
                status: int | None = process.wait(within_s)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                self._running = None
                _end(process)
            output.seek(0)
            return Run(status, time.monotonic() - began, output.read())

    def _environment(self) -> dict[str, str]:
        # Next to the copies, so that the kernels of the checkout stay as they are.
        kernels = {"NUMBA_CACHE_DIR": str(_KERNELS)}
        return {**os.environ, "PYTHONPATH": str(self._packages), **kernels}

    def remove(self) -> None:
        """End what runs here, and remove the copy; its compiled kernels stay."""
        self._is_removed = True
        if (running := self._running) is not None:
            _end(running)
        shutil.rmtree(self.root.parent, ignore_errors=True)


def _end(process: subprocess.Popen[str]) -> None:
    """End a process, and all of its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _cache_name(folder: Path) -> str:
    return f"{folder.name}_{sha1(str(folder).encode(), usedforsecurity=False).hexdigest()}"


@contextmanager
def only_one() -> Iterator[None]:
    """Hold the folder of the copies.

    Raises:
        BlockingIOError: another run of this checkout does.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _run(*command: str, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout
