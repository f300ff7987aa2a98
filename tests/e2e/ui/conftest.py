"""A real browser before a running service, and what is asked of every page that it shows.

Playwright is imported where it is used: pytest reads this file before anything can say that it is missing.
"""

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.e2e.ui.stored import store_examples
from tests.support.service import Service, ready

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.e2e.ui.looking import Visit

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Chromium. Its sandbox needs what containers do not have; nothing but our own pages is loaded."""
    if CHROMIUM is None and not os.environ.get("CI"):
        pytest.skip("Chromium is not installed here; .ci/run installs it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service without authentication that holds the datasets of `stored.py`. Tests change none."""
    with ready(tmp_path_factory.mktemp("shown")) as started:
        store_examples(started.url)
        yield started


@pytest.fixture
def visit(browser: "Browser", shown: Service) -> "Iterator[Visit]":
    """A page of that service: at its end nothing may have gone wrong in the browser."""
    from tests.e2e.ui.looking import visiting

    with visiting(browser, shown.url) as opened:
        yield opened
