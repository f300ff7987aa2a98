"""One replica: the real service, with failpoints in its store and, if wanted, a clock that is wrong.

    python -m tests.campaign.replica FOLDER

configured by `SHARDSMITH_*`; FOLDER is where failpoints are armed. `CAMPAIGN_CLOCK_S` is added to this
process's wall clock, `CAMPAIGN_STORE_CLOCK_S` to the time that the store tells (for collection: it
sees everything as that much older).
"""

import functools
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

from app import launch, main
from app.storage.object_store import ObjectStore
from app.storage.obstore_store import open_store
from tests.campaign.failpoints import Failpoints, FailpointStore


def _skew(seconds: float) -> None:
    wall, wall_ns = time.time, time.time_ns
    time.time = lambda: wall() + seconds
    time.time_ns = lambda: wall_ns() + int(seconds * 1e9)


def _open(folder: Path, url: str) -> ObjectStore:
    offset = timedelta(seconds=float(os.environ.get("CAMPAIGN_STORE_CLOCK_S", "0")))
    return FailpointStore(open_store(url), Failpoints(folder / "armed", folder / "fired"), offset)


def run() -> None:
    """Serve until the end, like `app.launch.run`."""
    folder = Path(sys.argv[1])
    _skew(float(os.environ.get("CAMPAIGN_CLOCK_S", "0")))
    main.open_store = functools.partial(_open, folder)  # type: ignore[assignment, attr-defined]
    launch.run()


if __name__ == "__main__":
    run()
