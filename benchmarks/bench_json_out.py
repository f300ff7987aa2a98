"""How fast do tensors and rows become JSON, next to Python's json and orjson, in one run on one core?

A tensor of a million float32: against `json.dumps(array.tolist())` and `orjson.dumps(array)`. TFRecord to
NDJSON, 20 floats, an integer and a text a row: against `tf.train.Example.FromString` and `json.dumps`.
Medians of processor time, in runs that take turns. Run: python -m benchmarks.bench_json_out
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import tensorflow as tf

from app.codecs import kernels
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions, TensorEncodeOptions
from app.codecs.records import ndjson, tfrecord
from app.codecs.records.columns import MAX_BATCH_ROWS, Records, arrow_schema
from app.codecs.records.framing import frame_footer, frame_header
from app.codecs.tensors import json as tensor_json
from app.domain.dtypes import FLOAT32
from app.domain.limits import Budget
from app.domain.schema import Schema
from app.domain.streams import Buffer, MemoryStream
from app.domain.tensor import NamedTensor, tensor_from_array

REPEATS = 7
NUM_VALUES = 1_000_000
NUM_BATCHES = 24
#: Rows that the slow peer takes.
PEER_ROWS = 4000
SCHEMA = Schema.from_json(
    {"features": {"x": {"dtype": "float32", "shape": [20]}, "n": {"dtype": "int64"}, "t": {"dtype": "text"}}}
)


def medians(runs: Sequence[Callable[[], int]]) -> list[float]:
    """Processor seconds for each item, of each run; they take turns, and each says how many items it did."""
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(REPEATS):
        for run, found in zip(runs, seconds, strict=True):
            begin = time.process_time()
            items = run()
            found.append((time.process_time() - begin) / items)
    return [statistics.median(found) for found in seconds]


def report(what: str, unit: str, names: Sequence[str], found: Sequence[float]) -> None:
    ours = found[0]
    print(f"{what}: {1 / ours:,.0f} {unit}/s")
    for name, theirs in zip(names, found[1:], strict=True):
        print(f"    {name:44} {1 / theirs:14,.0f} {unit}/s   x{theirs / ours:.2f}")


def drained(pieces: Any, items: int) -> int:
    for _ in pieces:
        pass
    return items


def measure_tensor(layout: Any) -> None:
    array = np.random.default_rng(0).standard_normal((NUM_VALUES // 1000, 1000), np.float32)
    named = [NamedTensor(tensor_from_array(array, FLOAT32))]
    options = TensorEncodeOptions(layout=layout)
    shown = array if layout == "nested" else array.reshape(-1)
    found = medians(
        [
            lambda: drained(tensor_json.encode(named, options), NUM_VALUES),
            lambda: len(json.dumps(shown.tolist())) and NUM_VALUES,
            lambda: len(orjson.dumps(shown, option=orjson.OPT_SERIALIZE_NUMPY)) and NUM_VALUES,
        ]
    )
    report(
        f"a million float32, {layout}", "values", ["json.dumps(array.tolist())", "orjson.dumps(array)"], found
    )


def batch() -> pa.RecordBatch:
    rng = np.random.default_rng(0)
    floats = rng.standard_normal(MAX_BATCH_ROWS * 20, np.float32)
    columns: list[Any] = [
        pa.FixedSizeListArray.from_arrays(pa.array(floats), 20),
        pa.array(rng.integers(0, 1000, MAX_BATCH_ROWS)),
        pa.array([f"row {index}, Grüße".encode() for index in range(MAX_BATCH_ROWS)], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(SCHEMA))


def to_lines(data: Buffer, rows: int) -> int:
    source = MemoryStream(bytes(data))
    records = tfrecord.decode(source, RecordsDecodeOptions(schema=SCHEMA, compression="none"), Budget())
    return drained(ndjson.encode(records, RecordsEncodeOptions(), Budget()), rows)


def to_lines_by_message(messages: list[bytes]) -> int:
    for message in messages:
        feature = tf.train.Example.FromString(message).features.feature
        row = {
            "x": list(feature["x"].float_list.value),
            "n": feature["n"].int64_list.value[0],
            "t": feature["t"].bytes_list.value[0].decode(),
        }
        json.dumps(row, ensure_ascii=False).encode()
    return len(messages)


def messages_of(data: bytes, count: int) -> list[bytes]:
    found: list[bytes] = []
    position = 0
    around = len(frame_header(0)), len(frame_footer(b""))
    for _ in range(count):
        begin = position + around[0]
        end = begin + int.from_bytes(data[position : position + 8], "little")
        found.append(data[begin:end])
        position = end + around[1]
    return found


def measure_rows() -> None:
    rows = batch()
    data = b"".join(
        tfrecord.encode(Records(SCHEMA, iter([rows] * NUM_BATCHES)), RecordsEncodeOptions(), Budget())
    )
    num_rows = NUM_BATCHES * rows.num_rows
    messages = messages_of(data, PEER_ROWS)
    found = medians(
        [
            lambda: to_lines(data, num_rows),
            lambda: to_lines_by_message(messages),
            lambda: drained(
                ndjson.encode(Records(SCHEMA, iter([rows] * NUM_BATCHES)), RecordsEncodeOptions(), Budget()),
                num_rows,
            ),
        ]
    )
    report("TFRecord to NDJSON", "rows", ["Example.FromString + json.dumps", "ours, from Arrow alone"], found)


def main() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    kernels.load()
    measure_tensor("flat")
    measure_tensor("nested")
    measure_rows()


if __name__ == "__main__":
    main()
