"""Versions deleted, leftovers collected, over HTTP."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.service import Service
from tests.support.tfrecord_frames import frame


@pytest.fixture
def dataset(client: httpx.Client) -> str:
    """A dataset with versions 1.0.0 (a row) and 1.1.0 (two)."""
    name = f"care-{uuid.uuid4().hex[:8]}"
    for value in (1, 2):
        answer = client.post(f"/v1/datasets/{name}/records?publish=true", json=[{"x": value}])
        assert answer.status_code == 201
    return name


def test_a_version_is_deleted_and_then_not_found(client: httpx.Client, dataset: str) -> None:
    url = f"/v1/datasets/{dataset}/versions"
    assert client.delete(f"{url}/1.0.0").status_code == 204
    for path in ("1.0.0", "1.0.0/records", "1.0.0/files/features.json"):
        answer = client.get(f"{url}/{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "version_not_found")
    assert client.get(url).json()["versions"] == ["1.1.0"]
    assert client.get(f"{url}/latest/records?to=json").json() == [{"x": 1}, {"x": 2}]


@pytest.mark.parametrize(
    ("version", "status", "code"),
    [
        ("1.1.0", 409, "version_is_latest"),
        ("latest", 409, "version_is_latest"),
        ("1.2.0", 404, "version_not_found"),
        ("2.0.0", 404, "version_not_found"),
        ("one", 400, "invalid_version"),
        ("1.0.0?force=1", 400, "unknown_parameter"),
    ],
)
def test_deletions_that_are_refused(
    client: httpx.Client, dataset: str, version: str, status: int, code: str
) -> None:
    answer = client.delete(f"/v1/datasets/{dataset}/versions/{version}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_collection_reports_what_it_did(client: httpx.Client, dataset: str) -> None:
    client.delete(f"/v1/datasets/{dataset}")
    url = f"/v1/datasets/{dataset}/collect"
    dry = client.post(f"{url}?dry_run=true")
    assert dry.status_code == 200
    found = dry.json()
    assert found["deleted"]["deleted_dataset_files"]["objects"] > 10
    assert client.post(url).json() == {**found, "dry_run": False}
    assert client.post(url).json()["deleted"] == {}
    assert client.post(f"/v1/datasets/{dataset}/records?publish=true", json=[{"x": 3}]).json()["version"] == (
        "2.0.0"
    )


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("nowhere/collect", 404, "dataset_not_found"),
        ("_gen/collect", 400, "invalid_dataset_name"),
        ("nowhere/collect?dry=1", 400, "unknown_parameter"),
        ("nowhere/collect?dry_run=maybe", 400, "invalid_parameter"),
        ("nowhere/collect?dry_run=true&dry_run=true", 400, "repeated_parameter"),
    ],
)
def test_collections_that_are_refused(client: httpx.Client, path: str, status: int, code: str) -> None:
    answer = client.post(f"/v1/datasets/{path}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize("value", [0, -1, 10**9, 1.5, "2", True, []])
def test_a_number_of_versions_that_cannot_be_kept_is_refused(client: httpx.Client, value: object) -> None:
    answer = client.put("/v1/datasets/never", json={"keep_versions": value})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_dataset")


def test_old_versions_go_where_the_dataset_says_so(client: httpx.Client) -> None:
    name = f"care-{uuid.uuid4().hex[:8]}"
    made = client.put(f"/v1/datasets/{name}", json={"keep_versions": 1})
    assert (made.status_code, made.json()["keep_versions"]) == (201, 1)
    for value in (1, 2):
        client.post(f"/v1/datasets/{name}/records?publish=true", json=[{"x": value}])
    assert client.post(f"/v1/datasets/{name}/collect").json()["retired_versions"] == ["1.0.0"]
    assert client.get(f"/v1/datasets/{name}/versions").json()["versions"] == ["1.1.0"]


def test_a_version_is_validated(client: httpx.Client, dataset: str) -> None:
    url = f"/v1/datasets/{dataset}/versions"
    report = client.post(f"{url}/latest/validate").json()
    assert report["num_bytes"] > 0
    assert report == {
        "version": "1.1.0",
        "valid": True,
        "num_records": 2,
        "num_bytes": report["num_bytes"],
        "num_shards": 1,
        "problems": [],
        "truncated": False,
    }


@pytest.mark.parametrize(
    ("version", "status", "code"),
    [
        ("1.2.0/validate", 404, "version_not_found"),
        ("one/validate", 400, "invalid_version"),
        ("latest/validate?deep=1", 400, "unknown_parameter"),
        ("latest/validate?reader=pandas", 400, "invalid_parameter"),
        ("latest/validate?reader=tensorflow&reader=tensorflow", 400, "repeated_parameter"),
        ("1.2.0/validate?reader=tensorflow", 404, "version_not_found"),
    ],
)
def test_validations_that_are_refused(
    client: httpx.Client, dataset: str, version: str, status: int, code: str
) -> None:
    answer = client.post(f"/v1/datasets/{dataset}/versions/{version}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def shard_of(service: Service, client: httpx.Client, dataset: str) -> Path:
    """The file of the only shard of the latest version."""
    version = client.get(f"/v1/datasets/{dataset}/versions/latest").json()
    [shard] = version["splits"]["train"]["shards"]
    return service.datasets / dataset / str(version["version"]) / str(shard["file"])


def read_by_tensorflow(client: httpx.Client, dataset: str) -> dict[str, Any]:
    answer = client.post(f"/v1/datasets/{dataset}/versions/latest/validate?reader=tensorflow", timeout=300)
    assert answer.status_code == 200, answer.text
    report: dict[str, Any] = answer.json()
    return report


@pytest.mark.parametrize("compression", ["none", "zlib"])
@pytest.mark.tensorflow
def test_tensorflow_reads_what_is_published(client: httpx.Client, compression: str) -> None:
    name = f"care-{uuid.uuid4().hex[:8]}"
    features = {
        "x": {"dtype": "float32", "shape": [2], "nullable": True},
        "text": {"dtype": "text", "shape": [None]},
        "image": {"dtype": "uint8", "shape": [2, 2], "encoding": "raw"},
        "ragged": {"dtype": "int64", "shape": [None, None], "kind": "ragged"},
        "sparse": {"dtype": "float32", "shape": [9], "kind": "sparse"},
    }
    row = {"text": ["a", "b"], "image": [[1, 2], [3, 4]], "ragged": [[1], []]}
    rows = [
        {**row, "x": [1, 2], "sparse": {"indices": [3], "values": [1]}},
        {**row, "x": None, "sparse": {"indices": [], "values": []}},
    ]
    assert client.put(f"/v1/datasets/{name}", json={"schema": {"features": features}}).status_code == 201
    query = f"publish=true&num_shards=2&shard_compression={compression}"
    made = client.post(f"/v1/datasets/{name}/records?{query}", json=rows)
    assert made.status_code == 201, made.text
    report = read_by_tensorflow(client, name)
    assert report == {
        "version": "1.0.0",
        "valid": True,
        "num_records": 2,
        "num_bytes": report["num_bytes"],
        "num_shards": 2,
        "problems": [],
        "truncated": False,
    }
    assert (
        report["num_bytes"]
        == client.post(f"/v1/datasets/{name}/versions/latest/validate").json()["num_bytes"]
    )


@pytest.mark.tensorflow
def test_tensorflow_reads_sequence_examples(client: httpx.Client) -> None:
    name = f"care-{uuid.uuid4().hex[:8]}"
    features = {
        "x": {"dtype": "int64"},
        "steps": {"dtype": "int64", "shape": [None, None], "kind": "sequence"},
    }
    schema = {"message": "sequence_example", "features": features}
    assert client.put(f"/v1/datasets/{name}", json={"schema": schema}).status_code == 201
    rows = [
        {"context": {"x": 1}, "feature_lists": {"steps": [[1, 2], [3]]}},
        {"context": {"x": 2}, "feature_lists": {"steps": []}},
    ]
    made = client.post(f"/v1/datasets/{name}/records?publish=true", json=rows)
    assert made.status_code == 201, made.text
    report = read_by_tensorflow(client, name)
    assert (report["valid"], report["num_records"]) == (True, 2)


@pytest.mark.parametrize(
    ("change", "record", "detail"),
    [
        (lambda shard: shard[:-6] + bytes([shard[-6] ^ 1]) + shard[-5:], 1, "corrupted record at"),
        (lambda shard: shard[:-1], 1, "truncated record at"),
        (lambda shard: shard + frame(b""), 2, "Feature: x (data type: int64) is required"),
        (lambda shard: shard + shard, None, "TensorFlow reads 4 records instead of 2."),
    ],
)
@pytest.mark.tensorflow
def test_tensorflow_names_the_record_that_it_cannot_read(
    service: Service,
    client: httpx.Client,
    dataset: str,
    change: Callable[[bytes], bytes],
    record: int | None,
    detail: str,
) -> None:
    file = shard_of(service, client, dataset)
    file.write_bytes(change(file.read_bytes()))

    report = read_by_tensorflow(client, dataset)

    assert report["valid"] is False
    problem = report["problems"][-1]
    assert problem["code"] == ("wrong_count" if record is None else "tensorflow_fault")
    assert (problem["file"], problem["record"]) == (file.name, record)
    assert detail in problem["detail"]
