"""The command line: arguments that are known do what they say, others end with usage and status 2."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

import app
from app import launch
from app.cli.commands import main


@dataclass
class Ended:
    returncode: int
    stdout: str
    stderr: str


Shardsmith = Callable[..., Ended]


@pytest.fixture
def shardsmith(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Shardsmith:
    """The command, in this process; it must not get as far as serving."""

    def serve(*_: object, **__: object) -> None:
        raise AssertionError("it serves")

    def run(*arguments: str, **environment: str) -> Ended:
        for name in [name for name in os.environ if name.startswith("SHARDSMITH_")]:
            monkeypatch.delenv(name)
        for name, value in {"SHARDSMITH_STORAGE_URL": "memory://", **environment}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main(arguments, prog_name="shardsmith")
        code = ended.value.code
        printed = capfd.readouterr()
        if isinstance(code, str):  # as the interpreter ends with it
            return Ended(1, printed.out, f"{printed.err}{code}\n")
        return Ended(int(code or 0), printed.out, printed.err)

    # Of the process: its signals, its log, and what it serves with.
    monkeypatch.setattr(launch, "_end_at_signals", lambda: None)
    monkeypatch.setattr(launch, "configure_logging", lambda *_: None)
    monkeypatch.setattr("app.main.serve", serve)
    return run


def test_the_installed_command_is_this_one() -> None:
    command: list[str | Path] = [Path(sys.executable).with_name("shardsmith"), "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == f"shardsmith, version {app.__version__}\n"


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("serve", "--help")])
def test_help_is_printed_and_nothing_is_served(shardsmith: Shardsmith, arguments: tuple[str, ...]) -> None:
    result = shardsmith(*arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: shardsmith")
    assert "serve" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--prot", "1"), "--prot"),
        (("sevre",), "sevre"),
        (("serve", "--prot", "1"), "--prot"),
        (("serve", "now"), "now"),
        (("serve", "--port", "70000"), "70000"),
        (("serve", "--port", "http"), "http"),
    ],
)
def test_unknown_argument_prints_usage(
    shardsmith: Shardsmith, arguments: tuple[str, ...], named: str
) -> None:
    result = shardsmith(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: shardsmith")
    assert named in result.stderr
    assert "Traceback" not in result.stderr


def test_an_invalid_setting_is_one_line_that_names_it(shardsmith: Shardsmith) -> None:
    result = shardsmith(SHARDSMITH_MAX_ROWS="canary")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "Shardsmith does not start: SHARDSMITH_MAX_ROWS: "
        "Input should be a valid integer, unable to parse string as an integer.\n"
    )


UNUSABLE = [
    ("SHARDSMITH_STORAGE_URL", "ftp://somewhere"),
    ("SHARDSMITH_STORAGE_URL", "nonsense"),
    ("SHARDSMITH_STORAGE_URL", "tcp://10.96.12.7:8000"),
    ("SHARDSMITH_TOKENS_FILE", "/proc/nowhere"),
    ("SHARDSMITH_OIDC_ISSUER", "https://issuer.example"),
    ("SHARDSMITH_SHUTDOWN_DELAY_S", "-1"),
    ("SHARDSMITH_SPOOL_DIR", "/proc/nowhere"),
    ("SHARDSMITH_MAX_ROW", "1"),
    ("SHARDSMITH_WORKERS", "2"),
]
#: Starts a service with each of these settings. In one process: to import the service takes a second.
START_WITH_EACH = """
import json, os, sys
from shardsmith.launch import run

refusals = []
for name, value in json.loads(sys.argv[1]):
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        run()
    except SystemExit as ended:
        refusals.append(ended.code)
    if before is None:
        del os.environ[name]
    else:
        os.environ[name] = before
print(json.dumps(refusals))
"""


def test_settings_that_cannot_be_used_are_one_line_that_names_them() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", START_WITH_EACH, json.dumps(UNUSABLE)],
        env={"SHARDSMITH_STORAGE_URL": "memory://", "SHARDSMITH_PORT": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    refusals = json.loads(ended.stdout)
    assert len(refusals) == len(UNUSABLE)
    for (name, _), refusal in zip(UNUSABLE, refusals, strict=True):
        assert refusal.startswith("Shardsmith does not start: ")
        assert name in refusal
        assert "\n" not in refusal


def test_an_address_that_cannot_be_had_is_one_line_that_names_it(shardsmith: Shardsmith) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = shardsmith("serve", "--port", str(port))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f"Shardsmith does not start: It cannot listen on 127.0.0.1, port {port}: Address already in use. "
        "Set SHARDSMITH_HOST and SHARDSMITH_PORT to an address of this machine and a free port.\n"
    )


@pytest.mark.processes
def test_failure_to_start_workers_is_one_line(tmp_path: Path) -> None:
    ended = subprocess.run(
        [Path(sys.executable).with_name("shardsmith"), "serve", "--port", "0", "--workers", "3"],
        env={"SHARDSMITH_STORAGE_URL": tmp_path.as_uri(), "SHARDSMITH_TOKENS_FILE": "/proc/nowhere"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("Shardsmith does not start: SHARDSMITH_TOKENS_FILE: ")
    assert ended.stderr.count("\n") == 1


def test_workers_without_a_temporary_folder_are_one_line(
    shardsmith: Shardsmith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = partial(tempfile.mkdtemp, dir="/proc/nowhere")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(launch, "_bind", lambda *_: [listener])
        monkeypatch.setattr(tempfile, "mkdtemp", make)
        given = {"SHARDSMITH_STORAGE_URL": tmp_path.as_uri(), "SHARDSMITH_METRICS_PORT": "0"}
        ended = shardsmith("serve", SHARDSMITH_WORKERS="2", **given)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert ended.stderr.startswith("Shardsmith does not start: No temporary folder")
    assert "Set TMPDIR" in ended.stderr


@pytest.mark.usefixtures("shardsmith")
def test_worker_that_cannot_pass_on_its_metrics_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("AF_UNIX path too long")

    monkeypatch.setattr(launch, "WorkerMetrics", refuse)
    monkeypatch.setenv("SHARDSMITH_STORAGE_URL", "memory://")
    with pytest.raises(SystemExit) as ended:
        launch.work(0, os.getpid(), 0, [], "/somewhere")
    assert str(ended.value).startswith("Shardsmith does not start: Workers cannot pass on")
    assert "Set TMPDIR" in str(ended.value)


@pytest.mark.processes
def test_where_workers_cannot_pass_on_their_metrics_one_line_says_so(tmp_path: Path) -> None:
    long = tmp_path / ("long" * 25)
    long.mkdir()
    for folder, said in ((Path("/proc/nowhere"), "No temporary folder"), (long, "Workers cannot pass on")):
        use = f"import tempfile; tempfile.tempdir = {str(folder)!r}; "
        result = subprocess.run(
            [sys.executable, "-c", f"{use}from shardsmith.launch import run; run()"],
            env={
                "SHARDSMITH_WORKERS": "2",
                "SHARDSMITH_PORT": "0",
                "SHARDSMITH_METRICS_PORT": "0",
                "SHARDSMITH_STORAGE_URL": tmp_path.as_uri(),
                "TMPDIR": str(folder),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert result.returncode == 1
        refusals = [line for line in result.stderr.splitlines() if "INFO" not in line]
        assert len(refusals) == 1, result.stderr
        assert refusals[0].startswith(f"Shardsmith does not start: {said}")
        assert "Set TMPDIR" in refusals[0]


@pytest.mark.sampled
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("begin", ["run()", "work(0, 0, 0, [], None)"])
def test_a_signal_during_the_start_ends_it_without_complaint(begin: str, how: signal.Signals) -> None:
    program = (
        "import os; from shardsmith import launch; "
        f"launch.read_settings = lambda: os.kill(os.getpid(), {how.value}); launch.{begin}"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
