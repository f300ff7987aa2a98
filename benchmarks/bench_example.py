"""How fast are Examples written and read, next to TensorFlow and memcpy, in one run on one core?

Encoding: Arrow batches to TFRecord in memory, against `tf.train.Example` + `TFRecordWriter`, once from the
same columns (numpy arrays) and once from ready-made Python lists, and against the writer of the package
`tfrecord`. Decoding: TFRecord in memory to Arrow batches, against
`TFRecordDataset.batch(1024).map(parse_example)`, against `Example.FromString` of each record with its
values taken into columns, against `FromString` alone, and against the loader of `tfrecord`. The files of
the peers lie in memory where there is /dev/shm.
Run: python -m benchmarks.bench_example [part of a case's name]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.frames import first_messages
from benchmarks.measure import Peer, Session, counted, drained, main, memory_folder, pin_to_one_core

if __name__ == "__main__":
    pin_to_one_core()

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tfrecord

from app.codecs import kernels
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.codecs.records.columns import MAX_BATCH_ROWS, Records, arrow_schema
from app.codecs.records.tfrecord import decode, encode
from app.domain.limits import Budget
from app.domain.schema import Schema
from app.domain.streams import MemoryStream

COLUMNS, LISTS = "tf.train.Example from columns", "tf.train.Example from Python lists"
PARSE, VALUES, ALONE = "parse_example", "FromString with its values", "FromString alone"
WRITER, LOADER = "tfrecord.TFRecordWriter from columns", "tfrecord.tfrecord_loader"


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


def described(values: Any) -> tuple[Any, str]:
    """A value and its type, as `tfrecord` takes them."""
    if isinstance(values, bytes) or values.ndim > 1:
        return (values if isinstance(values, bytes) else values.tobytes()), "byte"
    return np.atleast_1d(values), "float" if values.dtype.kind == "f" else "int"


def write_without_tensorflow(rows: Iterator[dict[str, Any]], path: Path) -> int:
    count = 0
    writer = tfrecord.TFRecordWriter(str(path))
    for row in rows:
        writer.write({name: described(values) for name, values in row.items()})
        count += 1
    writer.close()
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


def parse_alone(messages: list[bytes]) -> None:
    for message in messages:
        tf.train.Example.FromString(message)


def measure_encoding(session: Session, case: Case, folder: Path) -> bytes:
    """The TFRecord that was written."""
    schema, batches, count = case.schema, case.batches(), min(case.peer_rows, case.num_rows)
    lists = [{name: as_list(values[row]) for name, values in case.columns.items()} for row in range(count)]
    data = b"".join(encode(Records(schema, iter(batches)), RecordsEncodeOptions(), Budget()))
    path = folder / "theirs"

    def rows() -> Iterator[dict[str, Any]]:
        return ({name: values[row] for name, values in case.columns.items()} for row in range(count))

    def ours() -> int:
        return drained(
            encode(Records(schema, iter(batches)), RecordsEncodeOptions(), Budget()), case.num_rows
        )

    session.ask(
        "Rows to TFRecord",
        case.name,
        "rows",
        ours,
        [
            Peer(COLUMNS, lambda: write_rows(rows(), path), case.targets.get(COLUMNS)),
            Peer(LISTS, lambda: write_rows(iter(lists), path)),
            Peer(WRITER, lambda: write_without_tensorflow(rows(), path)),
        ],
        num_bytes=len(data),
    )
    return data


def measure_decoding(session: Session, case: Case, data: bytes, folder: Path) -> None:
    messages = first_messages(data, case.peer_rows)
    whole, some = folder / "whole", folder / "some"
    whole.write_bytes(data)
    with tf.io.TFRecordWriter(str(some)) as writer:
        for message in messages:
            writer.write(message)

    def ours() -> int:
        records = decode(MemoryStream(data), RecordsDecodeOptions(schema=case.schema), Budget())
        return sum(batch.num_rows for batch in records.batches)

    session.ask(
        "TFRecord to Arrow",
        case.name,
        "rows",
        ours,
        [
            Peer(PARSE, lambda: parse_file(case, whole), case.targets.get(PARSE)),
            Peer(VALUES, lambda: values_of(case, messages), case.targets.get(VALUES)),
            Peer(ALONE, counted(lambda: parse_alone(messages), len(messages))),
            Peer(LOADER, lambda: drained(tfrecord.tfrecord_loader(str(some), None), len(messages))),
        ],
        num_bytes=len(data),
    )


def measure(session: Session) -> None:
    kernels.load()
    with memory_folder() as folder:
        for case in cases():
            if session.wants(case.name):
                measure_decoding(session, case, measure_encoding(session, case, folder), folder)


if __name__ == "__main__":
    main(measure)
