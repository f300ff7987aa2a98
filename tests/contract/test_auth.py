"""Who may do what: each scope on each route, tenants, and requests that try to lead around the check."""

import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from app.api.auth.routes import ACCESS
from tests.contract.tokens import TOKENS, as_, guarded

LINES = [
    (path, method, needed)
    for path, methods in ACCESS.items()
    for get, needed in methods.items()
    for method in ([get, "HEAD"] if get == "GET" else [get])
]
FOR_SCOPE = {"read": "reading-5f0c", "write": "writing-91ab", "admin": "ruling-77de"}
ROWS = b'[{"x": 1}, {"x": 2}]'
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with guarded(tmp_path_factory.mktemp("auth")) as started:
        answer = started.post(
            "/v1/datasets/acme-x/records?publish=true", content=ROWS, headers={**JSON, **as_("acme-4411")}
        )
        assert answer.status_code == 201, answer.text
        yield started


def filled(path: str, dataset: str = "nothing") -> str:
    if path == "/ui/assets/{tag}/{file}":
        return "/ui/assets/0/ui.css"
    values = {"{dataset}": dataset, "{version}": "1.0.0", "{append_id}": "0" * 32, "{file}": "_manifest.json"}
    for name, value in values.items():
        path = path.replace(name, value)
    return path


@pytest.mark.parametrize(("path", "method", "needed"), LINES, ids=lambda value: str(value))
def test_each_route_takes_the_scope_of_the_table_and_no_other(
    client: httpx.Client, path: str, method: str, needed: str | None
) -> None:
    url = filled(path)
    bare = client.request(method, url)
    unknown = client.request(method, url, headers=as_("guessed"))
    answers = {scope: client.request(method, url, headers=as_(FOR_SCOPE[scope])) for scope in FOR_SCOPE}
    if needed is None:
        assert {answer.status_code for answer in (bare, unknown, *answers.values())} == {200}
        return
    assert bare.status_code == unknown.status_code == 401
    assert bare.headers["www-authenticate"] == 'Bearer realm="shardsmith"'
    assert unknown.headers["www-authenticate"] == 'Bearer realm="shardsmith", error="invalid_token"'
    for scope, answer in answers.items():
        if scope == needed:
            assert answer.status_code not in (401, 403, 405), answer.text
            continue
        assert answer.status_code == 403
        asked = f'Bearer realm="shardsmith", error="insufficient_scope", scope="{needed}"'
        assert answer.headers["www-authenticate"] == asked
        if method != "HEAD":
            problem = answer.json()
            assert (problem["code"], problem["required_scope"]) == ("insufficient_scope", needed)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", ""),
        ("POST", "/collect"),
        ("DELETE", f"/imports/{'0' * 32}"),
        ("DELETE", "/versions/1.0.0"),
        ("POST", "/versions/1.0.0/abort"),
    ],
)
def test_removing_anything_needs_admin(client: httpx.Client, method: str, path: str) -> None:
    for scope in ("read", "write"):
        answer = client.request(method, f"/v1/datasets/nothing{path}", headers=as_(FOR_SCOPE[scope]))
        assert (answer.status_code, answer.json()["required_scope"]) == (403, "admin")


def test_a_page_that_is_refused_says_who_is_signed_in(client: httpx.Client) -> None:
    """Or nobody could sign out there, and in with another token."""
    for token, path, status in [
        ("writing-91ab", "/ui", 403),
        ("acme-4411", "/ui/datasets/globex-x", 404),
        ("acme-4411", "/ui/nothing", 404),
    ]:
        page = client.get(path, headers={**as_(token), "Accept": "text/html"})
        assert page.status_code == status
        assert f"Signed in as</span> {TOKENS[token]['name']} <button" in page.text, path


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ([], 401, "authentication_required"),
        ([("Authorization", "Basic cmVhZGluZy01ZjBjOg==")], 401, "authentication_required"),
        ([("Authorization", "reading-5f0c")], 401, "authentication_required"),
        ([("Authorization", "Bearer")], 401, "invalid_token"),
        ([("Authorization", "Bearer reading-5f0")], 401, "invalid_token"),
        ([("Authorization", "Bearer reading-5f0c x")], 401, "invalid_token"),
        ([("Authorization", "Bearer a.b.c")], 401, "invalid_token"),
        ([("Authorization", f"Bearer {'x' * 9000}")], 401, "invalid_token"),
        ([("Authorization", "Bearer old-2020")], 401, "invalid_token"),
        (
            [("Authorization", "Bearer reading-5f0c"), ("Authorization", "Bearer all-0b1c")],
            400,
            "repeated_header",
        ),
        ([("Proxy-Authorization", "Bearer reading-5f0c")], 401, "authentication_required"),
        ([("Cookie", "access_token=reading-5f0c")], 401, "authentication_required"),
        ([("Authorization", "bearer  reading-5f0c")], 200, None),
    ],
)
def test_a_token_is_one_bearer_token(
    client: httpx.Client, headers: list[tuple[str, str]], status: int, code: str | None
) -> None:
    answer = client.get("/v1/datasets", headers=headers)
    assert answer.status_code == status
    assert answer.json().get("code") == code
    if status != 200:
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/tensors/serialize", b"[1]"),
        ("/v1/examples/serialize", b'{"x": 1}'),
        ("/v1/records/serialize", ROWS),
        ("/v1/datasets/small/records", ROWS),
    ],
)
def test_small_requests_need_a_token_too(client: httpx.Client, path: str, body: bytes) -> None:
    assert client.post(path, content=body, headers=JSON).status_code == 401
    wrong, right = (
        ("reading-5f0c", "writing-91ab") if "datasets" in path else ("writing-91ab", "reading-5f0c")
    )
    assert client.post(path, content=body, headers={**JSON, **as_(wrong)}).status_code == 403
    assert client.post(path, content=body, headers={**JSON, **as_(right)}).status_code in (200, 201)


def test_a_token_in_the_query_is_none(client: httpx.Client) -> None:
    assert client.get("/v1/datasets?access_token=reading-5f0c").status_code == 401


def test_unknown_route_is_404_with_a_token_and_401_without(client: httpx.Client) -> None:
    assert client.get("/v1/nothing").status_code == 401
    missing = client.get("/v1/nothing", headers=as_("reading-5f0c"))
    assert (missing.status_code, missing.json()["code"]) == (404, "route_not_found")
    assert client.patch("/v1/datasets/x").status_code == 401
    wrong = client.patch("/v1/datasets/x", headers=as_("reading-5f0c"))
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "DELETE, GET, HEAD, PUT"


# Tenants

TENANT_LINES = [(path, method) for path, method, _ in LINES if "{dataset}" in path]


@pytest.mark.parametrize(("path", "method"), TENANT_LINES, ids=lambda value: str(value))
def test_the_dataset_of_another_tenant_is_not_there(client: httpx.Client, path: str, method: str) -> None:
    there, absent = (
        client.request(method, filled(path, name), headers={**JSON, **as_("globex-8e8e")}, content=ROWS)
        if method in ("POST", "PUT")
        else client.request(method, filled(path, name), headers=as_("globex-8e8e"))
        for name in ("acme-x", "acme-y")
    )
    assert there.status_code == absent.status_code == 404
    assert there.text.replace("acme-x", "acme-y") == absent.text
    left_out = ("date", "server", "x-request-id")
    assert [item for item in there.headers.items() if item[0] not in left_out] == [
        item for item in absent.headers.items() if item[0] not in left_out
    ]


def test_a_dataset_that_is_not_there_answers_like_one_of_another_tenant(client: httpx.Client) -> None:
    own = client.get("/v1/datasets/globex-none", headers=as_("globex-8e8e"))
    foreign = client.get("/v1/datasets/acme-x", headers=as_("globex-8e8e"))
    assert own.status_code == foreign.status_code == 404
    assert own.text == foreign.text.replace("acme-x", "globex-none")
    assert own.headers.keys() == foreign.headers.keys()


@pytest.mark.parametrize(
    "query",
    ["schema=dataset:acme-x", "%73chema=%64ataset%3Aacme-x", "schema=dataset:acme-none", "schema=dataset:"],
)
@pytest.mark.parametrize(
    "path",
    ["/v1/records/serialize", "/v1/records/parse", "/v1/examples/parse", "/v1/datasets/globex-a/records"],
)
def test_the_schema_of_another_tenant_cannot_be_taken(client: httpx.Client, path: str, query: str) -> None:
    answer = client.post(f"{path}?{query}", content=ROWS, headers={**JSON, **as_("globex-8e8e")})
    assert (answer.status_code, answer.json()["code"]) == (404, "dataset_not_found")
    assert "does not exist or has no schema" in answer.json()["detail"]


def test_ones_own_schema_can(client: httpx.Client) -> None:
    answer = client.post(
        "/v1/records/serialize?schema=dataset:acme-x", content=ROWS, headers={**JSON, **as_("acme-4411")}
    )
    assert answer.status_code == 200, answer.text


def test_the_rows_of_another_tenant_cannot_be_mixed_in(client: httpx.Client) -> None:
    rows = client.post(
        "/v1/datasets/globex-mix/records", content=ROWS, headers={**JSON, **as_("globex-8e8e")}
    )
    assert rows.status_code == 201, rows.text
    published = client.post("/v1/datasets/globex-mix/versions", headers=as_("globex-8e8e"))
    assert published.status_code == 201, published.text
    there, absent = (
        client.get(
            f"/v1/datasets/globex-mix/versions/latest/records?mix=train:1,{name}@latest/train:1",
            headers=as_("globex-8e8e"),
        )
        for name in ("acme-x", "acme-y")
    )
    assert there.status_code == absent.status_code == 404
    assert there.json()["code"] == "dataset_not_found"
    assert there.text.replace("acme-x", "acme-y") == absent.text
    assert client.delete("/v1/datasets/globex-mix", headers=as_("globex-8e8e")).status_code in (204, 403)


def test_a_list_has_ones_own_datasets_alone(client: httpx.Client) -> None:
    created = client.put("/v1/datasets/globex-list", headers=as_("globex-8e8e"))
    assert created.status_code in (200, 201)

    def listed(token: str) -> set[str]:
        found = client.get("/v1/datasets", headers=as_(token)).json()["datasets"]
        return {entry["dataset"] for entry in found}

    assert listed("acme-4411") == {"acme-x"}
    assert listed("globex-8e8e") == {"globex-list"}
    assert listed("reading-5f0c") >= {"acme-x", "globex-list"}


def test_a_tenant_creates_under_its_prefix_alone(client: httpx.Client) -> None:
    for name in ("acme-new", "other", "GLOBEX-new", "globex"):
        assert client.put(f"/v1/datasets/{name}", headers=as_("globex-8e8e")).status_code == 404
        appended = client.post(
            f"/v1/datasets/{name}/records", content=ROWS, headers={**JSON, **as_("globex-8e8e")}
        )
        assert appended.status_code == 404
        assert client.get(f"/v1/datasets/{name}", headers=as_("all-0b1c")).status_code == 404


# Requests that try to lead around the check

CONFUSING = [
    "//v1/datasets",
    "/v1//datasets",
    "/v1/datasets/",
    "/./v1/datasets",
    "/v1/../v1/datasets",
    "/livez/../v1/datasets",
    "/livez/%2e%2e/v1/datasets",
    "/livez%2f..%2fv1%2fdatasets",
    "/livez;/v1/datasets",
    "/livez#/v1/datasets",
    "/livez%00/v1/datasets",
    "/livez%0a",
    "/livez%20",
    "/v1%2fdatasets",
    "/%76%31/datasets",
    "/v1/datasets%0a",
    "/v1/datasets/acme-x%0a",
    "/v1/datasets/acme-x%2fversions",
    "/v1/datasets/globex-a%2f..%2facme-x",
    "/v1/datasets/globex-a/../acme-x",
    "/v1/datasets/globex-%2e%2e%2facme-x/versions",
    "/v1/datasets/acme-x/versions/1.0.0%2frecords",
    "/v1/datasets/globex-a%00acme-x",
    "/v1\\datasets",
    "http://127.0.0.1/v1/datasets",
    "http://localhost@127.0.0.1/v1/datasets/acme-x",
    "http://127.0.0.1/livez/../v1/datasets",
    "https://evil.example:1/v1/datasets/acme-x",
    "*",
    "v1/datasets",
]
FORWARDED = (
    "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: localhost\r\nX-Forwarded-Proto: https\r\n"
    "X-Forwarded-Prefix: /livez\r\nX-Original-URL: /livez\r\nX-Rewrite-URL: /livez\r\n"
    "Forwarded: for=127.0.0.1;host=localhost\r\nX-HTTP-Method-Override: HEAD\r\n"
)


def raw(client: httpx.Client, target: str, token: str | None = None, *, method: str = "GET") -> bytes:
    """The whole answer to a request with exactly that target."""
    url = client.base_url
    with socket.create_connection((url.host, url.port or 80), timeout=10) as connection:
        bearer = "" if token is None else f"Authorization: Bearer {token}\r\n"
        head = (
            f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n{FORWARDED}{bearer}Connection: close\r\n\r\n"
        )
        connection.sendall(head.encode("latin-1"))
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


@pytest.mark.parametrize("target", CONFUSING)
def test_no_spelling_of_a_path_leads_around_the_check(client: httpx.Client, target: str) -> None:
    unknown = raw(client, target)
    status = int(unknown.split(b" ", 2)[1])
    assert status in (400, 401), unknown
    foreign = raw(client, target, "globex-8e8e")
    assert b'"acme-x"' not in foreign
    assert b"latest_version" not in foreign


@pytest.mark.parametrize("method", ["get", "Get", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "POST"])
def test_no_other_method_leads_around_the_check(client: httpx.Client, method: str) -> None:
    target = "127.0.0.1:80" if method == "CONNECT" else "/v1/datasets"
    assert int(raw(client, target, method=method).split(b" ", 2)[1]) in (400, 401, 405)


def test_a_websocket_is_not_opened(client: httpx.Client) -> None:
    url = client.base_url
    with socket.create_connection((url.host, url.port or 80), timeout=10) as connection:
        connection.sendall(
            b"GET /v1/datasets HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        assert connection.recv(65536).split(b" ", 2)[1] in (b"401", b"403")


def test_the_content_disposition_of_a_download_is_a_plain_name(client: httpx.Client) -> None:
    for file in ('a";\r\nX-Evil: 1', "ä.bin", "a b", '"'):
        answer = client.get(
            f"/v1/datasets/acme-x/versions/1.0.0/files/{quote(file, safe='')}", headers=as_("acme-4411")
        )
        assert answer.status_code // 100 == 4
        assert "x-evil" not in answer.headers
    good = client.get("/v1/datasets/acme-x/versions/1.0.0/files/dataset_info.json", headers=as_("acme-4411"))
    assert good.status_code == 200
    assert good.headers.get("content-disposition", "").isascii()


def test_readyz_tells_who_has_a_token_how_many_there_are_but_not_whose(client: httpx.Client) -> None:
    bare, known = client.get("/readyz"), client.get("/readyz", headers=as_("reading-5f0c"))
    assert bare.json()["checks"]["tokens"] == {"ok": True}
    assert known.json()["checks"]["tokens"] == {"ok": True, "detail": f"{len(TOKENS)} in force"}


def test_the_served_description_names_the_scopes(client: httpx.Client) -> None:
    document: dict[str, Any] = client.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            needed = ACCESS[path]["GET" if method == "head" else method.upper()]
            assert operation["security"] == ([] if needed is None else [{"bearer": [needed]}, {}])
