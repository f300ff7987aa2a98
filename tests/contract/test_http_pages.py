"""`/`, `/docs` and `/ui`: pages that load nothing from elsewhere."""

import html
import re
import shlex
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote, urljoin

import httpx
import pytest

from app.main import create_app_with
from app.settings import Settings
from openapi.recorded import serving

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


SCRIPT = "<script>alert(1)</script>"
POLICY = {
    "default-src": "'none'",
    "base-uri": "'none'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
    "img-src": "'self' data:",
    "script-src": "'self'",
    "style-src": "'self'",
}


@pytest.fixture(scope="module", autouse=True)
def stored(client: httpx.Client) -> None:
    body = {"description": SCRIPT, "schema": {"features": {SCRIPT: {"dtype": "text", "shape": []}}}}
    assert client.put("/v1/datasets/ui-odd", json=body).status_code in (200, 201)
    rows = [{SCRIPT: f'"><img src=x onerror="{SCRIPT}">'}]
    query = {"split": "train", "publish": "true"}
    client.post("/v1/datasets/ui-odd/records", params=query, json=rows).raise_for_status()
    client.post("/v1/datasets/ui-odd/records", json=rows).raise_for_status()
    client.put("/v1/datasets/ui-empty").raise_for_status()


PAGES = [
    "/docs",
    "/ui",
    "/ui?q=ui-&first=0",
    f"/ui?q={quote(SCRIPT)}",
    "/ui/file",
    "/ui/datasets/ui-odd",
    "/ui/datasets/ui-empty",
    "/ui/datasets/ui-odd/1.0.0",
    "/ui/datasets/ui-odd/latest",
]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_loads_from_this_service_alone(client: httpx.Client, path: str) -> None:
    page = client.get(path, headers=BROWSER)
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    assert policy == POLICY
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    linked = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert linked
    for link in linked:
        url = urljoin(str(page.url), html.unescape(link))
        assert httpx.URL(url).host == page.url.host
        assert client.get(url).status_code == 200, link


@pytest.mark.parametrize("path", PAGES)
def test_what_strangers_wrote_is_text_and_nothing_stands_inline(client: httpx.Client, path: str) -> None:
    page = client.get(path, headers=BROWSER).text
    assert "<script>" not in page
    assert 'onerror="' not in page
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=[\"']", page)
    if "ui-odd" in path:
        assert html.escape(SCRIPT) in page


def test_errors_under_ui_are_pages_where_html_is_asked_for(client: httpx.Client) -> None:
    path = "/ui/datasets/ui-nothing"
    page = client.get(path, headers=BROWSER)
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "There is no dataset &#39;ui-nothing&#39;." in page.text
    assert "content-security-policy" in page.headers
    assert client.head(path, headers=BROWSER).status_code == 404
    assert client.get(path).json()["code"] == "dataset_not_found"
    assert client.get("/ui?spilt=1", headers=BROWSER).status_code == 400
    assert "content-security-policy" not in client.get("/v1/datasets").headers
    assert client.get("/uix", headers=BROWSER).json()["code"] == "route_not_found"


def test_a_page_of_another_origin_sends_nothing_to_the_pages(client: httpx.Client) -> None:
    foreign = {"Sec-Fetch-Site": "cross-site", "Origin": "https://example.org"}
    assert client.post("/ui", headers=foreign).json()["code"] == "foreign_page"
    assert client.post("/ui", headers={"Origin": "https://example.org"}).json()["code"] == "foreign_page"
    assert client.post("/ui", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 405


def test_files_are_kept_under_their_hash(client: httpx.Client) -> None:
    page = client.get("/ui", headers=BROWSER).text
    paths = re.findall(r'"(/ui/assets/[^"]+)"', page)
    assert len(paths) == 5
    for path in paths:
        file = client.get(path)
        tag = path.split("/")[3]
        assert sha256(file.content).hexdigest().startswith(tag)
        assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
        other = client.get(path.replace(tag, "0" * 16))
        assert (other.content, other.headers["cache-control"]) == (file.content, "no-cache")
    assert client.get("/ui/assets/0/nothing.js").status_code == 404


def test_files_of_the_pages_are_small_and_htmx_is_as_published() -> None:
    folder = Path(__file__).parents[2] / "app/api/ui/assets"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 150_000
    # dist/htmx.min.js of the npm package htmx.org 2.0.11, whose archive has the integrity
    # sha512-Thx/WtpeOQqSrqBCw/A1cwGJGg4UrVa3+sW0GmrM3p4gJgO89ecH4qtbnyzDDWFvBTqjnIMCgELTNt636dtamA==
    expected = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"
    assert sha256((folder / "htmx-2.0.11.min.js").read_bytes()).hexdigest() == expected


def test_the_first_answer_of_curl_says_where_to_go(client: httpx.Client) -> None:
    about = client.get("/").raise_for_status().json()
    assert about["name"] == "shardsmith"
    assert about["version"] == client.get("/openapi.json").json()["info"]["version"]
    for link in ("documentation", "openapi", "formats", "ready"):
        assert client.get(about[link]).status_code == 200


def test_the_choice_between_page_and_json_is_that_of_accept(client: httpx.Client) -> None:
    for accept, media_type in [
        ("*/*", "application/json"),
        ("application/json, text/html;q=0.9", "application/json"),
        ("text/html", "text/html; charset=utf-8"),
    ]:
        answer = client.get("/", headers={"Accept": accept})
        assert answer.headers["vary"] == "Accept"
        if answer.status_code == 303:
            answer = client.get(answer.headers["location"])
        assert answer.headers["content-type"] == media_type
    assert client.get("/", headers={"Accept": "image/png"}).json()["code"] == "not_acceptable"


def test_the_commands_of_the_first_page_work_as_they_are_shown() -> None:
    app = create_app_with(Settings(storage_url="memory://"))
    with serving(app) as client:
        page = client.get("/ui", headers=BROWSER).text
        commands = re.findall(r"<code>(curl .*?)</code>", page, re.DOTALL)
        assert len(commands) == 2
        for command in commands:
            words = shlex.split(html.unescape(command))
            (url,) = [word for word in words if word.startswith("http")]
            body = words[words.index("-d") + 1]
            answer = client.post(url, content=body, headers={"Content-Type": "application/json"})
            assert answer.status_code in (200, 201), answer.text


def test_heads_and_what_is_not_there(client: httpx.Client) -> None:
    for path in ("/", "/docs", "/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js", "/ui"):
        got, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == got.headers["content-length"]
    for path in ("/docs/index.html", "/docs/..%2fmain.py", "/docs/redoc.standalone.js"):
        assert client.get(path).status_code == 404
    assert client.get("/docs/swagger-ui.css?x=1").json()["code"] == "unknown_parameter"
