"""Conversions as models of the Open Inference Protocol, byte by byte; conformance/ has Triton's client."""

import base64
import gzip
import json
import struct
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.tensor_formats import LENGTH, framed

INFER = "/v2/models/serialize_tensor/infer"
PARSE = "/v2/models/parse_tensor/infer"
DATATYPES = {"FP32": "<f4", "INT64": "<i8", "FP16": "<f2", "UINT8": "|u1", "BOOL": "|b1"}


def binary(inputs: list[tuple[str, str, list[int], bytes]], **members: Any) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a request whose inputs go as bytes."""
    described = [
        {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(content)}}
        for name, datatype, shape, content in inputs
    ]
    head = json.dumps({"inputs": described, **members}).encode()
    return head + b"".join(content for *_, content in inputs), {LENGTH: str(len(head))}


def ask(
    client: httpx.Client, path: str, request: tuple[bytes, dict[str, str]], **more: Any
) -> httpx.Response:
    headers = {"Content-Type": "application/octet-stream", **request[1], **more}
    return client.post(path, content=request[0], headers=headers)


def outputs_of(answer: httpx.Response) -> dict[str, Any]:
    """The outputs by name: bytes, or data of JSON."""
    assert answer.status_code == 200, answer.text
    length = int(answer.headers.get(LENGTH, len(answer.content)))
    head, rest = json.loads(answer.content[:length]), answer.content[length:]
    found = {}
    for output in head["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        content = output["data"] if size is None else rest[:size]
        rest = rest[size or 0 :]
        found[output["name"]] = (output["datatype"], output["shape"], content)
    assert not rest
    return found


def element(content: bytes) -> bytes:
    return struct.pack("<I", len(content)) + content


def serialized(client: httpx.Client, array: np.ndarray[Any, Any]) -> bytes:
    """What the service's own route gives."""
    params = {"from": "raw", "dtype": array.dtype.name, "shape": ",".join(map(str, array.shape))}
    answer = client.post("/v1/tensors/serialize", params=params, content=array.tobytes())
    assert answer.status_code == 200, answer.text
    return answer.content


BINARY: dict[str, Any] = {"parameters": {"binary_data_output": True}}


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("size", [0, 6, 200_000])
def test_tensors_are_serialized_and_parsed_as_the_routes_do_it(
    client: httpx.Client, datatype: str, size: int
) -> None:
    array = (np.arange(size) % 2).astype(DATATYPES[datatype]).reshape(2, -1)
    shape = list(array.shape)
    answer = ask(client, INFER, binary([("x", datatype, shape, array.tobytes())], **BINARY))
    message = serialized(client, array)
    assert outputs_of(answer) == {"x": ("BYTES", [1], element(message))}
    answer = ask(client, PARSE, binary([("m", "BYTES", [1], element(message))], **BINARY))
    assert outputs_of(answer) == {"m": (datatype, shape, array.tobytes())}


def test_strings(client: httpx.Client) -> None:
    content = b"".join(map(element, [b"a", b"", b"\xff\0"]))
    answer = ask(client, INFER, binary([("x", "BYTES", [3], content)], **BINARY))
    [(_, _, message)] = outputs_of(answer).values()
    answer = ask(client, PARSE, binary([("x", "BYTES", [1], message)], **BINARY))
    assert outputs_of(answer) == {"x": ("BYTES", [3], content)}


def test_json_goes_in_and_comes_out(client: httpx.Client) -> None:
    request = {"id": "r-1", "inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1.5, -2]}]}
    answer = client.post(INFER, json=request)
    assert LENGTH not in answer.headers
    assert answer.headers["content-type"] == "application/json"
    [[data]] = [output["data"] for output in answer.json()["outputs"]]
    message = serialized(client, np.array([1.5, -2], "<f4"))
    assert base64.b64decode(data["b64"]) == message
    assert [answer.json()[name] for name in ("id", "model_name", "model_version")] == [
        "r-1",
        "serialize_tensor",
        "1",
    ]
    parsed = client.post(
        PARSE, json={"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": [data]}]}
    )
    assert outputs_of(parsed) == {"x": ("FP32", [2], [1.5, -2])}
    assert "id" not in parsed.json()


def test_a_request_chooses_outputs_their_order_and_which_are_bytes(client: httpx.Client) -> None:
    inputs = [(name, "UINT8", [1], bytes([index])) for index, name in enumerate("abc")]
    messages = [serialized(client, np.array([index], np.uint8)) for index in range(3)]
    outputs = [{"name": "c", "parameters": {"binary_data": True}}, {"name": "a"}]
    found = outputs_of(ask(client, INFER, binary(inputs, outputs=outputs)))
    in_json = [{"b64": base64.b64encode(messages[0]).decode()}]
    assert list(found.items()) == [
        ("c", ("BYTES", [1], element(messages[2]))),
        ("a", ("BYTES", [1], in_json)),
    ]
    outputs = [{"name": "b"}, {"name": "a", "parameters": {"binary_data": False}}]
    found = outputs_of(ask(client, INFER, binary(inputs, outputs=outputs, **BINARY)))
    assert found == {"b": ("BYTES", [1], element(messages[1])), "a": ("BYTES", [1], in_json)}


ONE = [("x", "UINT8", [1], b"\1")]


@pytest.mark.parametrize(
    ("path", "inputs", "members", "refused"),
    [
        (INFER, ONE, {"outputs": [{"name": "y"}]}, (400, "invalid_outputs")),
        (INFER, ONE, {"outputs": [{"name": "x"}, {"name": "x"}]}, (400, "invalid_outputs")),
        (INFER, ONE, {"outputs": ["x"]}, (400, "invalid_outputs")),
        (INFER, ONE, {"outputs": {"x": 1}}, (400, "invalid_outputs")),
        (INFER, ONE, {"outputs": [{"name": ["x"]}]}, (400, "invalid_outputs")),
        (INFER, ONE, {"outputs": [{"name": "x", "parameters": [1]}]}, (400, "invalid_outputs")),
        (
            INFER,
            ONE,
            {"outputs": [{"name": "x", "parameters": {"classification": 3}}]},
            (400, "invalid_outputs"),
        ),
        (INFER, ONE, {"parameters": {"binary_data_output": 1}}, (400, "invalid_outputs")),
        (INFER, ONE, {"id": 1}, (400, "invalid_outputs")),
        (INFER, [("x", "FP32", [1], b"\1")], {}, (400, "binary_data_size_mismatch")),
        (INFER, [*ONE, *ONE], {}, (422, "duplicate_name")),
        (PARSE, ONE, {}, (422, "not_one_message")),
        (PARSE, [("x", "BYTES", [2], element(b"") * 2)], {}, (422, "not_one_message")),
        (PARSE, [("x", "BYTES", [1], element(framed(b"a")))], {}, (400, None)),
    ],
)
def test_requests_that_are_refused(
    client: httpx.Client, path: str, inputs: Any, members: Any, refused: tuple[int, str | None]
) -> None:
    answer = ask(client, path, binary(inputs, **members))
    assert (answer.status_code, answer.json()["code"]) == (refused[0], refused[1] or answer.json()["code"])
    assert answer.json()["error"] == answer.json()["detail"], "what Triton's client shows"


def test_models_are_found(client: httpx.Client) -> None:
    assert client.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    names = client.get("/v2/models").json()["models"]
    assert names == ["serialize_tensor", "parse_tensor"]
    for name in names:
        assert client.get(f"/v2/models/{name}").json()["name"] == name
        assert client.get(f"/v2/models/{name}/ready").json() == {"name": name, "ready": True}
    for path in ("", "/ready"):
        answer = client.get(f"/v2/models/resnet{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "model_not_found")
    answer = client.post("/v2/models/resnet/infer", json={"inputs": []})
    assert (answer.status_code, answer.json()["code"]) == (404, "model_not_found")


def test_a_client_may_name_the_version(client: httpx.Client) -> None:
    model = "/v2/models/parse_tensor"
    [version] = client.get(model).json()["versions"]
    assert client.get(f"{model}/versions/{version}").json() == client.get(model).json()
    assert client.get(f"{model}/versions/{version}/ready").json()["ready"]
    content = serialized(client, np.arange(3, dtype=np.int64))
    request = binary([("x", "BYTES", [1], element(content))])
    answer = ask(client, f"{model}/versions/{version}/infer", request)
    assert outputs_of(answer)["x"] == ("INT64", [3], [0, 1, 2])
    assert client.get(f"{model}/versions/2").status_code == 404


def test_an_encoded_request_and_an_encoded_answer(client: httpx.Client) -> None:
    body, headers = binary([("x", "FP32", [4000], bytes(16_000))])
    encoded = {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}
    answer = ask(client, INFER, (gzip.compress(body), headers), **encoded)
    assert answer.headers["content-encoding"] == "gzip"
    assert outputs_of(answer).keys() == {"x"}
