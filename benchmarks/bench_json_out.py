"""How fast do tensors and rows become JSON, next to Python's json and orjson, in one run on one core?

A tensor of a million float32: against `json.dumps(array.tolist())` and `orjson.dumps(array)`. TFRecord to
NDJSON, 20 floats, an integer and a text a row: against `tf.train.Example.FromString` and `json.dumps`, and
against the part of ours that begins with Arrow. Run: python -m benchmarks.bench_json_out
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.frames import first_messages
from benchmarks.measure import Peer, Session, counted, drained, main, pin_to_one_core

if __name__ == "__main__":
    pin_to_one_core()

import numpy as np
import orjson
import pyarrow as pa
import tensorflow as tf

from app.codecs import kernels
from app.codecs.array import Array
from app.codecs.columns import MAX_BATCH_ROWS, Batch, Records
from app.codecs.json.rows import write as write_rows
from app.codecs.json.tensors import write as write_tensors
from app.codecs.messages import tfrecord
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions, TensorEncodeOptions
from app.domain.dtypes import FLOAT32
from app.domain.schema import Schema
from app.runtime.budget import Budget
from app.runtime.streams import Buffer, MemoryStream
from tests.support.arrow_rows import arrow_schema, batches_from_arrow

NUM_VALUES = 1_000_000
NUM_BATCHES = 24
#: Rows that the slow peer takes.
PEER_ROWS = 4000
SCHEMA = Schema.from_json(
    {"features": {"x": {"dtype": "float32", "shape": [20]}, "n": {"dtype": "int64"}, "t": {"dtype": "text"}}}
)


def measure_tensor(session: Session, layout: Any) -> None:
    array = np.random.default_rng(0).standard_normal((NUM_VALUES // 1000, 1000), np.float32)
    tensors = [Array.of(array, FLOAT32)]
    options = TensorEncodeOptions(layout=layout)
    shown = array if layout == "nested" else array.reshape(-1)

    session.ask(
        "Tensor to JSON",
        f"a million float32, {layout}",
        "values",
        lambda: drained(write_tensors.write(tensors, options, Budget()), NUM_VALUES),
        [
            Peer("json.dumps(array.tolist())", counted(lambda: json.dumps(shown.tolist()), NUM_VALUES)),
            Peer(
                "orjson.dumps(array)",
                counted(lambda: orjson.dumps(shown, option=orjson.OPT_SERIALIZE_NUMPY), NUM_VALUES),
            ),
        ],
        num_bytes=sum(map(len, write_tensors.write(tensors, options, Budget()))),
    )


def batch() -> Batch:
    rng = np.random.default_rng(0)
    floats = rng.standard_normal(MAX_BATCH_ROWS * 20, np.float32)
    columns: list[Any] = [
        pa.FixedSizeListArray.from_arrays(pa.array(floats), 20),
        pa.array(rng.integers(0, 1000, MAX_BATCH_ROWS)),
        pa.array([f"row {index}, Grüße".encode() for index in range(MAX_BATCH_ROWS)], pa.binary()),
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(SCHEMA))
    return next(batches_from_arrow(SCHEMA, [rows]))


def to_lines(data: Buffer, rows: int) -> int:
    source = MemoryStream(bytes(data))
    records = tfrecord.decode(source, RecordsDecodeOptions(schema=SCHEMA, compression="none"), Budget())
    return drained(write_rows.encode_lines(records, RecordsEncodeOptions(), Budget()), rows)


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


def measure_rows(session: Session) -> None:
    rows = batch()
    num_rows = NUM_BATCHES * rows.num_rows

    def records() -> Records:
        return Records(SCHEMA, iter([rows] * NUM_BATCHES))

    data = b"".join(tfrecord.encode(records(), RecordsEncodeOptions(), Budget()))
    messages = first_messages(data, PEER_ROWS)
    session.ask(
        "TFRecord to NDJSON",
        "20 float32 + int64 + text",
        "rows",
        lambda: to_lines(data, num_rows),
        [
            Peer("Example.FromString + json.dumps", lambda: to_lines_by_message(messages)),
            Peer(
                "ours, from Arrow alone",
                lambda: drained(
                    write_rows.encode_lines(records(), RecordsEncodeOptions(), Budget()), num_rows
                ),
            ),
        ],
        num_bytes=sum(map(len, write_rows.encode_lines(records(), RecordsEncodeOptions(), Budget()))),
    )


def measure(session: Session) -> None:
    kernels.compile_all()
    measure_tensor(session, "flat")
    measure_tensor(session, "nested")
    measure_rows(session)


if __name__ == "__main__":
    main(measure)
