"""The page in `examples/browser`, as a command: what a person chooses, types and presses, in Chromium.

`python browser.py put DATASET FILE|- [MEDIA-TYPE [KEY [PARAMETERS]]]`, and so on as in the other examples.
"""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Download, Page

FOLDER: Final = Path(__file__).parent.parent / "examples" / "browser"
_WITHIN_MS: Final = 240_000


@contextmanager
def page_server() -> Iterator[str]:
    """The page's address; that of the service is another origin."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(FOLDER))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextmanager
def opened(service: str) -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    with page_server() as url, sync_playwright() as playwright:
        # Its sandbox needs what containers do not have; nothing but the page is loaded.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(_WITHIN_MS)
        page.goto(url)
        page.fill("#url", service)
        yield page
        browser.close()


def press(page: Page, verb: str) -> str:
    """Press the button of a verb; what the page says at the end.

    Raises:
        SystemExit: it says that the verb failed.
    """
    page.click(f"button[name={verb}]")
    page.wait_for_selector(f"button[name={verb}]:enabled")
    said = page.inner_text("output")
    if page.query_selector("output.failed"):
        raise SystemExit(said)
    return said


def run(page: Page, verb: str, dataset: str, what: str = "", *more: str) -> str:
    """What the example's command would print."""
    page.fill("#dataset", dataset)
    if verb == "put":
        if what == "-":
            page.fill("#typed", sys.stdin.read())
        else:
            page.set_input_files("#file", what)
        # Last the key: the page makes a new one when anything else changes.
        for name, value in reversed([*zip(("type", "key", "append_parameters"), more, strict=False)]):
            page.fill(f"#{name}", value)
        return press(page, "put")
    if verb == "publish":  # with a key of its own
        page.fill("#publish_parameters", "".join(more))
        return press(page, "publish")
    page.fill("#version", what)
    if verb == "rows":
        page.fill("#split", more[0] if more else "train")
        page.fill("#most", str(10**9))
        press(page, "rows")
        return page.inner_text("pre")
    if verb == "get":
        return get(page, Path(more[0]))
    return press(page, verb)


def get(page: Page, folder: Path) -> str:
    downloads: list[Download] = []
    page.on("download", lambda download: downloads.append(download))
    said = press(page, "get")
    while len(downloads) < int(said.split()[0]):
        page.wait_for_event("download")
    for download in downloads:
        download.save_as(folder / download.suggested_filename)
    return said


def main() -> None:
    with opened(os.environ["SHARDSMITH_CLIENT_URL"]) as page:
        print(run(page, *sys.argv[1:]))


if __name__ == "__main__":
    main()
