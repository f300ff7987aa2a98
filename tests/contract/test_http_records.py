"""`/v1/records` and `/v1/examples` over a real connection."""

import gzip
import io
import json
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.tfrecord_frames import frame

SERIALIZE = "/v1/records/serialize"
PARSE = "/v1/records/parse"
JSON = {"Content-Type": "application/json"}
ROWS: list[dict[str, Any]] = [
    {"x": [1.5, 2.0], "label": 3, "name": "a", "ok": True},
    {"x": [2.5, -1.0], "label": -4, "name": "ü", "ok": False},
]
SCHEMA = {
    "features": {
        "x": {"dtype": "float32", "shape": [2]},
        "label": {"dtype": "int64"},
        "name": {"dtype": "text"},
        "ok": {"dtype": "bool"},
    }
}


def only_x(dtype: str) -> dict[str, str]:
    return {"schema": json.dumps({"features": {"x": {"dtype": dtype}}})}


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_rows_become_a_tfrecord_and_come_back(client: httpx.Client) -> None:
    out = client.post(SERIALIZE, json=ROWS)
    assert out.status_code == 200, out.text
    assert out.headers["content-type"] == "application/x-tfrecord"
    assert out.headers["record-count"] == "2"
    back = client.post(PARSE, params={"schema": json.dumps(SCHEMA)}, content=out.content)
    assert back.status_code == 200, back.text
    assert back.headers["content-type"] == "application/x-ndjson"
    assert lines(back.text) == ROWS


def test_without_a_schema_every_feature_is_a_list(client: httpx.Client) -> None:
    out = client.post(SERIALIZE, json=ROWS[:1])
    back = client.post(PARSE, content=out.content)
    assert lines(back.text) == [{"label": [3], "name": [{"b64": "YQ=="}], "ok": [1], "x": [1.5, 2.0]}]


@pytest.mark.parametrize(
    "body",
    [
        {"instances": ROWS},
        {"instances": ROWS, "schema": SCHEMA},
        {"inputs": {key: [row[key] for row in ROWS] for key in ROWS[0]}},
        {"columns": {key: [row[key] for row in ROWS] for key in ROWS[0]}},
        {key: [row[key] for row in ROWS] for key in ROWS[0]},
    ],
)
def test_every_json_form_gives_the_same_bytes(client: httpx.Client, body: Any) -> None:
    expected = client.post(SERIALIZE, json=ROWS).content
    answer = client.post(SERIALIZE, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.content == expected


def test_ndjson_npz_and_gzip(client: httpx.Client) -> None:
    expected = client.post(SERIALIZE, json=[{"x": [1.5, 2.0], "n": 1}, {"x": [0.5, 4.0], "n": 2}]).content
    ndjson = b'{"x": [1.5, 2.0], "n": 1}\n{"x": [0.5, 4.0], "n": 2}'
    answer = client.post(SERIALIZE, content=ndjson, headers={"Content-Type": "application/x-ndjson"})
    assert answer.content == expected
    buffer = io.BytesIO()
    np.savez(buffer, x=np.array([[1.5, 2.0], [0.5, 4.0]], np.float32), n=np.array([1, 2]))
    headers = {"Content-Type": "application/x-npz"}
    assert client.post(SERIALIZE, content=buffer.getvalue(), headers=headers).content == expected
    params = {"compression": "gzip"}
    zipped = client.post(SERIALIZE, content=buffer.getvalue(), headers=headers, params=params)
    assert gzip.decompress(zipped.content) == expected
    parsed = client.post(PARSE, content=zipped.content)
    assert lines(parsed.text) == [{"n": [1], "x": [1.5, 2.0]}, {"n": [2], "x": [0.5, 4.0]}]


def test_the_schema_may_come_as_a_part_before_the_data(client: httpx.Client) -> None:
    files: list[tuple[str, Any]] = [
        ("schema", (None, json.dumps({"features": {"x": {"dtype": "float64", "encoding": "raw"}}}))),
        ("data", ("rows.ndjson", b'{"x": 1.5}\n', "application/x-ndjson")),
    ]
    answer = client.post(SERIALIZE, files=files, params={"to": "ndjson"})
    assert (answer.status_code, lines(answer.text)) == (200, [{"x": 1.5}])
    twice = client.post(SERIALIZE, files=files, params={"schema": json.dumps(SCHEMA)})
    assert (twice.status_code, twice.json()["code"]) == (400, "schema_twice")


@pytest.mark.parametrize(
    ("body", "params", "status", "code", "where"),
    [
        ([{"x": 1}, {"x": [1]}], {}, 422, "schema_conflict", {"feature": "x"}),
        ([{"x": [1, [2]]}], {}, 422, None, {}),
        ([{"x": 1, "y": 2}], only_x("int64"), 422, "schema_conflict", {}),
        ([{"y": 2}], only_x("int64"), 422, None, {}),
        ([{"x": 300}], only_x("int8"), 422, None, {"feature": "x"}),
        ([{"x": 1.5}], only_x("float64"), 422, "lossy_encoding", {}),
        ([{"x": 1}], {"schema": "{"}, 400, None, {}),
        ([{"x": 1}], only_x("int65"), 400, "unknown_dtype", {}),
        ([{"x": 1}], {"schema": "dataset:nowhere"}, 404, "dataset_not_found", {}),
        ({"rows": 1, "instances": []}, {}, 400, "ambiguous_json", {}),
        (7, {}, 400, "ambiguous_json", {}),
    ],
)
def test_bad_rows_are_problems_with_a_place(
    client: httpx.Client, body: Any, params: Any, status: int, code: str | None, where: dict[str, Any]
) -> None:
    answer = client.post(SERIALIZE, json=body, params=params)
    problem = answer.json()
    assert answer.status_code == status, problem
    assert answer.headers["content-type"] == "application/problem+json"
    assert code is None or problem["code"] == code
    assert {key: problem.get(key) for key in where} == where


def test_a_flipped_bit_is_found_where_it_is(client: httpx.Client) -> None:
    good = client.post(SERIALIZE, json=ROWS).content
    bad = bytearray(good)
    bad[len(good) - 10] ^= 1
    answer = client.post(PARSE, content=bytes(bad))
    assert answer.status_code == 400
    assert answer.json()["row"] == 1
    assert "offset" in answer.json()


def test_one_row_one_example(client: httpx.Client) -> None:
    out = client.post("/v1/examples/serialize", content=json.dumps(ROWS[0]), headers=JSON)
    assert out.status_code == 200, out.text
    assert out.headers["content-type"] == "application/protobuf"
    framed = client.post(SERIALIZE, json=ROWS[:1]).content
    assert framed[12:-4] == out.content
    back = client.post("/v1/examples/parse", params={"schema": json.dumps(SCHEMA)}, content=out.content)
    assert back.json() == ROWS[0]
    b64 = client.post("/v1/examples/serialize", params={"to": "b64"}, json=ROWS[0])
    again = client.post("/v1/examples/parse", params={"from": "b64"}, json=b64.json())
    assert again.json() == {"label": [3], "name": [{"b64": "YQ=="}], "ok": [1], "x": [1.5, 2.0]}


def test_known_record_count_is_a_header_of_a_long_response(client: httpx.Client) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.zeros((60_000, 20), np.float32))
    headers = {"Content-Type": "application/x-npz"}
    answer = client.post(SERIALIZE, content=buffer.getvalue(), headers=headers)
    assert "content-length" not in answer.headers
    assert answer.headers["record-count"] == "60000"


def test_the_schema_of_an_example_may_be_a_part(client: httpx.Client) -> None:
    files: list[tuple[str, Any]] = [
        ("schema", (None, json.dumps({"features": {"x": {"dtype": "int8"}}}))),
        ("data", ("row.json", b'{"x": 5}', "application/json")),
    ]
    answer = client.post("/v1/examples/serialize", files=files, params={"to": "json"})
    assert answer.json() == {"x": 5}, answer.text
    encoded = ("data", ("row.json", b"{}", "application/json", {"Content-Encoding": "gzip"}))
    assert client.post("/v1/examples/serialize", files=[encoded]).status_code == 415


def test_envelope_is_not_an_example(client: httpx.Client) -> None:
    answer = client.post("/v1/examples/serialize", json=[ROWS[0]])
    assert answer.status_code == 400


def test_other_records_are_read_and_written_as_bytes(client: httpx.Client) -> None:
    body = b"".join(map(frame, [b"\xff", b"", b"abc"]))
    refused = client.post(PARSE, content=body)
    assert (refused.status_code, refused.json()["code"]) == (400, "malformed_example")
    assert "?message=bytes" in refused.json()["detail"]
    parsed = client.post(PARSE, params={"message": "bytes"}, content=body)
    assert parsed.status_code == 200, parsed.text
    assert lines(parsed.text) == [{"value": {"b64": text}} for text in ("/w==", "", "YWJj")]
    ndjson = {"Content-Type": "application/x-ndjson"}
    back = client.post(SERIALIZE, params={"message": "bytes"}, content=parsed.content, headers=ndjson)
    assert (back.status_code, back.content) == (200, body)
    described = client.post(
        "/v1/records/describe", params={"message": "bytes", "from": "tfrecord"}, content=body
    )
    assert described.json()["num_records"] == 3
    assert described.json()["features"]["value"]["max_length"] == 3
    b64 = client.post(PARSE, params={"message": "bytes", "to": "b64"}, content=body)
    assert b64.json() == {"instances": [{"b64": "/w=="}, {"b64": ""}, {"b64": "YWJj"}]}
    wrong = client.post(SERIALIZE, params={"message": "bytes", "to": "csv"}, json=[{"value": "a"}])
    assert (wrong.status_code, wrong.json()["code"]) == (400, "inapplicable_parameter")
