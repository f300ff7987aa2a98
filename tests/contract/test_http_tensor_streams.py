"""Large tensors over a real connection: they leave as they arrive, whatever the client does meanwhile."""

import hashlib
import io
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.codecs.array import Array
from app.codecs.forms import TENSOR_CODECS
from app.codecs.options import TensorEncodeOptions
from app.domain.dtypes import FLOAT32
from app.domain.limits import MIB
from app.runtime.budget import Budget
from tests.contract.test_http_connections import connect, dechunk, read_to_end
from tests.support.service import Service

SIZE_MIB = int(os.environ.get("SHARDSMITH_TEST_STREAM_MIB", "48"))
#: Two windows, what the sockets and the allocator hold, and one more connection.
GROWTH_MIB = 64
TO_TFRECORD = "/v1/tensors/serialize?from=npy&to=tfrecord"
JAVA = Path(__file__).with_name("Exchange.java")


def bodies(num_mib: int) -> tuple[bytes, bytes]:
    """A tensor as NPY and as TFRecord."""
    values = np.random.default_rng(5).integers(0, 256, num_mib * MIB, np.uint8).view("<f4")
    named = Array(FLOAT32, (len(values) // 4, 4), values)
    sent, wanted = (
        b"".join(TENSOR_CODECS[form].encode([named], TensorEncodeOptions(), Budget()))
        for form in ("npy", "tfrecord")
    )
    return sent, wanted


@pytest.fixture(scope="module")
def large() -> tuple[bytes, bytes]:
    return bodies(SIZE_MIB)


@pytest.fixture(scope="module")
def medium() -> tuple[bytes, bytes]:
    return bodies(6)


def by_socket(url: str, body: bytes, folder: Path) -> bytes:
    del folder
    target = httpx.URL(url)
    with socket.create_connection((target.host, target.port or 80), timeout=120) as connection:
        head = f"POST {target.raw_path.decode()} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
        connection.sendall(body)
        answer = read_to_end(connection)
    status, _, content = answer.partition(b"\r\n\r\n")
    assert status.startswith(b"HTTP/1.1 200")
    return dechunk(content)


def by_httpx(url: str, body: bytes, _: Path) -> bytes:
    answer = httpx.post(url, content=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.content


def by_urllib(url: str, body: bytes, _: Path) -> bytes:
    request = urllib.request.Request(url, body, {"Content-Type": "application/x-npy"})  # noqa: S310 (a test server)
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 (a test server)
        content: bytes = answer.read()
    return content


def by_java(client: str) -> Callable[[str, bytes, Path], bytes]:
    def post(url: str, body: bytes, folder: Path) -> bytes:
        sent, answer = folder / "sent", folder / "answer"
        sent.write_bytes(body)
        command = ["java", str(JAVA), url, str(sent), str(answer), client]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
        assert ran.stdout == "200\n", ran.stderr
        return answer.read_bytes()

    return post


def has_java() -> bool:
    """Whether there is a Java that also compiles."""
    if shutil.which("java") is None:
        return False
    modules = subprocess.run(["java", "--list-modules"], capture_output=True, text=True, check=False)
    return "jdk.compiler" in modules.stdout


needs_java = pytest.mark.skipif(
    not has_java() and "CI" not in os.environ, reason="no Java development kit is installed"
)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    "post",
    [
        pytest.param(by_socket, id="socket"),
        pytest.param(by_httpx, id="httpx"),
        pytest.param(by_urllib, id="urllib"),
        pytest.param(by_java("HttpClient"), id="Java HttpClient", marks=[needs_java, pytest.mark.tools]),
        pytest.param(
            by_java("HttpURLConnection"), id="Java HttpURLConnection", marks=[needs_java, pytest.mark.tools]
        ),
    ],
)
def test_a_client_that_writes_everything_first_gets_all_of_it(
    service: Service, large: tuple[bytes, bytes], tmp_path: Path, post: Callable[[str, bytes, Path], bytes]
) -> None:
    sent, wanted = large
    httpx.post(f"{service.url}{TO_TFRECORD}", content=bodies(1)[0])  # what the first request takes for all
    process = Path(f"/proc/{service.process.pid}")
    (process / "clear_refs").write_text("5")  # VmHWM begins anew
    before = service.resident_mib()
    answer = post(f"{service.url}{TO_TFRECORD}", sent, tmp_path)
    assert hashlib.sha256(answer).digest() == hashlib.sha256(wanted).digest()
    peak = re.search(r"^VmHWM:\s+(\d+) kB$", (process / "status").read_text(), re.MULTILINE)
    assert peak is not None
    assert int(peak[1]) / 1024 - before < GROWTH_MIB


@pytest.mark.parametrize(
    ("path", "form"),
    [(TO_TFRECORD, 0), ("/v1/tensors/parse?from=tfrecord&to=raw", 1)],
    ids=["npy", "tfrecord"],
)
def test_the_answer_begins_while_the_body_arrives(
    client: httpx.Client, medium: tuple[bytes, bytes], path: str, form: int
) -> None:
    body = medium[form]
    with connect(client) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body[: 2 * MIB])
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


def chunked(body: bytes) -> Iterator[bytes]:
    """Sent without a length."""
    view = memoryview(body)
    for start in range(0, len(body), 100_000):
        yield bytes(view[start : start + 100_000])


@pytest.mark.parametrize("to", ["tfrecord", "raw", "npy", "tensorproto", "safetensors", "json"])
def test_forms_agree_with_one_another_with_and_without_a_length(
    client: httpx.Client, medium: tuple[bytes, bytes], to: str
) -> None:
    params = {"from": "npy", "to": to}
    plain = client.post("/v1/tensors/serialize", params=params, content=medium[0])
    again = client.post("/v1/tensors/serialize", params=params, content=chunked(medium[0]))
    assert plain.status_code == again.status_code == 200, plain.text[:500]
    assert plain.content == again.content
    if to != "json":
        described = {"dtype": "float32", "shape": plain.headers["tensor-shape"]} if to == "raw" else {}
        back = client.post(
            "/v1/tensors/parse", params={"from": to, "to": "npy", **described}, content=plain.content
        )
        assert back.content == medium[0]


def broken_record(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


FAULTS: dict[str, tuple[dict[str, str], int, Callable[[bytes], bytes], str]] = {
    "a checksum at the end": ({"from": "tfrecord", "to": "raw"}, 1, broken_record, "corrupt_record"),
    "a second record": ({"from": "tfrecord", "to": "raw"}, 1, lambda body: body + body, "several_tensors"),
    "a short body": ({"from": "npy", "to": "tfrecord"}, 0, lambda body: body[:-1], "truncated"),
    "a long body": ({"from": "npy", "to": "tfrecord"}, 0, lambda body: body + b"x", "trailing_bytes"),
}


@pytest.mark.parametrize(("params", "form", "spoil", "code"), FAULTS.values(), ids=FAULTS)
def test_a_failure_after_the_first_byte_is_visible(
    client: httpx.Client,
    medium: tuple[bytes, bytes],
    params: dict[str, str],
    form: int,
    spoil: Callable[[bytes], bytes],
    code: str,
) -> None:
    url, body = "/v1/tensors/parse", spoil(medium[form])

    def post(**more: str) -> Any:
        return client.stream("POST", url, params=params | more, content=chunked(body))

    with post() as answer:
        assert answer.status_code == 200
        # No last chunk; a reset where the server closes on a body that still arrives.
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError), match=r"incomplete chunked|reset"):
            answer.read()
    with post(delivery="checked") as answer:
        answer.read()
        assert answer.json()["code"] == code
        assert 400 <= answer.status_code < 500


def test_a_failure_that_the_header_shows_is_a_problem(client: httpx.Client) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(2 * MIB, np.uint8))
    params = {"from": "npy", "to": "raw", "dtype": "int8"}
    answer = client.post("/v1/tensors/serialize", params=params, content=buffer.getvalue())
    assert (answer.status_code, answer.json()["code"]) == (422, "dtype_mismatch")


def test_a_raw_answer_that_streams_says_what_it_holds(
    client: httpx.Client, medium: tuple[bytes, bytes]
) -> None:
    for content in (medium[1], chunked(medium[1])):
        params = {"from": "tfrecord", "to": "raw", "byte_order": "big"}
        answer = client.post("/v1/tensors/parse", params=params, content=content)
        assert answer.headers["tensor-dtype"] == "float32"
        assert answer.headers["tensor-shape"] == f"{6 * MIB // 16},4"
        swapped = np.frombuffer(answer.content, ">u4").astype("<u4").tobytes()
        assert hashlib.sha256(swapped).digest() == hashlib.sha256(medium[1][-4 - 6 * MIB : -4]).digest()
