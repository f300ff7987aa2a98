"""The last versions as TensorFlow reads them."""

import tempfile
from pathlib import Path

from tests.campaign.oracle import Oracle
from tests.campaign.raw_store import RawStore
from tests.campaign.workload import Row

__all__ = ["check_with_tensorflow"]


def check_with_tensorflow(oracle: Oracle, raw: RawStore) -> list[str]:
    """What TensorFlow reads otherwise than the oracle's own reader, in words."""
    wrong = []
    for name, manifest in oracle.manifests.items():
        for split, entry in manifest["splits"].items():
            keys = [f"{name}/{manifest['version']}/{shard['file']}" for shard in entry["shards"]]
            expected = oracle.rows[name][split][-entry["num_records"] :] if keys else []
            found = _read([raw.get(key) for key in keys], manifest["compression"])
            if found != expected:
                wrong.append(f"TensorFlow reads {len(found)} other rows from {name} {split}")
    return wrong


def _read(shards: list[bytes], compression: str) -> list[Row]:
    import tensorflow as tf

    kinds = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}
    features = {
        "id": tf.io.FixedLenFeature([], tf.int64),
        "score": tf.io.FixedLenFeature([], tf.float32),
        "text": tf.io.FixedLenFeature([], tf.string),
    }
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for i, shard in enumerate(shards):
            file = Path(folder, str(i))
            file.write_bytes(shard)
            dataset = tf.data.TFRecordDataset(str(file), kinds[compression])
            for batch in dataset.batch(1024).map(lambda records: tf.io.parse_example(records, features)):
                columns = [batch[name].numpy().tolist() for name in features]
                rows += [(x, score, text.decode()) for x, score, text in zip(*columns, strict=True)]
    return rows
