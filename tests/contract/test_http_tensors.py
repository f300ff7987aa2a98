"""`/v1/tensors` over a real connection: forms, negotiation, headers, errors."""

import io
import struct
from typing import Any

import httpx
import numpy as np
import pytest

SERIALIZE = "/v1/tensors/serialize"
PARSE = "/v1/tensors/parse"
JSON = {"Content-Type": "application/json"}
NPY = {"Content-Type": "application/x-npy"}
#: tf.io.serialize_tensor(tf.constant([[1, 2], [3, 4]], tf.int64)), written out.
PROTO = bytes.fromhex("0809 1208 12020802 12020802 2220") + struct.pack("<4q", 1, 2, 3, 4)


def npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_json_becomes_a_tensor_proto(client: httpx.Client) -> None:
    answer = client.post(SERIALIZE, content=b"[[1, 2], [3, 4]]", headers=JSON)
    assert (answer.status_code, answer.content) == (200, PROTO)
    assert answer.headers["content-type"] == "application/protobuf"
    assert answer.headers["content-length"] == str(len(PROTO))
    assert answer.headers["vary"] == "Accept, Accept-Encoding"
    assert answer.headers["repr-digest"].startswith("sha-256=:")


def test_a_tensor_proto_becomes_json(client: httpx.Client) -> None:
    answer = client.post(PARSE, content=PROTO)
    assert answer.json() == {"dtype": "int64", "shape": [2, 2], "data": [1, 2, 3, 4]}
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("form", ["json", "npy", "npz", "raw", "tfrecord", "b64", "tensorproto"])
def test_any_form_goes_out_and_comes_back(client: httpx.Client, form: str) -> None:
    out = client.post(PARSE, params={"to": form}, content=PROTO)
    assert out.status_code == 200, out.text
    described = {"dtype": "int64", "shape": "2,2"} if form == "raw" else {}
    back = client.post(SERIALIZE, params={"from": form, **described}, content=out.content)
    assert back.status_code == 200, back.text
    assert back.content == PROTO


def test_raw_answers_say_what_they_hold(client: httpx.Client) -> None:
    answer = client.post(PARSE, params={"to": "raw", "byte_order": "big"}, content=PROTO)
    assert answer.content == struct.pack(">4q", 1, 2, 3, 4)
    assert answer.headers["tensor-dtype"] == "int64"
    assert answer.headers["tensor-shape"] == "2,2"
    assert answer.headers["tensor-byte-order"] == "big"
    scalar = client.post(SERIALIZE, params={"to": "raw"}, content=b"7", headers=JSON)
    assert scalar.headers["tensor-shape"] == ""


def test_several_arrays_give_one_proto_a_record(client: httpx.Client) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, a=np.arange(3), b=np.float32(2.5))
    headers = {"Content-Type": "application/x-npz"}
    answer = client.post(SERIALIZE, content=buffer.getvalue(), headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-tfrecord"
    assert answer.headers["record-count"] == "2"
    refused = client.post(SERIALIZE, params={"to": "tensorproto"}, content=buffer.getvalue(), headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (422, "several_tensors")


def test_octets_are_the_bytes_of_the_default_whatever_it_is(client: httpx.Client) -> None:
    headers = {"Accept": "application/octet-stream"}
    for body in ([1, 2], {"columns": {"a": 1, "b": 2}}):
        octets = client.post(SERIALIZE, json=body, headers=headers)
        assert octets.headers["content-type"] == "application/octet-stream"
        assert octets.content == client.post(SERIALIZE, json=body).content


def test_the_oip_form_of_json(client: httpx.Client) -> None:
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1.5, 2]}]}
    answer = client.post(SERIALIZE, params={"to": "json"}, json=body)
    assert answer.json() in (
        {"dtype": "float32", "shape": [2], "data": [1.5, 2.0]},
        {"name": "x", "dtype": "float32", "shape": [2], "data": [1.5, 2.0]},
    )


@pytest.mark.parametrize(
    ("content", "headers", "params", "status", "code"),
    [
        (b"[1, 2", JSON, {}, 400, None),
        (b"[1, [2]]", JSON, {}, 422, None),
        (b"[NaN]", JSON, {}, 400, None),
        (b"[9223372036854775808]", JSON, {}, 422, None),
        (b"[300]", JSON, {"dtype": "int8"}, 422, None),
        (b"[1]", JSON, {"dtype": "int7"}, 400, "unknown_dtype"),
        (b"[1]", JSON, {"shape": "1,x"}, 400, "invalid_shape"),
        (b"[1, 2, 3]", JSON, {"dtype": "int8", "shape": "2,2"}, 422, None),
        (b"[1]", JSON, {"spilt": "1"}, 400, "unknown_parameter"),
        (b"[1]", JSON, {"to": ["npy", "raw"]}, 400, "repeated_parameter"),
        (b"[1]", JSON, {"compression": "gzip"}, 400, "inapplicable_parameter"),
        (b"[1]", JSON, {"layout": "pretty"}, 400, "invalid_parameter"),
        (b"[1]", JSON, {"to": "yaml"}, 406, "not_acceptable"),
        (b"[1]", {"Content-Type": "text/yaml"}, {}, 415, "unsupported_media_type"),
        (b"[1]", {}, {}, 415, "unsupported_media_type"),
        (b"[1]", {**JSON, "Content-Encoding": "br"}, {}, 415, "unsupported_content_encoding"),
        (b"[1]", {**JSON, "Accept": "image/tiff"}, {}, 406, "not_acceptable"),
        (npy(np.arange(3))[:-1], NPY, {}, 400, "truncated"),
        (npy(np.arange(3)) + b"x", NPY, {}, 400, "trailing_bytes"),
        (npy(np.array([object()], dtype=object)), NPY, {}, 422, "unsupported_dtype"),
        (b"12345", {"Content-Type": "application/octet-stream"}, {"dtype": "int16"}, 422, None),
        (PROTO[:-1], {"Content-Type": "application/protobuf"}, {}, 400, None),
    ],
)
def test_bad_input_is_a_problem_document(
    client: httpx.Client, content: bytes, headers: dict[str, str], params: Any, status: int, code: str | None
) -> None:
    answer = client.post(SERIALIZE, content=content, headers=headers, params=params)
    problem = answer.json()
    assert answer.status_code == problem["status"] == status, problem
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["detail"]
    assert problem["error"] == problem["detail"]
    assert code is None or problem["code"] == code


def test_unknown_routes_and_methods_are_problem_documents(client: httpx.Client) -> None:
    missing = client.get("/v1/tensor")
    assert (missing.status_code, missing.json()["code"]) == (404, "route_not_found")
    wrong = client.get(SERIALIZE)
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    assert wrong.headers["content-type"] == "application/problem+json"
    assert wrong.headers["allow"] == "POST"
    assert client.post("/livez").headers["allow"] == "GET, HEAD"
    assert client.delete("/v1/datasets/x/versions").headers["allow"] == "GET, HEAD, POST"
    slash = client.get("/v1/datasets/")
    assert (slash.status_code, slash.json()["code"]) == (404, "route_not_found")


def test_a_large_answer_is_streamed_and_a_checked_one_is_complete(client: httpx.Client) -> None:
    array = np.arange(400_000, dtype=np.int64)  # 3.2 MB
    headers = {"Content-Type": "application/x-npy"}
    streamed = client.post(SERIALIZE, content=npy(array), headers=headers)
    assert streamed.headers.get("transfer-encoding") == "chunked", streamed.text[:300]
    checked = client.post(SERIALIZE, content=npy(array), headers=headers, params={"delivery": "checked"})
    assert checked.headers["content-length"] == str(len(checked.content))
    assert "repr-digest" in checked.headers
    assert streamed.content == checked.content
    assert streamed.content.endswith(array.tobytes())


def test_the_openapi_document_is_served(client: httpx.Client) -> None:
    assert SERIALIZE in client.get("/openapi.json").json()["paths"]
