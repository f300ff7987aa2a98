"""How large is the image, how soon is it ready, and what does it hold when idle?

Its root file system as docker/build-without-engine.sh leaves it, read-only, run as the image's user under a
control group with the memory that the chart gives. That takes root on Linux. Ready is 200 on /readyz, asked
every 20 ms from the start of the process; idle is ten seconds later. Each figure is the median of its runs.
Run: python -m benchmarks.image FOLDER [--runs N] [--memory-mib M]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

from app.domain.limits import MIB
from tests.deploy.image import Image, built, memory_limit, running
from tests.support.service import SSL_CONTEXT

WORKERS = (1, 2)
IDLE_AFTER_S = 10
MAX_MB, READY_WITHIN_S = 450, 3


@dataclass(frozen=True)
class Figures:
    """Of one start: seconds, and MiB of all processes."""

    ready_s: float
    anonymous_mib: float
    peak_mib: float


def size(image: Image) -> tuple[int, int]:
    """Bytes in files, and files."""
    sizes = [
        path.lstat().st_size for path in image.root.rglob("*") if path.is_file() and not path.is_symlink()
    ]
    return sum(sizes), len(sizes)


def measure(image: Image, memory_bytes: int, workers: int) -> Figures:
    """One start."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        with running(image, Path(folder), memory_bytes, SHARDSMITH_WORKERS=str(workers)) as container:
            while not _is_ready(container.service.url):
                assert container.service.process.poll() is None, container.service.log()
                time.sleep(0.02)
            ready_s = time.monotonic() - begun
            time.sleep(IDLE_AFTER_S)
            group = container.group
            return Figures(ready_s, group.anonymous_bytes / MIB, group.peak_bytes / MIB)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=1, verify=SSL_CONTEXT).status_code == 200
    except httpx.TransportError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the image.")
    parser.add_argument("folder", type=Path, help="filled by docker/build-without-engine.sh")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--memory-mib", type=int, default=memory_limit() // MIB)
    given = parser.parse_args()
    image = built(given.folder)
    num_bytes, num_files = size(image)
    print(f"size: {num_bytes / 1e6:.0f} MB unpacked in {num_files} files (target {MAX_MB} MB)")
    for workers in WORKERS:
        runs = [measure(image, given.memory_mib * MIB, workers) for _ in range(given.runs)]
        ready_s = statistics.median(run.ready_s for run in runs)
        anonymous = statistics.median(run.anonymous_mib for run in runs)
        peak = statistics.median(run.peak_mib for run in runs)
        print(
            f"workers {workers}: ready after {ready_s:.2f} s (target {READY_WITHIN_S} s); idle "
            f"{anonymous:.0f} MiB without files; since the start at most {peak:.0f} MiB with files"
        )


if __name__ == "__main__":
    main()
