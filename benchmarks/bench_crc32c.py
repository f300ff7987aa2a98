"""How fast is CRC32C, next to memcpy and zlib.crc32, on one core?

64 MiB come from memory, 256 KiB from the second-level cache. Run: python -m benchmarks.bench_crc32c
"""

from __future__ import annotations

import zlib

import numpy as np

from app.codecs import kernels
from app.domain.limits import KIB, MIB
from benchmarks.measure import Peer, Session, counted, main, pin_to_one_core

TARGET = 10.0


def measure_size(session: Session, case: str, size: int, repeats: int, target: float | None) -> None:
    data = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    extend_crc = kernels.load().extend_crc
    session.ask(
        "CRC32C",
        case,
        "bytes",
        counted(lambda: extend_crc(np.uint64(0), data, 0, size), size),
        [Peer("zlib.crc32", counted(lambda: zlib.crc32(data.data), size))],
        num_bytes=size,
        least_gigabytes=target,
        repeats=repeats,
        runs=9,
    )


def measure(session: Session) -> None:
    if session.wants("64 MiB"):
        measure_size(session, "64 MiB", 64 * MIB, 1, TARGET)
    if session.wants("256 KiB"):
        measure_size(session, "256 KiB", 256 * KIB, 100, None)


if __name__ == "__main__":
    pin_to_one_core()
    main(measure)
