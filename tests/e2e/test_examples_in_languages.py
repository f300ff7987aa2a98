"""The pages of the examples in languages, as printed; conformance/ runs them behind a faulty proxy."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from conformance.browser import opened, press
from conformance.languages import EXAMPLES, LANGUAGES, MODULES, Language
from tests.e2e.documentation import Page, matches, run_commands
from tests.support.service import Service, ready

pytestmark = [pytest.mark.tools]

#: They are not languages, and have tests of their own.
OTHERS: Final = {"digits", "images"}
#: A client has fewer.
MOST_LINES: Final = 300
#: Rust's crates take minutes on a machine that does other things, too.
COMPILED_WITHIN_S: Final = 1200


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with ready(tmp_path_factory.mktemp("service")) as started:
        yield started


@pytest.mark.parametrize(
    "language", [one for one in LANGUAGES if one.name != "browser"], ids=lambda language: language.name
)
def test_every_command_gives_the_output_printed_below_it(
    language: Language, service: Service, tmp_path: Path
) -> None:
    if not language.is_there():
        pytest.skip(f"{', '.join(language.tools)}: not all installed here; .ci/run installs them")
    folder = tmp_path / language.name
    shutil.copytree(EXAMPLES / language.name, folder)
    (folder / "node_modules").symlink_to(MODULES)  # what a page has npm install
    page = Page(EXAMPLES / language.name / "README.md")
    environment = {**dict(language.environment), "SHARDSMITH_CLIENT_URL": service.url}
    outputs = run_commands(page, service, folder, timeout=COMPILED_WITHIN_S, **environment)
    assert len(outputs) >= 7
    for command, printed, given in outputs:
        assert matches(printed, given), f"{command}\n{given}"


def test_the_page_in_a_browser_says_what_its_page_prints(tmp_path: Path) -> None:
    [language] = [one for one in LANGUAGES if one.name == "browser"]
    if not language.is_there():
        pytest.skip("Chromium or Playwright is not installed here; .ci/run installs them")
    # Playwright refuses a second browser in a thread in which other tests have one.
    with ThreadPoolExecutor(1) as thread, ready(tmp_path, SHARDSMITH_CORS_ORIGINS="*") as service:
        thread.submit(_press_as_printed, service.url).result()


def _press_as_printed(url: str) -> None:
    [printed] = Page(EXAMPLES / "browser" / "README.md").blocks("text")
    with opened(url) as page:
        for line in printed.splitlines():
            label, _, said = line.partition(": ")
            verb = page.get_by_role("button", name=label, exact=True).get_attribute("name")
            assert verb is not None, label
            assert press(page, verb) == said
            if label == "Show rows":
                assert page.inner_text("pre").splitlines() == [
                    '{"petals":[1.5,0.25],"label":0}',
                    '{"petals":[4.5,1.5],"label":1}',
                ]


def test_each_language_has_its_folder_and_a_client_of_one_page_of_code() -> None:
    assert {folder.name for folder in EXAMPLES.iterdir()} - OTHERS == {
        language.name for language in LANGUAGES
    }
    for language in LANGUAGES:
        folder = EXAMPLES / language.name
        for file in sorted((*folder.glob("*.*"), *folder.glob("src/*"))):
            assert len(file.read_text("utf-8").splitlines()) < MOST_LINES, file
