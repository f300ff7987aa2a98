"""Encoded bodies and encoded answers over a real connection; rows 14-17 of the catalogue of faults."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import random
import socket
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from app.codecs.forms import RECORDS_CODECS, TENSOR_CODECS, FormName
from app.domain.limits import KIB, MIB
from app.main import create_app_with
from app.settings import Settings
from openapi.recorded import serving
from tests.support import row_formats, tensor_formats
from tests.support.service import Service, needs_curl, ready
from tests.support.zstandard import zstd

ENCODE: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": lambda data: zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1}),
}
DECODE: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "zstd": zstd.decompress}
CODINGS = list(ENCODE)

ROWS = [{"x": [number / 7, -number], "name": f"row {number}"} for number in range(200)]
NDJSON = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
AS_NDJSON = {"Content-Type": "application/x-ndjson"}

#: What a body may be, encoded or not, in the service that bombs are sent to.
MAX_BODY = 16 * MIB


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that takes little."""
    with ready(tmp_path_factory.mktemp("bounded"), SHARDSMITH_MAX_BODY_BYTES=str(MAX_BODY)) as started:
        yield started


@pytest.fixture(scope="module")
def bounded_client(bounded: Service) -> Iterator[httpx.Client]:
    """A client of that service."""
    with httpx.Client(base_url=bounded.url, timeout=60) as opened:
        yield opened


def sent(client: httpx.Client, path: str, body: bytes, coding: str, **request: Any) -> httpx.Response:
    headers = {**AS_NDJSON, "Content-Encoding": coding, **request.pop("headers", {})}
    return client.post(path, content=body, headers=headers, **request)


def code(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text[:200]
    return answer.status_code, answer.json()["code"]


def raw(client: httpx.Client, method: str, path: str, **request: Any) -> tuple[httpx.Response, bytes]:
    """An answer, and its bytes as they came: from a client whose hooks have not read it before."""
    with (
        httpx.Client(base_url=client.base_url, headers=client.headers, timeout=client.timeout) as unhooked,
        unhooked.stream(method, path, **request) as answer,
    ):
        return answer, b"".join(answer.iter_raw())


# Bodies.


@pytest.mark.sampled(keep=("json",))
@pytest.mark.parametrize("form", TENSOR_CODECS)
def test_tensors_in_every_form_may_be_encoded(client: httpx.Client, form: str) -> None:
    request = tensor_formats.written(form, tensor_formats.sample("dense", form))
    params = {"from": form, "to": "tensorproto", **request.pop("params", {})}
    plain = client.post("/v1/tensors/serialize", params=params, **request)
    assert plain.status_code == 200, plain.text
    for coding in CODINGS:
        body = ENCODE[coding](request["content"])
        headers = {**request.get("headers", {}), "Content-Encoding": coding}
        answer = client.post("/v1/tensors/serialize", params=params, content=body, headers=headers)
        assert answer.content == plain.content
        for broken, expected in broken_bodies(body):
            answer = client.post("/v1/tensors/serialize", params=params, content=broken, headers=headers)
            assert code(answer) in expected


@pytest.mark.sampled(keep=("ndjson",))
@pytest.mark.parametrize("form", RECORDS_CODECS)
def test_records_in_every_form_may_be_encoded(client: httpx.Client, form: FormName) -> None:
    kind = RECORDS_CODECS[form].kinds_in[0]
    features, rows = row_formats.sample(kind, form)
    request = row_formats.written(form, kind, rows)
    params = {
        "from": form,
        "to": "tfrecord",
        "schema": json.dumps({"features": features}),
        **request.pop("params", {}),
    }
    plain = client.post("/v1/records/serialize", params=params, **request)
    assert plain.status_code == 200, plain.text
    for coding in CODINGS:
        body = ENCODE[coding](request["content"])
        headers = {**request.get("headers", {}), "Content-Encoding": coding}
        answer = client.post("/v1/records/serialize", params=params, content=body, headers=headers)
        assert answer.content == plain.content
        for broken, expected in broken_bodies(body):
            answer = client.post("/v1/records/serialize", params=params, content=broken, headers=headers)
            assert code(answer) in expected


def broken_bodies(body: bytes) -> Iterator[tuple[bytes, set[tuple[int, str]]]]:
    """FAULTS 17: no form stops reading before the end of what it was sent."""
    yield body[:-1], {(400, "truncated")}
    yield body[:-4] + bytes(byte ^ 1 for byte in body[-4:]), {(400, "invalid_compression")}
    yield body + b"garbage", {(400, "trailing_bytes")}


@pytest.mark.parametrize("coding", CODINGS)
def test_fault_17_a_body_cut_short_anywhere_stores_nothing(client: httpx.Client, coding: str) -> None:
    body = ENCODE[coding](NDJSON)
    path = f"/v1/datasets/cut-{coding}"
    for tenth in range(10):
        answer = sent(client, f"{path}/records", body[: len(body) * tenth // 10], coding)
        assert code(answer) == (400, "truncated")
    for broken, expected in broken_bodies(body):
        assert code(sent(client, f"{path}/records", broken, coding)) in expected
    assert client.get(path).status_code == 404


def test_routes_that_describe_repair_and_create_take_encoded_bodies(client: httpx.Client) -> None:
    for coding in CODINGS:
        encode = ENCODE[coding]
        described = sent(client, "/v1/records/describe", encode(NDJSON), coding)
        assert described.json()["num_records"] == len(ROWS)
        described = sent(client, "/v1/tensors/describe", encode(b"[1, 2]"), coding, params={"from": "json"})
        assert described.json()[0]["num_elements"] == 2
        frames = tensor_formats.framed(b"a", b"b")
        repaired = client.post(
            "/v1/records/repair", content=encode(frames), headers={"Content-Encoding": coding}
        )
        assert (repaired.content, repaired.headers["lost-bytes"]) == (frames, "0")
        row = sent(client, "/v1/examples/serialize", encode(b'{"x": 5}'), coding, params={"from": "json"})
        assert row.status_code == 200
        created = client.put(
            f"/v1/datasets/created-{coding}",
            content=encode(b'{"description": "d"}'),
            headers={"Content-Encoding": coding, "Content-Type": "application/json"},
        )
        assert created.json()["description"] == "d"


def test_damaged_content_encoding_is_not_salvaged(client: httpx.Client) -> None:
    frames = tensor_formats.framed(*row_formats.messages("dense", row_formats.ROWS["dense"]))
    body = gzip.compress(gzip.compress(frames))
    for path in ("/v1/records/repair", "/v1/records/parse?damaged=skip"):
        whole = client.post(path, content=body, headers={"Content-Encoding": "gzip"})
        assert (whole.status_code, whole.headers["lost-bytes"]) == (200, "0")
        broken = client.post(path, content=body[:-1], headers={"Content-Encoding": "gzip"})
        assert code(broken) == (400, "truncated")


def test_file_compression_and_content_encoding_combine(client: httpx.Client) -> None:
    frames = tensor_formats.framed(*row_formats.messages("dense", row_formats.ROWS["dense"]))
    plain = client.post("/v1/records/parse", content=frames).content
    for file in (gzip.compress(frames), zlib.compress(frames)):
        for coding in CODINGS:
            headers = {"Content-Encoding": coding}
            assert (
                client.post("/v1/records/parse", content=ENCODE[coding](file), headers=headers).content
                == plain
            )
    packed = sent(
        client, "/v1/records/serialize", gzip.compress(NDJSON), "gzip", params={"compression": "gzip"}
    )
    again = client.post("/v1/records/serialize", content=NDJSON, headers=AS_NDJSON)
    assert gzip.decompress(packed.content) == again.content
    assert "content-encoding" not in packed.headers


def test_members_of_gzip_are_joined(client: httpx.Client) -> None:
    lines = NDJSON.splitlines(keepends=True)
    body = b"".join(gzip.compress(line) for line in lines)
    plain = client.post("/v1/records/serialize", content=NDJSON, headers=AS_NDJSON)
    assert sent(client, "/v1/records/serialize", body, "gzip").content == plain.content


def test_a_multipart_body_is_encoded_as_a_whole(client: httpx.Client) -> None:
    files: list[tuple[str, Any]] = [
        ("schema", (None, json.dumps({"features": {"x": {"dtype": "int8"}}}))),
        ("data", ("row.json", b'{"x": 5}', "application/json")),
    ]
    request = client.build_request("POST", "/v1/examples/serialize", files=files)
    content_type = request.headers["content-type"]
    for coding in CODINGS:
        answer = sent(
            client,
            "/v1/examples/serialize",
            ENCODE[coding](request.read()),
            coding,
            params={"to": "json"},
            headers={"Content-Type": content_type},
        )
        assert answer.json() == {"x": 5}


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "gzip, zstd", "identity, compress"])
def test_fault_16_stacked_and_unknown_encodings_are_refused_with_what_there_is(
    client: httpx.Client, encoding: str
) -> None:
    for path in ("/v1/records/serialize", "/v1/datasets/encoded/records"):
        answer = sent(client, path, gzip.compress(NDJSON), encoding)
        assert code(answer) == (415, "unsupported_content_encoding")
        assert answer.headers["accept-encoding"] == "gzip, deflate, zstd"
        assert answer.json()["accepted"] == ["gzip", "deflate", "zstd"]
    assert client.get("/v1/datasets/encoded").status_code == 404


def test_fault_16_codings_on_two_lines_are_stacked_too(client: httpx.Client) -> None:
    lines = [("Content-Encoding", "gzip"), ("Content-Encoding", "gzip"), *AS_NDJSON.items()]
    answer = client.post("/v1/records/serialize", content=gzip.compress(NDJSON), headers=lines)
    assert code(answer) == (415, "unsupported_content_encoding")


def test_identity_before_a_coding_hides_nothing(client: httpx.Client) -> None:
    """Nor is the length of the encoded body taken for that of the tensor."""
    lines = [("Content-Encoding", "identity"), ("Content-Encoding", "gzip")]
    params = {"from": "raw", "dtype": "uint8", "to": "json"}
    answer = client.post("/v1/tensors/parse", content=gzip.compress(bytes(500)), headers=lines, params=params)
    assert answer.json()["shape"] == [500]


def test_other_refusals_of_a_body_do_not_speak_of_encodings(client: httpx.Client) -> None:
    """RFC 9110, section 12.5.3: Accept-Encoding is for those 415 alone that an encoding caused."""
    for headers in ({"Content-Type": "image/png"}, {**AS_NDJSON, "Content-Transfer-Encoding": "base64"}):
        answer = client.post("/v1/records/serialize", content=NDJSON, headers=headers)
        assert answer.status_code == 415
        assert "accept-encoding" not in answer.headers


def test_deflate_is_the_format_of_zlib(client: httpx.Client) -> None:
    body = zlib.compress(NDJSON)[2:-4]
    assert code(sent(client, "/v1/records/serialize", body, "deflate")) == (400, "invalid_compression")


def bomb(coding: str, num_mib: int) -> bytes:
    """Rows of which each says little."""
    block = b'{"a":1}\n' * (MIB // 8)
    if coding == "zstd":
        compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.compression_level: 3})
        return b"".join(compressor.compress(block) for _ in range(num_mib)) + compressor.flush()
    deflater = zlib.compressobj(9, zlib.DEFLATED, 31 if coding == "gzip" else 15)
    return b"".join(deflater.compress(block) for _ in range(num_mib)) + deflater.flush()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("coding", "num_mib", "expected"),
    [
        ("gzip", 256, "payload_too_large"),
        ("deflate", 256, "payload_too_large"),
        ("zstd", 4096, "payload_too_large"),
        ("zstd", 16, "compression_ratio_exceeded"),
    ],
)
def test_fault_14_15_a_bomb_is_refused_in_bounded_memory_and_stores_nothing(
    bounded: Service, bounded_client: httpx.Client, coding: str, num_mib: int, expected: str
) -> None:
    warm = sent(bounded_client, "/v1/datasets/warm/records", ENCODE[coding](NDJSON), coding)
    assert warm.status_code == 201
    before = bounded.resident_mib()
    body = bomb(coding, num_mib)
    assert len(body) < MIB
    answer = sent(bounded_client, f"/v1/datasets/bomb-{coding}/records", body, coding)
    assert code(answer) == (413, expected)
    assert bounded.resident_mib() - before < 96
    assert bounded_client.get(f"/v1/datasets/bomb-{coding}").status_code == 404
    assert bounded_client.get("/livez").status_code == 200


def test_fault_15_a_window_that_is_too_large_is_refused(bounded_client: httpx.Client) -> None:
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    body = compressor.compress(NDJSON) + compressor.flush()
    answer = sent(bounded_client, "/v1/records/serialize", body, "zstd")
    assert code(answer) == (413, "compression_window_exceeded")


def test_decoded_body_over_the_limit_is_413(bounded_client: httpx.Client) -> None:
    noise = random.Random(1).randbytes(MAX_BODY // 2).hex().encode()
    params = {"from": "raw", "to": "raw", "dtype": "uint8", "delivery": "checked"}
    for extra, status in ((b"", 200), (b"a", 413)):
        for body, headers in (
            (noise + extra, {}),
            (gzip.compress(noise + extra), {"Content-Encoding": "gzip"}),
        ):
            params["shape"] = str(len(noise + extra))
            answer = bounded_client.post("/v1/tensors/parse", content=body, params=params, headers=headers)
            assert answer.status_code == status
            assert status == 200 or answer.json()["code"] == "payload_too_large"


def test_a_retry_is_a_replay_however_it_is_encoded(client: httpx.Client) -> None:
    path = "/v1/datasets/replayed/records"
    key = {"Idempotency-Key": "one"}
    first = client.post(path, content=NDJSON, headers={**AS_NDJSON, **key})
    assert first.status_code == 201
    for coding in CODINGS:
        again = sent(client, path, ENCODE[coding](NDJSON), coding, headers=key)
        assert (again.status_code, again.json()) == (201, first.json())
        other = sent(client, path, ENCODE[coding](NDJSON[:-1] + b" \n"), coding, headers=key)
        assert code(other) == (422, "idempotency_key_reused")


# Answers.


def test_text_is_encoded_for_who_asks(client: httpx.Client) -> None:
    request: dict[str, Any] = {"content": NDJSON, "headers": AS_NDJSON, "params": {"to": "json"}}
    request["headers"] = {**AS_NDJSON, "Accept-Encoding": "identity"}
    answer, plain = raw(client, "POST", "/v1/records/serialize", **request)
    assert "content-encoding" not in answer.headers
    assert answer.headers["vary"] == "Accept, Accept-Encoding"
    for coding in DECODE:
        request["headers"] = {**AS_NDJSON, "Accept-Encoding": coding}
        answer, body = raw(client, "POST", "/v1/records/serialize", **request)
        assert answer.headers["content-encoding"] == coding
        assert answer.headers["vary"] == "Accept, Accept-Encoding"
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["content-length"] == str(len(body))
        assert DECODE[coding](body) == plain
        # RFC 9530, section 3: the digest is that of the representation, and so of what is encoded.
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        assert answer.headers["repr-digest"] == f"sha-256=:{digest}:"


def test_numbers_in_binary_are_encoded_where_identity_is_refused_alone(client: httpx.Client) -> None:
    request: dict[str, Any] = {"content": NDJSON, "headers": AS_NDJSON}
    plain = client.post("/v1/records/serialize", **request).content
    for accepted, coding in (("gzip", None), ("zstd, identity;q=0.5", None), ("gzip, identity;q=0", "gzip")):
        request["headers"] = {**AS_NDJSON, "Accept-Encoding": accepted}
        answer, body = raw(client, "POST", "/v1/records/serialize", **request)
        assert answer.headers.get("content-encoding") == coding
        assert (body if coding is None else DECODE[coding](body)) == plain


def test_small_answers_are_sent_as_they_are(client: httpx.Client) -> None:
    small = client.post("/v1/tensors/parse", params={"from": "json"}, content=b"[1, 2]")
    assert "content-encoding" not in small.headers
    large = client.post("/v1/tensors/parse", params={"from": "json"}, content=b"[%s1]" % (b"1," * KIB))
    assert large.headers["content-encoding"] == "gzip"  # as httpx asks by itself
    assert large.json()["shape"] == [KIB + 1]


def test_problems_are_sent_as_they_are(client: httpx.Client) -> None:
    headers = {"Accept-Encoding": "gzip, identity;q=0"}
    answer = client.post("/v1/tensors/parse", params={"from": "json"}, content=b"[", headers=headers)
    assert answer.status_code == 400
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [("br, identity;q=0", (406, "not_acceptable")), ("gzip;q=7", (400, "invalid_accept"))],
)
def test_unavailable_coding_is_406(client: httpx.Client, accepted: str, expected: tuple[int, str]) -> None:
    headers = {"Accept-Encoding": accepted}
    assert code(client.get("/v1/datasets", headers=headers)) == expected


@pytest.fixture(scope="module")
def published(client: httpx.Client) -> dict[str, Any]:
    answer = client.post(
        "/v1/datasets/encoded-reads/records", content=NDJSON, headers=AS_NDJSON, params={"publish": "true"}
    )
    assert answer.status_code == 201
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["vary"] == "Accept-Encoding"
    manifest: dict[str, Any] = answer.json()
    return manifest


def test_head_says_what_get_sends(client: httpx.Client, published: dict[str, Any]) -> None:
    del published
    for path in (
        "/v1/datasets/encoded-reads/versions/latest",
        "/v1/datasets/encoded-reads/versions/latest/records",
    ):
        for accepted in ("identity", "gzip", "zstd"):
            head, get = (
                client.request(method, path, headers={"Accept-Encoding": accepted})
                for method in ("HEAD", "GET")
            )
            for name in ("content-encoding", "content-length", "repr-digest", "vary"):
                assert head.headers.get(name) == get.headers.get(name)
            assert get.headers.get("content-encoding", "identity") == accepted


def test_files_are_never_encoded(client: httpx.Client, published: dict[str, Any]) -> None:
    (shard,) = published["splits"]["train"]["shards"]
    version = "/v1/datasets/encoded-reads/versions/latest"
    for path in (f"{version}/shards/{shard['file']}", f"{version}/files/features.json", f"{version}/tar"):
        for method in ("HEAD", "GET"):
            answer = client.request(method, path, headers={"Accept-Encoding": "gzip, zstd, identity;q=0.1"})
            assert answer.status_code == 200
            assert "content-encoding" not in answer.headers
            assert answer.headers["accept-ranges"] == "bytes"
            refused = client.request(method, path, headers={"Accept-Encoding": "gzip, identity;q=0"})
            assert refused.status_code == 406


# Streams.


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.parametrize("coding", DECODE)
def test_encoded_output_begins_while_encoded_input_arrives(service: Service, coding: str) -> None:
    noise = random.Random(2)
    rows = [b'{"x": "%s"}\n' % noise.randbytes(100).hex().encode() for _ in range(60_000)]
    half = b"".join(rows[: len(rows) // 2]), b"".join(rows[len(rows) // 2 :])
    compressor = zstd.ZstdCompressor()
    first = compressor.compress(half[0]) + compressor.flush(zstd.ZstdCompressor.FLUSH_BLOCK)
    rest = compressor.compress(half[1]) + compressor.flush()
    address = urlsplit(service.url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall(
            b"POST /v1/records/serialize?from=ndjson&to=ndjson HTTP/1.1\r\n"
            b"Host: localhost\r\nConnection: close\r\n"
            b"Transfer-Encoding: chunked\r\nContent-Encoding: zstd\r\n"
            b"Accept-Encoding: " + coding.encode() + b"\r\n\r\n" + chunk(first)
        )
        received = connection.recv(64 * KIB)  # would wait for ever, if the rest had to come first
        assert b"200 OK" in received
        assert b"content-encoding: " + coding.encode() in received
        connection.sendall(chunk(rest) + b"0\r\n\r\n")
        while piece := connection.recv(MIB):
            received += piece
    body = DECODE[coding](dechunked(received.partition(b"\r\n\r\n")[2]))
    assert [json.loads(line) for line in body.splitlines()] == [json.loads(row) for row in rows]


def dechunked(body: bytes) -> bytes:
    parts: list[bytes] = []
    position = 0
    while True:
        end = body.index(b"\r\n", position)
        size = int(body[position:end], 16)
        if not size:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + size])
        position = end + size + 4


@pytest.mark.exhaustive
def test_memory_does_not_grow_with_what_is_encoded(service: Service, client: httpx.Client) -> None:
    """Neither where it is decoded, nor where it is encoded."""

    def converted(num_mib: int) -> int:
        body = zlib.compressobj(1, zlib.DEFLATED, 31)
        block = b"".join(b'{"x": %d, "y": [1, 2, 3]}\n' % number for number in range(35_000))

        def pieces() -> Iterator[bytes]:
            for _ in range(num_mib):
                yield body.compress(block)
            yield body.flush()

        headers = {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}
        params = {"from": "ndjson", "to": "ndjson"}
        size = 0
        with client.stream(
            "POST", "/v1/records/serialize", content=pieces(), headers=headers, params=params
        ) as answer:
            assert answer.headers["content-encoding"] == "gzip"
            for piece in answer.iter_bytes(MIB):
                size += len(piece)
        return size

    converted(16)
    before = service.resident_mib()
    assert converted(128) > 64 * MIB
    assert service.resident_mib() - before < 64


@needs_curl
@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_curl_sends_and_takes_it(service: Service, tmp_path: Path, coding: str) -> None:
    body = tmp_path / "body"
    body.write_bytes(ENCODE[coding](NDJSON))
    url = f"{service.url}/v1/records/serialize?from=ndjson&to=ndjson"
    curl = ["curl", "-sS", "--compressed", "-H", f"Content-Encoding: {coding}", "--data-binary", f"@{body}"]
    answer = subprocess.run([*curl, "-D", str(tmp_path / "head"), url], capture_output=True, check=True)
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [row["name"] for row in rows] == [row["name"] for row in ROWS]
    assert "content-encoding: " in (tmp_path / "head").read_text().lower()


def test_where_answers_are_not_encoded_bodies_may_be_all_the_same() -> None:
    app = create_app_with(Settings(storage_url="memory://", encode_answers=False))
    every = {**AS_NDJSON, "Accept-Encoding": "gzip, zstd"}
    with serving(app) as client:
        for body, headers in (
            (NDJSON, every),  # small enough for the fast path
            (NDJSON * 30, every),
            (gzip.compress(NDJSON), {**every, "Content-Encoding": "gzip"}),
        ):
            answer = client.post("/v1/records/serialize?to=json", content=body, headers=headers)
            assert answer.status_code == 200
            assert "content-encoding" not in answer.headers
            assert answer.json()[0] == {"x": [0.0, 0.0], "name": "row 0"}
        refused = {**AS_NDJSON, "Accept-Encoding": "gzip, identity;q=0"}
        for body in (NDJSON, NDJSON * 30):
            answer = client.post("/v1/records/serialize?to=json", content=body, headers=refused)
            assert (answer.status_code, answer.json()["served"]) == (406, ["identity"])
