"""The log of a running process: a line for each request, and the request's id on every line and answer."""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.asgi_server import read_to_end
from tests.support.service import Service, ready
from tests.support.waiting import wait_for

ROWS = b'[{"x": 1}]'
JSON = {"Content-Type": "application/json"}
NEW_ID = re.compile(r"[0-9a-f]{16}")
UPLOAD = (
    b"POST /v1/datasets/large/records HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/x-ndjson\r\nContent-Length: 100000000\r\n%b\r\n"
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with ready(
        tmp_path_factory.mktemp("service"),
        SHARDSMITH_LOG_FORMAT="json",
        SHARDSMITH_HEADER_TIMEOUT_S="1",
        SHARDSMITH_BODY_GRACE_S="1",
        SHARDSMITH_BODY_TIMEOUT_S="5",
        SHARDSMITH_MAX_HEADERS="20",
    ) as started:
        yield started


def lines(service: Service, request_id: str) -> list[dict[str, Any]]:
    """All that the log says of a request."""
    found = [json.loads(line) for line in service.log().splitlines() if line.startswith("{")]
    return [line for line in found if line.get("request_id") == request_id]


def access(service: Service, request_id: str) -> dict[str, Any]:
    """The one line of the access log on a request, less what no two have in common."""
    wait_for(lambda: any(line["logger"] == "shardsmith.access" for line in lines(service, request_id)))
    [line] = [line for line in lines(service, request_id) if line["logger"] == "shardsmith.access"]
    return {name: line[name] for name in line if name not in ("time", "logger", "message", "request_id")}


def send(service: Service, data: bytes) -> socket.socket:
    url = httpx.URL(service.url)
    connection = socket.create_connection((url.host, url.port or 80))
    connection.settimeout(60)
    connection.sendall(data)
    return connection


def id_of(answer: bytes) -> str:
    found = re.search(rb"\r\nx-request-id: ([^\r]+)\r\n", answer)
    assert found is not None, answer
    return found[1].decode()


def test_a_request_has_a_line_with_its_route_and_what_it_took(service: Service) -> None:
    answer = httpx.post(
        f"{service.url}/v1/datasets/flowers/records?publish=true",
        content=ROWS,
        headers={**JSON, "X-Request-Id": "from.the-client_1", "Accept-Encoding": "identity"},
    )
    assert answer.headers["x-request-id"] == "from.the-client_1"
    line = access(service, "from.the-client_1")
    assert line.pop("ms") > 0
    assert line == {
        "level": "INFO",
        "method": "POST",
        "route": "/v1/datasets/{dataset}/records",
        "path": "/v1/datasets/flowers/records",
        "status": 201,
        "bytes_in": len(ROWS),
        "bytes_out": len(answer.content),
        "client": "127.0.0.1",
    }


@pytest.mark.parametrize("given", ["a b", "a" * 129, 'x"}', "\xe4"])
def test_an_id_that_is_none_is_replaced(service: Service, given: str) -> None:
    headers = [(b"X-Request-Id", given.encode("latin-1")), (b"Content-Type", b"application/json")]
    answer = httpx.post(f"{service.url}/v1/tensors/serialize", content=b"[1]", headers=headers)
    made = answer.headers["x-request-id"]
    assert NEW_ID.fullmatch(made)
    assert access(service, made)["route"] == "/v1/tensors/serialize"


def test_unknown_route_is_logged_with_its_path(service: Service) -> None:
    answer = httpx.get(f"{service.url}/v1/nothing%20%0a?secret=1")
    line = access(service, answer.headers["x-request-id"])
    assert "route" not in line
    assert (line["path"], line["status"]) == ("/v1/nothing%20%0a", 404)


def test_probes_have_an_id_and_no_line(service: Service) -> None:
    for path in ("/livez", "/readyz", "/startupz", "/v2/health/live", "/v2/health/ready"):
        answer = httpx.get(f"{service.url}{path}")
        assert NEW_ID.fullmatch(answer.headers["x-request-id"])
    later = httpx.get(f"{service.url}/v1/forms").headers["x-request-id"]
    assert access(service, later)["status"] == 200
    assert "livez" not in service.log()
    assert "readyz" not in service.log()


@pytest.mark.parametrize("size", [9, 3_000_000], ids=["in the first bytes", "in the middle"])
def test_an_upload_whose_client_leaves_has_a_line(service: Service, size: int) -> None:
    name = f"left-{size}"
    connection = send(service, UPLOAD % f"X-Request-Id: {name}\r\n".encode())
    connection.sendall((b'{"x": 1}\n' * (size // 9 + 1))[:size])
    # All of it is received before the connection goes: an answer on another connection is later.
    wait_for(lambda: httpx.get(f"{service.url}/livez").status_code == 200)
    connection.close()
    line = access(service, name)
    assert line.pop("ms") > 0
    assert 0 < line.pop("bytes_in") <= size
    assert line == {
        "level": "WARNING",
        "method": "POST",
        "route": "/v1/datasets/{dataset}/records",
        "path": "/v1/datasets/large/records",
        "bytes_out": 0,
        "client": "127.0.0.1",
        "ended": "client_closed",
    }


def test_an_upload_that_stops_has_a_line(service: Service) -> None:
    with send(service, UPLOAD % b"" + b'{"x": 1}\n') as connection:
        answer = read_to_end(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    line = access(service, id_of(answer))
    assert (line["level"], line["route"]) == ("WARNING", "/v1/datasets/{dataset}/records")
    assert (line["status"], line["ended"], line["bytes_in"]) == (408, "request_timeout", 9)


def test_a_head_that_stops_has_a_line(service: Service) -> None:
    with send(service, b"GET /v1/forms HTTP/1.1\r\nHost: x\r\n") as connection:
        answer = read_to_end(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    line = access(service, id_of(answer))
    assert line == {
        "level": "WARNING",
        "route": "/v1/forms",
        "status": 408,
        "bytes_in": 33,
        "client": "127.0.0.1",
        "ended": "request_timeout",
    }


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"no request\r\n\r\n", 400, "invalid_method"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "invalid_host"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n%b\r\n" % (b"A: b\r\n" * 30), 431, "too_many_headers"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\n\r\n", 417, "expectation_failed"),
    ],
)
def test_malformed_request_is_logged_with_an_id(
    service: Service, sent: bytes, status: int, code: str
) -> None:
    with send(service, sent) as connection:
        answer = read_to_end(connection)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    line = access(service, id_of(answer))
    assert (line["status"], line["ended"], line["client"]) == (status, code, "127.0.0.1")


def test_a_password_in_a_refused_target_is_not_logged(service: Service) -> None:
    with send(service, b"GET http://name:canary@host/v1/forms HTTP/1.1\r\nHost: host\r\n\r\n") as connection:
        answer = read_to_end(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert "path" not in access(service, id_of(answer))
    assert "canary" not in service.log()


def test_a_refusal_for_a_second_request_does_not_speak_of_the_first(service: Service) -> None:
    with send(
        service, b"GET /v1/forms HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: the-first\r\n\r\n"
    ) as one:
        while b"\r\n\r\n" not in one.recv(65536):
            pass
        one.sendall(b"\x16\x03\x01 no request\r\n\r\n")
        refused = read_to_end(one)
    made = id_of(refused[refused.index(b"HTTP/1.1 400") :])
    assert NEW_ID.fullmatch(made)
    assert "path" not in access(service, made)
    assert access(service, "the-first")["status"] == 200


def test_failure_is_logged_with_the_request_id(service: Service, tmp_path: Path) -> None:
    data = Path(service.output).parent / "data" / "blocked"
    data.write_text("a file where the folder of a dataset would be")
    answer = httpx.post(f"{service.url}/v1/datasets/blocked/records", content=ROWS, headers=JSON, timeout=60)
    assert answer.status_code >= 500
    told = lines(service, answer.headers["x-request-id"])
    assert [line["logger"] for line in told if line["level"] == "ERROR"] == ["app.api.problems"]


@pytest.mark.processes
def test_lines_for_requests_can_be_left_out_but_for_aborted_uploads(tmp_path: Path) -> None:
    with ready(tmp_path, SHARDSMITH_ACCESS_LOG="false") as service:
        answer = httpx.get(f"{service.url}/v1/forms")
        assert NEW_ID.fullmatch(answer.headers["x-request-id"])
        with send(service, b"no request\r\n\r\n") as connection:
            read_to_end(connection)
        send(service, UPLOAD % b"X-Request-Id: left\r\n" + b'{"x": 1}\n').close()
        wait_for(lambda: "[left]" in service.log())
        [line] = [line for line in service.log().splitlines() if "shardsmith.access" in line]
        assert re.search(
            r"WARNING shardsmith\.access \[left\] POST /v1/datasets/\{dataset\}/records - [\d.]+ ms, "
            r"\d+ bytes in, 0 out, 127\.0\.0\.1 /v1/datasets/large/records client_closed$",
            line,
        )
