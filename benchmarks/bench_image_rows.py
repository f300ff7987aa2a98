"""How fast do rows of images go through their steps, and how much memory do they take?

JPEGs of 256 x 256 pixels are decoded, resized to 128 x 128, encoded and framed as TFRecord, next to a
`tf.data` map of the same operations with two parallel calls; on all cores, by the clock, which a busy machine
makes useless. Then JPEGs of a megabyte pass, and the memory of this process and of those that decode is
watched: `--size` says how many, 10,000 by default.
Run: python -m benchmarks.bench_image_rows
"""

from __future__ import annotations

import io
import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf
from PIL import Image

from app.allocator import return_large_blocks
from app.codecs.columns import Batch, Column, Records, Strings
from app.codecs.forms import RECORDS_CODECS
from app.codecs.options import RecordsEncodeOptions
from app.domain.dtypes import BYTES
from app.domain.feature import Feature
from app.domain.limits import MIB
from app.domain.schema import Schema
from app.runtime.budget import Budget
from app.transforms.apply import apply_transforms
from app.transforms.images.processes import ImageProcesses
from benchmarks.measure import Answer, Session, main

IMAGES = 800
TARGET = 1.2
RUNS = 9
LARGE_IMAGES = 10_000
#: Bytes by which memory may grow.
GROWTH = 128 * MIB
STEPS = (
    {"step": "decode_image", "channels": 3},
    {"step": "resize", "size": [128, 128]},
    {"step": "cast", "dtype": "uint8", "unfit": "saturate"},
    {"step": "encode_jpeg"},
)
SCHEMA = Schema((Feature("image", BYTES, (), transforms=json.dumps(STEPS)),))


def jpeg(height: int, width: int, seed: int, detail: int, quality: int) -> bytes:
    """An image with one noisy pixel in `detail`, and smooth between them."""
    noise = np.random.default_rng(seed).integers(
        0, 256, (height // detail, width // detail, 3), dtype=np.uint8
    )
    file = io.BytesIO()
    image = Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)
    image.save(file, "JPEG", quality=quality)
    return file.getvalue()


def transform_here(batches: Iterator[Batch], images: ImageProcesses) -> int:
    budget = Budget()
    records = apply_transforms(Records(SCHEMA, batches), images, budget)
    return sum(map(len, RECORDS_CODECS["tfrecord"].encode(records, RecordsEncodeOptions(), budget)))


def transform_in_tensorflow(body: tf.Tensor) -> tf.Tensor:
    resized = tf.image.resize(tf.io.decode_jpeg(body, channels=3), [128, 128])
    return tf.io.encode_jpeg(tf.saturate_cast(resized, tf.uint8))


def write_in_tensorflow(bodies: list[bytes]) -> None:
    rows = tf.data.Dataset.from_tensor_slices(bodies).map(
        transform_in_tensorflow, num_parallel_calls=2, deterministic=True
    )
    with tf.io.TFRecordWriter(os.devnull) as writer:
        for row in rows.as_numpy_iterator():
            value = tf.train.Feature(bytes_list=tf.train.BytesList(value=[row]))
            example = tf.train.Example(features=tf.train.Features(feature={"image": value}))
            writer.write(example.SerializeToString())


def measure_speed(session: Session) -> None:
    case = "decode, resize, encode_jpeg, TFRecord"
    if not session.wants(case):
        return
    bodies = [jpeg(256, 256, seed, 11, 90) for seed in range(40)] * (IMAGES // 40)
    batch = Batch(len(bodies), (Column(Strings.pack(bodies)),))
    images = ImageProcesses()
    runs: dict[str, Callable[[], object]] = {
        "ours": lambda: transform_here(iter([batch]), images),
        "TensorFlow": lambda: write_in_tensorflow(bodies),
    }
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range((session.runs or RUNS) + 1):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            taken[name].append((time.perf_counter() - begin) / len(bodies))
    images.close()
    ours, theirs = (statistics.median(times[1:]) for times in taken.values())
    answer = Answer("Rows of images", case, "images", ours, None, None, "TensorFlow", theirs, TARGET)
    session.answers.append(answer)
    print(f"Rows of images, {case}: {1 / ours:,.0f} images/s by the clock")
    print(f"    {answer.ratio:.3g} x (target {TARGET:g} x) TensorFlow, {1 / theirs:,.0f} images/s")


def memory_of(process_ids: list[int]) -> int:
    """Bytes of all of them; what they share counts once."""
    found = 0
    for process_id in process_ids:
        try:
            lines = Path(f"/proc/{process_id}/smaps_rollup").read_text(encoding="ascii").splitlines()
        except OSError:  # it has ended
            continue
        found += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return found


def measure_memory(session: Session) -> None:
    case = "memory of JPEGs of a megabyte"
    if not session.wants(case):
        return
    body = jpeg(900, 1100, 0, 1, 92)
    count = session.size or LARGE_IMAGES
    images = ImageProcesses()
    batches = (Batch(16, (Column(Strings.pack([body] * 16)),)) for _ in range(count // 16))

    def used() -> int:
        return memory_of([os.getpid(), *images.process_ids])

    before, peak, done = used(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.05):
            peak = max(peak, used())

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    transform_here(batches, images)
    seconds = time.perf_counter() - begin
    done.set()
    watcher.join()
    images.close()
    growth = peak - before
    session.answers.append(
        Answer("Rows of images", case, "bytes", growth, None, None, f"{GROWTH // MIB} MiB", GROWTH, 1.0)
    )
    print(f"Rows of images, {case}: {count} of {len(body)} bytes in {seconds:.0f} s")
    print(f"    memory grew by {growth / MIB:.0f} MiB (target at most {GROWTH // MIB} MiB)")


def measure(session: Session) -> None:
    measure_speed(session)
    measure_memory(session)


if __name__ == "__main__":
    return_large_blocks()  # as the service does
    main(measure)
