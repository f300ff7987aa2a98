"""What a client hears that sends one form as another: what it is, and how to send it."""

import httpx
import pytest

CSV = b"x,y\n1,2\n3,4\n"
NDJSON = b'{"x": 1}\n{"x": 2}\n'

#: Route, Content-Type, body; status, code, and what the answer says.
MISTAKEN = {
    "a raw tensor without a dtype": (
        "/v1/tensors/serialize",
        "application/octet-stream",
        bytes(8),
        (415, "unsupported_media_type", "add ?dtype=&shape="),
    ),
    "NDJSON as JSON": (
        "/v1/records/serialize",
        "application/json",
        NDJSON,
        (400, "invalid_json", "This is NDJSON, an object a line"),
    ),
    "NDJSON with CRLF as JSON": (
        "/v1/records/describe",
        "application/json",
        NDJSON.replace(b"\n", b"\r\n"),
        (400, "invalid_json", "Send it as application/x-ndjson"),
    ),
    "NDJSON as JSON, appended": (
        "/v1/datasets/mistaken/records",
        "application/json",
        NDJSON,
        (400, "invalid_json", "Send it as application/x-ndjson"),
    ),
    "two objects in a line": (
        "/v1/records/serialize",
        "application/json",
        NDJSON.replace(b"\n", b""),
        (400, "invalid_json", "Not JSON: Extra data"),
    ),
    "CSV as TFRecord": (
        "/v1/records/parse",
        "application/x-tfrecord",
        CSV,
        (400, "corrupt_record", "This is no TFRecord file"),
    ),
    "a little CSV as TFRecord": (
        "/v1/records/parse",
        "application/x-tfrecord",
        b"x\n1\n",
        (400, "truncated", "This is no TFRecord file"),
    ),
    "a little CSV as tensors of TFRecord": (
        "/v1/tensors/parse?from=tfrecord",
        "",
        b"x\n1\n",
        (400, "truncated", "name another format with its media type or ?from="),
    ),
    "CSV by curl -d, which names no form": (
        "/v1/records/parse",
        "application/x-www-form-urlencoded",
        CSV,
        (400, "corrupt_record", "Name another format with its media type or ?from="),
    ),
    "tensors of CSV as TFRecord": (
        "/v1/tensors/parse?from=tfrecord",
        "",
        CSV,
        (400, "corrupt_record", "This is no TFRecord file"),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKEN)
def test_the_error_says_how_to_send_it(client: httpx.Client, mistake: str) -> None:
    route, content_type, body, (status, code, said) = MISTAKEN[mistake]
    headers = {"Content-Type": content_type} if content_type else {}
    answer = client.post(route, headers=headers, content=body)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), problem
    assert said in problem["detail"]


def test_remedy_in_the_error_works(client: httpx.Client) -> None:
    raw = client.post(
        "/v1/tensors/serialize?dtype=float32&shape=2&to=json",
        headers={"Content-Type": "application/octet-stream"},
        content=bytes(8),
    )
    assert raw.json()["data"] == [0.0, 0.0]
    for body in (NDJSON, b"\xef\xbb\xbf" + NDJSON):  # PowerShell and Excel put a byte order mark in front
        rows = client.post("/v1/records/serialize?from=ndjson&to=json", content=body)
        assert rows.json() == [{"x": 1}, {"x": 2}]
