"""How fast are Examples written and read, next to TensorFlow, in one run on one core?

Encoding: Arrow batches to TFRecord, against `tf.train.Example` + `TFRecordWriter`. Decoding: TFRecord to
Arrow batches, against `TFRecordDataset.batch(1024).map(parse_example)` and against `FromString` alone.
Run: python -m benchmarks.bench_example
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from app.codecs import kernels
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.codecs.records.columns import MAX_BATCH_ROWS, Records, arrow_schema
from app.codecs.records.tfrecord import decode, encode
from app.domain.limits import Budget
from app.domain.schema import Schema
from app.domain.streams import MemoryStream

REPEATS = 5


@dataclass(frozen=True)
class Case:
    """Rows of one shape: a batch that is encoded `batches` times, and how TensorFlow parses it."""

    name: str
    schema: Schema
    columns: dict[str, Any]
    spec: dict[str, Any]
    batches: int

    def records(self) -> Records:
        return Records(self.schema, iter([self.batch()] * self.batches))

    def batch(self) -> pa.RecordBatch:
        arrow = arrow_schema(self.schema)
        arrays = [_fixed(self.columns[field.name], field.type) for field in arrow]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def _fixed(values: Any, kind: pa.DataType) -> Any:
    if isinstance(kind, pa.FixedSizeListType):
        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), kind.list_size)
    return pa.array(values, kind)


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    rows = MAX_BATCH_ROWS
    small = {
        "x": rng.standard_normal((rows, 20), np.float32),
        "label": rng.integers(0, 1000, rows),
        "id": [rng.bytes(16) for _ in range(rows)],
    }
    schema = {"x": {"dtype": "float32", "shape": [20]}, "label": {"dtype": "int64"}, "id": {"dtype": "bytes"}}
    spec = {
        "x": tf.io.FixedLenFeature([20], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "id": tf.io.FixedLenFeature([], tf.string),
    }
    yield Case("20 float32 + int64 + 16 bytes", Schema.from_json({"features": schema}), small, spec, 24)

    tokens = {"tokens": rng.integers(0, 50_000, (1024, 512))}
    schema = {"tokens": {"dtype": "int64", "shape": [512]}}
    spec = {"tokens": tf.io.FixedLenFeature([512], tf.int64)}
    yield Case("512 token ids", Schema.from_json({"features": schema}), tokens, spec, 16)

    wide = {f"f{index:02}": rng.standard_normal(rows, np.float32) for index in range(40)}
    schema = {name: {"dtype": "float32"} for name in wide}
    spec = {name: tf.io.FixedLenFeature([], tf.float32) for name in wide}
    yield Case("40 float32 columns", Schema.from_json({"features": schema}), wide, spec, 4)

    images = {"image": [rng.bytes(100_000) for _ in range(64)]}
    schema = {"image": {"dtype": "bytes"}}
    spec = {"image": tf.io.FixedLenFeature([], tf.string)}
    yield Case("100 kB of bytes", Schema.from_json({"features": schema}), images, spec, 16)


def seconds(run: Callable[[], int]) -> float:
    """A row's best time in `REPEATS` runs; `run` answers how many rows it did."""
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.perf_counter()
        rows = run()
        best = min(best, (time.perf_counter() - begin) / rows)
    return best


def encode_ours(case: Case) -> int:
    for _ in encode(case.records(), RecordsEncodeOptions(), Budget()):
        pass
    return case.batches * case.batch().num_rows


def decode_ours(case: Case, data: bytes) -> int:
    records = decode(MemoryStream(data), RecordsDecodeOptions(schema=case.schema), Budget())
    return sum(batch.num_rows for batch in records.batches)


def example_of(row: dict[str, Any]) -> Any:
    example = tf.train.Example()
    for name, value in row.items():
        feature = example.features.feature[name]
        items = value if isinstance(value, list) else [value]
        if isinstance(items[0], bytes):
            feature.bytes_list.value.extend(items)
        elif isinstance(items[0], float):
            feature.float_list.value.extend(items)
        else:
            feature.int64_list.value.extend(items)
    return example


def encode_tensorflow(rows: list[dict[str, Any]], path: str) -> int:
    with tf.io.TFRecordWriter(path) as writer:
        for row in rows:
            writer.write(example_of(row).SerializeToString())
    return len(rows)


def decode_tensorflow(case: Case, path: str) -> int:
    dataset = (
        tf.data.TFRecordDataset(path).batch(1024).map(lambda batch: tf.io.parse_example(batch, case.spec))
    )
    rows = 0
    for parsed in dataset:
        rows += int(next(iter(parsed.values())).shape[0])
    return rows


def measure(case: Case, folder: str) -> None:
    rows = case.batch().to_pylist()[:2000]
    data = b"".join(encode(case.records(), RecordsEncodeOptions(), Budget()))
    path = str(Path(folder) / "rows.tfrecord")
    Path(path).write_bytes(data)
    row_bytes = len(data) / (case.batches * case.batch().num_rows)
    pairs = {
        "encode": (
            seconds(lambda: encode_ours(case)),
            seconds(lambda: encode_tensorflow(rows, str(Path(folder) / "theirs"))),
        ),
        "decode": (seconds(lambda: decode_ours(case, data)), seconds(lambda: decode_tensorflow(case, path))),
    }
    for what, (ours, theirs) in pairs.items():
        print(
            f"{case.name:30} {what}  {1 / ours:12,.0f} rows/s  {row_bytes / ours / 1e9:5.2f} GB/s"
            f"   TensorFlow {1 / theirs:10,.0f} rows/s   x{theirs / ours:.1f}"
        )


def main() -> None:
    # Ours runs on one core; TensorFlow may use as many as it finds.
    if hasattr(os, "sched_getaffinity"):
        print(f"{len(os.sched_getaffinity(0))} cores for TensorFlow, one for Shardsmith")
    begin = time.perf_counter()
    kernels.load()
    print(f"kernels loaded in {time.perf_counter() - begin:.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            measure(case, folder)


if __name__ == "__main__":
    main()
