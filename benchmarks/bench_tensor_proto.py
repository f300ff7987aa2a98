"""How fast are TensorProtos written and read, next to TensorFlow, in one run on one core?

Writing: the buffers that are sent (a header, kept for shapes seen before, and a view of the elements),
against `tf.io.serialize_tensor`, and against the same with `.numpy()`, which gives the bytes. Reading:
against `tf.io.parse_tensor`. The buffers are also joined into one, for the cost of a copy.
Run: python -m benchmarks.bench_tensor_proto
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

if hasattr(os, "sched_setaffinity"):  # before TensorFlow counts the cores
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np
import tensorflow as tf

from app.codecs.tensors.tensor_proto import parse_tensor_proto, serialize_tensor_proto
from app.domain.dtypes import FLOAT32
from app.domain.limits import MIB, Budget
from app.domain.tensor import tensor_from_array

REPEATS = 21
#: The targets of writing: the least ratio to TensorFlow.
TARGETS = {"32 MiB": 20, "16 bytes": 5}


def median_seconds(run: Callable[[], object], loops: int) -> float:
    """The median over `REPEATS` of the mean time of `loops` runs."""
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        for _ in range(loops):
            run()
        times.append((time.perf_counter() - begin) / loops)
    return statistics.median(times)


def report(what: str, ours: float, theirs: float, peer: str, target: int | None = None) -> None:
    goal = "" if target is None else f"   (target x{target})"
    print(
        f"{what:34} {ours * 1e6:10.2f} us   {peer:34} {theirs * 1e6:10.2f} us   x{theirs / ours:,.1f}{goal}"
    )


def measure(name: str, num_bytes: int, loops: int) -> None:
    array = np.random.default_rng(0).standard_normal(num_bytes // 4, np.float32)
    tensor, constant = tensor_from_array(array, FLOAT32), tf.constant(array)
    message = b"".join(serialize_tensor_proto(tensor))
    if message != tf.io.serialize_tensor(constant).numpy():
        raise AssertionError("not the bytes of TensorFlow")
    serialize = median_seconds(lambda: tf.io.serialize_tensor(constant), loops)
    to_bytes = median_seconds(lambda: tf.io.serialize_tensor(constant).numpy(), loops)
    parse = median_seconds(lambda: tf.io.parse_tensor(message, tf.float32), loops)
    buffers = median_seconds(lambda: serialize_tensor_proto(tensor), loops)
    joined = median_seconds(lambda: b"".join(serialize_tensor_proto(tensor)), loops)
    parsed = median_seconds(lambda: parse_tensor_proto(message, Budget()), loops)
    copied = median_seconds(lambda: parse_tensor_proto(message, Budget(), copy=True), loops)
    report(f"{name}: buffers to send", buffers, serialize, "serialize_tensor", TARGETS[name])
    report(f"{name}: buffers to send", buffers, to_bytes, "serialize_tensor.numpy()", TARGETS[name])
    report(f"{name}: joined", joined, to_bytes, "serialize_tensor.numpy()")
    report(f"{name}: read, where it lies", parsed, parse, "parse_tensor")
    report(f"{name}: read, copied", copied, parse, "parse_tensor")


def main() -> None:
    measure("32 MiB", 32 * MIB, 1)
    measure("16 bytes", 16, 500)


if __name__ == "__main__":
    main()
