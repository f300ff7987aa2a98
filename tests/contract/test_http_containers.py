"""safetensors and the binary form of the Open Inference Protocol over a real connection."""

import io
import json
import struct
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import load, save

OCTETS = {"Content-Type": "application/octet-stream"}
LENGTH = "Inference-Header-Content-Length"
#: tf.io.serialize_tensor(tf.constant([[1, 2], [3, 4]], tf.int64)), written out.
PROTO = bytes.fromhex("0809 1208 12020802 12020802 2220") + struct.pack("<4q", 1, 2, 3, 4)


def request_of(*inputs: tuple[str, str, list[int], bytes], **members: Any) -> tuple[bytes, dict[str, str]]:
    """Body and headers as an Open Inference client sends them."""
    items = [
        {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(data)}}
        for name, datatype, shape, data in inputs
    ]
    text = json.dumps({"inputs": items, **members}).encode()
    return text + b"".join(data for *_, data in inputs), {**OCTETS, LENGTH: str(len(text))}


def outputs_of(answer: httpx.Response) -> tuple[list[dict[str, Any]], bytes]:
    """What an Open Inference client makes of an answer: its outputs, and the bytes behind the JSON."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/octet-stream"
    length = int(answer.headers[LENGTH])
    document = json.loads(answer.content[:length])
    assert document["model_name"]
    return document["outputs"], answer.content[length:]


X = ("x", "INT64", [2, 2], struct.pack("<4q", 1, 2, 3, 4))


def test_a_tensor_goes_in_as_oip(client: httpx.Client) -> None:
    content, headers = request_of(X, outputs=[{"name": "y", "parameters": {"binary_data": True}}])
    answer = client.post("/v1/tensors/serialize", content=content, headers=headers)
    assert (answer.status_code, answer.content) == (200, PROTO), answer.text
    # What libraries put there unasked says nothing about the body.
    headers["Content-Type"] = "application/x-www-form-urlencoded"
    assert client.post("/v1/tensors/serialize", content=content, headers=headers).content == PROTO


def test_a_tensor_goes_out_as_oip_and_its_answer_comes_back(client: httpx.Client) -> None:
    answer = client.post("/v1/tensors/parse", params={"to": "oip"}, content=PROTO)
    outputs, data = outputs_of(answer)
    sized = {"parameters": {"binary_data_size": 32}}
    assert outputs == [{"name": "output_0", "datatype": "INT64", "shape": [2, 2], **sized}]
    assert data == X[3]
    back = client.post(
        "/v1/tensors/serialize", content=answer.content, headers={**OCTETS, LENGTH: answer.headers[LENGTH]}
    )
    assert back.content == PROTO


def test_a_large_answer_carries_the_header_too(client: httpx.Client) -> None:
    content, headers = request_of(("x", "FP32", [800_000], bytes(3_200_000)))
    answer = client.post("/v1/tensors/serialize", params={"to": "oip"}, content=content, headers=headers)
    assert answer.headers.get("transfer-encoding") == "chunked"
    outputs, data = outputs_of(answer)
    assert (outputs[0]["shape"], len(data)) == ([800_000], 3_200_000)


def test_a_header_of_0_is_one_raw_tensor(client: httpx.Client) -> None:
    headers = {**OCTETS, LENGTH: "0"}
    described = {"dtype": "int64", "shape": "2,2"}
    answer = client.post("/v1/tensors/serialize", params=described, content=X[3], headers=headers)
    assert answer.content == PROTO
    refused = client.post("/v1/tensors/serialize", content=X[3], headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (400, "missing_dtype")


@pytest.mark.parametrize("route", ["/v1/tensors/serialize", "/v1/records/serialize"])
@pytest.mark.parametrize(
    ("change", "params", "status", "code"),
    [
        ({LENGTH: "x"}, {}, 400, "invalid_json_length"),
        ({LENGTH: "10000"}, {}, 400, "truncated"),
        ({LENGTH: "9" * 18}, {}, 413, "payload_too_large"),
        ({LENGTH: "10"}, {}, 400, "invalid_json"),
        ({LENGTH: None}, {}, 415, "unsupported_media_type"),
        ({LENGTH: None}, {"from": "oip"}, 400, "missing_json_length"),
        ({"Content-Type": "application/json"}, {}, 400, "invalid_json"),
        ({}, {"compression": "gzip", "to": "oip"}, 400, "inapplicable_parameter"),
    ],
)
def test_a_length_that_is_wrong_or_missing(
    client: httpx.Client,
    route: str,
    change: dict[str, str | None],
    params: dict[str, str],
    status: int,
    code: str,
) -> None:
    content, headers = request_of(X)
    changed = {name: value for name, value in {**headers, **change}.items() if value is not None}
    answer = client.post(route, content=content, headers=changed, params=params)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), problem
    assert code != "missing_json_length" or LENGTH in problem["detail"]


def test_dtype_without_an_oip_or_safetensors_name_is_refused(client: httpx.Client) -> None:
    for to, dtype, data in [("oip", "complex64", [[1, 2]]), ("safetensors", "string", ["a"])]:
        body = {"name": "c", "dtype": dtype, "shape": [1], "data": data}
        answer = client.post("/v1/tensors/serialize", params={"to": to}, json=body)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (422, "not_expressible")
        assert problem["feature"] == "c"


def test_octets_are_asked_for_by_name(client: httpx.Client) -> None:
    octets = {"Accept": "application/octet-stream"}
    assert client.post("/v1/tensors/parse", content=PROTO, headers=octets).headers["tensor-dtype"] == "int64"
    rows = client.post("/v1/records/parse", content=b"", headers=octets)
    assert (rows.status_code, rows.json()["code"]) == (406, "not_acceptable")
    forms = client.get("/v1/forms").json()
    for noun in ("tensors", "records"):
        found = {form["form"]: form for form in forms[noun]}
        for form in ("oip", "safetensors"):
            assert found[form]["in"]
            assert found[form]["out"]
        assert found["safetensors"]["by_short_name_only"]
        assert not found["oip"]["by_short_name_only"]


def test_tensors_as_safetensors_both_ways(client: httpx.Client) -> None:
    arrays = {"w": np.arange(6, dtype="<f4").reshape(2, 3), "b": np.array([1, 2], "<i8")}
    answer = client.post(
        "/v1/tensors/serialize", params={"from": "safetensors", "to": "npz"}, content=save(arrays)
    )
    with np.load(io.BytesIO(answer.content)) as loaded:
        assert {name: loaded[name].tolist() for name in loaded.files} == {
            name: array.tolist() for name, array in arrays.items()
        }
    back = client.post(
        "/v1/tensors/serialize", params={"from": "npz", "to": "safetensors"}, content=answer.content
    )
    assert back.headers["content-type"] == "application/octet-stream"
    assert back.content == save(arrays)


ROWS = [{"x": [1.0, 2.0], "y": 3}, {"x": [4.0, 5.0], "y": 6}, {"x": [7.0, 8.0], "y": 9}]
COLUMNS = {
    "x": np.array([row["x"] for row in ROWS], "<f4"),
    "y": np.array([row["y"] for row in ROWS], "<i8"),
}
OIP_ROWS = request_of(
    ("x", "FP32", [3, 2], COLUMNS["x"].tobytes()), ("y", "INT64", [3], COLUMNS["y"].tobytes())
)


def test_rows_as_oip_and_safetensors_both_ways(client: httpx.Client) -> None:
    wanted = client.post("/v1/records/serialize", json=ROWS).content
    content, headers = OIP_ROWS
    assert client.post("/v1/records/serialize", content=content, headers=headers).content == wanted
    params = {"from": "safetensors"}
    assert client.post("/v1/records/serialize", params=params, content=save(COLUMNS)).content == wanted
    answer = client.post("/v1/records/serialize", params={"to": "oip"}, json=ROWS)
    assert answer.headers["record-count"] == "3"
    outputs, data = outputs_of(answer)
    assert [(item["name"], item["datatype"], item["shape"]) for item in outputs] == [
        ("x", "FP64", [3, 2]),
        ("y", "INT64", [3]),
    ]
    decimals = {**COLUMNS, "x": COLUMNS["x"].astype(np.float64)}
    assert data == decimals["x"].tobytes() + decimals["y"].tobytes()
    answer = client.post("/v1/records/serialize", params={"to": "safetensors"}, json=ROWS)
    assert answer.content == save(decimals)


def test_rows_of_a_part_have_the_headers_of_the_part(client: httpx.Client) -> None:
    content, headers = OIP_ROWS
    schema = {"features": {"x": {"dtype": "float32", "shape": [2]}, "y": {"dtype": "int32"}}}
    part = ("data", ("rows", content, "application/octet-stream", {LENGTH: headers[LENGTH]}))
    files: Any = [("schema", ("schema", json.dumps(schema), "application/json")), part]
    answer = client.post("/v1/records/serialize", params={"to": "json"}, files=files)
    assert answer.json() == ROWS


def test_datasets_are_filled_from_both_and_read_as_both(client: httpx.Client) -> None:
    content, headers = OIP_ROWS
    path = "/v1/datasets/containers/records"
    first = client.post(path, content=content, headers={**headers, "Idempotency-Key": "first"})
    assert (first.status_code, first.json()["num_records"]) == (201, 3), first.text
    again = client.post(path, content=content, headers={**headers, "Idempotency-Key": "first"})
    assert again.json() == first.json()
    params = {"from": "safetensors", "publish": "true"}
    second = client.post(path, params=params, content=save(COLUMNS))
    assert second.json()["splits"]["train"]["num_records"] == 6, second.text
    rows = "/v1/datasets/containers/versions/latest/records"
    outputs, data = outputs_of(client.get(rows, params={"to": "oip", "length": 3}))
    assert [item["name"] for item in outputs] == ["x", "y"]
    assert data == COLUMNS["x"].tobytes() + COLUMNS["y"].tobytes()
    loaded = load(client.get(rows, params={"to": "safetensors", "offset": 3}).content)
    assert {name: array.tolist() for name, array in loaded.items()} == {
        name: array.tolist() for name, array in COLUMNS.items()
    }


def test_a_refused_append_stores_nothing(client: httpx.Client) -> None:
    content, headers = OIP_ROWS
    answer = client.post("/v1/datasets/refused-oip/records", content=content[:-1], headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "truncated")
    answer = client.post(
        "/v1/datasets/refused-oip/records", params={"from": "safetensors"}, content=save(COLUMNS) + b"\0"
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "trailing_bytes")
    versions = client.get("/v1/datasets/refused-oip/versions")
    assert versions.status_code == 404 or versions.json()["versions"] == []
