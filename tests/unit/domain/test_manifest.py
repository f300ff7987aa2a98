"""Manifests: their JSON form is part of the HTTP contract, and what is stored comes back equal."""

import copy
from typing import Any

import pytest

from app.domain.manifest import FileEntry, Manifest, ShardEntry, SplitEntry
from app.domain.schema import Schema
from app.errors import CorruptData

SCHEMA = {
    "features": {
        "z": {"dtype": "int64", "shape": [], "kind": "dense", "encoding": "list", "nullable": False},
        "a": {"dtype": "float32", "shape": [None], "kind": "dense", "encoding": "list", "nullable": True},
    }
}
VALUE: dict[str, Any] = {
    "dataset": "my_ds",
    "version": "1.2.0",
    "splits": {
        "train": {
            "num_records": 5,
            "num_bytes": 250,
            "shards": [
                {
                    "file": "my_ds-train.tfrecord-00000-of-00002",
                    "num_records": 3,
                    "num_bytes": 150,
                    "sha256": "aa" * 32,
                },
                {
                    "file": "my_ds-train.tfrecord-00001-of-00002",
                    "num_records": 2,
                    "num_bytes": 100,
                    "sha256": "bb" * 32,
                    "index": {"file": "_my_ds-train.idx", "num_bytes": 9, "sha256": "ee" * 32},
                },
            ],
        },
        "test": {"num_records": 0, "num_bytes": 0, "shards": []},
    },
    "schema": SCHEMA,
    "compression": "gzip",
    "files": [{"file": "features.json", "num_bytes": 7, "sha256": "cc" * 32}],
}
MANIFEST = Manifest(
    dataset="my_ds",
    version="1.2.0",
    splits={
        "train": SplitEntry(
            (
                ShardEntry("my_ds-train.tfrecord-00000-of-00002", 3, 150, "aa" * 32),
                ShardEntry(
                    "my_ds-train.tfrecord-00001-of-00002",
                    2,
                    100,
                    "bb" * 32,
                    FileEntry("_my_ds-train.idx", 9, "ee" * 32),
                ),
            )
        ),
        "test": SplitEntry(()),
    },
    schema=Schema.from_json(SCHEMA),
    files=(FileEntry("features.json", 7, "cc" * 32),),
    compression="gzip",
)


def test_json_both_ways() -> None:
    assert MANIFEST.to_json() == VALUE
    assert Manifest.from_json(VALUE) == MANIFEST


def test_the_order_of_features_is_kept() -> None:
    assert list(MANIFEST.to_json()["schema"]["features"]) == ["z", "a"]


def test_members_that_a_later_release_added_are_passed_over() -> None:
    shard = {**VALUE["splits"]["train"]["shards"][0], "later": 1}
    train = {"num_records": 3, "num_bytes": 150, "shards": [shard], "later": 1}
    value = {**VALUE, "nonce": "x", "splits": {"train": train}}
    assert Manifest.from_json(value).splits["train"].num_records == 3


def test_every_file_is_found_by_name() -> None:
    assert MANIFEST.by_file["features.json"] == FileEntry("features.json", 7, "cc" * 32)
    assert MANIFEST.by_file["my_ds-train.tfrecord-00001-of-00002"].num_bytes == 100
    assert "other" not in MANIFEST.by_file
    assert len(MANIFEST.by_file) == 4


def changed(*path: str | int, to: Any) -> Any:
    """The manifest, one value of which is another."""
    value = copy.deepcopy(VALUE)
    *way, last = path
    inner: Any = value
    for step in way:
        inner = inner[step]
    inner[last] = to
    return value


SHARD = ("splits", "train", "shards", 1)


@pytest.mark.parametrize(
    "value",
    [
        changed(*SHARD, "file", to="../../secret"),
        changed(*SHARD, "file", to=7),
        changed(*SHARD, "num_records", to=True),
        changed(*SHARD, "num_bytes", to=-1),
        changed(*SHARD, "num_bytes", to=100.0),
        changed(*SHARD, "num_bytes", to=101),
        changed(*SHARD, "sha256", to="bb"),
        changed(*SHARD, "sha256", to=None),
        changed(*SHARD, "index", to=[]),
        changed(*SHARD, "index", "num_bytes", to="9"),
        changed("splits", "train", "shards", to=VALUE["splits"]["train"]["shards"][:1]),
        changed("splits", "..", to={"num_records": 0, "num_bytes": 0, "shards": []}),
        changed("files", 0, "file", to="a/b"),
        changed("files", 0, "sha256", to=2**70),
        changed("compression", to="br"),
        changed("compression", to=[]),
        changed("version", to=None),
        [],
        None,
        {},
        {**VALUE, "splits": []},
        {**VALUE, "splits": {"train": {}}},
        {**VALUE, "splits": {"train": {"shards": [{"file": "x"}]}}},
        {**VALUE, "schema": {}},
        {**VALUE, "files": 3},
        {key: item for key, item in VALUE.items() if key != "version"},
    ],
)
def test_malformed_manifest_is_corrupt_data(value: Any) -> None:
    with pytest.raises(CorruptData, match="manifest"):
        Manifest.from_json(value)
