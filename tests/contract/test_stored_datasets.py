"""Datasets that earlier releases stored stay readable, and take rows and publications (tests/stored)."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stored.make import ROWS, SEQUENCES, Client
from tests.support.service import ready

STORED = Path(__file__).parents[1] / "stored"
RELEASES = sorted(path.parent for path in STORED.glob("*/expected.json"))


@pytest.fixture(scope="module", params=RELEASES, ids=lambda path: path.name)
def release(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


@pytest.fixture(scope="module")
def client(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a service on a copy of what that release stored."""
    folder = tmp_path_factory.mktemp("stored")
    shutil.copytree(release / "data", folder / "data")
    with ready(folder) as service, Client(service.url) as opened:
        yield opened


@pytest.fixture(scope="module")
def expected(release: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((release / "expected.json").read_text("utf-8"))
    return told


def test_stored_releases_exist() -> None:
    assert "0.1.0" in [path.name for path in RELEASES]


def test_every_version_has_its_rows_and_is_valid(client: Client, expected: dict[str, Any]) -> None:
    assert sum(len(versions) for versions in expected["versions"].values()) == 4
    for dataset, versions in expected["versions"].items():
        found = client.get(f"/v1/datasets/{dataset}/versions")["versions"]
        assert set(found) == set(versions)
        for version, splits in versions.items():
            for split, rows in splits.items():
                assert client.rows(dataset, version, split) == rows, (dataset, version, split)
            checked = client.validate(dataset, version)
            assert (checked["valid"], checked["problems"]) == (True, [])
            assert checked["num_records"] == sum(map(len, splits.values()))


def test_a_retry_of_what_was_stored_finds_it(client: Client, expected: dict[str, Any]) -> None:
    first = client.append("rows", ROWS, "first")
    told = client.get(f"/v1/datasets/rows/appends/{first['append_id']}")
    assert (told["state"], told["version"]) == ("published", "1.0.0")
    [waiting] = client.get("/v1/datasets/sequences/appends")["appends"]
    again = client.append("sequences", SEQUENCES, "waiting", message="sequence_example")
    assert again["append_id"] == waiting["append_id"]


def test_waiting_rows_are_published_with_new_ones(client: Client, expected: dict[str, Any]) -> None:
    for dataset, new in (("rows", ROWS), ("sequences", SEQUENCES), ("gone", ROWS)):
        message = {"message": "sequence_example"} if dataset == "sequences" else {}
        client.append(dataset, new, "new", **message)
        manifest = client.publish(dataset)
        published = sum(split["num_records"] for split in manifest["splits"].values())
        last = list(expected["versions"][dataset].values())[-1:]
        before = sum(len(rows) for splits in last for rows in splits.values())
        assert published == before + expected["waiting"][dataset] + len(new)
        assert client.validate(dataset, manifest["version"])["valid"]
        for version, splits in expected["versions"][dataset].items():
            for split, rows in splits.items():
                assert client.rows(dataset, version, split) == rows
    assert client.rows("rows", "latest", "train")[-len(ROWS) :][0]["values"] == ROWS[0]["values"]
