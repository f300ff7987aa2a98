"""TensorFlow, TFDS, a reader of plain Python and our own agree on the rows of every version, in order."""

from __future__ import annotations

import importlib
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.domain.compression import Compression
from app.domain.manifest import Manifest
from app.domain.sharding.permutation import Permutation
from app.services.datasets.objects.publish_options import PublishOptions
from app.storage.obstore_store import open_store
from tests.support import publish_plans
from tests.support.dataset_rows import PADDED, Client
from tests.support.shard_readers import TENSORFLOWS, read_by_index, read_split

# What TensorFlow and TFDS warn of while they are imported is theirs.
pytestmark = pytest.mark.filterwarnings("default")

tfds = importlib.import_module("tensorflow_datasets")

COMPRESSIONS: list[Compression] = ["none", "gzip", "zlib"]
COUNT = 400


def publish(client: Client, compression: Compression, *, shuffle: bool, copies: bool) -> Manifest:
    """A version of the rows 0 to `COUNT`, a few of them too large for a piece of a kibibyte."""
    seed = 5 if shuffle else None
    options = PublishOptions(num_shards=3, compression=compression, shuffle=shuffle, seed=seed)
    client.append(range(COUNT // 2), pad=100)
    base = client.publish(options) if copies else None
    client.append(range(COUNT // 2, COUNT - 3), pad=100)
    client.append(range(COUNT - 3, COUNT), pad=5000)
    if base is None:
        return client.publish(options)
    return publish_plans.publish(client.datasets, publish_plans.copying(base), options=options)


def expected_order(*, shuffle: bool) -> list[int]:
    if not shuffle:
        return list(range(COUNT))
    return [int(number) for number in Permutation(COUNT, "5/train").numbers(np.arange(COUNT))]


def x_of(payload: bytes) -> int:
    example = tf.train.Example.FromString(payload)
    return int(example.features.feature["x"].int64_list.value[0])


@pytest.mark.parametrize(
    ("compression", "shuffle", "copies"),
    [
        case
        for case in product(COMPRESSIONS, [False, True], [False, True])
        if not (case[1] and case[2])  # a shuffled shard is never copied
    ],
)
def test_all_readers_agree(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compression: Compression,
    *,
    shuffle: bool,
    copies: bool,
) -> None:
    monkeypatch.setattr("app.services.datasets.publish.shards.writer.PIECE_BYTES", 1024)
    client = Client(open_store(f"file://{tmp_path}"))
    manifest = publish(client, compression, shuffle=shuffle, copies=copies)
    folder = tmp_path / "d" / manifest.version
    shards = manifest.splits["train"].shards
    independent = read_split(folder, "train", compression)
    files = [str(folder / shard.file) for shard in shards]
    read = tf.data.TFRecordDataset(files, TENSORFLOWS[compression])
    assert [record.numpy() for record in read] == independent
    rows = expected_order(shuffle=shuffle)
    assert [x_of(payload) for payload in independent] == rows
    assert client.read() == rows
    assert client.read(offset=123, length=45) == rows[123:168]
    if compression == "none":
        indexed: list[bytes] = []
        for shard in shards:
            assert shard.index is not None
            indexed += read_by_index(folder / shard.file, folder / shard.index.file)
        assert indexed == independent
        assert rows_of_tfds(folder) == rows
    else:
        assert not (folder / "dataset_info.json").exists()


def rows_of_tfds(folder: Path) -> list[int]:
    builder = tfds.builder_from_directory(str(folder))
    config = tfds.ReadConfig(interleave_cycle_length=1)
    rows: Any = tfds.as_numpy(builder.as_dataset(split="train", read_config=config))
    return [int(row["x"]) for row in rows]


def test_rows_fit_the_schema_given_to_tfds(tmp_path: Path) -> None:
    client = Client(open_store(f"file://{tmp_path}"))
    client.append(range(5), pad=3)
    manifest = client.publish(PublishOptions(shuffle=True))
    assert manifest.schema == PADDED
    assert sorted(rows_of_tfds(tmp_path / "d" / manifest.version)) == list(range(5))
