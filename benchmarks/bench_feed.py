"""How fast do batches for training come over HTTP, next to tf.data reading the same shards from the disk?

1,000,000 rows of 20 float32 and an int64, in four shards on a disk in memory, shuffled among 10,000 rows, in
batches of 1,024: every row once, as arrays. Ours is a service of one process and a feed that reads from it
over loopback; tf.data shuffles, batches and parses, with as many threads as it likes. Also: how long the
first batch takes where an epoch goes on after 1,000 rows, and after almost all of them.
Run: python -m benchmarks.bench_feed
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import tensorflow as tf

from app.client.feed import Feed
from benchmarks.measure import Peer, Session, main
from benchmarks.version_rows import NAME, WIDTH, Version, published
from tests.support.service import ready

ROWS = 1_000_000
BUFFER = 10_000
BATCH = 1024
FEATURES = {
    "x": tf.io.FixedLenFeature([WIDTH], tf.float32),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def ours(feed: Feed) -> int:
    feed.start_epoch(0)
    return sum(len(batch["label"]) for batch in feed)


def theirs(version: Version) -> int:
    rows = tf.data.TFRecordDataset(version.files).shuffle(BUFFER, seed=1).batch(BATCH)
    rows = rows.map(lambda batch: tf.io.parse_example(batch, FEATURES)).prefetch(tf.data.AUTOTUNE)
    return sum(len(batch["label"]) for batch in rows)


def first_batch(feed: Feed, step: int) -> int:
    feed.start_epoch(0)
    size = len(feed[step]["label"])
    feed.close()
    return size


def measure(session: Session) -> None:
    with published(ROWS, 4) as version, tempfile.TemporaryDirectory() as folder:
        store = Path(version.files[0]).parents[2].as_uri()
        with ready(Path(folder), SHARDSMITH_STORAGE_URL=store) as service:
            feed = Feed(
                service.url, NAME, global_batch=BATCH, drop_remainder=False, shuffle_buffer=BUFFER, seed=1
            )
            if ours(feed) != ROWS or theirs(version) != ROWS:
                raise AssertionError("rows are missing")
            session.ask(
                "A feed for training",
                "an epoch",
                "rows",
                partial(ours, feed),
                [Peer("tf.data", partial(theirs, version))],
                runs=3,
            )
            near, far = 1, (ROWS - 1) // BATCH - 1
            session.ask(
                "A feed for training",
                f"first batch after {far * BATCH:,} rows",
                "rows",
                partial(first_batch, feed, far),
                [Peer(f"after {near * BATCH:,} rows", partial(first_batch, feed, near))],
                runs=5,
            )
            feed.close()


if __name__ == "__main__":
    main(measure)
