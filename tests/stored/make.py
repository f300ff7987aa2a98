"""Store datasets with the code as it is, for the tests of later releases: python -m tests.stored.make FOLDER

FOLDER, named after the release, gets `data`, a store with datasets in it, and `expected.json`, what their
versions hold. Never make the folder of an earlier release anew: it is there to be read as it was written.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import httpx

from tests.support.service import ready

ROWS: Final[list[dict[str, Any]]] = [
    {"x": 1, "name": "a", "values": [0.5, 1.5]},
    {"x": 2, "name": None, "values": [2.5, 3.5]},
]
WIDER: Final[list[dict[str, Any]]] = [{"x": 1.5, "name": "c", "values": [4.5, 5.5], "tags": ["p", "q"]}]
#: More than fits into a slot, so that they are stored as parts.
MANY: Final[list[dict[str, Any]]] = [{"x": 3, "name": "long " * 800, "values": [0.0, 0.0]}] * 80
SEQUENCES: Final[list[dict[str, Any]]] = [
    {"context": {"id": 7}, "feature_lists": {"steps": [[1.5], [2.5]]}},
    {"context": {"id": 8}, "feature_lists": {"steps": []}},
]


class Client:
    """Requests that have to go well."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=60)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def append(self, dataset: str, rows: list[dict[str, Any]], key: str, **query: str) -> dict[str, Any]:
        answer = self._client.post(
            f"/v1/datasets/{dataset}/records", json=rows, params=query, headers={"Idempotency-Key": key}
        )
        return self._told(answer, 201)

    def publish(self, dataset: str, **query: str) -> dict[str, Any]:
        return self._told(self._client.post(f"/v1/datasets/{dataset}/versions", params=query), 201)

    def rows(self, dataset: str, version: str, split: str) -> list[dict[str, Any]]:
        path = f"/v1/datasets/{dataset}/versions/{version}/records"
        answer = self._client.get(path, params={"split": split})
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    def validate(self, dataset: str, version: str) -> dict[str, Any]:
        return self._told(self._client.post(f"/v1/datasets/{dataset}/versions/{version}/validate"), 200)

    def get(self, path: str) -> dict[str, Any]:
        return self._told(self._client.get(path), 200)

    def delete(self, path: str) -> None:
        assert self._client.delete(path).status_code == 204

    def _told(self, answer: httpx.Response, status: int) -> dict[str, Any]:
        assert answer.status_code == status, answer.text
        told: dict[str, Any] = answer.json()
        return told


def store(client: Client) -> dict[str, Any]:
    """What the versions of the stored datasets hold, and what waits for the next ones."""
    client.append("rows", ROWS, "first")
    client.publish("rows")
    client.append("rows", WIDER, "second", evolve="widen")
    unwanted = client.append("rows", ROWS, "unwanted")
    client.publish(
        "rows", exclude=unwanted["append_id"], num_shards="2", compression="gzip", shuffle="true", seed="7"
    )
    client.append("rows", ROWS * 20, "third")
    client.publish("rows", fractions="train:0.5,test:0.5", divide="train", seed="3")
    client.append("rows", MANY, "waiting")
    client.append("sequences", SEQUENCES, "first", message="sequence_example")
    client.publish("sequences", compression="zlib")
    client.append("sequences", SEQUENCES, "waiting", message="sequence_example")
    client.append("gone", ROWS, "first", publish="true")
    client.delete("/v1/datasets/gone")
    client.append("gone", ROWS, "first")
    return {
        "versions": {
            dataset: {
                version: {
                    split: client.rows(dataset, version, split)
                    for split in client.get(f"/v1/datasets/{dataset}/versions/{version}")["splits"]
                }
                for version in versions
            }
            for dataset, versions in (
                ("rows", ("1.0.0", "1.1.0", "1.2.0")),
                ("sequences", ("1.0.0",)),
                ("gone", ()),
            )
        },
        "waiting": {"rows": len(MANY), "sequences": len(SEQUENCES), "gone": len(ROWS)},
    }


def main() -> None:
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        with ready(Path(folder)) as service, Client(service.url) as client:
            expected = store(client)
        shutil.rmtree(Path(folder) / "data" / "_probe", ignore_errors=True)
        shutil.copytree(Path(folder) / "data", target / "data")
    (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
