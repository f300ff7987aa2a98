"""`/`, `/docs` and `/ui`: pages that load nothing from elsewhere."""

import base64
import html
import json
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
#: An escape sequence, C0 and C1, and what turns text or ends its lines.
STEERING = "\x1b[2J\x00\x9b\u202e\u2066\u200f\u2028"
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
    body = {
        "description": SCRIPT + STEERING,
        "schema": {"features": {SCRIPT: {"dtype": "text", "shape": []}}},
    }
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
    f"/ui?q={quote(STEERING)}",
    "/ui/file",
    "/ui/live",
    "/ui/datasets/ui-odd",
    "/ui/datasets/ui-empty",
    "/ui/datasets/ui-odd/1.0.0",
    "/ui/datasets/ui-odd/latest",
    "/ui/datasets/ui-odd/latest/rows",
    "/ui/datasets/ui-odd/latest/rows?split=train&offset=1",
    "/ui/datasets/ui-odd/latest/row?split=train&row=0",
    f"/ui/datasets/ui-odd/latest/rows?feature={quote(SCRIPT)}&op=contains&value={quote(SCRIPT)}",
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
    assert not set(page.text) & set(STEERING) - set("[2J")
    linked = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert linked
    for link in linked:
        url = urljoin(str(page.url), html.unescape(link))
        assert httpx.URL(url).host == page.url.host
        assert client.get(url).status_code == 200, link


@pytest.mark.parametrize("path", PAGES)
def test_untrusted_text_is_escaped_and_nothing_is_inline(client: httpx.Client, path: str) -> None:
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
    assert len(paths) == 6
    loaded = len(page)
    for path in paths:
        file = client.get(path)
        loaded += len(file.content)
        tag = path.split("/")[3]
        assert sha256(file.content).hexdigest().startswith(tag)
        assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
        other = client.get(path.replace(tag, "0" * 16))
        assert (other.content, other.headers["cache-control"]) == (file.content, "no-cache")
    assert loaded < 150_000
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
    for path in ("/", "/docs", "/ui"):
        got, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == got.headers["content-length"]
    for path in ("/docs/index.html", "/docs/..%2fmain.py", "/ui/assets/0/..%2fdocs.py"):
        assert client.get(path).status_code == 404
    assert client.get("/docs?x=1").json()["code"] == "unknown_parameter"


def test_the_reference_has_all_of_the_document(client: httpx.Client) -> None:
    page, document = client.get("/docs").text, client.get("/openapi.json").json()
    operations = [
        operation
        for methods in document["paths"].values()
        for method, operation in methods.items()
        if method != "head"
    ]
    schemas = document["components"]["schemas"]
    expected = {
        *(tag["name"] for tag in document["tags"]),
        *(operation["operationId"] for operation in operations),
        *(f"schema-{name}" for name in schemas),
    }
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert expected <= set(ids)
    assert set(re.findall(r' href="#([^"]+)"', page)) <= set(ids)
    for operation in operations:
        section = page[page.index(f' id="{operation["operationId"]}"') :].partition("</details>")[0]
        told = {
            *(parameter["name"] for parameter in operation.get("parameters", [])),
            *operation.get("requestBody", {}).get("content", {}),
            *(status for status in operation["responses"] if status != "default"),
        }
        assert told <= set(re.findall(r"<code[^>]*>([^<]+)</code>", section))
    for name, schema in schemas.items():
        section = page[page.index(f' id="schema-{name}"') :].partition("</details>")[0]
        assert set(schema.get("properties", {})) <= set(re.findall(r"<code>([^<]+)</code>", section))


@pytest.fixture(scope="module")
def many(client: httpx.Client) -> str:
    rows = "".join(json.dumps({"k": k, "name": f"n{k}", "half": k / 2}) + "\n" for k in range(30_000))
    client.post(
        "/v1/datasets/ui-many/records?publish=true&num_shards=4",
        content=rows.encode(),
        headers={"Content-Type": "application/x-ndjson", "Idempotency-Key": "ui-many"},
    ).raise_for_status()
    return "/ui/datasets/ui-many/1.0.0"


def numbers_of(page: httpx.Response) -> list[int]:
    """The rows that a page shows."""
    assert page.status_code == 200, page.text
    return [int(number) for number in re.findall(r"&amp;row=(\d+)\"", page.text)]


def test_pages_turn_by_the_index(client: httpx.Client, many: str) -> None:
    page = client.get(f"{many}/rows?offset=29990&count=10", headers=BROWSER)
    assert numbers_of(page) == list(range(29_990, 30_000))
    assert "n29999" in page.text
    assert "Next" not in page.text
    [before] = re.findall(r'href="([^"]+)">Previous', page.text)
    assert numbers_of(client.get(html.unescape(before))) == list(range(29_980, 29_990))
    assert "There is no row 30,000" in client.get(f"{many}/rows?offset=30000", headers=BROWSER).text


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("feature=k&op=is&value=17", [17]),
        ("feature=k&op=between&value=20000&upto=20002", [20_000, 20_001, 20_002]),
        ("feature=k&op=between&value=29998", [29_998, 29_999]),
        ("feature=half&op=is&value=10000.5", [20_001]),
        ("feature=name&op=is&value=n29", [29]),
        ("feature=name&op=contains&value=n2999", [2_999, *range(29_990, 30_000)]),
        ("feature=name&op=contains&value=n2999&offset=3000", list(range(29_990, 30_000))),
        ("feature=k&op=absent", []),
    ],
)
def test_rows_are_found_by_what_they_hold(
    client: httpx.Client, many: str, query: str, numbers: list[int]
) -> None:
    assert numbers_of(client.get(f"{many}/rows?{query}", headers=BROWSER)) == numbers


def test_search_continues_after_its_last_hit(client: httpx.Client, many: str) -> None:
    found, query = [], f"{many}/rows?feature=name&op=contains&value=77&count=40"
    while query:
        page = client.get(html.unescape(query), headers=BROWSER)
        found += numbers_of(page)
        query = next(iter(re.findall(r'href="([^"]+)">Search on', page.text)), "")
    assert found == [k for k in range(30_000) if "77" in str(k)]


def test_a_row_has_a_link_of_its_own(client: httpx.Client, many: str) -> None:
    page = client.get(f"{many}/row?split=train&row=20001", headers=BROWSER)
    assert "10000.5" in page.text
    [by_name] = re.findall(r'Link by name: <a href="([^"]+)"', page.text)
    assert numbers_of(client.get(urljoin(str(page.url), html.unescape(by_name)))) == [20_001]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("row?split=train&row=30000", 404, "not_found"),
        ("row?split=train", 400, "invalid_parameter"),
        ("rows?split=other", 404, "split_not_found"),
        ("rows?feature=other", 404, "not_found"),
        ("rows?feature=k&value=many", 400, "invalid_parameter"),
        ("rows?feature=k&op=is&value=", 400, "invalid_parameter"),
        ("rows?count=101", 400, "invalid_parameter"),
    ],
)
def test_page_that_cannot_be_shown_is_a_problem(
    client: httpx.Client, many: str, path: str, status: int, code: str
) -> None:
    answer = client.get(f"{many}/{path}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_of_many_features_some_are_shown_at_a_time(client: httpx.Client) -> None:
    row = {f"feature-{k:04}": k for k in range(300)}
    client.post(
        "/v1/datasets/ui-wide/records?publish=true", json=[row], headers={"Idempotency-Key": "ui-wide"}
    ).raise_for_status()
    page = client.get("/ui/datasets/ui-wide/latest/rows", headers=BROWSER).text
    assert page.count("<td>") == 24
    [further] = re.findall(r'href="([^"]+)">Further features', page)
    page = client.get(html.unescape(further), headers=BROWSER).text
    assert "feature-0024</bdi>" in page
    assert re.search(r"features 25.48 of 300", page)


def test_pages_of_a_version_of_ten_thousand_features_are_bearable(client: httpx.Client) -> None:
    row = {f"feature-{k:04}-\u202e\u2066{'<b>' * 20}": k for k in range(9_000)}
    client.post(
        "/v1/datasets/ui-wider/records?publish=true", json=[row], headers={"Idempotency-Key": "ui-wider"}
    ).raise_for_status()
    for path in ("", "/latest", "/latest/rows", "/latest/row?split=train&row=0", "/latest/statistics"):
        page = client.get(f"/ui/datasets/ui-wider{path}", headers=BROWSER)
        assert page.status_code == 200
        assert len(page.content) < 1_000_000, path
        seen = re.sub(r"<[^>]*>", "", page.text)
        assert not set(seen) & set("\u202e\u2066"), path
        assert "<b>" not in page.text
    assert "8,600 more are not shown." in client.get("/ui/datasets/ui-wider/latest", headers=BROWSER).text


def test_of_many_shards_some_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.api.ui.versions._SHARDS", 2)
    with serving(create_app_with(Settings(storage_url="memory://"))) as client:
        query = {"split": "train", "publish": "true", "num_shards": "5"}
        rows = [{"x": k} for k in range(20)]
        client.post("/v1/datasets/some/records", params=query, json=rows).raise_for_status()
        page = client.get("/ui/datasets/some/latest", headers=BROWSER).text
        assert len(set(re.findall(r"some-train.tfrecord-\d{5}-of-00005</th>", page))) == 2
        [manifest] = re.findall(r'3 shards more are in the <a href="([^"]+)"', page)
        assert len(client.get(manifest).json()["splits"]["train"]["shards"]) == 5


def test_numbers_that_nothing_reaches_are_searched_for(client: httpx.Client, many: str) -> None:
    for value in ("9" * 400, "-" + "9" * 400, "1e400"):
        query = {"feature": "half", "op": "is", "value": value}
        page = client.get(f"{many}/rows", params=query, headers=BROWSER)
        assert page.status_code == 200
        assert "None of these rows fits." in page.text


def test_images_are_shown_as_thumbnails(client: httpx.Client) -> None:
    pixels = [[[k % 256, j % 256, 0] for j in range(400)] for k in range(300)]
    png = client.post("/v1/tensors/serialize?to=png&dtype=uint8", json=pixels)
    png.raise_for_status()
    rows = [{"image": {"b64": base64.b64encode(data).decode()}} for data in (png.content, png.content[:200])]
    features = {"image": {"dtype": "bytes", "shape": [], "image": {"format": "png", "shape": [300, 400, 3]}}}
    client.put("/v1/datasets/ui-image", json={"schema": {"features": features}})
    client.post(
        "/v1/datasets/ui-image/records?publish=true", json=rows, headers={"Idempotency-Key": "ui-image"}
    ).raise_for_status()
    page = client.get("/ui/datasets/ui-image/latest/rows", headers=BROWSER).text
    [(url, width, height)] = re.findall(r'<img src="data:([^"]+)" width="(\d+)" height="(\d+)"', page)
    assert (width, height) == ("128", "96")
    assert len(url) < 20_000
    assert "It cannot be decoded" in page


def test_a_page_for_a_name_that_steers_shows_it_as_escapes(client: httpx.Client) -> None:
    for path in (f"/ui/datasets/{quote(STEERING)}", f"/ui/datasets/ui-odd/{quote(STEERING)}"):
        page = client.get(path, headers=BROWSER)
        assert page.status_code in (400, 404)
        assert not set(page.text) & set(STEERING) - set("[2J")
    shown = client.get("/ui/datasets/ui-odd", headers=BROWSER).text
    assert r"\x1b[2J\x00\x9b\u202e\u2066\u200f\u2028" in shown


def test_no_browser_guesses_what_an_answer_is(client: httpx.Client) -> None:
    answers = [
        client.get("/livez"),
        client.get("/v1/datasets"),
        client.get("/v1/nowhere"),
        client.get("/ui"),
        client.post("/v1/tensors/serialize?to=raw", json=[1]),
        client.get("/v1/datasets", headers={"Range": "bytes=0-1"}),
        client.get("/" + "x" * 60_000),
    ]
    found = [answer.headers.get_list("X-Content-Type-Options") for answer in answers]
    assert found == [["nosniff"]] * len(answers)
