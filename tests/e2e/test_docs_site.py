"""bin/docs: the site is whole, and its search works in a browser without a server or a network."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.service import ROOT

pytestmark = pytest.mark.tools

needs_chromium = pytest.mark.skipif(
    shutil.which("chromium") is None and not os.environ.get("CI"),
    reason="Chromium is not installed here; .ci/run installs it",
)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the site is made from; the first build in it installs MkDocs."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("bin", "docs", "examples", "benchmarks", "conformance", "openapi"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("node_modules", "build"))
    for page in ROOT.glob("*.md"):
        shutil.copy(page, folder)
    made = build(folder)
    assert made.returncode == 0, made.stderr
    return folder


def build(folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([folder / "bin" / "docs"], capture_output=True, text=True, timeout=600, check=False)


@needs_chromium
def test_the_search_finds_a_page_without_a_server(checkout: Path) -> None:
    page = (checkout / "build" / "site" / "index.html").as_uri()
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000"]
    # No name resolves: what the page needed from elsewhere would be missing.
    alone = ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={checkout / 'profile'}"]
    shown = subprocess.run(
        [*browser, *alone, "--dump-dom", f"{page}?q=encoder_mismatch"],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    found = re.findall(r'href="([^"]*)" class="md-search-result__link"', shown)
    assert any("docs/reference/errors.html" in link for link in found), found


def test_every_page_is_in_the_menu_and_leads_somewhere(checkout: Path) -> None:
    menu = (checkout / "build" / "site" / "index.html").read_text("utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert f'href="{page.relative_to(ROOT).with_suffix(".html")}"' in menu, page


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[x](http.md#there-is-no-such-part)", "does not contain an anchor"),
        ("[x](nothing.md)", "is not found"),
        ('<script src="https://cdn.example/x.js"></script>', "fetches from another host"),
    ],
)
def test_broken_or_external_link_is_refused(checkout: Path, text: str, complaint: str) -> None:
    page = checkout / "docs" / "index.md"
    before = page.read_text("utf-8")
    page.write_text(f"{before}\n{text}\n", "utf-8")
    try:
        made = build(checkout)
    finally:
        page.write_text(before, "utf-8")
    assert made.returncode == 1
    assert complaint in made.stderr
