"""How fast are SequenceExamples written and read, next to TensorFlow, in one run on one core?

Encoding: batches to TFRecord, against `tf.train.SequenceExample` + `TFRecordWriter`. Decoding: TFRecord
to batches, against `TFRecordDataset.batch(128).map(parse_sequence_example)` and against `FromString`
of messages in memory, with the values as Python lists. The files of the peers lie in memory where there is
/dev/shm.
Run: python -m benchmarks.bench_sequence_example
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.frames import first_messages
from benchmarks.measure import Peer, Session, drained, main, memory_folder, pin_to_one_core

if __name__ == "__main__":
    pin_to_one_core()

import numpy as np
import pyarrow as pa
import tensorflow as tf

from app.codecs import kernels
from app.codecs.columns import Batch, Records
from app.codecs.messages.tfrecord import decode, encode
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.schema import Schema
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from tests.support.arrow_rows import arrow_schema, batches_from_arrow, column_type

ROWS = 1024
PEER_ROWS = 256


@dataclass(frozen=True)
class Case:
    """Rows of one shape: a batch that is encoded `batches` times, and how TensorFlow parses it."""

    name: str
    schema: Schema
    columns: dict[str, Any]
    context_spec: dict[str, Any]
    lists_spec: dict[str, Any]
    batches: int = 4

    def arrow(self) -> pa.RecordBatch:
        arrow = arrow_schema(self.schema)
        return pa.RecordBatch.from_arrays([self.columns[field.name] for field in arrow], schema=arrow)

    @cached_property
    def batch(self) -> Batch:
        return next(batches_from_arrow(self.schema, [self.arrow()]))

    def records(self) -> Records:
        return Records(self.schema, iter([self.batch] * self.batches))

    @property
    def num_rows(self) -> int:
        return ROWS * self.batches


def sequence(schema: Schema, name: str, steps: Any, num_steps: int) -> pa.Array[Any]:
    """The column of `num_steps` steps a row; `steps` are the values of all."""
    feature = schema.by_name[name]
    width = feature.step.num_values
    values: Any = pa.array(steps) if width == 1 else pa.FixedSizeListArray.from_arrays(pa.array(steps), width)
    offsets: Any = pa.array(np.arange(ROWS + 1, dtype=np.int32) * num_steps)
    column: pa.Array[Any] = pa.ListArray.from_arrays(offsets, values, type=column_type(feature))
    return column


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    identity = {"id": {"dtype": "bytes"}, "label": {"dtype": "int64"}}
    columns = {
        "id": pa.array([rng.bytes(16) for _ in range(ROWS)], pa.binary()),
        "label": pa.array(rng.integers(0, 1000, ROWS)),
    }
    context_spec = {
        "id": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    tokens = {"tokens": {"dtype": "int64", "shape": [None], "kind": "sequence"}}
    schema = Schema.from_json({"features": identity | tokens})
    yield Case(
        "128 token ids, one a step",
        schema,
        columns | {"tokens": sequence(schema, "tokens", rng.integers(0, 50_000, ROWS * 128), 128)},
        context_spec,
        {"tokens": tf.io.FixedLenSequenceFeature([], tf.int64)},
    )

    frames = {"frame": {"dtype": "float32", "shape": [None, 64], "kind": "sequence"}}
    schema = Schema.from_json({"features": identity | frames})
    values = rng.standard_normal(ROWS * 32 * 64, np.float32)
    yield Case(
        "32 steps of 64 float32",
        schema,
        columns | {"frame": sequence(schema, "frame", values, 32)},
        context_spec,
        {"frame": tf.io.FixedLenSequenceFeature([64], tf.float32)},
    )

    video = {"jpeg": {"dtype": "bytes", "shape": [None], "kind": "sequence"}}
    schema = Schema.from_json({"features": identity | video})
    images = [rng.bytes(4000)] * (ROWS * 8)
    yield Case(
        "8 frames of 4 kB",
        schema,
        columns | {"jpeg": sequence(schema, "jpeg", images, 8)},
        context_spec,
        {"jpeg": tf.io.FixedLenSequenceFeature([], tf.string)},
    )


def encode_ours(case: Case) -> int:
    return drained(encode(case.records(), RecordsEncodeOptions(), Budget()), case.num_rows)


def decode_ours(case: Case, data: bytes) -> int:
    records = decode(MemoryStream(data), RecordsDecodeOptions(schema=case.schema), Budget())
    return sum(batch.num_rows for batch in records.batches)


def feature_of(value: Any) -> Any:
    items = value if isinstance(value, list) else [value]
    if isinstance(items[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=items))
    if isinstance(items[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=items))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=items))


def encode_tensorflow(case: Case, rows: list[dict[str, Any]], path: str) -> int:
    with tf.io.TFRecordWriter(path) as writer:
        for row in rows:
            context = {name: feature_of(row[name]) for name in case.context_spec}
            lists = {
                name: tf.train.FeatureList(feature=[feature_of(step) for step in row[name]])
                for name in case.lists_spec
            }
            message = tf.train.SequenceExample(
                context=tf.train.Features(feature=context),
                feature_lists=tf.train.FeatureLists(feature_list=lists),
            )
            writer.write(message.SerializeToString())
    return len(rows)


def decode_graph(case: Case, path: str) -> int:
    dataset = tf.data.TFRecordDataset(path).batch(128)
    rows = 0
    for context, _, _ in dataset.map(
        lambda batch: tf.io.parse_sequence_example(batch, case.context_spec, case.lists_spec)
    ):
        rows += int(context["label"].shape[0])
    return rows


def decode_messages(case: Case, messages: list[bytes]) -> int:
    for message in messages:
        example = tf.train.SequenceExample.FromString(message)
        for name in case.lists_spec:
            for step in example.feature_lists.feature_list[name].feature:
                list(getattr(step, step.WhichOneof("kind")).value)
    return len(messages)


def measure_case(session: Session, case: Case, folder: Path) -> None:
    rows = case.arrow().slice(0, PEER_ROWS).to_pylist()
    data = b"".join(encode(case.records(), RecordsEncodeOptions(), Budget()))
    whole, theirs = folder / "whole", str(folder / "theirs")
    whole.write_bytes(data)
    messages = first_messages(data, PEER_ROWS)
    session.ask(
        "Sequences to TFRecord",
        case.name,
        "rows",
        lambda: encode_ours(case),
        [
            Peer(
                "tf.train.SequenceExample from Python lists",
                lambda: encode_tensorflow(case, rows, theirs),
            )
        ],
        num_bytes=len(data),
        runs=5,
    )
    session.ask(
        "TFRecord to sequences",
        case.name,
        "rows",
        lambda: decode_ours(case, data),
        [
            Peer("parse_sequence_example", lambda: decode_graph(case, str(whole))),
            Peer("FromString with its values", lambda: decode_messages(case, messages)),
        ],
        num_bytes=len(data),
        runs=5,
    )


def measure(session: Session) -> None:
    kernels.compile_all()
    with memory_folder() as folder:
        for case in cases():
            if session.wants(case.name):
                measure_case(session, case, folder)


if __name__ == "__main__":
    main(measure)
