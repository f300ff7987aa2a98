"""The pages of datasets and versions in Chromium."""

from pathlib import Path

import pytest

from tests.e2e.ui.looking import Visit

pytestmark = pytest.mark.tools


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("datasets", "/ui"),
        ("datasets-found", "/ui?q=flow"),
        ("datasets-none", "/ui?q=nothing"),
        ("dataset", "/ui/datasets/growing"),
        ("dataset-waiting", "/ui/datasets/waiting"),
        ("dataset-odd", "/ui/datasets/odd"),
        ("version", "/ui/datasets/flowers/latest"),
        ("version-signals", "/ui/datasets/signals/1.0.0"),
        ("rows-images", "/ui/datasets/flowers/latest/rows?split=train&count=10"),
        ("rows-signals", "/ui/datasets/signals/1.0.0/rows?count=10"),
        ("rows-odd", "/ui/datasets/odd/latest/rows"),
        ("rows-found", "/ui/datasets/flowers/latest/rows?feature=label&op=is&value=rose"),
        ("rows-none", "/ui/datasets/growing/latest/rows?feature=x&op=between&value=1000"),
        ("statistics", "/ui/datasets/signals/latest/statistics"),
        ("statistics-splits", "/ui/datasets/houses/1.0.0/statistics?split=train&against_split=test"),
        ("statistics-versions", "/ui/datasets/houses/latest/statistics?against_version=1.0.0"),
        ("statistics-images", "/ui/datasets/flowers/latest/statistics?split=train&against_split=test"),
        ("statistics-odd", "/ui/datasets/odd/latest/statistics"),
        ("row-images", "/ui/datasets/flowers/latest/row?split=test&row=3"),
        ("row-signals", "/ui/datasets/signals/latest/row?split=train&row=4"),
        ("docs", "/docs"),
    ],
)
def test_a_page_has_no_faults_in_any_look(visit: Visit, name: str, path: str) -> None:
    visit.open(path)
    visit.look(name)


def test_the_reference_of_the_api_opens_where_a_link_leads(visit: Visit) -> None:
    page = visit.open("/docs#append_records")
    page.get_by_role("region", name="Parameters of append_records").get_by_text("num_shards").first.wait_for()
    page.get_by_role("link", name="AppendedVersion").click()
    members = page.get_by_role("region", name="Members of AppendedVersion")
    members.get_by_role("row", name="splits").wait_for()
    visit.look("docs-open")


def test_links_lead_on_without_a_reload(visit: Visit) -> None:
    page = visit.open("/ui")
    page.evaluate("window.stays = true")
    page.get_by_role("link", name="growing", exact=True).click()
    page.wait_for_url("**/ui/datasets/growing")
    page.get_by_role("heading", name="growing", level=1).wait_for()
    page.get_by_role("link", name="1.4.0", exact=True).first.click()
    page.get_by_role("heading", name="growing 1.4.0", level=1).wait_for()
    assert page.title() == "growing 1.4.0 · Shardsmith"
    assert page.evaluate("document.activeElement.id") == "main"
    page.go_back()
    page.get_by_role("heading", name="growing", level=1, exact=True).wait_for()
    assert page.evaluate("window.stays") is True


def test_everything_is_there_without_javascript(visit: Visit, tmp_path: Path) -> None:
    context = visit.page.context.browser
    assert context is not None
    quiet = context.new_context(java_script_enabled=False)
    page = quiet.new_page()
    try:
        page.goto(f"{visit.url}/ui")
        page.get_by_role("link", name="flowers", exact=True).click()
        page.get_by_role("link", name="1.0.0").first.click()
        with page.expect_download() as downloading:
            page.get_by_role("link", name="Checksums").click()
        path = tmp_path / "sums"
        downloading.value.save_as(path)
        assert "flowers-train.tfrecord-00000-of-00001" in path.read_text()
    finally:
        quiet.close()


def test_the_keyboard_reaches_the_content_at_once(visit: Visit) -> None:
    page = visit.open("/ui")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "q"


def test_a_search_is_a_link_to_be_shared(visit: Visit) -> None:
    page = visit.open("/ui/datasets/flowers/latest/rows?split=train")
    page.get_by_label("Where").select_option("label")
    page.get_by_label("Value, or the least").fill("rose")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("9 rows found in rows 0 to 44 of 45").wait_for()
    again = visit.page.context.new_page()
    again.goto(page.url)
    assert again.get_by_role("row").count() == 10
    page.get_by_role("link", name="7", exact=True).click()
    page.get_by_role("heading", name="Row 7 of 45").wait_for()
    page.get_by_role("link", name="Next").click()
    page.get_by_role("heading", name="Row 8 of 45").wait_for()


def test_pictures_are_seen(visit: Visit) -> None:
    page = visit.open("/ui/datasets/flowers/latest/rows?split=train&count=10")
    shown = page.evaluate("[...document.images].map((image) => [image.complete, image.naturalWidth])")
    assert shown == [[True, 160]] * 10
    box = page.locator(".picture svg rect.box").first.bounding_box()
    image = page.locator(".picture img").first.bounding_box()
    assert box is not None
    assert image is not None
    assert (box["y"] - image["y"]) / image["height"] == pytest.approx(0.25, abs=0.03)
    assert (box["x"] - image["x"]) / image["width"] == pytest.approx(0.14, abs=0.03)
