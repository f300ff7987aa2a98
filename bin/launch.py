"""Makes or refreshes `.venv` where needed, then becomes the command: `launch.py serve|test|lint [arguments]`.

The standard library alone, since it runs before anything is installed. A stamp in `.venv` says for
which locks and project tables it was completed; it is removed before an installation begins, so that
an interrupted one is never mistaken for a whole one and starts over. One process installs at a time,
others wait for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "shardsmith-stamp.json"
#: Held while installing. Beside .venv, not in it: .venv itself is removed and made anew.
LOCK_FILE = ROOT / ".venv.lock"

#: What `.venv` is made for -> the lock that it holds; each holds what those before it hold.
LOCKS = {
    "serve": ROOT / "locks" / "serve.txt",
    "test": ROOT / "locks" / "test.txt",
    "all": ROOT / "locks" / "dev.txt",
}
SERVE = [str(VENV / "bin" / "shardsmith"), "serve"]
PYTEST = [str(VENV_PYTHON), "-m", "pytest"]
LINT = [str(VENV_PYTHON), str(ROOT / "bin" / "lint.py")]
#: What a person waits for.
QUICK = "--share=quick"
#: Installed first, from the lock like all else: what packages without a wheel are built with, and the
#: compiler of the kernels, which works while the rest is installed.
FIRST = ("setuptools", "wheel", "llvmlite", "numba", "numpy")
#: Finds the package by its folder: it is not installed yet.
COMPILE_KERNELS = """
import importlib, importlib.util, sys
folder, name, last_first = sys.argv[1:]
spec = importlib.util.spec_from_file_location(
    name, folder + "/__init__.py", submodule_search_locations=[folder]
)
sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[name])
importlib.import_module(name + ".codecs.kernels").compile_all(last_first=last_first == "True")
"""


def installed_digest() -> str:
    """Of everything that decides what `.venv` holds: the locks, the project's tables, its place."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tables = [project["build-system"], project["project"], project["tool"]["setuptools"]]
    digest = hashlib.sha256(json.dumps([str(ROOT), tables], sort_keys=True).encode())
    for lock in LOCKS.values():
        digest.update(lock.read_bytes())
    return digest.hexdigest()


def stamped() -> dict[str, str] | None:
    """What `.venv` was completed for; None when it was not, or can no longer run."""
    try:
        stamp: dict[str, str] = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return stamp if os.access(VENV_PYTHON, os.X_OK) else None


def is_ready(purpose: str) -> bool:
    """Whether `.venv` is good for that as it is, or for more."""
    stamp = stamped()
    return (
        stamp is not None
        and stamp.get("for") in list(LOCKS)[list(LOCKS).index(purpose) :]
        and stamp.get("digest") == installed_digest()
    )


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Holds the installation lock; waits where another process has it."""
    with LOCK_FILE.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another process is setting up .venv; waiting for it.")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install(purpose: str) -> None:
    """Brings `.venv` to the state that is needed for that. The caller holds the lock."""
    if stamped() is None:
        create_venv()
    STAMP.unlink(missing_ok=True)
    lock = LOCKS[purpose]
    say("Installing the compiler of the kernels.")
    first = VENV / "first.lock"
    first.write_text("".join(locked(lock, name) for name in FIRST), encoding="utf-8")
    pip("--require-hashes", "--no-deps", "-r", str(first))
    if purpose == "serve":
        # The service begins with those that it needs first, this process with the last: they meet half way.
        compilers = [compile_kernels("shardsmith", last_first=True)]
    else:
        compilers = compile_kernels_for_tests()
    try:
        say(f"Installing {lock.relative_to(ROOT)} and compiling the kernels.")
        pip("--require-hashes", "--no-build-isolation", "-r", str(lock))
        pip("--no-deps", "--no-build-isolation", "-e", str(ROOT))
        if purpose != "serve":
            translate_tests()
            wait_for_kernels(compilers)
        else:
            say("Starting. The service is ready once all kernels are compiled; /readyz says how far that is.")
    except BaseException:
        for compiler in compilers:
            compiler.terminate()
        raise
    stamp = STAMP.with_suffix(".new")
    stamp.write_text(json.dumps({"for": purpose, "digest": installed_digest()}), encoding="utf-8")
    stamp.replace(STAMP)


def create_venv() -> None:
    """An empty `.venv`, in place of one that was left unfinished."""
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        fail(
            f"This Python ({sys.executable}) cannot make virtual environments: its venv module is missing.\n"
            f"Debian, Ubuntu: apt install python3-venv (or python{version}-venv). Then run this again."
        )
    begun = VENV / "shardsmith-begun"
    if VENV.exists() and any(VENV.iterdir()) and not begun.exists():
        fail(f"{VENV} was not made by this command. Move it away, then run this again.")
    shutil.rmtree(VENV, ignore_errors=True)
    VENV.mkdir()
    begun.touch()
    say(f"Making .venv with {sys.executable}.")
    run(sys.executable, "-I", "-m", "venv", str(VENV))


def locked(lock: Path, name: str) -> str:
    """The entry of package `name` in `lock`, with its hashes; empty where there is none."""
    entry = re.search(rf"^{name}==.*\n(?:[ ]+--hash=.*\n)+", lock.read_text(encoding="utf-8"), re.MULTILINE)
    return "" if entry is None else entry[0]


def compile_kernels(name: str, *, last_first: bool) -> subprocess.Popen[str]:
    """Begin to compile the kernels, under this name of their package, in a process of its own."""
    command = [str(VENV_PYTHON), "-I", "-c", COMPILE_KERNELS, str(ROOT / "app"), name, str(last_first)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def compile_kernels_for_tests() -> list[subprocess.Popen[str]]:
    """The same under both names of the package (tests use `app`), to which what is compiled belongs."""
    return [compile_kernels(name, last_first=False) for name in ("shardsmith", "app")]


def translate_tests() -> None:
    """Have the bytecode of all quick tests written, once and not by every process that runs them."""
    command = [*PYTEST, QUICK, "--collect-only", "--quiet"]
    # Where a test cannot be imported, running it says so.
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def wait_for_kernels(compilers: list[subprocess.Popen[str]]) -> None:
    """Wait until all have compiled theirs."""
    for compiler in compilers:
        said = compiler.communicate()[1]
        if compiler.returncode != 0:
            fail(f"{said}Compiling the kernels failed.")


def pip(*arguments: str) -> None:
    """`pip install` in `.venv`. Nothing is compiled to bytecode before it is imported: most never is."""
    install = [str(VENV_PYTHON), "-I", "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
    run(*install, *arguments)


def run(*command: str) -> None:
    """Run `command`, and show what it says only where it fails."""
    result = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if result.returncode != 0:
        fail(f"{result.stdout}Setting up .venv failed in: {' '.join(command)}\nRun this again to retry.")


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def fail(message: str) -> NoReturn:
    say(message)
    raise SystemExit(1)


def purpose_and_line(command: str, arguments: list[str]) -> tuple[str, list[str]]:
    """What `.venv` has to be good for, and what this becomes.

    `test --all` runs every test, and `test --rest` those that `test` leaves out, one after the other.
    """
    if command == "serve":
        return "serve", [*SERVE, *arguments]
    if command == "lint":
        return "all", [*LINT, *arguments]
    further = [argument for argument in arguments if argument not in ("--all", "--rest")]
    if "--rest" in arguments:
        return "all", [*PYTEST, "--share=rest", *further]
    if "--all" in arguments:
        return "all", [*PYTEST, *further]
    # A process more than there are processors, since many tests wait for what they have started.
    processes = min(4, (os.cpu_count() or 1) + 1)
    return "test", [*PYTEST, QUICK, f"--numprocesses={processes}", "--dist=worksteal", *further]


def main() -> None:
    command, *arguments = sys.argv[1:]
    purpose, line = purpose_and_line(command, arguments)
    # Ended during an installation, take pip along: subprocess.run kills its child when this unwinds.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if command == "test":
        # Set in many containers. Each process that the tests start would translate every module it imports.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        if not is_ready(purpose):
            with one_at_a_time():
                if not is_ready(purpose):
                    install(purpose)
        elif command == "test":
            # Once, after a change to them, and not in every process that runs tests.
            compilers = compile_kernels_for_tests()
            with contextlib.suppress(subprocess.TimeoutExpired):
                for compiler in compilers:
                    compiler.wait(3)  # as long as it takes where nothing has changed
            if any(compiler.poll() is None for compiler in compilers):
                say("Compiling the kernels.")
            wait_for_kernels(compilers)
    except KeyboardInterrupt:
        say("Interrupted. Run this again to start over.")
        raise SystemExit(128 + signal.SIGINT) from None
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if command == "serve":
        # The same folder wherever this was called from; what the user sets stays relative to there.
        os.environ.setdefault("SHARDSMITH_STORAGE_URL", (ROOT / "data").as_uri())
    else:
        os.chdir(ROOT)
    os.execv(line[0], line)  # noqa: S606 - becoming it is the point


if __name__ == "__main__":
    main()
