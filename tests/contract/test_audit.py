"""The audit log: a line for each request that may change something, and none that a client forged."""

import json
import logging
import re
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.logs import JsonFormatter
from tests.contract.tokens import as_, guarded
from tests.support.waiting import wait_for

ROWS = b'[{"x": 1}]'
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with guarded(tmp_path_factory.mktemp("audit")) as started:
        yield started


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[dict[str, Any]]]:
    """Filled while the test runs, by the lines of the log as they are written out."""
    found: list[dict[str, Any]] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = JsonFormatter().format(record)
            assert "\n" not in text
            found.append(json.loads(text))

    logger = logging.getLogger("shardsmith.audit")
    caplog.set_level("INFO", "shardsmith.audit")
    logger.addHandler(handler := Collect())
    try:
        yield found
    finally:
        logger.removeHandler(handler)


def test_append_and_publication_are_logged(client: httpx.Client, lines: list[dict[str, Any]]) -> None:
    appended = client.post("/v1/datasets/acme-a/records", content=ROWS, headers={**JSON, **as_("acme-4411")})
    published = client.post(
        "/v1/datasets/acme-a/versions", headers={**as_("acme-4411"), "X-Request-Id": "r-1"}
    )
    assert published.headers["x-request-id"] == "r-1"
    wait_for(lambda: len(lines) == 2)
    first, second = lines
    assert re.fullmatch(r"[0-9a-f]{16}", first["request_id"])
    assert first.pop("duration_ms") > 0
    assert first.pop("time")
    assert first == {
        "level": "INFO",
        "logger": "shardsmith.audit",
        "message": "audit",
        "who": "acme",
        "via": "token",
        "tenant": "acme-",
        "method": "POST",
        "route": "/v1/datasets/{dataset}/records",
        "dataset": "acme-a",
        "client": "127.0.0.1",
        "resource": f"/v1/datasets/acme-a/appends/{appended.json()['append_id']}",
        "status": 201,
        "complete": True,
        "num_bytes": len(ROWS),
        "request_id": appended.headers["x-request-id"],
    }
    assert second["resource"] == "/v1/datasets/acme-a/versions/1.0.0"
    assert (second["status"], second["request_id"]) == (201, "r-1")


def test_deletions_and_refusals_are_logged(client: httpx.Client, lines: list[dict[str, Any]]) -> None:
    client.put("/v1/datasets/gone", headers=as_("writing-91ab"))
    client.delete("/v1/datasets/gone", headers=as_("writing-91ab"))
    client.delete("/v1/datasets/gone", headers=as_("ruling-77de"))
    client.delete("/v1/datasets/acme-a", headers=as_("globex-8e8e"))
    client.post("/v1/datasets/bad/records", content=b"{", headers={**JSON, **as_("writing-91ab")})
    wait_for(lambda: len(lines) == 5)
    told = [(line["who"], line["method"], line["dataset"], line["status"]) for line in lines]
    assert told == [
        ("writer", "PUT", "gone", 201),
        ("writer", "DELETE", "gone", 403),
        ("admin", "DELETE", "gone", 204),
        ("globex", "DELETE", "acme-a", 404),
        ("writer", "POST", "bad", 400),
    ]


def test_reading_converting_and_guessing_leave_no_line(
    client: httpx.Client, lines: list[dict[str, Any]]
) -> None:
    client.get("/v1/datasets", headers=as_("reading-5f0c"))
    client.post("/v1/tensors/serialize", content=b"[1]", headers={**JSON, **as_("reading-5f0c")})
    client.put("/v1/datasets/x", headers=as_("guessed"))
    client.put("/v1/datasets/x")
    client.get("/livez")
    assert lines == []


def test_names_forge_no_lines(client: httpx.Client, lines: list[dict[str, Any]]) -> None:
    forged = 'x%0d%0a{"who":"root","status":200}%1b[2J%e2%80%a8'
    answer = client.put(f"/v1/datasets/{forged}", headers={**as_("writing-91ab"), "X-Request-Id": "a b"})
    assert answer.status_code == 400
    wait_for(lambda: bool(lines))
    [line] = lines
    assert line["dataset"] == 'x\r\n{"who":"root","status":200}\x1b[2J\u2028'
    assert line["who"] == "writer"
    assert line["request_id"] != "a b"


def test_upload_that_breaks_off_is_logged(client: httpx.Client, lines: list[dict[str, Any]]) -> None:
    url = client.base_url
    with socket.create_connection((url.host, url.port or 80)) as connection:
        connection.sendall(
            b"POST /v1/datasets/broken/records HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
            b'Authorization: Bearer writing-91ab\r\nContent-Length: 100000\r\n\r\n{"x": 1}\n'
        )
    wait_for(lambda: bool(lines))
    assert lines[0]["dataset"] == "broken"
    # What the route took before it heard that the client is gone; the access log has all that came.
    assert lines[0]["num_bytes"] in (0, 9)
    assert lines[0].get("status", 400) == 400
