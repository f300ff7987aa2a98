"""Signing in: the token is in memory alone, and what it may not see is not shown."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.contract.tokens import TOKENS, as_, token_file
from tests.e2e.ui.looking import Visit, visiting
from tests.e2e.ui.stored import append
from tests.support.service import Service, ready

pytestmark = pytest.mark.tools


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    (folder / "tokens.json").write_text(token_file(TOKENS))
    with ready(folder, SHARDSMITH_TOKENS_FILE=str(folder / "tokens.json")) as service:
        for dataset in ("acme-x", "globex-y"):
            append(service.url, dataset, [{"x": 1}], headers=as_("all-0b1c"))
        yield service


@pytest.fixture
def visit(browser: Browser, guarded: Service) -> Iterator[Visit]:
    with visiting(browser, guarded.url) as opened:
        opened.expected.append("status of 401")
        yield opened


def sign_in(visit: Visit, token: str) -> None:
    visit.page.get_by_label("Bearer token").fill(token)
    visit.page.get_by_role("button", name="Sign in").click()


def test_sign_in_form_replaces_the_page(visit: Visit) -> None:
    visit.open("/ui/datasets/acme-x")
    visit.look("sign-in")
    sign_in(visit, "guessed")
    visit.page.get_by_role("alert").wait_for()
    sign_in(visit, "acme-4411")
    visit.page.get_by_role("heading", name="acme-x", level=1).wait_for()
    visit.look("signed-in")


def test_the_token_leaves_no_trace_and_stays_while_one_clicks(visit: Visit) -> None:
    page = visit.open("/ui")
    sign_in(visit, "acme-4411")
    page.get_by_role("link", name="acme-x", exact=True).click()
    page.get_by_role("heading", name="acme-x", level=1).wait_for()
    page.go_back()
    page.get_by_role("heading", name="Datasets", level=1).wait_for()
    assert page.get_by_role("link", name="globex-y").count() == 0
    # htmx keeps the path that is shown.
    kept = page.evaluate("document.cookie + JSON.stringify({...localStorage, ...sessionStorage})")
    assert "acme-4411" not in kept
    assert not any("acme-4411" in request.url for request in visit.requests)
    assert "acme-4411" not in page.content()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Bearer token").wait_for()


def test_another_tenants_dataset_is_not_there(visit: Visit) -> None:
    visit.expected.append("status of 404")
    page = visit.open("/ui/datasets/globex-y")
    sign_in(visit, "acme-4411")
    page.get_by_role("heading", name="Not Found").wait_for()


def test_a_file_is_downloaded_with_the_token(visit: Visit, tmp_path: Path) -> None:
    page = visit.open("/ui/datasets/acme-x/latest")
    page.evaluate("delete window.showSaveFilePicker")  # which nobody is there to answer
    sign_in(visit, "acme-4411")
    with page.expect_download() as downloading:
        page.get_by_role("link", name="Checksums").click()
    downloading.value.save_as(tmp_path / "sums")
    assert "acme-x-train.tfrecord-00000-of-00001" in (tmp_path / "sums").read_text()
