"""How fast are Examples written and read, next to TensorFlow and memcpy, in one run on one core?

Encoding: batches to TFRecord in memory, against `tf.train.Example` + `TFRecordWriter`, once from the
same columns (numpy arrays) and once from ready-made Python lists. Decoding: TFRecord in memory to
batches, against `TFRecordDataset.batch(1024).map(parse_example)`, against `Example.FromString` of each
record with its values taken into columns, and against `FromString` alone. The files of the peers lie in
memory where there is /dev/shm.
Run: python -m benchmarks.bench_example [part of a case's name]
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.example_rows import ALONE, COLUMNS, LISTS, PARSE, VALUES, Case, cases, read, write
from benchmarks.frames import first_messages
from benchmarks.measure import Peer, Session, counted, drained, main, memory_folder, pin_to_one_core

if __name__ == "__main__":
    pin_to_one_core()

import numpy as np
import tensorflow as tf

from app.codecs import kernels


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


def spec_of(case: Case) -> dict[str, Any]:
    """How TensorFlow parses it."""
    spec: dict[str, Any] = {}
    for feature in case.schema:
        if feature.encoding == "raw" or feature.dtype.name == "bytes":
            spec[feature.name] = tf.io.FixedLenFeature([], tf.string)
        else:
            spec[feature.name] = tf.io.FixedLenFeature(feature.shape, feature.dtype.name)
    return spec


def parse_file(spec: dict[str, Any], path: Path) -> int:
    dataset = (
        tf.data.TFRecordDataset(str(path)).batch(1024).map(lambda batch: tf.io.parse_example(batch, spec))
    )
    return sum(int(next(iter(parsed.values())).shape[0]) for parsed in dataset)


def values_of(case: Case, messages: list[bytes]) -> int:
    columns: dict[str, list[Any]] = {name: [] for name in case.columns}
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
    batches, path = case.batches(), folder / "theirs"
    lists = [{name: as_list(values) for name, values in row.items()} for row in case.peer_columns()]
    data = b"".join(write(case, batches))
    session.ask(
        "Rows to TFRecord",
        case.name,
        "rows",
        lambda: drained(write(case, batches), case.num_rows),
        [
            Peer(COLUMNS, lambda: write_rows(case.peer_columns(), path), case.targets.get(COLUMNS)),
            Peer(LISTS, lambda: write_rows(iter(lists), path)),
        ],
        num_bytes=len(data),
    )
    return data


def measure_decoding(session: Session, case: Case, data: bytes, folder: Path) -> None:
    messages, path = first_messages(data, case.peer_rows), folder / "ours"
    path.write_bytes(data)
    session.ask(
        "TFRecord to rows",
        case.name,
        "rows",
        lambda: read(case, data),
        [
            Peer(PARSE, lambda: parse_file(spec_of(case), path), case.targets.get(PARSE)),
            Peer(VALUES, lambda: values_of(case, messages), case.targets.get(VALUES)),
            Peer(ALONE, counted(lambda: parse_alone(messages), len(messages))),
        ],
        num_bytes=len(data),
    )


def measure(session: Session) -> None:
    kernels.compile_all()
    with memory_folder() as folder:
        for case in cases():
            if session.wants(case.name):
                measure_decoding(session, case, measure_encoding(session, case, folder), folder)


if __name__ == "__main__":
    main(measure)
