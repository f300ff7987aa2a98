"""How fast is JSON read, next to what a client would write in Python, in one run on one core?

Tensors: a million numbers to a float32 array, against `orjson.loads` + `numpy.array` and against
pysimdjson's `as_buffer`. Rows: NDJSON to TFRecord bytes, against `json.loads` + one
`tf.train.Example` a row + `TFRecordWriter`, the Example built as TensorFlow's guide does, and filled in
place, which is faster. Also rows that are not quite plain: a list of texts of any length, a number that is
often null, and a nested list. Run: python -m benchmarks.bench_json
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import Peer, Session, counted, main, memory_folder, pin_to_one_core

if __name__ == "__main__":
    pin_to_one_core()

import numpy as np
import orjson
import simdjson
import tensorflow as tf

from app.codecs import kernels
from app.codecs.json.rows import ndjson
from app.codecs.json.tensors import read as json_tensors
from app.codecs.messages import tfrecord
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions, TensorDecodeOptions
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile, MemoryStream

NUMBERS = 1_000_000
ROWS = 100_000
MIXED_ROWS = 25_000
#: Rows of the slow side.
PEER_ROWS = 5_000
TENSOR_TARGET = 3
PLAIN_TARGET, MIXED_TARGET = 25, 10


def number_texts() -> Iterator[tuple[str, list[str]]]:
    rng = np.random.default_rng(0)
    yield "17-digit doubles", [repr(value) for value in rng.standard_normal(NUMBERS).tolist()]
    yield "short float32 decimals", [str(value) for value in rng.standard_normal(NUMBERS, np.float32)]
    yield "4 decimals", [repr(value) for value in np.round(rng.standard_normal(NUMBERS) * 10, 4).tolist()]
    yield "integers", [str(value) for value in rng.integers(-100_000, 100_000, NUMBERS).tolist()]


def tensor_bodies() -> Iterator[tuple[str, bytes, bool]]:
    for name, texts in number_texts():
        flat = f'{{"dtype":"float32","shape":[1000,{NUMBERS // 1000}],"data":[{",".join(texts)}]}}'
        yield f"{name}, with dtype", flat.encode(), True
        rows = (", ".join(texts[begin : begin + 1000]) for begin in range(0, NUMBERS, 1000))
        yield f"{name}, nested", f"[[{'], ['.join(rows)}]]".encode(), False


def measure_tensor(session: Session, name: str, body: bytes, *, is_flat: bool) -> None:
    def ours() -> Any:
        return json_tensors.read(MemoryFile(body), TensorDecodeOptions(), Budget())[0].values

    def theirs() -> Any:
        parsed = orjson.loads(body)
        return np.array(parsed["data"] if is_flat else parsed, np.float32)

    parser = simdjson.Parser()

    def buffered() -> Any:
        data: Any = parser.parse(body)
        buffer = (data["data"] if is_flat else data).as_buffer(of_type="d")
        return np.frombuffer(buffer).astype(np.float32)

    assert np.array_equal(ours().astype(np.float32), theirs().reshape(-1))
    session.ask(
        "JSON to tensor",
        name,
        "values",
        lambda: len(ours()),
        [
            Peer("orjson + numpy", lambda: theirs().size, None if "integers" in name else TENSOR_TARGET),
            Peer("pysimdjson", lambda: buffered().size),
        ],
        num_bytes=len(body),
    )


#: Builds the `tf.train.Example` of a row.
ExampleOf = Callable[[dict[str, Any]], Any]


def lines_of(rows: Iterator[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def plain_bodies() -> Iterator[tuple[str, bytes]]:
    rng = np.random.default_rng(0)
    for name, values in (
        ("17-digit doubles", rng.standard_normal((ROWS, 20)).tolist()),
        ("4 decimals", np.round(rng.standard_normal((ROWS, 20)), 4).tolist()),
    ):
        rows = ({"x": x, "label": i % 1000, "id": f"sample-{i:08}"} for i, x in enumerate(values))
        yield f"20 floats + int + text, {name}", lines_of(rows)


def mixed_body() -> bytes:
    """Lists of one to five texts, a number that every third row lacks, and a nested list."""
    rng = np.random.default_rng(0)
    boxes = np.round(rng.standard_normal((MIXED_ROWS, 2, 4)), 4).tolist()
    counts = rng.integers(1, 6, MIXED_ROWS).tolist()
    return lines_of(
        {
            "id": f"sample-{i:08}",
            "tags": [f"tag-{i % (97 * (k + 1))}" for k in range(count)],
            "score": None if i % 3 == 1 else i % 1000 / 8,
            "boxes": box,
        }
        for i, (count, box) in enumerate(zip(counts, boxes, strict=True))
    )


def write_ours(body: bytes) -> int:
    records = ndjson.decode(MemoryStream(body), RecordsDecodeOptions(), Budget())
    return sum(map(len, tfrecord.encode(records, RecordsEncodeOptions(), Budget())))


def floats_of(values: list[float]) -> Any:
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def texts_of(values: list[str]) -> Any:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode() for text in values]))


def plain_example(row: dict[str, Any]) -> Any:
    features = {
        "x": floats_of(row["x"]),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[row["label"]])),
        "id": texts_of([row["id"]]),
    }
    return tf.train.Example(features=tf.train.Features(feature=features))


def plain_example_in_place(row: dict[str, Any]) -> Any:
    example = tf.train.Example()
    feature = example.features.feature
    feature["x"].float_list.value.extend(row["x"])
    feature["label"].int64_list.value.append(row["label"])
    feature["id"].bytes_list.value.append(row["id"].encode())
    return example


def mixed_example(row: dict[str, Any]) -> Any:
    features = {
        "id": texts_of([row["id"]]),
        "tags": texts_of(row["tags"]),
        "boxes": floats_of([value for box in row["boxes"] for value in box]),
    }
    if row["score"] is not None:
        features["score"] = floats_of([row["score"]])
    return tf.train.Example(features=tf.train.Features(feature=features))


def write_tensorflow(body: bytes, example_of: ExampleOf, path: str) -> None:
    with tf.io.TFRecordWriter(path) as writer:
        for line in body.splitlines():
            writer.write(example_of(json.loads(line)).SerializeToString())


def measure_rows(
    session: Session,
    name: str,
    body: bytes,
    path: str,
    target: float,
    peers: Mapping[str, ExampleOf],
) -> None:
    some = b"".join(body.splitlines(keepends=True)[:PEER_ROWS])

    def peer(example_of: ExampleOf) -> Callable[[], int]:
        return counted(lambda: write_tensorflow(some, example_of, path), PEER_ROWS)

    peer(next(iter(peers.values())))()
    assert write_ours(some) == Path(path).stat().st_size
    session.ask(
        "NDJSON to TFRecord",
        name,
        "rows",
        counted(lambda: write_ours(body), body.count(b"\n")),
        [
            Peer(peer_name, peer(example_of), None if index else target)
            for index, (peer_name, example_of) in enumerate(peers.items())
        ],
        num_bytes=len(body),
    )


def measure_all_rows(session: Session, path: str) -> None:
    built = "json.loads + tf.train.Example"
    for name, body in plain_bodies():
        if session.wants(name):
            peers = {built: plain_example, f"{built}, filled in place": plain_example_in_place}
            measure_rows(session, name, body, path, PLAIN_TARGET, peers)
    name = "variable list of texts + null + nested list"
    if session.wants(name):
        measure_rows(session, name, mixed_body(), path, MIXED_TARGET, {built: mixed_example})


def measure(session: Session) -> None:
    kernels.compile_all()
    for name, body, is_flat in tensor_bodies():
        if session.wants(name):
            measure_tensor(session, name, body, is_flat=is_flat)
    with memory_folder() as folder:
        measure_all_rows(session, str(folder / "rows.tfrecord"))


if __name__ == "__main__":
    main(measure)
