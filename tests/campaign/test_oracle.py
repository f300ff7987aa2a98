"""The oracle finds what it is there to find: each test spoils one thing, in the store or in the record."""

import asyncio
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.campaign.fleet import Replica
from tests.campaign.journal import Fate, Journal, PublishedAt
from tests.campaign.oracle import Oracle
from tests.campaign.raw_store import Folder
from tests.campaign.workload import FORMS, SCHEMA, AppendSpec, Dataset, body_of
from tests.support.checksummed_json import changed

LAST = 99


class Scene:
    """A dataset with three appends of two rows, all acknowledged; beside those of other tests."""

    def __init__(self, url: str, store: Path, name: str, journal: Path) -> None:
        self.name = name
        self.folder = store / name
        self.log = self.folder / "_g1" / "log"
        self.journal = Journal(journal)
        self.oracle = Oracle(url, self.journal, Folder(store), finish_within_s=0)
        self.oracle._http.put(f"/v1/datasets/{name}", json={"schema": SCHEMA})
        for index in range(3):
            self.append(index)

    def close(self) -> None:
        self.oracle.close()
        self.journal.close()

    def append(self, index: int) -> Fate:
        spec = AppendSpec(
            index, self.name, "train", "ndjson", 2, 0, f"k{index}", "whole", is_chunked=False, publish=False
        )
        answer = self.oracle._http.post(
            f"/v1/datasets/{self.name}/records",
            content=body_of(spec),
            headers={"Content-Type": FORMS["ndjson"], "Idempotency-Key": f"k{index}"},
        )
        fate = Fate(spec, [], "acknowledged", answer.json()["append_id"])
        self.journal.decide(fate)
        return fate

    def publish(self) -> str:
        version: str = self.oracle._http.post(f"/v1/datasets/{self.name}/versions").json()["version"]
        return version

    def violations(self) -> str:
        self.oracle.judge({self.name: Dataset(self.name, splits=("train",))}, LAST)
        return "\n".join(self.journal.violations)


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Where a service is, and its store."""
    folder = tmp_path_factory.mktemp("oracle")
    store = folder / "store"
    store.mkdir()
    with asyncio.Runner() as runner:
        started = Replica(folder / "replica", {"SHARDSMITH_STORAGE_URL": store.as_uri()})
        runner.run(started.start())
        yield started.url, store
        runner.run(started.stop())


@pytest.fixture
def scene(replica: tuple[str, Path], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    name = f"d{abs(hash(request.node.name))}"
    opened = Scene(*replica, name, tmp_path / "journal")
    yield opened
    opened.close()


def test_all_is_well_where_nothing_is_spoilt(scene: Scene) -> None:
    scene.publish()
    assert scene.violations() == ""
    assert scene.oracle.counted["rows"] == 7


def test_row_that_differs_from_the_record_is_found(scene: Scene) -> None:
    fates, name = scene.journal.fates, scene.name
    lost = replace(fates[0].spec, index=7)
    scene.journal.fates[7] = Fate(lost, [], "acknowledged", "0" * 32)
    fates[1].outcome = "refused"
    fates[2].spec = replace(fates[2].spec, num_rows=3)
    version = scene.publish()
    scene.append(4)
    scene.journal.publications.append(PublishedAt(name, version, scene.journal.acknowledged(name)))
    scene.journal.manifests[name, "1.0.0"] = "{}"
    scene.journal.manifests[name, "1.7.0"] = "{}"
    found = scene.violations()
    for text in (
        "append 7 was acknowledged, and 2 of its rows are lost",
        "append 1 was refused, and 2 of its rows are there",
        "append 2 was acknowledged, and 1 of its rows are lost",
        f"version 1.0.0 of {name} lacks",
        f"version 1.0.0 of {name} is not what it was",
        f"version 1.7.0 of {name} was served, and is gone",
    ):
        assert text in found


def test_damage_in_the_store_is_found(scene: Scene) -> None:
    scene.publish()
    shard = next((scene.folder / "1.0.0").glob("d*-train*"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    found = scene.violations()
    assert f"{shard.name} has" in found
    assert "cannot be published any more" in found


def test_an_append_consumed_twice_is_found(scene: Scene) -> None:
    """The second plan is made to know nothing of the first."""
    scene.publish()
    plan = scene.log / "1.plan"
    key = json.loads(plan.read_bytes())["seen"]["key"]
    seen = scene.folder.parent / key
    lines = seen.read_text().splitlines(keepends=True)
    seen.write_text("".join(lines[1:]))
    digest = hashlib.sha256(seen.read_bytes()).hexdigest()
    plan.write_bytes(changed(plan.read_bytes(), seen={"key": key, "sha256": digest}))
    assert "is there more than once" in scene.violations()


def test_leftovers_are_found(scene: Scene) -> None:
    scene.publish()
    parts = scene.folder / "_g1" / "parts" / "00" / "attempt"
    parts.mkdir(parents=True)
    (parts / "0").write_bytes(b"x")
    (scene.log / "2.aa.inputs").write_bytes(b"x")
    (scene.folder / "1.0.0" / "shard#1").write_bytes(b"x")
    scene.oracle.check_collected([scene.name])
    assert len(scene.journal.violations) == 3
