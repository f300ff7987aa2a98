"""`/` and `/docs`: pages that load nothing from elsewhere."""

import re
import shlex
from urllib.parse import urljoin

import httpx
import pytest

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_loads_from_this_service_alone(client: httpx.Client, path: str) -> None:
    page = client.get(path, headers=BROWSER)
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert page.headers["x-content-type-options"] == "nosniff"
    linked = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert linked
    for link in linked:
        url = urljoin(str(page.url), link)
        assert httpx.URL(url).host == page.url.host
        assert client.get(url).status_code == 200, link


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
        assert answer.headers["content-type"] == media_type
        assert answer.headers["vary"] == "Accept"
    assert client.get("/", headers={"Accept": "image/png"}).json()["code"] == "not_acceptable"


def test_the_commands_of_the_page_work_as_they_are_shown(client: httpx.Client) -> None:
    page = client.get("/", headers=BROWSER).text
    commands = re.findall(r"<code>(curl .*?)</code>", page, re.DOTALL)
    assert len(commands) == 2
    for command in commands:
        words = shlex.split(command)
        (url,) = [word for word in words if word.startswith("http")]
        body = words[words.index("-d") + 1]
        answer = client.post(url, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 200, answer.text


def test_heads_and_what_is_not_there(client: httpx.Client) -> None:
    for path in ("/", "/docs", "/docs/start.js", "/docs/swagger-ui-bundle.js"):
        got, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(got.content))
    for path in ("/docs/index.html", "/docs/..%2fmain.py", "/docs/redoc.standalone.js"):
        assert client.get(path).status_code == 404
    assert client.get("/docs/start.js?x=1").json()["code"] == "unknown_parameter"
