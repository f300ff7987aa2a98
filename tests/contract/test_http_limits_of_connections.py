"""FAULTS 44 to 50 against the service itself: its settings reach its connections, and its requests let go.

What a connection may do is tested one by one in `tests/unit/api/http1`; here a process
serves the real routes.
"""

import http.client
import io
import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.support.asgi_server import read_to_end
from tests.support.service import Service, ready
from tests.support.waiting import wait_for

NDJSON = b"Content-Type: application/x-ndjson\r\n"
LINE = json.dumps({"x": [0.5] * 20, "n": 1, "text": "abcdefgh" * 4}).encode() + b"\n"
MIB = 1 << 20


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with one worker for streams, short deadlines, and small limits."""
    folder = tmp_path_factory.mktemp("strict")
    with ready(
        folder,
        SHARDSMITH_STREAMS="1",
        SHARDSMITH_SPOOL_DIR=str(folder / "spool"),
        SHARDSMITH_MAX_BODY_BYTES=str(64 * MIB),
        SHARDSMITH_MAX_HEADER_BYTES="4000",
        SHARDSMITH_MAX_TARGET_BYTES="2000",
        SHARDSMITH_MAX_HEADERS="20",
        SHARDSMITH_MAX_CHUNK_OVERHEAD="1000",
        SHARDSMITH_HEADER_TIMEOUT_S="3",
        SHARDSMITH_KEEP_ALIVE_S="1",
        SHARDSMITH_MIN_RATE="1000",
        SHARDSMITH_BODY_GRACE_S="3",
        SHARDSMITH_BODY_TIMEOUT_S="6",
        SHARDSMITH_MAX_CONNECTIONS="20",
    ) as started:
        yield started


def connect(service: Service, *, receive_buffer: int | None = None) -> socket.socket:
    url = httpx.URL(service.url)
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(60)
    connection.connect((url.host, url.port))
    return connection


def exchange(service: Service, sent: bytes) -> bytes:
    with connect(service) as connection:
        connection.sendall(sent)
        return read_to_end(connection)


def post(path: str, length: int, *headers: bytes) -> bytes:
    fields = b"".join(headers)
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n" % (
        path.encode(),
        fields,
        length,
    )


REFUSED = {
    "44 a long target": (b"GET /livez?" + b"a" * 3000, 414, "target_too_long"),
    "44 a long header": (b"GET /livez HTTP/1.1\r\nA: " + b"a" * 9000, 431, "header_too_large"),
    "44 many headers": (
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 21 + b"\r\n",
        431,
        "too_many_headers",
    ),
    "45 half a head": (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n", 408, "request_timeout"),
    "46 half a body": (post("/v1/records/serialize", 1000, NDJSON) + b"{", 408, "request_timeout"),
    "46 half a small body": (post("/v1/datasets/d/records", 100, NDJSON) + b"{", 408, "request_timeout"),
    "48 two lengths": (
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
        400,
        "ambiguous_length",
    ),
    "48 extensions": (
        b"POST /v1/records/serialize HTTP/1.1\r\nHost: localhost\r\n"
        + NDJSON
        + b"Transfer-Encoding: chunked\r\n\r\n1;"
        + b"a" * 5000,
        400,
        "invalid_chunk",
    ),
    "49 a length too large": (
        post("/v1/records/serialize", 1 << 40, NDJSON),
        413,
        "payload_too_large",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.waits
def test_refused_request_is_a_problem_and_closes_the_connection(strict: Service, what: str) -> None:
    sent, status, code = REFUSED[what]
    answer = exchange(strict, sent)
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in head.lower()
    problem = json.loads(content)
    assert problem["code"] == code
    if "body" in what and status == 408:
        assert "Send whole batches" in problem["detail"]
        assert "SHARDSMITH_" in problem["detail"]
    assert "Traceback" not in strict.log()


@pytest.mark.waits
def test_an_idle_connection_is_closed(strict: Service) -> None:
    assert exchange(strict, b"") == b""
    answer = exchange(strict, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.count(b"\r\n\r\n") == 1


def test_a_chunked_body_past_the_limit_is_413_while_it_is_sent(strict: Service) -> None:
    with connect(strict) as connection:
        connection.sendall(
            b"POST /v1/records/serialize?to=ndjson&delivery=checked HTTP/1.1\r\nHost: localhost\r\n"
            + NDJSON
            + b"Transfer-Encoding: chunked\r\n\r\n"
        )
        lines = LINE * (MIB // len(LINE))
        for _ in range(66):
            connection.sendall(b"%x\r\n%b\r\n" % (len(lines), lines))
        answer = read_to_end(connection)
    assert problem_of_service(answer)["code"] == "payload_too_large"


def problem_of_service(answer: bytes) -> dict[str, object]:
    head, _, content = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    problem: dict[str, object] = json.loads(content)
    return problem


@pytest.mark.parametrize(
    ("path", "headers", "length", "status"),
    [
        ("/v1/records/serialize", NDJSON, 1 << 40, 413),
        ("/v1/tensors/serialize", b"Content-Type: application/x-npy\r\n", 1 << 40, 413),
        ("/v1/datasets/d/records", NDJSON, 1 << 40, 413),
        ("/v1/tensors/serialize", b"Content-Type: text/yaml\r\n", 1000, 415),
        ("/v1/records/serialize?spilt=test", NDJSON, 1000, 400),
        ("/v1/nowhere", NDJSON, 1000, 404),
        ("/livez", NDJSON, 1000, 405),
    ],
)
def test_a_refusal_that_needs_no_body_does_not_ask_for_it(
    strict: Service, path: str, headers: bytes, length: int, status: int
) -> None:
    answer = exchange(strict, post(path, length, headers, b"Expect: 100-continue\r\n"))
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answer.partition(b"\r\n\r\n")[0].lower()


def test_who_expects_to_be_asked_for_the_body_is(strict: Service) -> None:
    with connect(strict) as connection:
        connection.sendall(post("/v1/records/serialize", len(LINE), NDJSON, b"Expect: 100-continue\r\n"))
        assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(LINE)
        assert connection.recv(15) == b"HTTP/1.1 200 OK"


@pytest.mark.waits
def test_who_reads_nothing_of_a_large_answer_is_cut_and_holds_nothing(strict: Service) -> None:
    """Its worker, the only one for streams, is free again."""
    body = LINE * (32 * MIB // len(LINE))
    with connect(strict, receive_buffer=4096) as connection:
        connection.sendall(post("/v1/records/serialize?to=ndjson", len(body), NDJSON))
        connection.sendall(body)
        wait_for(lambda: converts(strict))
        wait_for(lambda: num_spooled(strict) == 0)


def converts(service: Service) -> bool:
    """Whether a conversion gets a worker; it is no small body."""
    body = LINE * 1000
    answer = httpx.post(
        f"{service.url}/v1/records/serialize",
        content=iter([body]),
        headers={"Content-Type": "application/x-ndjson"},
        timeout=60,
    )
    return answer.status_code == 200


def num_spooled(service: Service) -> int:
    """Files of the spool that are open; they have no names."""
    folder = Path(f"/proc/{service.process.pid}/fd")
    if not folder.exists():
        pytest.skip("needs /proc")
    found = 0
    for one in folder.iterdir():
        try:
            found += "/spool/" in str(one.readlink())
        except FileNotFoundError:
            continue
    return found


def test_probes_are_answered_while_connections_are_exhausted(strict: Service) -> None:
    with ExitStack() as stack:
        for _ in range(40):
            connection = stack.enter_context(connect(strict))
            connection.sendall(post("/v1/records/serialize", 10_000_000, NDJSON) + bytes(2000))
        for _ in range(20):
            for probe in ("/livez", "/readyz", "/v2/health/live"):
                assert httpx.get(f"{strict.url}{probe}", timeout=30).status_code == 200


def stored(service: Service) -> list[str]:
    folder = service.datasets
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def npy(num_bytes: int) -> bytes:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % (num_bytes // 4)
    header = header.ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(num_bytes)


def npz(num_bytes: int) -> bytes:
    sink = io.BytesIO()
    np.savez(sink, x=np.zeros(num_bytes // 4, "<f4"))
    return sink.getvalue()


def lines(num_bytes: int) -> bytes:
    return LINE * (num_bytes // len(LINE))


def array(num_bytes: int) -> bytes:
    return b"[" + b",".join([LINE] * (num_bytes // len(LINE))) + b"]"


#: What is posted where: the header, and what makes a body.
UPLOADS: dict[str, tuple[bytes, Callable[[int], bytes]]] = {
    "/v1/records/serialize": (NDJSON, lines),
    "/v1/records/serialize?delivery=checked": (NDJSON, lines),
    "/v1/tensors/serialize": (b"Content-Type: application/x-npy\r\n", npy),
    "/v1/tensors/serialize?to=tfrecord": (b"Content-Type: application/x-npz\r\n", npz),
    "/v1/records/serialize?from=json": (b"Content-Type: application/json\r\n", array),
    "/v1/datasets/left/records": (NDJSON, lines),
}


@pytest.mark.parametrize("path", UPLOADS)
@pytest.mark.waits
def test_who_leaves_at_a_tenth_of_its_body_leaves_nothing(strict: Service, path: str) -> None:
    """Nothing in the store, on the spool, or in memory; and the only worker is free again."""
    media_type, make_body = UPLOADS[path]
    body = make_body(48 * MIB)
    url = f"{strict.url}/v1/datasets/left/records"
    httpx.post(url, content=LINE, headers={"Content-Type": "application/x-ndjson"}, timeout=60)
    before = stored(strict)

    def leave(tenth: int) -> None:
        sent = post(path, len(body), media_type) + body[: len(body) * tenth // 10]
        with connect(strict) as connection:
            connection.sendall(sent)

    leave(9)
    wait_for(lambda: converts(strict))
    memory = strict.resident_mib()
    for tenth in range(10):
        leave(tenth)
    wait_for(lambda: converts(strict))
    wait_for(lambda: num_spooled(strict) == 0)
    wait_for(lambda: stored(strict) == before)
    wait_for(lambda: strict.resident_mib() - memory < 64)


def test_half_duplex_clients_are_answered(strict: Service) -> None:
    """All is written before anything is read, and the answer is as large."""
    body = LINE * (32 * MIB // len(LINE))
    url = httpx.URL(strict.url)
    connection = http.client.HTTPConnection(url.host, url.port, timeout=60)
    try:
        connection.request(
            "POST", "/v1/records/serialize?to=ndjson", body, {"Content-Type": "application/x-ndjson"}
        )
        assert connection.getresponse().read().count(b"\n") == body.count(b"\n")
    finally:
        connection.close()


@pytest.mark.waits
def test_a_process_that_was_stopped_takes_what_came_meanwhile(tmp_path: Path) -> None:
    with ready(tmp_path, SHARDSMITH_BODY_TIMEOUT_S="1") as service:
        with connect(service) as connection:
            head = b"POST /v1/records/serialize?to=ndjson HTTP/1.1\r\nHost: localhost\r\n" + NDJSON
            connection.sendall(head + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
            assert httpx.get(f"{service.url}/livez").status_code == 200
            service.process.send_signal(signal.SIGSTOP)
            connection.sendall(b'9\r\n{"x": 1}\n\r\n0\r\n\r\n')
            time.sleep(3)
            service.process.send_signal(signal.SIGCONT)
            answer = read_to_end(connection)
        assert answer.startswith(b"HTTP/1.1 200 "), answer
