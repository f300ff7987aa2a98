"""How long do the statistics of a version of 1,000,000 rows take, next to reading and decoding it twice?

Both read four shards from a disk in memory, 20 float32 and an int64 a row, on one core. The statistics are
found by the code that the service runs, and are forgotten before each run.
Run: python -m benchmarks.bench_statistics
"""

from __future__ import annotations

from benchmarks.measure import Peer, Session, drained, main, pin_to_one_core

if __name__ == "__main__":
    pin_to_one_core()

from pathlib import Path

from app.domain.limits import Limits
from app.runtime.spool import Spool
from app.services.datasets.datasets import Datasets
from app.services.datasets.version_statistics import Computing
from app.storage.obstore_store import open_store
from benchmarks.version_rows import NAME, Version, published

ROWS = 1_000_000


def ours(version: Version) -> int:
    folder = Path(version.files[0]).parent
    for stored in folder.glob("_statistics-*"):
        stored.unlink()
    store = open_store(f"file://{folder.parent.parent}")  # opened anew, nothing is remembered
    datasets = Datasets(store, limits=Limits(), spool=Spool(None, 1 << 30))
    found = datasets.statistics(NAME, "latest", "train")
    if isinstance(found, Computing) or found["features"]["label"]["max"] != ROWS - 1:
        raise AssertionError("these are not the statistics of all rows")
    return ROWS


def twice(version: Version) -> int:
    for _ in range(2):
        drained(version.rows().batches, ROWS)
    return ROWS


def measure(session: Session) -> None:
    with published(ROWS, 4) as version:
        session.ask(
            "statistics",
            f"{ROWS:,} rows of 20 float32 and an int64",
            "rows",
            lambda: ours(version),
            [Peer("two reads", lambda: twice(version), target=1.0)],
            runs=5,
        )


if __name__ == "__main__":
    main(measure)
