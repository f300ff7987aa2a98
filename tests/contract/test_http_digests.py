"""Bodies that say what they are (RFC 9530): what came differently is refused and stores nothing."""

import base64
import gzip
import hashlib
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from app.codecs.forms import RECORDS_CODECS, TENSOR_CODECS, FormName
from app.domain.limits import KIB, MIB
from tests.support import row_formats, tensor_formats
from tests.support.asgi_server import problem_of, read_to_end
from tests.support.service import Service
from tests.support.shard_readers import crc32c

ROWS = [{"x": number, "name": f"row {number}"} for number in range(5)]
JSON = json.dumps(ROWS).encode()
AS_JSON = {"Content-Type": "application/json"}
FIELDS = ["Content-Digest", "Repr-Digest"]
#: The example of RFC 9530, appendix D.
HELLO = b'{"hello": "world"}'
OF_HELLO = {
    "sha-512": "WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==",
    "sha-256": "X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=",
    "crc32c": "Q3lHIA==",
}


def sha256(body: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"


def chunked(body: bytes) -> Iterator[bytes]:
    """For httpx: without Content-Length, hence in a thread however small it is."""
    yield body[: len(body) // 2]
    yield body[len(body) // 2 :]


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text[:200]
    return answer.status_code, answer.json()["code"]


def whole(body: bytes) -> bytes:
    return body


#: A small body is done with on the event loop, another one in a thread.
WAYS: list[Callable[[bytes], Any]] = [whole, chunked]
ways = pytest.mark.parametrize("way", WAYS, ids=["on the loop", "in a thread"])


@ways
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("algorithm", OF_HELLO)
def test_a_body_that_is_what_it_says_is_taken(
    client: httpx.Client, way: Callable[[bytes], Any], field: str, algorithm: str
) -> None:
    headers = {**AS_JSON, field: f"{algorithm}=:{OF_HELLO[algorithm]}:"}
    answer = client.post("/v1/examples/serialize", content=way(HELLO), headers=headers)
    assert answer.status_code == 200, answer.text
    other = client.post("/v1/examples/serialize", content=way(HELLO + b" "), headers=headers)
    assert problem(other) == (400, "digest_mismatch")
    assert field in other.json()["detail"]


@ways
def test_each_digest_has_to_be_right(client: httpx.Client, way: Callable[[bytes], Any]) -> None:
    right = ", ".join(f"{name}=:{digest}:" for name, digest in OF_HELLO.items())
    for wrong in FIELDS:
        headers = {**AS_JSON, **dict.fromkeys(FIELDS, right)}
        taken = client.post("/v1/examples/serialize", content=way(HELLO), headers=headers)
        assert taken.status_code == 200
        headers[wrong] = f"{right}, crc32c=:AAAAAA==:"
        answer = client.post("/v1/examples/serialize", content=way(HELLO), headers=headers)
        assert problem(answer) == (400, "digest_mismatch")


@ways
@pytest.mark.parametrize("value", ["", "md5=:AAAA:", "x=:YQ==:;a;b=1, md5=:AAAA:", "unixsum=:GQU=:"])
def test_digests_of_other_algorithms_are_ignored(
    client: httpx.Client, way: Callable[[bytes], Any], value: str
) -> None:
    headers = {**AS_JSON, "Content-Digest": value}
    answer = client.post("/v1/examples/serialize", content=way(HELLO), headers=headers)
    assert answer.status_code == 200


@ways
@pytest.mark.parametrize(
    "value", ["sha-256", "sha-256=abc", "sha-256=:5f8f04f6:", "sha-256=:AAAA", ",", "md5=1"]
)
def test_a_field_that_cannot_be_read_is_refused(
    client: httpx.Client, way: Callable[[bytes], Any], value: str
) -> None:
    headers = {**AS_JSON, "Content-Digest": value}
    answer = client.post("/v1/examples/serialize", content=way(HELLO), headers=headers)
    assert problem(answer) == (400, "invalid_digest")


@ways
@pytest.mark.parametrize("form", RECORDS_CODECS)
def test_no_form_of_records_stores_what_is_not_what_was_sent(
    client: httpx.Client, form: FormName, way: Callable[[bytes], Any]
) -> None:
    kind = RECORDS_CODECS[form].kinds_in[0]
    features, rows = row_formats.sample(kind, form)
    request = row_formats.written(form, kind, rows)
    body = request.pop("content")
    headers = {**request.pop("headers", {}), "Content-Digest": sha256(body)}
    params = {"from": form, "schema": json.dumps({"features": features}), **request.pop("params", {})}
    dataset = f"/v1/datasets/digests-{form}-{way.__name__}"
    altered = {**headers, "Content-Digest": sha256(body + b"x")}
    for path in ("/v1/records/serialize", f"{dataset}/records"):
        answer = client.post(path, params=params, content=way(body), headers=altered)
        assert problem(answer) == (400, "digest_mismatch")
    assert client.get(dataset).status_code == 404
    stored = client.post(f"{dataset}/records", params=params, content=way(body), headers=headers)
    assert stored.status_code == 201, stored.text
    answer = client.post(f"{dataset}/records", params=params, content=way(body), headers=altered)
    assert problem(answer) == (400, "digest_mismatch")
    published = client.post(f"{dataset}/versions").json()
    assert published["splits"]["train"]["num_records"] == stored.json()["num_records"]


@ways
@pytest.mark.parametrize("form", TENSOR_CODECS)
def test_no_form_of_tensors_is_converted_if_it_is_not_what_was_sent(
    client: httpx.Client, form: str, way: Callable[[bytes], Any]
) -> None:
    request = tensor_formats.written(form, tensor_formats.sample("dense", form))
    body = request.pop("content")
    headers = {**request.pop("headers", {}), "Content-Digest": sha256(body)}
    params = {"from": form, "to": "tensorproto", **request.pop("params", {})}
    taken = client.post("/v1/tensors/serialize", params=params, content=way(body), headers=headers)
    assert taken.status_code == 200, taken.text
    headers["Content-Digest"] = sha256(b"")
    answer = client.post("/v1/tensors/serialize", params=params, content=way(body), headers=headers)
    assert problem(answer) == (400, "digest_mismatch")


@ways
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/datasets/digests-put", b'{"description": "d"}'),
        ("POST", "/v1/datasets/digests-import/imports", b'{"source": "s3://nowhere/a"}'),
        ("POST", "/v1/datasets/digests-publish/versions", b""),
        ("POST", "/v1/records/describe", JSON),
        ("POST", "/v1/tensors/describe", b"[1, 2]"),
        ("POST", "/v1/examples/serialize", HELLO),
        ("POST", "/v1/records/repair", tensor_formats.framed(b"a")),
    ],
)
def test_every_route_with_a_body_looks(
    client: httpx.Client, method: str, path: str, body: bytes, way: Callable[[bytes], Any]
) -> None:
    headers = {**AS_JSON, "Content-Digest": sha256(b"other")}
    answer = client.request(method, path, content=way(body), headers=headers)
    assert problem(answer) == (400, "digest_mismatch")


@ways
def test_digest_covers_the_encoded_body(client: httpx.Client, way: Callable[[bytes], Any]) -> None:
    body = gzip.compress(JSON)
    headers = {**AS_JSON, "Content-Encoding": "gzip"}
    for field in FIELDS:
        for digest, status in ((sha256(body), 200), (sha256(JSON), 400)):
            sent = {**headers, field: digest}
            answer = client.post("/v1/records/serialize", content=way(body), headers=sent)
            assert answer.status_code == status


def test_digest_covers_a_whole_multipart_body(client: httpx.Client) -> None:
    for extra, status in ((b"", 201), (b"\r\n", 400)):
        request = client.build_request(
            "POST",
            "/v1/datasets/digests-multipart/records",
            files=[("data", ("rows.json", JSON, "application/json"))],
        )
        body = request.read()
        request.headers["Content-Digest"] = sha256(body + extra)
        assert client.send(request).status_code == status
    published = client.post("/v1/datasets/digests-multipart/versions").json()
    assert published["splits"]["train"]["num_records"] == len(ROWS)


@ways
def test_a_repeated_append_is_looked_at_again(client: httpx.Client, way: Callable[[bytes], Any]) -> None:
    url = f"/v1/datasets/digests-again-{way.__name__}/records"
    headers = {**AS_JSON, "Idempotency-Key": "a"}
    good, bad = {**headers, "Content-Digest": sha256(JSON)}, {**headers, "Content-Digest": sha256(b"")}
    assert problem(client.post(url, content=way(JSON), headers=bad)) == (400, "digest_mismatch")
    first = client.post(url, content=way(JSON), headers=good)
    assert first.status_code == 201
    assert problem(client.post(url, content=way(JSON), headers=bad)) == (400, "digest_mismatch")
    again = client.post(url, content=way(JSON), headers=good)
    assert again.json()["append_id"] == first.json()["append_id"]


@ways
def test_damage_on_the_way_differs_from_a_fault_of_the_sender(
    client: httpx.Client, way: Callable[[bytes], Any]
) -> None:
    """A bit that flips most often makes the body unreadable, too."""
    body = b'[{"x": 1}, {"x": !}]' + b" " * (100 * KIB)
    for digest, code in (
        (sha256(body), "invalid_json"),
        (sha256(body.replace(b"!", b"1")), "digest_mismatch"),
    ):
        headers = {**AS_JSON, "Content-Digest": digest}
        answer = client.post("/v1/records/serialize", content=way(body), headers=headers)
        assert problem(answer) == (400, code)


def test_an_answer_that_has_begun_is_broken_off(client: httpx.Client) -> None:
    values = np.zeros(MIB, "<f8").tobytes()
    params = {"from": "raw", "dtype": "float64", "shape": str(MIB), "to": "raw"}
    headers = {"Content-Digest": sha256(b"")}
    with client.stream(
        "POST", "/v1/tensors/serialize", params=params, content=chunked(values), headers=headers
    ) as answer:
        assert answer.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            answer.read()
    params["delivery"] = "checked"
    answer = client.post("/v1/tensors/serialize", params=params, content=values, headers=headers)
    assert problem(answer) == (400, "digest_mismatch")


def append_with_trailers(service: Service, announced: bytes, trailers: bytes, dataset: str) -> bytes:
    """The answer to the rows of `JSON` in two chunks, with these fields behind them."""
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (JSON[:9], JSON[9:]))
    head = (
        f"POST /v1/datasets/{dataset}/records HTTP/1.1\r\nHost: {urlsplit(service.url).netloc}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n"
    )
    address = urlsplit(service.url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall(head.encode() + announced + b"\r\n" + pieces + b"0\r\n" + trailers + b"\r\n")
        return read_to_end(connection)


@pytest.mark.parametrize("field", FIELDS)
def test_digest_in_a_trailer_is_compared(service: Service, client: httpx.Client, field: str) -> None:
    dataset = f"digests-{field.lower()}-behind"
    announced = f"Trailer: Expires, {field}\r\n".encode()
    wrong = f"{field}: {sha256(JSON + b' ')}\r\n".encode()
    refused = append_with_trailers(service, announced, wrong, dataset)
    assert problem_of(refused)["code"] == "digest_mismatch"
    assert client.get(f"/v1/datasets/{dataset}").status_code == 404
    of_json = {
        "sha-256": hashlib.sha256(JSON).digest(),
        "sha-512": hashlib.sha512(JSON).digest(),
        "crc32c": crc32c(JSON).to_bytes(4, "big"),
    }
    for algorithm, found in of_json.items():
        digest = base64.b64encode(found).decode()
        right = f"Expires: never\r\n{field}: {algorithm}=:{digest}:\r\n".encode()
        assert append_with_trailers(service, announced, right, dataset).startswith(b"HTTP/1.1 201 ")


def test_an_announced_digest_that_cannot_be_read_stores_nothing(
    service: Service, client: httpx.Client
) -> None:
    announced = b"Trailer: content-digest\r\n"
    trailers = b"Content-Digest: sha-256=abc\r\n"
    refused = append_with_trailers(service, announced, trailers, "digests-unreadable")
    assert problem_of(refused)["code"] == "invalid_digest"
    assert client.get("/v1/datasets/digests-unreadable").status_code == 404


@pytest.mark.parametrize(
    "trailers", [b"", b"Repr-Digest: " + sha256(b"else").encode() + b"\r\n"], ids=["none", "another"]
)
def test_a_proxy_may_drop_the_digest_that_was_announced(service: Service, trailers: bytes) -> None:
    announced = b"Trailer: content-digest\r\n"
    dataset = f"digests-dropped-{len(trailers)}"
    assert append_with_trailers(service, announced, trailers, dataset).startswith(b"HTTP/1.1 201 ")
