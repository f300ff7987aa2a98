"""Rows stored before the schema was widened read back under the wider one: with TensorFlow, TFDS and here."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from app.domain.limits import Budget
from app.domain.schema import Schema
from app.services.datasets import DatasetOptions
from app.storage.obstore_store import open_store
from tests.rows import Client
from tests.unit.services.test_appending import append

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
    rows = [row for batch in ours.batches for row in batch.to_pylist()]
    assert [_flat(row["x"]) for row in rows] == [_flat(value) for value in expected]
    assert [row["y"] for row in rows] == [None, 3]

    builder = tfds.builder_from_directory(tmp_path / "d" / "1.0.0")
    loaded = list(tfds.as_numpy(builder.as_dataset(split="train")))
    values = [row["x"] if isinstance(row["x"], bytes) else row["x"].tolist() for row in loaded]
    assert [_flat(value) for value in values] == [_flat(value) for value in expected]


def _y() -> Schema:
    return Schema.from_json({"features": {"y": dense("int64")}})


def _list(value: Any) -> Any:
    return tf.sparse.to_dense(value).numpy().tolist() if isinstance(value, tf.SparseTensor) else _of(value)


def _of(value: Any) -> Any:
    found = value.numpy()
    return found if isinstance(found, bytes) else found.tolist()


def _flat(value: Any) -> list[Any]:
    return [item for part in value for item in _flat(part)] if isinstance(value, list) else [value]
