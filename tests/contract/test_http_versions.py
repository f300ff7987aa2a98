"""What is told of a published version beside its rows: checksums for the usual tools, and statistics."""

import io
import subprocess
import tarfile
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.main import create_app_with
from app.settings import Settings
from app.storage.obstore_store import open_store
from openapi.recorded import serving
from tests.support.faulty_store import keys

ROWS: dict[str, list[dict[str, Any]]] = {
    "train": [{"x": [number, 0.5], "name": "a" * number} for number in range(9)],
    "test": [{"x": [100, 0.25], "name": "b"}],
}


@pytest.fixture
def version(client: httpx.Client) -> str:
    """The URL of a version of two splits."""
    url = f"/v1/datasets/d-{uuid.uuid4().hex[:8]}"
    for split, rows in ROWS.items():
        assert client.post(f"{url}/records", params={"split": split}, json=rows).status_code == 201
    assert client.post(f"{url}/versions", params={"num_shards": 1}).status_code == 201
    return f"{url}/versions/1.0.0"


def check_sums(folder: Path, sums: str) -> subprocess.CompletedProcess[str]:
    (folder / "SHA256SUMS").write_text(sums)
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_sha256sum_checks_the_folder_that_the_tar_makes(
    client: httpx.Client, version: str, tmp_path: Path
) -> None:
    with tarfile.open(fileobj=io.BytesIO(client.get(f"{version}/tar").content)) as tar:
        tar.extractall(tmp_path, filter="data")
    manifest = client.get(version).json()
    folder = tmp_path / manifest["dataset"] / "1.0.0"
    answer = client.get(f"{version}/SHA256SUMS")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    checked = check_sums(folder, answer.text)
    assert checked.returncode == 0, checked.stderr
    files = {path.name for path in folder.iterdir()} - {"_manifest.json", "SHA256SUMS"}
    assert set(checked.stdout.splitlines()) == {f"{file}: OK" for file in files}
    damaged = folder / manifest["splits"]["test"]["shards"][0]["file"]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    checked = check_sums(folder, answer.text)
    assert checked.returncode == 1
    assert f"{damaged.name}: FAILED" in checked.stdout


def test_latest_and_head(client: httpx.Client, version: str) -> None:
    for route in ("SHA256SUMS", "describe"):
        whole = client.get(f"{version}/{route}")
        assert client.get(f"{version.removesuffix('1.0.0')}latest/{route}").content == whole.content
        head = client.head(f"{version}/{route}")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(whole.content))


@pytest.mark.parametrize("split", ROWS)
@pytest.mark.parametrize("to", ["json", "schema", "pbtxt", "features", "python", None])
def test_a_split_is_described_as_its_rows_are(
    client: httpx.Client, version: str, split: str, to: str | None
) -> None:
    params = {} if to is None else {"to": to}
    records = client.get(f"{version}/records", params={"split": split, "to": "arrow"}).content
    headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
    expected = client.post("/v1/records/describe", params=params, content=records, headers=headers)
    answer = client.get(f"{version}/describe", params={"split": split, **params})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == expected.headers["content-type"]
    assert answer.content == expected.content
    if to in ("json", None):
        assert answer.json()["num_records"] == len(ROWS[split])
        assert answer.json()["features"]["x"]["max"] == (100 if split == "test" else 8)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("describe?split=tset", 404, "split_not_found"),
        ("describe?to=csv", 406, "not_acceptable"),
        ("describe?spilt=test", 400, "unknown_parameter"),
        ("describe?split=test&split=train", 400, "repeated_parameter"),
        ("SHA256SUMS?split=test", 400, "unknown_parameter"),
    ],
)
def test_unknown_file_or_split_is_404(
    client: httpx.Client, version: str, path: str, status: int, code: str
) -> None:
    answer = client.get(f"{version}/{path}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert client.get(f"{version.removesuffix('1.0.0')}9.0.0/{path}").status_code in (status, 404)


def test_describe_as_schema_reads_no_rows() -> None:
    store = open_store("memory://")
    with serving(create_app_with(Settings(storage_url="memory://"), store=store)) as client:
        url = "/v1/datasets/d/versions/latest/describe"
        appended = client.post("/v1/datasets/d/records?publish=true", json=ROWS["train"])
        before = client.get(f"{url}?to=pbtxt")
        shard = appended.json()["splits"]["train"]["shards"][0]["file"]
        for key in keys(store, shard):
            store.delete(key)
        assert client.get(f"{url}?to=pbtxt").content == before.content
        assert client.get(f"{url}?to=pbtxt&split=test").json()["code"] == "split_not_found"
        assert client.get(url).json()["code"] == "corrupt_data"


def test_sequence_examples_are_described(client: httpx.Client) -> None:
    url = f"/v1/datasets/d-{uuid.uuid4().hex[:8]}"
    rows = [{"context": {"id": 1}, "feature_lists": {"step": [[1, 2], [3, 4]]}}]
    client.post(f"{url}/records", params={"message": "sequence_example"}, json=rows)
    client.post(f"{url}/versions")
    described = client.get(f"{url}/versions/latest/describe").json()
    assert described["schema"]["message"] == "sequence_example"
    assert described["features"]["step"]["max"] == 4
