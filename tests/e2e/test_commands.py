"""bin/serve and bin/test on a machine that has Python and the package index alone.

The checkouts here hold the real `bin/`, the real lock's entries for a few packages, and a service that
only says how it was started: what is tested is how the environment comes about.
"""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import wait_for

pytestmark = pytest.mark.tools

ROOT = Path(__file__).parents[2]

PYPROJECT = """\
[build-system]
requires = ["setuptools>=80"]
build-backend = "setuptools.build_meta"
[project]
name = "shardsmith"
version = "0"
scripts = { shardsmith = "shardsmith.main:run" }
[tool.setuptools]
package-dir = { "shardsmith" = "app" }
packages = ["shardsmith", "shardsmith.codecs"]
"""
MAIN = """\
import json, os, sys
def run():
    print(json.dumps([sys.argv[1:], os.getcwd(), os.environ["SHARDSMITH_STORAGE_URL"], os.getpid()]))
"""
#: Stands for the kernels: leaves a mark when they are compiled.
KERNELS = """\
from pathlib import Path
def compile_all(last_first):
    with Path(__file__).with_name("compiled").open("a") as file:
        file.write(f"{__name__} {last_first}\\n")
"""
SERVE_NEEDS = ("packaging", "setuptools", "wheel")
TEST_NEEDS = (*SERVE_NEEDS, "execnet", "iniconfig", "pluggy", "pygments", "pytest", "pytest-xdist")
ALL_NEEDS = (*TEST_NEEDS, "mypy-extensions")
#: Says which share of the tests was asked for.
CONFTEST = """\
def pytest_addoption(parser):
    parser.addoption("--share")
def pytest_terminal_summary(terminalreporter, config):
    terminalreporter.write_line(f"share: {config.getoption('share')}")
"""


def entries(*names: str) -> str:
    """The entries of the real lock for these packages."""
    lock = (ROOT / "locks/dev.txt").read_text(encoding="utf-8")
    found = [re.search(rf"^{name}==.*\n(?: +--hash=.*\n)+", lock, re.MULTILINE) for name in names]
    return "".join(entry[0] for entry in found if entry is not None)


def make_checkout(folder: Path) -> Path:
    for name, text in (
        ("pyproject.toml", PYPROJECT),
        ("app/__init__.py", ""),
        ("app/main.py", MAIN),
        ("app/codecs/__init__.py", ""),
        ("app/codecs/kernels.py", KERNELS),
        ("tests/conftest.py", CONFTEST),
        ("tests/test_one.py", "def test_one():\n    import shardsmith.main\n"),
        ("locks/serve.txt", entries(*SERVE_NEEDS)),
        ("locks/test.txt", entries(*TEST_NEEDS)),
        ("locks/dev.txt", entries(*ALL_NEEDS)),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "bin", folder / "bin", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHARDSMITH_")}
    return {**kept, "PYTHON": sys.executable, **more}


def popen(checkout: Path, command: str, *arguments: str, cwd: Path, **more: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [checkout / "bin" / command, *arguments],
        cwd=cwd,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(checkout: Path, command: str, *arguments: str, cwd: Path, **more: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    process = popen(checkout, command, *arguments, cwd=cwd, **more)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout where two bin/serve were started at once, before there was an environment."""
    checkout = make_checkout(tmp_path_factory.mktemp("fresh clone") / "a clone")
    both = [popen(checkout, "serve", cwd=checkout) for _ in range(2)]
    outputs = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    waited, installed = sorted((err.splitlines() for _, err in outputs), key=len)
    assert waited == ["Another process is setting up .venv; waiting for it."]
    assert [line.split(" ")[0] for line in installed] == ["Making", "Installing", "Installing", "Starting."]
    return checkout


def test_serve_passes_on_what_it_is_given(served: Path, tmp_path: Path) -> None:
    process = popen(served, "serve", "--an", "argument", cwd=tmp_path)
    out, err = process.communicate(timeout=60)

    arguments, folder, storage, pid = json.loads(out)
    assert arguments == ["serve", "--an", "argument"]
    assert Path(folder) == tmp_path.resolve()
    assert storage == (served.resolve() / "data").as_uri()
    assert pid == process.pid, "the service replaces the command: signals reach it, nothing is orphaned"
    assert err == "", "a second start installs nothing"


def test_the_kernels_are_compiled_with_the_installation(served: Path, tmp_path: Path) -> None:
    compiled = served / "app" / "codecs" / "compiled"
    once = "shardsmith.codecs.kernels True\n"
    wait_for(lambda: compiled.exists() and compiled.read_text() == once)
    assert run(served, "serve", cwd=tmp_path)[0] == 0
    assert compiled.read_text() == once


def test_serve_keeps_a_storage_url_of_the_environment(served: Path, tmp_path: Path) -> None:
    _, out, _ = run(served, "serve", cwd=tmp_path, SHARDSMITH_STORAGE_URL="file://./mine")
    assert json.loads(out)[2] == "file://./mine"


def test_a_second_start_is_quick(served: Path, tmp_path: Path) -> None:
    plain = [served / ".venv" / "bin" / "shardsmith"]
    settings = environment(SHARDSMITH_STORAGE_URL="memory://")

    def seconds(command: list[Path]) -> float:
        """Of processor: a busy machine takes longer, and not more of that."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    added = min(seconds([served / "bin" / "serve"]) for _ in range(5)) - min(seconds(plain) for _ in range(5))
    assert added < 0.3


def test_a_link_to_the_command_works(served: Path, tmp_path: Path) -> None:
    link = tmp_path / "shardsmith"
    link.symlink_to(served / "bin" / "serve")
    result = subprocess.run([link], cwd=tmp_path, env=environment(), capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (0, b"")


def test_test_adds_to_the_environment_and_serve_keeps_it(served: Path, tmp_path: Path) -> None:
    status, out, err = run(served, "test", "-q", "tests/test_one.py", cwd=tmp_path)
    assert status == 0, out + err
    assert "1 passed" in out
    assert "share: quick" in out
    assert "Making .venv" not in err

    assert run(served, "serve", cwd=tmp_path)[2] == ""
    assert run(served, "test", "-q", "-k", "none_such", cwd=tmp_path)[0] == pytest.ExitCode.NO_TESTS_COLLECTED
    assert not list(served.glob(".venv/lib/python*/site-packages/mypy_extensions.py"))

    for option, share in (("--all", "None"), ("--rest", "rest")):
        status, out, err = run(served, "test", "-q", option, "tests/test_one.py", cwd=tmp_path)
        assert status == 0, out + err
        assert f"share: {share}" in out
        assert list(served.glob(".venv/lib/python*/site-packages/mypy_extensions.py"))
    compiled = served / "app" / "codecs" / "compiled"
    compiled.unlink()
    status, out, err = run(served, "test", "-q", cwd=tmp_path)
    assert (status, err) == (0, ""), "what is there is more than it needs"
    # Kernels that have changed since, under both names of their package.
    assert sorted(compiled.read_text().splitlines()) == [
        "app.codecs.kernels False",
        "shardsmith.codecs.kernels False",
    ]


def test_an_interrupted_installation_starts_over(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "clone")
    process = popen(checkout, "serve", cwd=tmp_path)
    assert process.stderr is not None
    assert "Making .venv" in process.stderr.readline()
    assert "Installing" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    site_packages = next((checkout / ".venv" / "lib").glob("python*/site-packages"))
    left_over = site_packages / "half_installed.py"
    left_over.touch()

    status, out, err = run(checkout, "serve", cwd=tmp_path)

    assert status == 0, err
    assert json.loads(out)[0] == ["serve"]
    assert "Making .venv" in err
    assert not left_over.exists()


def test_a_failed_installation_says_what_pip_said(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "clone")
    lock = checkout / "locks/serve.txt"
    lock.write_text(re.sub(r"sha256:\w{8}", "sha256:00000000", lock.read_text("utf-8")), encoding="utf-8")

    status, out, err = run(checkout, "serve", cwd=tmp_path)

    assert (status, out) == (1, "")
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in err
    assert err.endswith("Run this again to retry.\n")
    assert not (checkout / "app" / "codecs" / "compiled").exists()


def test_an_environment_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "clone")
    theirs = checkout / ".venv" / "pyvenv.cfg"
    theirs.parent.mkdir()
    theirs.touch()

    status, _, err = run(checkout, "serve", cwd=tmp_path)

    assert status == 1
    assert "Move it away" in err
    assert theirs.exists()


def test_an_old_python_is_refused_by_name(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "clone")
    path = tmp_path / "path"
    path.mkdir()
    for tool in ("sh", "dirname", "readlink"):
        (path / tool).symlink_to(str(shutil.which(tool)))
    (path / "python3").write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2\n', encoding="utf-8")
    (path / "python3").chmod(0o755)

    status, _, err = run(checkout, "serve", cwd=tmp_path, PATH=str(path), PYTHON="")

    assert status == 1
    assert "needs Python 3.11" in err
    assert "Python 3.9.2" in err
    assert not (checkout / ".venv").exists()


def test_newer_python_is_chosen_over_an_old_one(served: Path, tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    old.chmod(0o755)
    (tmp_path / "python3.12").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    (tmp_path / "python3.12").chmod(0o755)

    status, _, err = run(served, "serve", cwd=tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}", PYTHON="")

    assert (status, err) == (0, "")


def test_a_missing_venv_module_is_named(tmp_path: Path) -> None:
    launch = make_checkout(tmp_path / "clone") / "bin" / "launch.py"
    code = (
        "import importlib.util, runpy, sys; find = importlib.util.find_spec;"
        "importlib.util.find_spec = lambda name: None if name == 'ensurepip' else find(name);"
        f"sys.argv = ['launch.py', 'serve']; runpy.run_path({str(launch)!r}, run_name='__main__')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "apt install python3-venv" in result.stderr
