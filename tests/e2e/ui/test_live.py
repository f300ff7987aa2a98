"""The live page in Chromium: it changes by itself, as long as somebody looks at it."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from app.main import create_app_with
from app.settings import Settings
from app.storage.object_store import ObjectStore
from app.storage.obstore_store import open_store
from openapi.recorded import serving
from tests.contract.test_following import SteppedStore, planned
from tests.contract.tokens import as_, guarded
from tests.e2e.ui.looking import Visit, visiting
from tests.support.faulty_store import Operation, When

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.tools

ROWS = [{"x": number} for number in range(100)]


class HeldStore(SteppedStore):
    """A stepped store that keeps what is published of `i` back."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.may_import = threading.Event()

    def _step(self, when: When, operation: Operation, key: str) -> None:
        if "i-train.tfrecord-" not in key:
            super()._step(when, operation, key)
        elif operation == "put_stream":
            self.may_import.wait()


@pytest.fixture
def store() -> Iterator[HeldStore]:
    held = HeldStore(open_store("memory://"))
    yield held
    held.may_import.set()
    held.let(1000)


@pytest.fixture
def busy(store: HeldStore, tmp_path: Path) -> Iterator[httpx.Client]:
    """A service that publishes `d` in five shards and imports into `i`, as fast as the store lets it."""
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"id": {k}}}\n' for k in range(10)))
    settings = Settings(storage_url="memory://", import_sources=f"file://{tmp_path}")
    with serving(create_app_with(settings, store=store, publish_wait_s=0.01)) as client:
        client.post("/v1/datasets/d/records", json=ROWS).raise_for_status()
        planned(client, "/v1/datasets/d/versions?num_shards=5")
        request = {"source": f"file://{tmp_path}/rows.jsonl", "publish": {"num_shards": 1}}
        client.post("/v1/datasets/i/imports", json=request).raise_for_status()
        yield client
        store.may_import.set()
        store.let(1000)


@pytest.fixture
def visit(browser: "Browser", busy: httpx.Client) -> Iterator[Visit]:
    with visiting(browser, str(busy.base_url).rstrip("/")) as opened:
        yield opened


def test_live_page_updates_and_stops_when_left(visit: Visit, busy: httpx.Client, store: HeldStore) -> None:
    page = visit.open("/ui/live")
    page.get_by_text("1 publication and 1 import under way.").wait_for()
    page.get_by_text("0 of 5 shards done").wait_for()
    page.get_by_text("Updated as it changes.").wait_for()
    visit.look("live")
    page.get_by_role("link", name="d 1.0.0").focus()
    store.let(2)
    page.get_by_text("2 of 5 shards done").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "d 1.0.0"
    store.may_import.set()
    store.let(3)
    page.get_by_text("0 publications and 0 imports under way.").wait_for()
    page.get_by_text("published", exact=True).wait_for()
    page.get_by_text("done", exact=True).wait_for()
    visit.look("live-ended")
    with page.expect_event("requestfailed", lambda failed: failed.url.endswith("/ui/live")):
        page.get_by_role("link", name="d 1.0.0").click()
    page.get_by_role("link", name="1.0.0", exact=True).wait_for()


def test_live_page_pauses(visit: Visit, busy: httpx.Client, store: HeldStore) -> None:
    page = visit.open("/ui/live")
    page.get_by_text("Updated as it changes.").wait_for()
    with page.expect_event("requestfailed"):
        page.get_by_role("button", name="Pause").click()
    page.get_by_text("Paused.").wait_for()
    visit.look("live-paused", widths=(800,))
    store.let(2)
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("2 of 5 shards done").wait_for()


def test_live_page_reconnects(visit: Visit, busy: httpx.Client, store: HeldStore) -> None:
    visit.expected.append("ERR_")
    refused: list[str] = []

    def refuse(route: "object") -> None:
        refused.append("")
        route.abort() if len(refused) < 2 else route.fallback()  # type: ignore[attr-defined]

    page = visit.page
    page.route(
        lambda url: url.endswith("/ui/live"),
        lambda route: refuse(route) if route.request.resource_type == "fetch" else route.fallback(),
    )
    visit.open("/ui/live")
    page.get_by_text("Updated as it changes.").wait_for()
    assert len(refused) == 2


def test_live_page_is_readable_without_javascript(visit: Visit) -> None:
    browser = visit.page.context.browser
    assert browser is not None
    quiet = browser.new_context(java_script_enabled=False)
    try:
        page = quiet.new_page()
        page.goto(f"{visit.url}/ui/live")
        assert page.get_by_text("0 of 5 shards done").is_visible()
        assert not page.get_by_role("button", name="Pause").is_visible()
        page.get_by_role("link", name="Look again").click()
        page.get_by_text("1 publication and 1 import under way.").wait_for()
    finally:
        quiet.close()


def test_events_come_with_the_token(browser: "Browser", tmp_path: Path) -> None:
    with guarded(tmp_path) as client, visiting(browser, str(client.base_url).rstrip("/")) as visit:
        visit.expected.append("status of 401")
        page = visit.open("/ui/live")
        page.get_by_label("Bearer token").fill("acme-4411")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("Updated as it changes.").wait_for()
        url = "/v1/datasets/acme-x/records"
        client.post(url, json=ROWS, headers=as_("all-0b1c")).raise_for_status()
        page.locator("[data-live-now] rect").first.wait_for(state="attached")
        assert not any("acme-4411" in request.url for request in visit.requests)
