"""The describe routes, and schemas in the forms of others, over a real connection."""

import gzip
import json
from typing import Any

import httpx
import pytest

RECORDS = "/v1/records/describe"
TENSORS = "/v1/tensors/describe"
ROWS: list[dict[str, Any]] = [{"x": [1, 2], "name": "a"}, {"x": [3, 4]}]
SCHEMA = {"features": {"x": {"dtype": "uint8", "shape": [2]}, "name": {"dtype": "text", "nullable": True}}}
STEPS = '{"features": {"x": {"dtype": "int8", "shape": [null], "kind": "sequence"}}}'
QUERY = {"schema": json.dumps(SCHEMA)}


def test_records(client: httpx.Client) -> None:
    answer = client.post(RECORDS, json=ROWS, params=QUERY)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert found["num_records"] == 2
    assert found["features"]["x"]["max"] == 4
    assert found["features"]["name"] == {
        "num_present": 1,
        "num_missing": 1,
        "num_values": 1,
        "min_length": 1,
        "max_length": 1,
        "mean_length": 1.0,
        "num_empty": 0,
    }


@pytest.mark.parametrize(
    ("to", "media_type"),
    [
        ("schema", "application/json"),
        ("features", "application/json"),
        ("pbtxt", "text/plain; charset=utf-8"),
    ],
)
def test_a_schema_comes_back_in_every_form_and_is_taken_in_it(
    client: httpx.Client, to: str, media_type: str
) -> None:
    answer = client.post(RECORDS, json=ROWS, params={**QUERY, "to": to})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == media_type
    again = client.post(RECORDS, json=ROWS, params={"schema": answer.text, "to": "schema"})
    expected = client.post(RECORDS, json=ROWS, params={**QUERY, "to": "schema"})
    assert again.json() == expected.json()
    parts: Any = {"schema": (None, answer.text), "data": ("rows", json.dumps(ROWS), "application/json")}
    assert client.post(RECORDS, files=parts, params={"to": "schema"}).json() == expected.json()
    value = answer.json() if media_type == "application/json" else answer.text
    beside = client.post(RECORDS, json={"instances": ROWS, "schema": value}, params={"to": "schema"})
    assert beside.json() == expected.json()
    name = f"declared-{to}"
    created = client.put(f"/v1/datasets/{name}", json={"schema": value})
    assert created.status_code == 201, created.text
    assert created.json()["schema"] == expected.json()


def test_python_source(client: httpx.Client) -> None:
    answer = client.post(RECORDS, json=ROWS, headers={"Accept": "text/x-python"}, params=QUERY)
    assert answer.headers["content-type"] == "text/x-python; charset=utf-8"
    compile(answer.text, "<answer>", "exec")
    assert "def load(pattern" in answer.text


def test_accept_chooses_between_the_descriptions(client: httpx.Client) -> None:
    assert "feature {" in client.post(RECORDS, json=ROWS, headers={"Accept": "text/plain"}).text
    assert "num_records" in client.post(RECORDS, json=ROWS, headers={"Accept": "*/*"}).json()
    assert client.post(RECORDS, json=ROWS, headers={"Accept": "image/png"}).status_code == 406
    assert client.post(RECORDS, json=ROWS, params={"to": "tfrecord"}).status_code == 406


def described(client: httpx.Client, rows: list[Any], schema: Any, params: dict[str, str]) -> Any:
    """The description of a TFRecord of these rows, which carries no schema."""
    query = {"schema": json.dumps(schema)}
    tfrecord = client.post("/v1/records/serialize", json=rows, params=query).content
    headers = {"Content-Type": "application/x-tfrecord"}
    return client.post(RECORDS, content=tfrecord, headers=headers, params=params)


LENGTHS: dict[str, Any] = {
    "scalar": {"dtype": "int64"},
    "image": {"dtype": "float32", "shape": [2, 3]},
    "missing": {"dtype": "int64", "nullable": True},
    "long_missing": {"dtype": "int64", "shape": [2], "nullable": True},
    "differs": {"dtype": "int64", "shape": [None]},
    "empty": {"dtype": "int64", "shape": [0]},
    "late": {"dtype": "int64", "shape": [None]},
    "first_missing": {"dtype": "int64", "nullable": True},
}


def lengths_row(number: int) -> dict[str, Any]:
    odd = number % 2
    return {
        "scalar": number,
        "image": [[1.5, 2.5, 3.5]] * 2,
        "missing": number if odd else None,
        "long_missing": [1, 2] if odd else None,
        "differs": [1] * (1 + odd),
        "empty": [],
        "late": [1] * (3 if number < 9000 else 4),
        "first_missing": number or None,
    }


def shapes_of(schema: dict[str, Any]) -> dict[str, tuple[Any, bool]]:
    return {name: (feature["shape"], feature["nullable"]) for name, feature in schema["features"].items()}


def test_a_tfrecord_is_described_with_the_lengths_that_all_rows_have(client: httpx.Client) -> None:
    rows = [lengths_row(number) for number in range(9001)]
    answer = described(client, rows, {"features": LENGTHS}, {})
    found = answer.json()
    assert found["num_records"] == 9001
    assert shapes_of(found["schema"]) == {
        "scalar": ([], False),
        "image": ([6], False),
        "missing": ([], True),
        "long_missing": ([None], True),
        "differs": ([None], False),
        "empty": ([None], False),
        "late": ([None], False),
        "first_missing": ([], True),
    }
    assert found["features"]["late"]["min_num_values"] == 3
    assert "min_num_values" not in found["features"]["image"]
    every = described(client, rows, {"features": LENGTHS}, {"infer": "all"})
    assert every.json() == found
    schema = described(client, rows, {"features": LENGTHS}, {"to": "schema"})
    assert schema.json() == found["schema"]
    source = described(client, rows, {"features": LENGTHS}, {"to": "python"})
    assert "tf.io.FixedLenFeature([6], tf.float32)" in source.text


def test_so_are_the_steps_of_sequences(client: httpx.Client) -> None:
    features = {
        "same": {"dtype": "float32", "shape": [None, 2], "kind": "sequence"},
        "scalars": {"dtype": "int64", "shape": [None], "kind": "sequence", "nullable": True},
        "differ": {"dtype": "int64", "shape": [None, None], "kind": "sequence"},
    }
    rows = [
        {"same": [[1.5, 2.5]], "scalars": [1, 2], "differ": [[1], [1, 2]]},
        {"same": [], "scalars": None, "differ": [[1]]},
    ]
    both = [{"context": {}, "feature_lists": row} for row in rows]
    found = described(client, both, {"features": features}, {"message": "sequence_example"}).json()
    expected = {"same": ([None, 2], False), "scalars": ([None], True), "differ": ([None, None], False)}
    assert shapes_of(found["schema"]) == expected


def test_a_declared_schema_is_described_as_declared(client: httpx.Client) -> None:
    rows = [{"x": [1, 2]}, {"x": [3, 4]}]
    schema = {"features": {"x": {"dtype": "int64", "shape": [None]}}}
    found = described(client, rows, schema, {"schema": json.dumps(schema)}).json()
    assert shapes_of(found["schema"]) == {"x": ([None], False)}


@pytest.mark.parametrize(
    ("body", "params", "status", "code"),
    [
        ('[{"x": 1}]', {"schema": "feature {"}, 400, "invalid_pbtxt"),
        ('[{"x": 1}]', {"schema": '{"type": "Video"}'}, 422, "inexpressible_feature"),
        ('[{"x": 1}]', {"schema": 'feature { name: "x" type: STRUCT }'}, 422, "inexpressible_feature"),
        ('[{"x": "a"}]', {"schema": '{"features": {"x": {"dtype": "int8"}}}'}, 422, None),
        ("[]", {"schema": STEPS, "to": "features"}, 422, "inexpressible_schema"),
        ('[{"x": 1}]', {"message": "row"}, 400, None),
        ('[{"x": 1}]', {"layout": "rows"}, 400, None),
        ('[{"x": 1}]', {"compression": "gzip"}, 400, "inapplicable_parameter"),
        ("[", {}, 400, None),
    ],
)
def test_refusals(
    client: httpx.Client, body: str, params: dict[str, str], status: int, code: str | None
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = client.post(RECORDS, content=body, params=params, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert code is None or answer.json()["code"] == code


def test_a_body_without_a_form_is_not_guessed(client: httpx.Client) -> None:
    assert client.post(RECORDS, content=b"x").status_code == 415
    assert client.post(TENSORS, content=b"x").status_code == 415


def test_tensors(client: httpx.Client) -> None:
    answer = client.post(TENSORS, json={"inputs": {"x": [[1, 2]], "y": ["a"]}})
    assert answer.status_code == 200, answer.text
    assert [(item["name"], item["dtype"], item["shape"]) for item in answer.json()] == [
        ("x", "int64", [1, 2]),
        ("y", "string", [1]),
    ]
    raw = {"dtype": "int16", "shape": "2", "byte_order": "big"}
    headers = {"Content-Type": "application/octet-stream"}
    answer = client.post(TENSORS, content=b"\0\1\0\2", params=raw, headers=headers)
    assert (answer.json()[0]["min"], answer.json()[0]["max"]) == (1, 2)


@pytest.mark.parametrize("params", [{"to": "json"}, {"kind": "coo"}, {"order": "K"}, {"compression": "gzip"}])
def test_tensors_refuse_other_parameters(client: httpx.Client, params: dict[str, str]) -> None:
    answer = client.post(TENSORS, json=[1], params=params)
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("length", ["x", "-1", str(2**63)])
@pytest.mark.parametrize("route", [RECORDS, TENSORS, "/v1/tensors/parse", "/v1/datasets/oip/records"])
def test_a_malformed_length_of_the_json_is_400(client: httpx.Client, route: str, length: str) -> None:
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": length}
    answer = client.post(route, content=b"{}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_json_length")


def test_a_compressed_tfrecord_is_described_as_one(client: httpx.Client) -> None:
    params = {"to": "tfrecord", "compression": "gzip"}
    body = client.post("/v1/records/serialize", json=[{"x": 1}], params=params).content
    sent: Any = {"content": body, "headers": {"Content-Type": "application/x-tfrecord"}}
    assert client.post(RECORDS, **sent).json()["container"] == "gzip"
    source = client.post(RECORDS, params={"to": "python"}, **sent).text
    assert 'def load(pattern, batch_size=None, compression_type="GZIP"):' in source
    sent["content"] = gzip.decompress(body)
    assert "container" not in client.post(RECORDS, **sent).json()
    # What the connection undoes is no part of the file.
    sent["headers"]["Content-Encoding"] = "gzip"
    sent["content"] = body
    assert "container" not in client.post(RECORDS, **sent).json()
