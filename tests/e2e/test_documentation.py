"""The README and docs/ are true: every command and every program, run as printed, does what is printed."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from app.settings import Settings
from tests.e2e.documentation import PAGES, Page, is_installed, matches, run_commands, run_program
from tests.e2e.service import ROOT, Service, needs_curl, start

#: Lines of `sh` blocks, which show no output -> the test that runs them.
RUN_BY: Final = {
    "bin/serve": "tests/e2e/test_commands.py",
    "bin/test": "tests/e2e/test_commands.py",
    "TOKEN=$(openssl rand -hex 32)": "tests/e2e/test_auth.py",
    'printf %s "$TOKEN" | sha256sum': "tests/e2e/test_auth.py",
    'curl -H "Authorization: Bearer $TOKEN" https://shardsmith.example/v1/datasets': "tests/e2e/test_auth.py",
}
RUNNABLE: Final = [page for page in map(Page, PAGES) if page.commands() or any(True for _ in page.programs())]


@pytest.fixture(scope="module", params=RUNNABLE, ids=lambda page: page.name)
def page(request: pytest.FixtureRequest) -> Page:
    found: Page = request.param
    return found


@pytest.fixture(scope="module")
def folder(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(page.path.stem)


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    """A service for the page alone, with its datasets in `data`, on a port of its own."""
    started = start(folder)
    try:
        started.wait_until_ready()
        yield started
    finally:
        started.kill()


@pytest.fixture(scope="module")
def outputs(page: Page, service: Service, folder: Path) -> list[tuple[str, str, str]]:
    return run_commands(page, service, folder)


@needs_curl
def test_every_command_gives_the_output_printed_below_it(outputs: list[tuple[str, str, str]]) -> None:
    for command, printed, given in outputs:
        if not matches(printed, given):
            assert given == printed, command


@needs_curl
@pytest.mark.usefixtures("outputs")
def test_every_program_runs_on_what_the_commands_made(page: Page, service: Service, folder: Path) -> None:
    programs = list(page.programs())
    missing = {language for language, _ in programs if not is_installed(language)}
    for language, source in programs:
        if language in missing:
            continue
        printed = run_program(language, source, service, folder)
        if language == "python":  # reads the first row that the page has appended
            assert re.search(r"1\.5,? +0\.25", printed), printed
        elif "http://" in source:
            assert printed.startswith("201 "), printed
    if missing:
        pytest.skip(f"not installed here: {', '.join(sorted(missing))}; .ci/run installs them")


def test_the_pages_have_the_commands_and_programs_that_this_test_is_for() -> None:
    readme = Page(ROOT / "README.md")
    assert {language for language, _ in readme.programs()} == {"go", "java", "js", "python"}
    assert sum(len(page.commands()) for page in RUNNABLE) >= 40


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_line_for_a_shell_is_run_by_some_test(path: Path) -> None:
    for block in Page(path).blocks("sh"):
        for line in block.splitlines():
            command = line.partition("#")[0].strip()
            if command:
                assert (ROOT / RUN_BY[command]).exists(), command


@needs_curl
def test_rows_that_the_readme_sends_are_stored_once(tmp_path: Path) -> None:
    readme = Page(ROOT / "README.md")
    started = start(tmp_path)
    try:
        started.wait_until_ready()
        run_commands(readme, started, tmp_path)
        languages = [language for language in ("go", "java", "js") if is_installed(language)]
        for _ in range(2):  # a retry
            for language in languages:
                [source] = readme.blocks(language)
                run_program(language, source, started, tmp_path)
        waiting = httpx.get(f"{started.url}/v1/datasets/flowers/appends").json()["appends"]
    finally:
        started.kill()
    assert len(waiting) == len(languages)


def test_every_setting_is_listed_with_its_default() -> None:
    listed = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f"`{field.default}`"
        row = f"| `SHARDSMITH_{name.upper()}` | {default} | {field.description} |"
        assert row in listed, name
