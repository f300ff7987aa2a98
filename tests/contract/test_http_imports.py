"""Imports over HTTP: begun, followed and cancelled; only from where the operator allows."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.main import create_app_with
from app.settings import Settings
from app.storage import web
from openapi.recorded import serving
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def incoming(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("incoming")
    for k in range(2):
        rows = ({"id": 100 * k + i} for i in range(50))
        (folder / f"{k}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "bad.jsonl").write_text('{"id": 1}\n{"id": "a"}\n')
    return folder


@pytest.fixture(scope="module")
def importing(incoming: Path) -> Iterator[httpx.Client]:
    settings = Settings(storage_url="memory://", import_sources=f"s3://bucket/in, file://{incoming}")
    with serving(create_app_with(settings)) as client:
        yield client


def followed(importing: httpx.Client, place: str) -> dict[str, Any]:
    """The import once it goes on no more."""
    told: dict[str, Any] = {}

    def is_over() -> bool:
        told.clear()
        told.update(importing.get(place).json())
        return told["state"] in ("done", "stopped", "cancelled")

    wait_for(is_over, 60)
    return told


def test_an_import_is_begun_followed_and_found_again(importing: httpx.Client, incoming: Path) -> None:
    request = {"source": f"file://{incoming}/*.ndjson", "range_bytes": 100, "publish": {"num_shards": 2}}
    headers = {"Idempotency-Key": "monday"}
    begun = importing.post("/v1/datasets/a/imports", json=request, headers=headers)
    assert begun.status_code == 201
    place = begun.headers["Location"]
    assert place == f"/v1/datasets/a/imports/{begun.json()['import_id']}"
    told = followed(importing, place)
    assert (told["state"], told["rows"], told["version"]) == ("done", 100, "1.0.0")
    assert told["ranges"] == told["ranges_done"] > 10
    assert (told["failures"], told["source"]) == ([], request["source"])
    rows = importing.get("/v1/datasets/a/versions/latest/records?to=json").json()
    assert [row["id"] for row in rows] == [*range(50), *range(100, 150)]
    again = importing.post("/v1/datasets/a/imports", json=request, headers=headers)
    assert (again.status_code, again.json()) == (200, told)
    other = importing.post("/v1/datasets/a/imports", json={**request, "split": "test"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


def test_unreadable_range_is_reported(importing: httpx.Client, incoming: Path) -> None:
    begun = importing.post("/v1/datasets/b/imports", json={"source": f"file://{incoming}/bad.jsonl"})
    assert begun.status_code == 422  # the schema comes from the first rows
    importing.put("/v1/datasets/b", json={"schema": {"features": {"id": {"dtype": "int64"}}}})
    request, key = {"source": f"file://{incoming}/bad.jsonl", "publish": None}, {"Idempotency-Key": "b"}
    begun = importing.post("/v1/datasets/b/imports", json=request, headers=key)
    told = followed(importing, begun.headers["Location"])
    assert told["state"] == "stopped"
    [failure] = told["failures"]
    assert (failure["object"], failure["row"], failure["start"]) == ("bad.jsonl", 1, 0)
    # It goes on without that range.
    again = importing.post("/v1/datasets/b/imports", json={**request, "on_error": "skip"}, headers=key)
    assert (again.status_code, again.headers["Location"]) == (200, begun.headers["Location"])
    wait_for(lambda: importing.get(again.headers["Location"]).json()["state"] == "done")
    assert importing.get(again.headers["Location"]).json()["ranges_left_out"] == 1


def test_a_cancelled_import_stays_cancelled(importing: httpx.Client, incoming: Path) -> None:
    importing.put("/v1/datasets/h", json={"schema": {"features": {"id": {"dtype": "int64"}}}})
    begun = importing.post("/v1/datasets/h/imports", json={"source": f"file://{incoming}/bad.jsonl"})
    assert followed(importing, begun.headers["Location"])["state"] == "stopped"
    cancelled = importing.delete(begun.headers["Location"])
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert importing.get(begun.headers["Location"]).json() == cancelled.json()


def test_an_import_is_followed_by_events(importing: httpx.Client, incoming: Path) -> None:
    importing.put("/v1/datasets/f", json={"schema": {"features": {"id": {"dtype": "int64"}}}})
    begun = importing.post("/v1/datasets/f/imports", json={"source": f"file://{incoming}/bad.jsonl"})
    place, accept = begun.headers["Location"], {"Accept": "text/event-stream"}
    stopped = followed(importing, place)
    with importing.stream("GET", place, headers=accept) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        lines = answer.iter_lines()
        assert [next(lines), json.loads(next(lines).removeprefix("data: "))] == ["retry: 2000", stopped]
        cancelled = importing.delete(place).json()
        last, data = (line for line in lines if line)
        assert (last, json.loads(data.removeprefix("data: "))) == ("id: end", cancelled)
    assert importing.get(place, headers={**accept, "Last-Event-ID": "end"}).status_code == 204
    head = importing.head(place, headers=accept)
    assert (head.status_code, head.headers["Content-Type"]) == (200, "text/event-stream")
    # A cache must not give one who listens what another one was told, nor the other way round.
    told = importing.get(place)
    assert {answer.headers["Vary"] for answer in (head, told)} == {"Accept, Accept-Encoding"}
    missing = importing.get(f"/v1/datasets/f/imports/{'0' * 32}", headers=accept)
    assert (missing.status_code, missing.json()["code"]) == (404, "import_not_found")
    assert importing.get(place, headers={"Accept": "text/html"}).json() == cancelled


def test_listeners_that_have_closed_their_side_keep_no_place(importing: httpx.Client, incoming: Path) -> None:
    """There are 32 for a caller. Clients for ordinary answers may close theirs, and wait."""
    importing.put("/v1/datasets/g", json={"schema": {"features": {"id": {"dtype": "int64"}}}})
    begun = importing.post("/v1/datasets/g/imports", json={"source": f"file://{incoming}/bad.jsonl"})
    place = begun.headers["Location"]
    followed(importing, place)
    server = (importing.base_url.host, importing.base_url.port)

    def ask(accept: str, *, first_read: bytes = b"") -> bytes:
        """All that comes, where our side is closed once this much has come."""
        with socket.create_connection(server, timeout=60) as connection:
            head = f"GET {place} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n"
            connection.sendall(head.encode())
            answer = b""
            while first_read not in answer:
                answer += connection.recv(1 << 16)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(1 << 16):
                answer += piece
        return answer

    for number in range(70):
        answer = ask("text/event-stream", first_read=b"data: " if number % 2 else b"")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b"data: ") == 1
    assert ask("application/json").rstrip().endswith(b"}")
    importing.delete(place)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"source": "s3://bucket/out"}, "source_not_allowed"),
        ({"source": "s3://bucket/in/../out"}, "source_not_allowed"),
        ({"source": "s3://bucket/in%2f..%2fout"}, "source_not_allowed"),
        ({"source": "s3://bucket/inner"}, "source_not_allowed"),
        ({"source": "s3://other/in"}, "source_not_allowed"),
        ({"source": "gs://bucket/in"}, "source_not_allowed"),
        ({"source": "file:///etc"}, "source_not_allowed"),
        ({"source": "/etc"}, "source_not_allowed"),
        ({"source": "http://169.254.169.254/latest"}, "source_not_allowed"),
        ({}, "invalid_import"),
        ([], "invalid_import"),
        ({"source": 1}, "invalid_import"),
        ({"source": "s3://bucket/in", "spilt": "test"}, "invalid_import"),
        ({"source": "s3://bucket/in", "from": "xml"}, "invalid_import"),
        ({"source": "s3://bucket/in", "range_bytes": 0}, "invalid_import"),
        ({"source": "s3://bucket/in", "publish": {"shufle": True}}, "invalid_import"),
        ({"source": "s3://bucket/in", "delimiter": ";;"}, "invalid_import"),
    ],
    ids=[
        "other prefix", "dots", "encoded", "longer name", "bucket", "scheme", "folder", "path", "metadata",
        "empty", "list", "number", "unknown", "format", "no bytes", "publish", "delimiter",
    ],
)  # fmt: skip
def test_imports_that_are_refused(importing: httpx.Client, body: object, code: str) -> None:
    answer = importing.post("/v1/datasets/c/imports", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert importing.get("/v1/datasets/c").status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/v1/datasets/g"), ("POST", "/v1/datasets/g/imports")],
    ids=["dataset", "import"],
)
def test_a_description_that_is_too_long_is_refused(importing: httpx.Client, method: str, path: str) -> None:
    body = b'{"description": "' + b"a" * 5 * 2**20
    answer = importing.request(method, path, content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")


def test_a_source_that_fails_is_named_and_not_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_FIRST_WAIT_S", 0.0)
    with socket.socket() as bound:  # and not listening
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/x.csv"
        with serving(create_app_with(Settings(storage_url="memory://", import_sources=url))) as client:
            answer = client.post("/v1/datasets/a/imports", json={"source": url})
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (503, "source_unavailable")
    assert "The source did not do its part" in problem["detail"]


def test_by_default_nothing_is_allowed(client: httpx.Client, incoming: Path) -> None:
    answer = client.post("/v1/datasets/c/imports", json={"source": f"file://{incoming}"})
    assert (answer.status_code, answer.json()["code"]) == (400, "source_not_allowed")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_an_import_that_never_was_is_not_found(importing: httpx.Client, method: str) -> None:
    importing.put("/v1/datasets/e")
    answer = importing.request(method, f"/v1/datasets/e/imports/{'0' * 32}")
    assert (answer.status_code, answer.json()["code"]) == (404, "import_not_found")


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ([], 'An import is a JSON object. Send one such as {"source": "s3://bucket/prefix"}.'),
        (
            {"source": "s3://bucket/in", "publish": {"num_shards": 0}},
            "The import cannot be read at 'publish.num_shards': Input should be greater than or equal to 1.",
        ),
    ],
    ids=["no object", "of the publication"],
)
def test_a_refusal_says_where_an_import_is_wrong(importing: httpx.Client, body: Any, detail: str) -> None:
    assert importing.post("/v1/datasets/d/imports", json=body).json()["detail"] == detail


def test_what_an_import_changes_is_named_as_an_append_names_it(
    importing: httpx.Client, incoming: Path
) -> None:
    for number, name in enumerate(("price", "weight")):
        table = pa.table(
            {
                "at": pa.array([number], pa.timestamp("s")),
                "price": [1.1 if name == "price" else 1.5],
                "weight": [0.1 if name == "weight" else 0.5],
            }
        )
        pq.write_table(table, incoming / f"{name}.parquet")
    request = {"source": f"file://{incoming}/*.parquet"}
    begun = importing.post("/v1/datasets/changed/imports", json=request)
    told = followed(importing, begun.headers["Location"])
    assert (told["state"], told["rows"]) == ("done", 2)
    assert (told["rounded"], told["as_text"]) == (["price", "weight"], ["at"])
    exact = importing.post("/v1/datasets/exact/imports", json={"source": f"file://{incoming}/*.ndjson"})
    told = followed(importing, exact.headers["Location"])
    assert "rounded" not in told
    assert "as_text" not in told
