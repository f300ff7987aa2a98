"""Parquet files of any size whose rows can be counted and hashed, and the same of the shards made of them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

__all__ = ["ROW_BYTES", "WIDTH", "Tally", "read_shards", "write_source"]

#: float32 of a row.
WIDTH = 64
#: Of a row in the Parquet file, about.
ROW_BYTES = 4 * WIDTH + 12
_GROUP_ROWS = 100_000
_FILE_ROWS = 1_000_000


@dataclass
class Tally:
    """How often each row was seen, by its id, and the sum of the hashes of whole rows.

    Attributes:
        num_rows: there are; their ids are 0 to that.
    """

    num_rows: int
    seen: NDArray[np.uint8] = field(init=False)
    total: int = 0

    def __post_init__(self) -> None:
        self.seen = np.zeros(self.num_rows, np.uint8)

    def add(self, ids: NDArray[Any], labels: NDArray[Any], x: NDArray[Any]) -> None:
        """Some rows, in any order; an id that there is not is an IndexError."""
        np.add.at(self.seen, ids, 1)
        mixed = _mix(ids.astype(np.uint64) * np.uint64(31) + labels.astype(np.uint64))
        bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
        weights = _mix(np.arange(1, WIDTH + 1, dtype=np.uint64))
        rows = _mix(mixed ^ (bits * weights).sum(axis=1, dtype=np.uint64))
        self.total = (self.total + int(rows.sum(dtype=np.uint64))) % 2**64

    def problems(self, source: "Tally") -> list[str]:
        """What is otherwise than in the source, in words."""
        wrong = []
        missing, twice = int((self.seen == 0).sum()), int((self.seen > 1).sum())
        if missing or twice:
            wrong.append(f"{missing} rows are missing, {twice} are there more than once")
        if self.total != source.total:
            wrong.append("the hash of all rows is another one")
        return wrong


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def write_source(folder: Path, num_rows: int) -> Tally:
    """Files of a million rows, in row groups of 100,000: an id, a label, and a vector."""
    tally = Tally(num_rows)
    rng = np.random.default_rng(7)
    schema = pa.schema([("id", pa.int64()), ("label", pa.int32()), ("x", pa.list_(pa.float32(), WIDTH))])
    for number, first in enumerate(range(0, num_rows, _FILE_ROWS)):
        # Vectors do not compress; to try would take most of the time.
        with pq.ParquetWriter(
            folder / f"part-{number:04}.parquet", schema, compression="none", use_dictionary=False
        ) as writer:
            last = min(first + _FILE_ROWS, num_rows)
            for begin in range(first, last, _GROUP_ROWS):
                ids = np.arange(begin, min(begin + _GROUP_ROWS, last))
                labels = (ids % 10).astype(np.int32)
                x = rng.random((len(ids), WIDTH), np.float32)
                tally.add(ids, labels, x)
                vectors = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), WIDTH)
                batch = pa.record_batch([pa.array(ids), pa.array(labels), vectors], schema=schema)
                writer.write_batch(batch)
    return tally


def read_shards(files: Iterable[Path], num_rows: int) -> Tally:
    """The rows of TFRecord files as TensorFlow reads them."""
    import tensorflow as tf

    features = {
        "id": tf.io.FixedLenFeature([], tf.int64),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "x": tf.io.FixedLenFeature([WIDTH], tf.float32),
    }
    rows = tf.data.TFRecordDataset([str(file) for file in files], buffer_size=8 << 20).batch(8192)
    rows = rows.map(lambda records: tf.io.parse_example(records, features)).prefetch(2)
    tally = Tally(num_rows)
    for batch in rows:
        tally.add(batch["id"].numpy(), batch["label"].numpy(), batch["x"].numpy())
    return tally
