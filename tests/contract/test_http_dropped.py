"""Features of which no row has a value are left out of an inferred schema, and the answer says so.

An empty list is not a value: it has no dtype.
"""

import io
import json
import uuid
from typing import Any

import httpx
import pyarrow as pa
import pytest

HEADER = "dropped-features"
ROWS: list[dict[str, Any]] = [{"x": 1, "ä, b": None, "z": [[]]}, {"x": 2, "z": []}]
JSON = json.dumps(ROWS).encode()
DROPPED = "%C3%A4%2C%20b, z"


def arrow() -> bytes:
    sink = io.BytesIO()
    lists = pa.array([[], None], pa.list_(pa.null()))
    batch = pa.record_batch({"x": pa.array([1, 2]), "ä, b": pa.nulls(2), "z": lists})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


BODIES = {
    "application/json": JSON,
    "application/x-ndjson": b"\n".join(json.dumps(row).encode() for row in ROWS),
    "text/csv": 'x,"ä, b",z\n1,,\n2,,\n'.encode(),
    "application/vnd.apache.arrow.stream": arrow(),
}


@pytest.mark.parametrize("media_type", BODIES)
@pytest.mark.parametrize("route", ["serialize", "serialize?to=json", "describe", "describe?to=schema"])
def test_a_conversion_names_them_in_a_header(client: httpx.Client, media_type: str, route: str) -> None:
    headers = {"Content-Type": media_type}
    for _ in range(2):  # the second one is prepared
        answer = client.post(f"/v1/records/{route}", content=BODIES[media_type], headers=headers)
        assert answer.status_code == 200, answer.text
        assert answer.headers[HEADER] == DROPPED


def test_an_answer_that_begins_early_names_them_too(client: httpx.Client) -> None:
    body = b'{"x": "%b", "z": null}\n' % (b"a" * 1000) * 5000
    headers = {"Accept-Encoding": "identity"}
    answer = client.post("/v1/records/serialize?from=ndjson&to=ndjson", content=body, headers=headers)
    assert "content-length" not in answer.headers
    assert answer.headers[HEADER] == "z"


def test_a_single_row_names_them(client: httpx.Client) -> None:
    answer = client.post("/v1/examples/serialize", json={"x": 1, "z": None})
    assert (answer.status_code, answer.headers[HEADER]) == (200, "z")


@pytest.mark.parametrize("schema", [None, {"x": "int64", "z": "text"}])
def test_where_nothing_is_dropped_nothing_is_said(
    client: httpx.Client, schema: dict[str, str] | None
) -> None:
    rows = [{"x": 1, "z": None if schema else "a"}, {"x": 2}]
    params = {}
    if schema is not None:
        features = {name: {"dtype": dtype, "nullable": True} for name, dtype in schema.items()}
        params["schema"] = json.dumps({"features": features})
    answer = client.post("/v1/records/serialize", params=params, json=rows)
    assert answer.status_code == 200, answer.text
    assert HEADER not in answer.headers


def test_more_names_than_a_header_holds_are_cut(client: httpx.Client) -> None:
    names = [f"feature-{number}-of-a-long-name" for number in range(500)]
    answer = client.post("/v1/records/serialize", json=[{"x": 1, **dict.fromkeys(names)}])
    found = answer.headers[HEADER].split(", ")
    assert found[-1] == "..."
    assert found[:-1] == names[: len(found) - 1]
    assert 3000 < len(answer.headers[HEADER]) < 4200


@pytest.mark.parametrize("media_type", BODIES)
@pytest.mark.parametrize("key", [None, "k"])
def test_an_append_names_them_as_a_member(client: httpx.Client, media_type: str, key: str | None) -> None:
    url = f"/v1/datasets/d-{uuid.uuid4().hex[:8]}/records"
    headers = {"Content-Type": media_type, **({} if key is None else {"Idempotency-Key": key})}
    answer = client.post(url, content=BODIES[media_type], headers=headers).json()
    assert answer["dropped"] == ["ä, b", "z"]
    if key is not None:
        assert client.post(url, content=BODIES[media_type], headers=headers).json() == answer


@pytest.mark.parametrize("key", [None, "k"])
def test_rows_that_widen_a_schema_name_them_too(client: httpx.Client, key: str | None) -> None:
    url = f"/v1/datasets/d-{uuid.uuid4().hex[:8]}/records"
    headers = {} if key is None else {"Idempotency-Key": key}
    first: dict[str, Any] = client.post(url, json=[{"x": 1, "y": "a"}]).json()
    assert "dropped" not in first
    rows: list[dict[str, Any]] = [{"x": 2, "y": None, "z": [], "w": 0.5}]
    answer = client.post(url, params={"evolve": "widen"}, json=rows, headers=headers)
    assert answer.status_code == 201, answer.text
    assert answer.json()["dropped"] == ["z"]


@pytest.mark.parametrize("media_type", ["application/json", "application/vnd.apache.arrow.stream"])
@pytest.mark.parametrize("value", [["a"], [1, 2], [2**24 + 1], [0.5]])
def test_a_dataset_takes_any_list_after_empty_ones(
    client: httpx.Client, value: list[Any], media_type: str
) -> None:
    dataset = f"/v1/datasets/d-{uuid.uuid4().hex[:8]}"
    headers = {"Content-Type": media_type}
    for params in ({}, {}, {"evolve": "widen"}):
        answer = client.post(f"{dataset}/records", content=BODIES[media_type], headers=headers, params=params)
        assert (answer.status_code, "z" in answer.json()["dropped"]) == (201, True), answer.text
    rows = [{"x": 3, "z": value}]
    answer = client.post(f"{dataset}/records", json=rows)
    assert (answer.status_code, answer.json()["feature"]) == (422, "z")
    answer = client.post(f"{dataset}/records", json=rows, params={"evolve": "widen"})
    assert answer.status_code == 201, answer.text
    client.post(f"{dataset}/versions").raise_for_status()
    found = client.get(f"{dataset}/versions/latest/records", params={"to": "ndjson"}).text.splitlines()
    assert json.loads(found[-1]) == rows[0]


def test_a_list_is_what_it_is_in_the_rows_that_have_one(client: httpx.Client) -> None:
    rows = [{"x": [], "y": 1}, {"x": [3], "y": 1}]
    answer = client.post("/v1/records/serialize", params={"to": "ndjson"}, json=rows)
    assert (answer.text, HEADER in answer.headers) == ('{"x":[],"y":1}\n{"x":[3],"y":1}\n', False)


def test_a_key_that_a_declared_schema_lacks_is_refused_with_an_empty_list(client: httpx.Client) -> None:
    params = {"schema": json.dumps({"features": {"x": {"dtype": "int64"}}})}
    answer = client.post("/v1/records/serialize", params=params, json=[{"x": 1, "z": []}])
    assert (answer.status_code, answer.json()["code"]) == (422, "schema_conflict")
