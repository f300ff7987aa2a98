"""How fast are Examples written and read, next to TensorFlow and memcpy, in one run on one core?

Encoding: Arrow batches to TFRecord in memory, against `tf.train.Example` + `TFRecordWriter`, once from the
same columns (numpy arrays) and once from ready-made Python lists. Decoding: TFRecord in memory to Arrow
batches, against `TFRecordDataset.batch(1024).map(parse_example)`, against `Example.FromString` of each
record with its values taken into columns, and against `FromString` alone. TensorFlow's files lie in
memory where there is /dev/shm.

The process is pinned to one core before TensorFlow is imported, so that its threads share that core. Runs
alternate and each figure is the median of its runs.
Run: python -m benchmarks.bench_example [part of a case's name]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import numpy as np
import pyarrow as pa
import tensorflow as tf

from app.codecs import kernels
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.codecs.records.columns import MAX_BATCH_ROWS, Records, arrow_schema
from app.codecs.records.framing import iter_frames
from app.codecs.records.tfrecord import decode, encode
from app.domain.limits import Budget
from app.domain.schema import Schema
from app.domain.streams import MemoryStream

RUNS = 7
COLUMNS, LISTS = "tf.train.Example from columns", "tf.train.Example from Python lists"
PARSE, VALUES, ALONE = "parse_example", "FromString with its values", "FromString alone"


@dataclass(frozen=True)
class Case:
    """Columns of one shape, how TensorFlow parses them, and what is aimed at."""

    name: str
    features: dict[str, Any]
    columns: dict[str, Any]
    spec: dict[str, Any]
    targets: dict[str, float] = field(default_factory=dict)
    peer_rows: int = 2000

    @property
    def schema(self) -> Schema:
        return Schema.from_json({"features": self.features})

    @property
    def num_rows(self) -> int:
        return len(next(iter(self.columns.values())))

    def batches(self) -> list[pa.RecordBatch]:
        arrow = arrow_schema(self.schema)
        arrays = [_fixed(self.columns[column.name], column.type) for column in arrow]
        batch = pa.RecordBatch.from_arrays(arrays, schema=arrow)
        return [batch.slice(begin, MAX_BATCH_ROWS) for begin in range(0, self.num_rows, MAX_BATCH_ROWS)]


def _fixed(values: Any, kind: pa.DataType) -> Any:
    if isinstance(kind, pa.FixedSizeListType):
        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), kind.list_size)
    return pa.array(values, kind)


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    rows = 200_000
    yield Case(
        "20 float32 + int64 + 16 bytes",
        {"x": {"dtype": "float32", "shape": [20]}, "label": {"dtype": "int64"}, "id": {"dtype": "bytes"}},
        {
            "x": rng.standard_normal((rows, 20), np.float32),
            "label": rng.integers(0, 1000, rows),
            "id": [rng.bytes(16) for _ in range(rows)],
        },
        {
            "x": tf.io.FixedLenFeature([20], tf.float32),
            "label": tf.io.FixedLenFeature([], tf.int64),
            "id": tf.io.FixedLenFeature([], tf.string),
        },
        {COLUMNS: 150, PARSE: 20, VALUES: 200},
    )
    yield Case(
        "64x64x3 float32 image, raw + int64",
        {
            "image": {"dtype": "float32", "shape": [64, 64, 3], "encoding": "raw"},
            "label": {"dtype": "int64"},
        },
        {"image": rng.standard_normal((1000, 64, 64, 3), np.float32), "label": rng.integers(0, 10, 1000)},
        {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)},
        {COLUMNS: 10},
        500,
    )
    yield Case(
        "40 float32 columns",
        {f"f{index:02}": {"dtype": "float32"} for index in range(40)},
        {f"f{index:02}": rng.standard_normal(4 * MAX_BATCH_ROWS, np.float32) for index in range(40)},
        {f"f{index:02}": tf.io.FixedLenFeature([], tf.float32) for index in range(40)},
    )
    yield Case(
        "512 token ids",
        {"tokens": {"dtype": "int64", "shape": [512]}},
        {"tokens": rng.integers(0, 50_000, (16 * 1024, 512))},
        {"tokens": tf.io.FixedLenFeature([512], tf.int64)},
    )
    yield Case(
        "100 kB of bytes",
        {"image": {"dtype": "bytes"}},
        {"image": [rng.bytes(100_000) for _ in range(500)]},
        {"image": tf.io.FixedLenFeature([], tf.string)},
        peer_rows=500,
    )


def medians(runs: dict[str, Callable[[], int]]) -> dict[str, float]:
    """The median seconds a row of each, taken in turns; a run answers how many rows it did."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(RUNS):
        for name, run in runs.items():
            begin = time.perf_counter()
            rows = run()
            times[name].append((time.perf_counter() - begin) / rows)
    return {name: statistics.median(taken) for name, taken in times.items()}


def feature_of(values: Any) -> Any:
    """One Feature, as people write it."""
    if isinstance(values, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[values]))
    if isinstance(values, list):
        if isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    if values.ndim > 1:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[values.tobytes()]))
    values = values if values.ndim else [values]
    if isinstance(values[0], np.floating):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def as_list(values: Any) -> Any:
    """What `feature_of` takes without a conversion: bytes, or a Python list."""
    if isinstance(values, bytes):
        return values
    return values.tobytes() if values.ndim > 1 else np.atleast_1d(values).tolist()


def write_rows(rows: Iterator[dict[str, Any]], path: Path) -> int:
    count = 0
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            features = {name: feature_of(values) for name, values in row.items()}
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
            count += 1
    return count


def parse_file(case: Case, path: Path) -> int:
    dataset = (
        tf.data.TFRecordDataset(str(path))
        .batch(1024)
        .map(lambda batch: tf.io.parse_example(batch, case.spec))
    )
    return sum(int(next(iter(parsed.values())).shape[0]) for parsed in dataset)


def values_of(case: Case, messages: list[bytes]) -> int:
    columns: dict[str, list[Any]] = {name: [] for name in case.spec}
    for message in messages:
        feature = tf.train.Example.FromString(message).features.feature
        for name, column in columns.items():
            held = feature[name]
            column.append(getattr(held, held.WhichOneof("kind")).value[:])
    return len([np.array(column) for column in columns.values()] and messages)


def parse_alone(messages: list[bytes]) -> int:
    for message in messages:
        tf.train.Example.FromString(message)
    return len(messages)


def measure(case: Case, folder: Path) -> None:
    schema, batches, count = case.schema, case.batches(), min(case.peer_rows, case.num_rows)
    lists = [{name: as_list(values[row]) for name, values in case.columns.items()} for row in range(count)]
    data = b"".join(encode(Records(schema, iter(batches)), RecordsEncodeOptions(), Budget()))
    ours_file = folder / "ours"
    ours_file.write_bytes(data)
    source, target = np.frombuffer(data, np.uint8), np.zeros(len(data), np.uint8)

    def write() -> int:
        for _ in encode(Records(schema, iter(batches)), RecordsEncodeOptions(), Budget()):
            pass
        return case.num_rows

    def read() -> int:
        records = decode(MemoryStream(data), RecordsDecodeOptions(schema=schema), Budget())
        return sum(batch.num_rows for batch in records.batches)

    def copy() -> int:
        np.copyto(target, source)
        return case.num_rows

    def from_columns() -> int:
        rows = ({name: values[row] for name, values in case.columns.items()} for row in range(count))
        return write_rows(rows, folder / "theirs")

    written = medians(
        {
            "ours": write,
            "memcpy": copy,
            COLUMNS: from_columns,
            LISTS: lambda: write_rows(iter(lists), folder / "theirs"),
        }
    )
    report(case, "encode", len(data), written)
    messages = first_messages(data, count)
    parsed = medians(
        {
            "ours": read,
            "memcpy": copy,
            PARSE: lambda: parse_file(case, ours_file),
            VALUES: lambda: values_of(case, messages),
            ALONE: lambda: parse_alone(messages),
        }
    )
    report(case, "decode", len(data), parsed)


def first_messages(data: bytes, count: int) -> list[bytes]:
    messages: list[bytes] = []
    for block in iter_frames(MemoryStream(data), Budget(), compression="none"):
        for start, size in zip(block.starts.tolist(), block.sizes.tolist(), strict=True):
            messages.append(bytes(block.data[start : start + size]))
            if len(messages) == count:
                return messages
    return messages


def report(case: Case, what: str, num_bytes: int, taken: dict[str, float]) -> None:
    ours, memcpy = taken.pop("ours"), taken.pop("memcpy")
    rate = num_bytes / case.num_rows / ours / 1e9
    print(f"{what} {case.name}: {1 / ours:,.0f} rows/s, {rate:.2f} GB/s, {memcpy / ours:.2f} of memcpy")
    for peer, theirs in taken.items():
        goal = f" (target x{case.targets[peer]:.0f})" if peer in case.targets else ""
        print(f"    x{theirs / ours:.1f}{goal} of {peer}, {1 / theirs:,.0f} rows/s")


def main() -> None:
    begin = time.perf_counter()
    kernels.load()
    print(f"kernels loaded in {time.perf_counter() - begin:.2f} s; all of this on one core")
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        for case in cases():
            if not sys.argv[1:] or sys.argv[1] in case.name:
                measure(case, Path(folder))


if __name__ == "__main__":
    main()
