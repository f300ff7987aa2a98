"""`/ui/file`: what the page says of a file, and what it offers to make of it."""

import base64
import gzip
import html
import io
import math
import re

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

from tests.support.images import encode
from tests.support.tfrecord_frames import frame

NDJSON = b'{"id": 1, "name": "ann"}\n{"id": 2, "name": "bob"}\n'
ROWS = pa.table({"id": [1, 2], "name": ["ann", "bob"]})


def of_arrow() -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, ROWS.schema) as writer:
        writer.write_table(ROWS)
    return sink.getvalue()


def of_parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(ROWS, sink)
    return sink.getvalue()


def of_numpy() -> bytes:
    sink = io.BytesIO()
    np.save(sink, np.arange(6, dtype=np.int32).reshape(2, 3))
    return sink.getvalue()


def of_npz() -> bytes:
    sink = io.BytesIO()
    np.savez(sink, a=np.arange(3), b=np.ones(2))
    return sink.getvalue()


FILES = {
    "rows.ndjson": (NDJSON, "ndjson", "ann"),
    "rows.ndjson.gz": (gzip.compress(NDJSON, mtime=0), "in gzip", "ann"),
    "rows.json": (b'[{"id": 1, "name": "ann"}]', "json", "ann"),
    "rows.csv": (b"id,name\n1,ann\n", "csv", "ann"),
    "rows.tsv": (b"id\tname\n1\tann\n", "csv", "ann"),
    "rows.arrow": (of_arrow(), "arrow", "ann"),
    "rows.parquet": (of_parquet(), "parquet", "ann"),
    "any.tfrecord": (frame(b"\xff\x01") + frame(b"\xff\x02"), "tfrecord", "ff 01"),
    "other.tfrecord": (frame(b"\x0a\x00\x12\x02hi"), "its records are not Examples", "0a 00 12 02"),
    "array.npy": (of_numpy(), "npy", "as a picture"),
    "arrays.npz": (of_npz(), "npz", "1, 1"),
    "arrays.safetensors": (
        safetensors.numpy.save({"w": np.ones(4, np.float32)}),
        "safetensors",
        "1, 1, 1, 1",
    ),
    "one.pb": (bytes.fromhex("08031204120208023a02070b"), "tensorproto", "int32"),
    "picture.png": (encode(np.zeros((4, 5, 3), np.uint8), "png"), "png", "4x5x3"),
    "picture.jpeg": (encode(np.zeros((4, 5, 3), np.uint8), "jpeg"), "jpeg", "4x5x3"),
}


def look(client: httpx.Client, name: str, data: bytes, **headers: str) -> httpx.Response:
    return client.post("/ui/file", files={"file": (name, data)}, headers={"Accept": "text/html", **headers})


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_what_its_bytes_say(client: httpx.Client, name: str) -> None:
    data, *said = FILES[name]
    answer = look(client, name, data)
    assert answer.status_code == 200
    assert all(part in answer.text for part in said)
    assert "all of it can be read" in answer.text
    assert "no-store" in answer.headers["cache-control"]


@pytest.mark.parametrize("name", FILES)
def test_every_conversion_that_is_offered_is_one(client: httpx.Client, name: str) -> None:
    """Not every value fits into every format, but each route knows what it is asked for."""
    data = FILES[name][0]
    offered = re.findall(r'data-send="([^"]+)" data-coding="([^"]*)"', look(client, name, data).text)
    assert len(offered) >= 4
    done = 0
    for path, coding in offered:
        headers = {"Content-Type": "application/octet-stream"} | (
            {"Content-Encoding": coding} if coding else {}
        )
        answer = client.post(html.unescape(path), content=data, headers=headers)
        assert answer.status_code in (200, 422), (path, answer.text)
        done += answer.status_code == 200
    assert done >= 3


def of_each_kind() -> list[dict[str, object]]:
    """Rows that a TFRecord gives back without a schema."""
    image = base64.b64encode(encode(np.full((30, 40, 3), 90, np.uint8), "png")).decode()
    long_text = "No text is too long to be read. " * 20
    return [
        {
            "id": k,
            "image": {"b64": image},
            "wave": [math.sin(n / 9) for n in range(100)],
            "text": long_text,
            "blob": {"b64": "/wD/AP8="},
            "tags": ["a", "b"][: k % 3],
        }
        for k in range(3)
    ]


def test_rows_of_a_file_are_shown_as_those_of_a_version_are(client: httpx.Client) -> None:
    rows = client.post("/v1/records/serialize", json=of_each_kind()).raise_for_status().content
    said = look(client, "rows.tfrecord", rows).text
    assert said.count('<img src="data:image/') == 3
    assert len(re.findall(r'<polyline points="[^"]{200}', said)) == 3
    assert said.count('<details class="long">') == 3
    assert all(part in said for part in ("ff 00 ff 00 ff", "[“a”, “b”]", "PNG 40 \N{MULTIPLICATION SIGN} 30"))
    # A length that all rows have is told, and what has one value is one.
    assert '<span class="number">2</span>' in said
    assert '<td class="nowrap">100</td>' in said


def test_damaged_file_is_described(client: httpx.Client) -> None:
    text = look(client, "cut.ndjson", NDJSON + b'{"id": ').text
    assert all(part in text for part in ("damaged", "ndjson", "invalid_json", "row 2"))
    empty = look(client, "none", b"").text
    assert "not known" in empty


def test_a_page_of_another_origin_may_not_send_a_file(client: httpx.Client) -> None:
    refused = look(client, "rows.ndjson", NDJSON, **{"Sec-Fetch-Site": "cross-site"})
    assert refused.status_code == 403
    assert "ann" not in refused.text


@pytest.mark.parametrize(
    "body",
    [b"", b"--x\r\n", b'--x\r\nContent-Disposition: form-data; name="other"\r\n\r\nabc\r\n--x--\r\n'],
    ids=["nothing", "cut", "another field"],
)
def test_upload_without_a_file_is_refused(client: httpx.Client, body: bytes) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=x", "Accept": "text/html"}
    answer = client.post("/ui/file", content=body, headers=headers)
    assert (answer.status_code, "malformed_multipart" in answer.text) == (400, True)


def test_the_lines_that_load_a_compressed_tfrecord_open_it(client: httpx.Client) -> None:
    params = {"to": "tfrecord", "compression": "gzip"}
    body = client.post("/v1/records/serialize", json=[{"x": 1}], params=params).content
    found = html.unescape(look(client, "rows.tfrecord.gz", body).text)
    assert "in gzip" in found
    assert found.count('compression_type="GZIP"') == 2, "for tf.data, and for PyTorch"
