"""A parameter that stands at its default says nothing: generated clients send all of them.

Each operation of the document is called as its example does, with every default that it declares. That an
answer without them is the one that is recorded, test_openapi.py holds.
"""

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from openapi.recorded import describe, fresh_service, load, play
from tests.contract.declared import DOCUMENT

METHODS = {"get", "put", "post", "delete"}
OPERATIONS: dict[str, dict[str, Any]] = {
    operation["operationId"]: operation
    for methods in DOCUMENT["paths"].values()
    for method, operation in methods.items()
    if method in METHODS
}


def defaults(operation: dict[str, Any]) -> dict[str, str]:
    """What a client sends that always sends the defaults."""
    declared = {
        parameter["name"]: parameter["schema"]["default"]
        for parameter in operation.get("parameters", [])
        if parameter["in"] == "query" and "default" in parameter["schema"]
    }
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in declared.items()
    }


def with_defaults(example: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any]:
    """The example with each default that it does not set, and an Accept that lists all that is declared."""
    request = example["request"]
    path, _, query = request["path"].partition("?")
    given = dict(httpx.QueryParams(query))
    added = {name: value for name, value in defaults(operation).items() if name not in given}
    query = "&".join(f"{quote(name)}={quote(value)}" for name, value in {**given, **added}.items())
    types = [media for answer in operation["responses"].values() for media in answer.get("content", {})]
    headers = {"Accept": ", ".join(dict.fromkeys(types)), **request.get("headers", {})}
    return {**example, "request": {**request, "path": f"{path}?{query}", "headers": headers}}


def test_operations_declare_defaults() -> None:
    found = {name: defaults(operation) for name, operation in OPERATIONS.items()}
    assert found["read_records"].items() >= {"epoch": "0", "seed": "0", "drop_remainder": "false"}.items()
    assert (
        found["append_records"].items() >= {"base": "latest", "publish": "false", "divide": "train"}.items()
    )
    assert sum(map(len, found.values())) > 70


@pytest.mark.parametrize("operation_id", [name for name, found in OPERATIONS.items() if defaults(found)])
def test_every_default_is_as_good_as_none(operation_id: str) -> None:
    example = load(operation_id)
    with fresh_service() as client:
        found = describe(play(client, with_defaults(example, OPERATIONS[operation_id])))
    assert found == example["response"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/datasets/d/records?base=latest&shuffle=false&shard_compression=none", '[{"x": 2}]'),
        ("/v1/datasets/d/records?seed=0&divide=train&sequence=0", '[{"x": 3}]'),
        ("/v1/datasets/d/versions?seed=0&divide=train&base=latest", None),
        ("/v1/records/serialize?compression=none&to=ndjson", '[{"x": 1}]'),
    ],
)
def test_each_is_accepted_alone(path: str, body: str | None) -> None:
    with fresh_service() as client:
        client.post("/v1/datasets/d/records", json=[{"x": 1}]).raise_for_status()
        answer = client.post(path, content=body, headers={"Content-Type": "application/json"} if body else {})
    assert answer.is_success, answer.text


@pytest.mark.parametrize(
    "query", ["epoch=0", "seed=0", "drop_remainder=false", "compression=none", "worker=0"]
)
def test_each_is_accepted_by_a_read(query: str) -> None:
    with fresh_service() as client:
        client.post("/v1/datasets/d/records", params={"publish": "true"}, json=[{"x": 1}]).raise_for_status()
        answer = client.get(f"/v1/datasets/d/versions/latest/records?{query}")
    assert answer.text == '{"x":1}\n', answer.text


def test_a_repetition_may_send_defaults_or_not() -> None:
    key = {"Idempotency-Key": "k"}
    with fresh_service() as client:
        first = client.post("/v1/datasets/d/records", json=[{"x": 1}], headers=key)
        again = client.post("/v1/datasets/d/records?split=train&base=latest", json=[{"x": 1}], headers=key)
        other = client.post("/v1/datasets/d/records?split=test", json=[{"x": 1}], headers=key)
    assert again.json() == first.json()
    assert other.json()["code"] == "idempotency_key_reused"


def test_parameter_with_another_value_than_its_default_is_refused() -> None:
    with fresh_service() as client:
        client.post("/v1/datasets/d/records", params={"publish": "true"}, json=[{"x": 1}]).raise_for_status()
        for path in ("versions/latest/records?epoch=1", "versions/latest/records?drop_remainder=true"):
            assert client.get(f"/v1/datasets/d/{path}").json()["code"] == "inapplicable_parameter"
        appended = client.post("/v1/datasets/d/records?base=none", json=[{"x": 1}])
    assert appended.json()["code"] == "inapplicable_parameter"
