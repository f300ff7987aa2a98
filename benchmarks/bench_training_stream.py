"""How fast do rows come shuffled and in batches for training, next to tf.data?

1,000,000 rows of 20 float32 and an int64, in four shards on a disk in memory, through a shuffle buffer of
10,000 rows, in batches of 1,024: every row once, parsed. Ours also compares the SHA-256 of all that it
reads. Both on one core.
Run: python -m benchmarks.bench_training_stream
"""

from __future__ import annotations

from functools import partial

from benchmarks.measure import Peer, Session, main, pin_to_one_core

if __name__ == "__main__":
    pin_to_one_core()

import tensorflow as tf

from app.codecs.columns import in_batches
from app.domain.sharding.row_order import RowOrder
from app.runtime.budget import Budget
from benchmarks.version_rows import WIDTH, Version, published

ROWS = 1_000_000
BUFFER = 10_000
BATCH = 1024
FEATURES = {
    "x": tf.io.FixedLenFeature([WIDTH], tf.float32),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def ours(version: Version, shuffle_buffer: int) -> int:
    rows = version.rows(order=RowOrder(shuffle_buffer, seed=1))
    return sum(batch.num_rows for batch in in_batches(rows, BATCH, Budget()).batches)


def theirs(version: Version, shuffle_buffer: int) -> int:
    rows = tf.data.TFRecordDataset(version.files)
    if shuffle_buffer:
        rows = rows.shuffle(shuffle_buffer, seed=1)
    rows = rows.batch(BATCH).map(lambda batch: tf.io.parse_example(batch, FEATURES))
    return sum(len(batch["label"]) for batch in rows)


def measure(session: Session) -> None:
    with published(ROWS, 4) as version:
        for case, buffer in (("shuffled and batched", BUFFER), ("batched", 0)):
            if not session.wants(case):
                continue
            if ours(version, buffer) != ROWS or theirs(version, buffer) != ROWS:
                raise AssertionError("rows are missing")
            session.ask(
                "A version for training",
                case,
                "rows",
                partial(ours, version, buffer),
                [Peer("tf.data", partial(theirs, version, buffer))],
                runs=3,
            )


if __name__ == "__main__":
    main(measure)
