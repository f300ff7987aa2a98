"""What happens on the connection itself: clients that write first, leave early, or speak HTTP/1.0."""

import hashlib
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import numpy as np
import pytest

from tests.support.service import Service
from tests.support.waiting import wait_for

NDJSON = {"Content-Type": "application/x-ndjson"}
LINE = json.dumps({"x": [0.5] * 20, "n": 1, "text": "abcdefgh" * 4}).encode() + b"\n"


def connect(client: httpx.Client) -> socket.socket:
    return socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=60)


def read_to_end(connection: socket.socket) -> bytes:
    pieces = []
    while piece := connection.recv(1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


def dechunk(body: bytes) -> bytes:
    """The content of a chunked body; fails where its last chunk is missing."""
    pieces: list[bytes] = []
    position = 0
    while True:
        end = body.index(b"\r\n", position)
        size = int(body[position:end], 16)
        if size == 0:
            assert body[end:] == b"\r\n\r\n"
            return b"".join(pieces)
        pieces.append(body[end + 2 : end + 2 + size])
        position = end + 2 + size + 2


def test_a_client_that_writes_everything_before_it_reads_is_not_hung(client: httpx.Client) -> None:
    body = LINE * 150_000  # some 30 MB in, as much out: past every window between the two
    with connect(client) as connection:
        connection.sendall(
            b"POST /v1/records/serialize?to=ndjson HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        connection.sendall(body)
        answer = read_to_end(connection)
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    rows = dechunk(content).splitlines()
    assert len(rows) == 150_000
    assert json.loads(rows[-1]) == json.loads(LINE)


def test_output_begins_while_input_arrives(client: httpx.Client) -> None:
    with connect(client) as connection:
        connection.sendall(
            b"POST /v1/records/serialize?to=ndjson HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/x-ndjson\r\nContent-Length: 1000000000\r\n\r\n" + LINE * 60_000
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


def test_a_failure_after_the_first_byte_leaves_the_last_chunk_out(client: httpx.Client) -> None:
    def body() -> Iterator[bytes]:
        yield LINE * 60_000
        yield b"{broken\n"

    with client.stream("POST", "/v1/records/serialize", content=body(), headers=NDJSON) as answer:
        assert answer.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
            answer.read()


def test_the_same_failure_is_a_problem_where_the_answer_is_checked(client: httpx.Client) -> None:
    url, content = "/v1/records/serialize", LINE * 60_000 + b"{broken\n"
    answer = client.post(url, params={"delivery": "checked"}, content=content, headers=NDJSON)
    assert (answer.status_code, answer.json()["row"]) == (400, 60_000)


def test_http_1_0_gets_a_length(client: httpx.Client) -> None:
    body = LINE * 10_000
    with connect(client) as connection:
        connection.sendall(
            b"POST /v1/records/serialize HTTP/1.0\r\nContent-Type: application/x-ndjson\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)
        )
        connection.sendall(body)
        answer = read_to_end(connection)
    head, _, content = answer.partition(b"\r\n\r\n")
    assert b"content-length: %d\r\n" % len(content) in head + b"\r\n"
    assert b"record-count: 10000" in head


def test_a_client_that_leaves_in_the_middle_commits_nothing(client: httpx.Client) -> None:
    url, headers = "/v1/datasets/left-early", {"Idempotency-Key": "left"}
    client.put(url)
    with connect(client) as connection:
        connection.sendall(
            b"POST /v1/datasets/left-early/records HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: left\r\n"
            b"Content-Type: application/x-ndjson\r\nContent-Length: 100000000\r\n\r\n" + LINE * 20_000
        )
    append_id = hashlib.sha256(b"left").hexdigest()[:32]
    assert client.get(f"{url}/appends/{append_id}").status_code == 404
    # The key is still free: had the half been stored, other rows under it would be refused.
    assert client.post(f"{url}/records", json=[{"x": 1}], headers=headers).status_code == 201
    manifest = client.post(f"{url}/versions").json()
    assert manifest["splits"]["train"]["num_records"] == 1


def stored_files(service: Service, dataset: str) -> list[str]:
    folder = service.datasets / dataset
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "tenth", [pytest.param(tenth, marks=pytest.mark.exhaustive if tenth % 3 else ()) for tenth in range(10)]
)
@pytest.mark.parametrize("num_bytes", [2_000, 45_000_000])
@pytest.mark.parametrize("keyed", [True, False])
def test_a_client_that_leaves_anywhere_in_its_body_leaves_nothing(
    service: Service, client: httpx.Client, tenth: int, num_bytes: int, keyed: bool
) -> None:
    """Of the larger body, parts are stored by then: they are removed."""
    name = f"left-{tenth}-{num_bytes}-{keyed}".lower()
    client.post(f"/v1/datasets/{name}/records", content=LINE, headers=NDJSON)
    before = stored_files(service, name)
    body = LINE * (num_bytes // len(LINE))
    key = b"Idempotency-Key: left\r\n" if keyed else b""
    with connect(client) as connection:
        connection.sendall(
            b"POST /v1/datasets/%s/records HTTP/1.1\r\nHost: localhost\r\n%b"
            b"Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n"
            % (name.encode(), key, len(body))
        )
        connection.sendall(body[: len(body) * tenth // 10])
    if keyed:  # which is free
        headers = {**NDJSON, "Idempotency-Key": "left"}

        def append() -> int:
            return client.post(f"/v1/datasets/{name}/records", content=LINE, headers=headers).status_code

        # 409 until the service has seen that the client left.
        wait_for(lambda: append() == 201)
    # The append may still be storing a part when no part is seen yet.
    wait_for(lambda: are_without_parts(stored_files(service, name), len(before) + keyed))


def are_without_parts(files: list[str], num_files: int) -> bool:
    return len(files) == num_files and not any("parts/" in file for file in files)


@pytest.mark.parametrize(
    "path", ["/livez", "/readyz", "/startupz", "/v2", "/v2/health/live", "/v1/forms", "/v1/datasets"]
)
def test_head_answers_as_get_without_the_body(client: httpx.Client, path: str) -> None:
    head, get = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers["content-type"] == get.headers["content-type"]


def test_an_upload_longer_than_allowed_is_refused_before_it_is_read(client: httpx.Client) -> None:
    with connect(client) as connection:
        connection.sendall(
            b"POST /v1/tensors/serialize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-npy\r\n"
            b"Content-Length: 99999999999\r\n\r\n"
        )
        answer = read_to_end(connection)
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413")
    assert json.loads(content)["code"] == "payload_too_large"


#: More than the buffers of both ends hold.
LONG = 16 << 20
REFUSED = {
    "a header that lies": (
        "/v1/tensors/serialize",
        "application/x-npy",
        b"\x93NUMPY\x02\x00" + b"\xff" * 4,
        413,
    ),
    "a first line": ("/v1/records/serialize", "application/x-ndjson", b"{broken\n", 400),
    "an append": ("/v1/datasets/refused/records", "application/x-ndjson", b"{broken\n", 400),
    "a name": ("/v1/datasets/a.b/records", "application/x-ndjson", b'{"x": 1}\n', 400),
    "a frame": ("/v1/records/parse", "application/x-tfrecord", bytes(16), 400),
    "a type": ("/v1/tensors/serialize", "text/yaml", b"", 415),
    "a parameter": ("/v1/tensors/serialize?spilt=1", "application/x-npy", b"", 400),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_client_that_writes_first_still_reads_why_it_was_refused(client: httpx.Client, what: str) -> None:
    path, media_type, begin, status = REFUSED[what]
    connection = http.client.HTTPConnection(client.base_url.host, client.base_url.port, timeout=60)
    try:
        body = begin + bytes(LONG - len(begin))
        connection.request("POST", path, body, {"Content-Type": media_type})  # all of it, then the answer
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["status"]) == (status, status)
    finally:
        connection.close()


def test_bodies_that_never_come_hold_no_workers(client: httpx.Client) -> None:
    with ExitStack() as stack:
        for _ in range(64):
            connection = stack.enter_context(connect(client))
            connection.sendall(
                b"POST /v1/tensors/serialize HTTP/1.1\r\n"
                b"Host: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 10\r\n\r\n["
            )
        assert client.get("/v1/datasets", timeout=5).status_code == 200
        assert client.post("/v1/tensors/serialize", json=[1], timeout=5).status_code == 200


def test_a_tensor_survives_the_round_trip_bit_for_bit(client: httpx.Client) -> None:
    array = np.random.default_rng(7).standard_normal(2_000_000)  # 16 MB
    raw = {"from": "raw", "dtype": "float64", "shape": "2000,1000"}
    proto = client.post("/v1/tensors/serialize", params=raw, content=array.tobytes()).content
    back = client.post("/v1/tensors/parse", params={"to": "raw"}, content=proto)
    assert back.content == array.tobytes()
    assert back.headers["tensor-shape"] == "2000,1000"


def test_memory_does_not_grow_with_a_stream(service: Service, client: httpx.Client) -> None:
    def body(num_pieces: int) -> Iterator[bytes]:
        for _ in range(num_pieces):
            yield LINE * 20_000  # some 4 MB

    def converted(num_pieces: int) -> int:
        url = "/v1/records/serialize"
        with client.stream("POST", url, content=body(num_pieces), headers=NDJSON) as answer:
            return sum(map(len, answer.iter_bytes()))

    converted(10)
    before = service.resident_mib()
    assert converted(60) > 100_000_000
    assert service.resident_mib() - before < 100
