"""How long do 100 rows take, somewhere in a version of 1,000,000, next to tf.data?

Ours finds the piece that holds them in the version's index, which it keeps, reads that piece, compares its
SHA-256 and decodes the rows. tf.data has no index: it reads and verifies all records before them. Both read
four shards from a disk in memory, the same rows in each run, on one core; an item is one such read.
Run: python -m benchmarks.bench_random_read
"""

from __future__ import annotations

from typing import Any

from benchmarks.measure import Peer, Session, main, pin_to_one_core

if __name__ == "__main__":
    pin_to_one_core()

import numpy as np
import tensorflow as tf

from benchmarks.version_rows import WIDTH, Version, published

ROWS = 1_000_000
TAKEN = 100
FEATURES = {
    "x": tf.io.FixedLenFeature([WIDTH], tf.float32),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def ours(version: Version, offset: int) -> list[int]:
    rows = version.rows(offset=offset, length=TAKEN)
    label = rows.schema.names.index("label")
    labels: list[int] = []
    for batch in rows.batches:
        labels += np.asarray(batch.columns[label].values).tolist()
    return labels


def theirs(version: Version, offset: int) -> list[int]:
    rows = tf.data.TFRecordDataset(version.files).skip(offset).take(TAKEN).batch(TAKEN)
    labels: list[int] = []
    for batch in rows:
        parsed: dict[str, Any] = tf.io.parse_example(batch, FEATURES)
        labels += parsed["label"].numpy().tolist()
    return labels


def measure(session: Session) -> None:
    offsets = np.random.default_rng(0).integers(0, ROWS - TAKEN, 8).tolist()
    with published(ROWS, 4) as version:
        for offset in offsets:
            expected = list(range(offset, offset + TAKEN))
            if ours(version, offset) != expected or theirs(version, offset) != expected:
                raise AssertionError(f"the rows at {offset} are others")
        session.ask(
            "100 rows at a random place",
            f"{ROWS:,} rows",
            "reads",
            lambda: len([ours(version, offset) for offset in offsets]),
            [Peer("skip, take", lambda: len([theirs(version, offset) for offset in offsets]))],
            runs=3,
        )


if __name__ == "__main__":
    main(measure)
