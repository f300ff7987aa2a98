"""How fast is CRC32C, next to memcpy and zlib.crc32, on one core?

64 MiB come from memory, 256 KiB from the second-level cache. Runs alternate; medians of 9.
Run: python -m benchmarks.bench_crc32c
"""

from __future__ import annotations

import os
import statistics
import time
import zlib
from collections.abc import Callable

import numpy as np

from app.codecs import kernels
from app.domain.limits import KIB, MIB

RUNS = 9
TARGET = 10.0


def seconds(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median time of each, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(RUNS):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(taken) for name, taken in times.items()}


def measure(size: int, repeats: int, target: float | None) -> None:
    """Print one line a peer for buffers of `size` bytes."""
    data = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    target_array = np.zeros_like(data)
    extend_crc = kernels.load().extend_crc

    def times(run: Callable[[], object]) -> Callable[[], None]:
        def repeat() -> None:
            for _ in range(repeats):
                run()

        return repeat

    taken = seconds(
        {
            "CRC32C": times(lambda: extend_crc(np.uint64(0), data, 0, len(data))),
            "memcpy": times(lambda: np.copyto(target_array, data)),
            "zlib.crc32": times(lambda: zlib.crc32(data.data)),
        }
    )
    rates = {name: size * repeats / time_taken / 1e9 for name, time_taken in taken.items()}
    goal = f" (target {target:.0f} GB/s)" if target else ""
    print(
        f"CRC32C of {size // KIB:6} KiB: {rates['CRC32C']:6.2f} GB/s{goal}; "
        f"x{rates['CRC32C'] / rates['zlib.crc32']:.1f} of zlib.crc32 ({rates['zlib.crc32']:.2f} GB/s), "
        f"{rates['CRC32C'] / rates['memcpy']:.2f} of memcpy ({rates['memcpy']:.2f} GB/s)"
    )


def main() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    measure(64 * MIB, 1, TARGET)
    measure(256 * KIB, 100, None)


if __name__ == "__main__":
    main()
