"""A visit: one page of a browser that is watched while a test uses it.

A request that leaves the origin fails the test, and so does an error on the console. `look` audits a page in
light and dark at three widths; with SHARDSMITH_TEST_SCREENSHOTS it leaves a picture of each in that folder.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Request

WIDTHS = (375, 800, 1440)
SCHEMES = ("light", "dark")
SCREENSHOTS = "SHARDSMITH_TEST_SCREENSHOTS"


@dataclass
class Visit:
    """A page, and what went wrong on it.

    Attributes:
        faults: what went wrong so far.
        requests: the URLs that were asked for.
        expected: parts of console messages that are no faults.
    """

    page: Page
    url: str
    faults: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Go to a path of the service."""
        self.page.goto(self.url + path)
        return self.page

    def look(self, name: str, *, widths: Sequence[int] = WIDTHS) -> None:
        """Audit the page as it is, in every look of it."""
        for scheme in SCHEMES:
            self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]  # a literal
            for width in widths:
                self.page.set_viewport_size({"width": width, "height": 900})
                self._require_no_sideways_scrolling(f"{name}, {width} px")
                found = Axe().run(self.page).response["violations"]
                for violation in found:
                    where = [node["target"] for node in violation["nodes"]]
                    self.faults.append(f"{name}, {scheme}, {width} px: {violation['id']} at {where[:5]}")
                self._picture(f"{name}-{scheme}-{width}")
        self.check()

    def _require_no_sideways_scrolling(self, where: str) -> None:
        wide = self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        if wide > 0:
            self.faults.append(f"{where}: the page is {wide} px wider than the window")

    def _picture(self, name: str) -> None:
        folder = os.environ.get(SCREENSHOTS)
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            # Hiding the caret would be a style that the policy of the pages forbids.
            self.page.screenshot(path=Path(folder) / f"{name}.png", full_page=True, caret="initial")

    def check(self) -> None:
        """Fail if anything went wrong so far."""
        assert not self.faults, "\n".join(self.faults)


@contextmanager
def visiting(browser: Browser, url: str) -> Iterator[Visit]:
    """A page in a context of its own: no cookies, no storage, nothing cached."""
    context = browser.new_context()
    page = context.new_page()
    visit = Visit(page, url)

    def requested(request: Request) -> None:
        visit.requests.append(request)
        if not request.url.startswith((f"{url}/", "data:", "blob:")):
            visit.faults.append(f"a request left the origin: {request.url[:200]}")

    def complained(text: str) -> None:
        if not any(part in text for part in visit.expected):
            visit.faults.append(text)

    page.on("request", requested)
    page.on("console", lambda said: complained(f"{said.type}: {said.text}") if said.type == "error" else None)
    page.on("pageerror", lambda error: complained(f"uncaught: {error}"))
    try:
        yield visit
        visit.check()
    finally:
        context.close()
