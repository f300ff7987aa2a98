"""Rows stored before the schema was widened read back under the wider one: with TensorFlow, TFDS and here."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from app.domain.schema import Schema
from app.domain.sharding import shard_plan
from app.runtime.budget import Budget
from app.services.datasets.objects.incarnation import DatasetOptions
from app.services.datasets.objects.publish_options import PublishOptions
from app.storage.obstore_store import open_store
from tests.support.arrow_rows import as_arrow
from tests.support.dataset_rows import Client
from tests.unit.services.datasets.append.test_request import append

# What TensorFlow and TFDS warn of while they are imported is theirs.
pytestmark = pytest.mark.filterwarnings("default")

tf = importlib.import_module("tensorflow")
tfds = importlib.import_module("tensorflow_datasets")


def dense(dtype: str, shape: list[int | None] | None = None, **members: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape or [], **members}


#: first schema and row, the wider schema and row, what TensorFlow is told, what it reads of the two.
CASES: dict[str, tuple[Any, bytes, Any, bytes, Any, list[Any]]] = {
    "int8 to int64": (
        dense("int8", [2]),
        b"[-128, 127]",
        dense("int64", [2]),
        b"[9007199254740993, -1]",
        lambda: tf.io.FixedLenFeature([2], tf.int64),
        [[-128, 127], [9007199254740993, -1]],
    ),
    "float16 to float32": (
        dense("float16"),
        b"0.5",
        dense("float32"),
        b"1e30",
        lambda: tf.io.FixedLenFeature([], tf.float32),
        [0.5, 1.0000000150474662e30],
    ),
    "text to bytes": (
        dense("text"),
        '"ä"'.encode(),
        dense("bytes"),
        b'{"b64": "/w=="}',
        lambda: tf.io.FixedLenFeature([], tf.string),
        ["ä".encode(), b"\xff"],
    ),
    "a length": (
        dense("int64", [2, 2]),
        b"[[1, 2], [3, 4]]",
        dense("int64", [1, 2]),
        b"[[5, 6]]",
        lambda: tf.io.FixedLenSequenceFeature([2], tf.int64, allow_missing=True),
        [[[1, 2], [3, 4]], [[5, 6]]],
    ),
    "an inner length": (
        dense("float32", [2, 3]),
        b"[[1, 2, 3], [4, 5, 6]]",
        dense("float32", [2, 1]),
        b"[[7], [8]]",
        lambda: tf.io.VarLenFeature(tf.float32),
        [[1, 2, 3, 4, 5, 6], [7, 8]],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_old_and_new_rows_read_alike(tmp_path: Path, case: str) -> None:
    old, old_cell, new, new_cell, told, expected = CASES[case]
    client = Client(open_store(f"file://{tmp_path}"))
    first, wide = (Schema.from_json({"features": {"x": feature}}) for feature in (old, new))
    client.datasets.create("d", first, DatasetOptions())
    append(client, b'[{"x": %b}]' % old_cell)
    append(client, b'[{"x": %b, "y": 3}]' % new_cell, evolve=True, schema=Schema((*wide, *_y())))
    manifest = client.publish()
    assert manifest.schema.by_name["y"].nullable

    spec = {"x": told(), "y": tf.io.FixedLenFeature([], tf.int64, default_value=-1)}
    files = [str(tmp_path / "d" / "1.0.0" / shard.file) for shard in manifest.splits["train"].shards]
    parsed = [tf.io.parse_single_example(record, spec) for record in tf.data.TFRecordDataset(files)]
    assert [_list(row["x"]) for row in parsed] == expected
    assert [int(row["y"]) for row in parsed] == [-1, 3]

    ours = client.datasets.read_records("d", "latest", "train", budget=Budget())
    rows = [row for batch in as_arrow(ours) for row in batch.to_pylist()]
    assert [_flat(row["x"]) for row in rows] == [_flat(value) for value in expected]
    assert [row["y"] for row in rows] == [None, 3]

    builder = tfds.builder_from_directory(tmp_path / "d" / "1.0.0")
    loaded = list(tfds.as_numpy(builder.as_dataset(split="train")))
    values = [row["x"] if isinstance(row["x"], bytes) else row["x"].tolist() for row in loaded]
    assert [_flat(value) for value in values] == [_flat(value) for value in expected]


#: Options of a publication, by what they change in how records come to a shard.
WAYS: dict[str, dict[str, Any]] = {
    "by size": {},
    "several shards": {"num_shards": 3},
    "gzip": {"compression": "gzip"},
    "shuffled": {"shuffle": True, "seed": 7},
    "divided": {"fractions": {"train": "0.5", "test": "0.5"}},
    "new rows alone": {"base": "none"},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("published", [True, False])
def test_rows_of_an_integer_that_became_a_float_are_floats(
    tmp_path: Path, way: str, published: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_plan, "_MIN_SHARD_BYTES", 5_000)  # so that there are full shards
    client = Client(open_store(f"file://{tmp_path}"))
    first, later = range(600), range(600, 610)
    append(client, json.dumps([integers(number) for number in first]).encode())
    if published:
        client.publish(PublishOptions(num_shards=3))
    append(client, json.dumps([integers(number) for number in later]).encode())
    append(client, b'[{"id": -1, "x": 0.5, "pair": [1, 2.5], "nested": [[0.5]], "name": "b"}]', evolve=True)
    options = WAYS[way]
    manifest = client.publish(PublishOptions(**options))

    spec = {
        "id": tf.io.FixedLenFeature([], tf.int64),
        "x": tf.io.FixedLenFeature([], tf.float32, default_value=-1),
        "pair": tf.io.FixedLenFeature([2], tf.float32),
        "nested": tf.io.RaggedFeature(
            tf.float32,
            "nested/ragged_flat_values",
            [tf.io.RaggedFeature.RowLengths("nested/ragged_row_lengths_0")],
        ),
        "name": tf.io.FixedLenFeature([], tf.string),
    }
    read = {}
    for split in manifest.splits.values():
        files = [str(tmp_path / "d" / manifest.version / shard.file) for shard in split.shards]
        compression = options.get("compression", "").upper()
        for record in tf.data.TFRecordDataset(files, compression):
            row = tf.io.parse_single_example(record, spec)
            number = int(row.pop("id"))
            read[number] = {name: _of_any(value) for name, value in row.items()}
    kept = [*later] if options.get("base") == "none" and published else [*first, *later]
    expected = {number: integers(number) for number in kept}
    expected[-1] = {"x": 0.5, "pair": [1, 2.5], "nested": [[0.5]], "name": "b"}
    for row in expected.values():
        row.pop("id", None)
        row["x"] = row.get("x", -1)
        row["name"] = row["name"].encode()
    assert read == expected
    assert client.datasets.validate("d", manifest.version, Budget()).problems.found == []

    append(client, b'[{"id": -2, "x": 1, "pair": [1, 2], "nested": [[1]], "name": "c"}]')
    following = client.publish()
    if way == "by size":  # what holds floats is copied
        old, new = manifest.splits["train"].shards, following.splits["train"].shards
        assert old[0].sha256 == new[0].sha256


def integers(number: int) -> dict[str, Any]:
    """A row of integers that float32 holds; some lack x."""
    row = {
        "id": number,
        "pair": [number, -(2**24)],
        "nested": [[number], [1, 2], []][: 1 + number % 3],
        "name": "a" * (number % 200),
    }
    return row if number % 5 == 0 else {**row, "x": number * 4096}


def test_a_context_of_sequence_examples_becomes_a_float(tmp_path: Path) -> None:
    client = Client(open_store(f"file://{tmp_path}"))
    rows = b'[{"context": {"x": %s}, "feature_lists": {"steps": [[1, 2], [3, 4]]}}]'
    append(client, rows % b"3", message="sequence_example")
    append(client, rows % b"0.5", message="sequence_example", evolve=True)
    manifest = client.publish()
    files = [str(tmp_path / "d" / "1.0.0" / shard.file) for shard in manifest.splits["train"].shards]
    context = {"x": tf.io.FixedLenFeature([], tf.float32)}
    lists = {"steps": tf.io.FixedLenSequenceFeature([2], tf.int64)}
    parsed = [
        tf.io.parse_single_sequence_example(record, context, lists)
        for record in tf.data.TFRecordDataset(files)
    ]
    assert [float(found["x"]) for found, _ in parsed] == [3.0, 0.5]
    assert [found["steps"].numpy().tolist() for _, found in parsed] == [[[1, 2], [3, 4]]] * 2


def _of_any(value: Any) -> Any:
    return value.to_list() if isinstance(value, tf.RaggedTensor) else _of(value)


def _y() -> Schema:
    return Schema.from_json({"features": {"y": dense("int64")}})


def _list(value: Any) -> Any:
    return tf.sparse.to_dense(value).numpy().tolist() if isinstance(value, tf.SparseTensor) else _of(value)


def _of(value: Any) -> Any:
    found = value.numpy()
    return found if isinstance(found, bytes) else found.tolist()


def _flat(value: Any) -> list[Any]:
    return [item for part in value for item in _flat(part)] if isinstance(value, list) else [value]
