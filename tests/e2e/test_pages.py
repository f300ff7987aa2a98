"""The pages in a browser."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.e2e.service import ready

pytestmark = pytest.mark.tools

needs_chromium = pytest.mark.skipif(
    shutil.which("chromium") is None and not os.environ.get("CI"),
    reason="Chromium is not installed here; .ci/run installs it",
)


@needs_chromium
def test_the_pages_show_what_they_have_and_their_policy_is_never_in_the_way(tmp_path: Path) -> None:
    with ready(tmp_path) as service:
        paths = httpx.get(f"{service.url}/openapi.json").json()["paths"]
        docs, messages = _open(f"{service.url}/docs", tmp_path)
        assert messages == []
        shown = set(re.findall(r'data-path="([^"]+)"', docs))
        assert shown == set(paths)
        index, messages = _open(f"{service.url}/", tmp_path)
        assert messages == []
        assert f"{service.url}/v1/records/serialize" in index


def _open(url: str, folder: Path) -> tuple[str, list[str]]:
    """What the page has become once its scripts have run, and what the browser says of it."""
    ran = subprocess.run(
        [
            "chromium",
            "--headless=new",
            "--no-sandbox",  # the sandbox refuses to run as root
            "--disable-gpu",
            "--enable-logging=stderr",
            f"--user-data-dir={folder / 'profile'}",
            "--virtual-time-budget=60000",
            "--dump-dom",
            url,
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return ran.stdout, [line for line in ran.stderr.splitlines() if ":CONSOLE" in line]
