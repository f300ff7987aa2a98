"""The README is true: every command in it, run as printed, gives the output printed below it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.settings import Settings
from tests.e2e.service import ROOT, Service, needs_curl, start

README = (ROOT / "README.md").read_text("utf-8")
#: Where the README's service listens.
PRINTED_URL = "http://127.0.0.1:8000"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, str]]:
    """Each command with the output printed below it, in order."""
    found = []
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def matches(printed: str, given: str) -> bool:
    """Whether that was given which is printed, where `...` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in printed.split("..."))
    return re.fullmatch(pattern, given, re.DOTALL) is not None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    """The README's service, with its datasets in `data`, on a port of its own."""
    started = start(folder)
    try:
        started.wait_until_ready()
        yield started
    finally:
        started.kill()


@pytest.fixture(scope="module")
def outputs(service: Service, folder: Path) -> list[tuple[str, str, str]]:
    """Each command, what is printed below it, and what it gives here."""
    found = []
    for command, printed in commands():
        run = command.replace(PRINTED_URL, service.url)
        ended = subprocess.run(
            ["sh", "-c", run], cwd=folder, capture_output=True, text=True, timeout=60, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, ""), command
        found.append((command, printed, ended.stdout.replace(service.url, PRINTED_URL)))
    return found


@needs_curl
def test_every_command_gives_the_output_printed_below_it(outputs: list[tuple[str, str, str]]) -> None:
    assert len(outputs) >= 20
    for command, printed, given in outputs:
        # A shell's next prompt would follow an answer without a last newline at once.
        if not matches(printed.rstrip("\n"), given.rstrip("\n")):
            assert given.rstrip("\n") == printed.rstrip("\n"), command


@needs_curl
@pytest.mark.usefixtures("outputs")
@pytest.mark.parametrize("snippet", blocks("python"), ids=["tensorflow", "tfds", "http"])
def test_every_python_snippet_runs_on_what_the_commands_made(
    service: Service, folder: Path, snippet: str
) -> None:
    code = snippet.replace(PRINTED_URL, service.url)
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "setosa" in ended.stdout


def test_every_setting_is_listed_with_its_default() -> None:
    listed = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f"`{field.default}`"
        row = f"| `SHARDSMITH_{name.upper()}` | {default} | {field.description} |"
        assert row in listed, name
        assert f"`SHARDSMITH_{name.upper()}`" not in README or row in README, name
