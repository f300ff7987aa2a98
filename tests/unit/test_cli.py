"""The command line: arguments that are known do what they say, others end with usage and status 2."""

import subprocess
import sys
from pathlib import Path

import pytest

import app

ROOT = Path(__file__).parents[2]


def shardsmith(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The installed command, run to its end."""
    return subprocess.run(
        [Path(sys.executable).with_name("shardsmith"), *arguments],
        cwd=ROOT,
        env={"SHARDSMITH_STORAGE_URL": "memory://", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("serve", "--help")])
def test_help_is_printed_and_nothing_is_served(arguments: tuple[str, ...]) -> None:
    result = shardsmith(*arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: shardsmith")
    assert "serve" in result.stdout


def test_the_version_is_printed() -> None:
    assert shardsmith("--version").stdout == f"shardsmith, version {app.__version__}\n"


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
def test_what_is_unknown_ends_with_usage(arguments: tuple[str, ...], named: str) -> None:
    result = shardsmith(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: shardsmith")
    assert named in result.stderr
    assert "Traceback" not in result.stderr


def test_an_invalid_setting_is_one_line_that_names_it() -> None:
    result = shardsmith(SHARDSMITH_MAX_ROWS="canary")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "Shardsmith does not start: SHARDSMITH_MAX_ROWS: "
        "Input should be a valid integer, unable to parse string as an integer.\n"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SHARDSMITH_STORAGE_URL", "ftp://somewhere"),
        ("SHARDSMITH_STORAGE_URL", "nonsense"),
        ("SHARDSMITH_STORAGE_URL", "tcp://10.96.12.7:8000"),
        ("SHARDSMITH_TOKENS_FILE", "/proc/nowhere"),
        ("SHARDSMITH_OIDC_ISSUER", "https://issuer.example"),
        ("SHARDSMITH_SHUTDOWN_DELAY_S", "-1"),
    ],
)
def test_a_setting_that_cannot_be_used_is_one_line_that_names_it(name: str, value: str) -> None:
    result = shardsmith(**{name: value})
    assert (result.returncode, result.stdout) == (1, ""), result.stderr
    assert result.stderr.startswith("Shardsmith does not start: ")
    assert name in result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
