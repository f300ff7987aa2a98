"""How long do the statistics of a version of 1,000,000 rows take, next to reading and decoding it twice?

Both read four shards from a disk in memory, on one core. The statistics are found by the code that the
service runs, and are forgotten before each run.
Run: python -m benchmarks.bench_statistics
"""

from __future__ import annotations

from benchmarks.measure import Peer, Session, drained, main, pin_to_one_core

if __name__ == "__main__":
    pin_to_one_core()

from functools import partial
from pathlib import Path

from app.domain.limits import Limits
from app.runtime.spool import Spool
from app.services.datasets.datasets import Datasets
from app.services.datasets.version_statistics import Computing
from app.storage.obstore_store import open_store
from benchmarks.version_rows import NAME, Version, published

ROWS = 1_000_000


#: The features of a row, by the kind of version.
CASES = {
    "numbers": "20 float32 and an int64",
    "articles": "an int64, 18 float32, a label and a text",
}


def ours(version: Version) -> int:
    folder = Path(version.files[0]).parent
    for stored in folder.glob("_statistics-*"):
        stored.unlink()
    store = open_store(f"file://{folder.parent.parent}")  # opened anew, nothing is remembered
    datasets = Datasets(store, limits=Limits(), spool=Spool(None, 1 << 30))
    found = datasets.statistics(NAME, "latest", "train")
    if isinstance(found, Computing):
        raise AssertionError("the statistics are not there in time")
    if max(of.get("max") or 0 for of in found["features"].values()) != ROWS - 1:
        raise AssertionError("these are not the statistics of all rows")
    return ROWS


def twice(version: Version) -> int:
    for _ in range(2):
        drained(version.rows().batches, ROWS)
    return ROWS


def measure(session: Session) -> None:
    for kind, described in CASES.items():
        case = f"{ROWS:,} rows of {described}"
        if not session.wants(case):
            continue
        with published(ROWS, 4, kind) as version:
            session.ask(
                "statistics",
                case,
                "rows",
                partial(ours, version),
                [Peer("two reads", partial(twice, version), target=1.0)],
                runs=5,
            )


if __name__ == "__main__":
    main(measure)
