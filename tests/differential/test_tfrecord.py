"""TFRecord files against TensorFlow's writer and reader.

Only files whose framing has been verified here are given to TensorFlow's reader: it crashes on others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.compression import Compression
from app.domain.schema import Schema
from app.errors import InputError
from tests.support.arrow_rows import arrow_schema, as_arrow, from_arrow
from tests.support.format_cases import decode, encode

_TENSORFLOWS: dict[Compression, str] = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}
COMPRESSIONS: list[Compression] = list(_TENSORFLOWS)


def written_by_tensorflow(path: Path, payloads: list[bytes], compression: Compression) -> bytes:
    with tf.io.TFRecordWriter(str(path), _TENSORFLOWS[compression]) as writer:
        for payload in payloads:
            writer.write(payload)
    return path.read_bytes()


def read_by_tensorflow(path: Path, data: bytes, compression: Compression) -> list[bytes]:
    path.write_bytes(data)
    dataset = tf.data.TFRecordDataset(str(path), _TENSORFLOWS[compression])
    return [record.numpy() for record in dataset]


BYTES = Schema.from_json({"features": {"record": {"dtype": "bytes"}}})


def framed(payloads: list[bytes], compression: Compression = "none") -> bytes:
    """The payloads as records, whatever they hold."""
    batch = pa.RecordBatch.from_arrays([pa.array(payloads, pa.binary())], schema=arrow_schema(BYTES))
    rows = from_arrow(BYTES, [batch] if payloads else [])
    return encode("tfrecord", rows, as_bytes=True, compression=compression)


def read(data: bytes, compression: Compression | None = None) -> list[Any]:
    rows = decode("tfrecord", data, as_bytes=True, compression=compression)
    return [record for batch in as_arrow(rows) for record in batch.column(0).to_pylist()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tfrecord")


@settings(deadline=None, max_examples=30)
@given(st.lists(st.binary(max_size=300), max_size=5))
def test_frames_are_the_bytes_of_tensorflows_writer(folder: Path, payloads: list[bytes]) -> None:
    assert framed(payloads) == written_by_tensorflow(folder / "plain", payloads, "none")


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_both_read_what_the_other_writes(folder: Path, compression: Compression) -> None:
    rng = np.random.default_rng(0)
    payloads = [rng.bytes(int(size)) for size in rng.integers(0, 5000, 500)] + [b"", b"x" * 3_000_000]
    theirs = written_by_tensorflow(folder / f"theirs-{compression}", payloads, compression)
    assert read(theirs) == payloads
    assert read(theirs, compression) == payloads
    ours = framed(payloads, compression)
    assert read_by_tensorflow(folder / f"ours-{compression}", ours, compression) == payloads


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_no_records_are_read_as_none_by_both(folder: Path, compression: Compression) -> None:
    empty = framed([], compression)
    assert read(empty, compression) == []
    assert read_by_tensorflow(folder / f"empty-{compression}", empty, compression) == []
    assert read(written_by_tensorflow(folder / "none", [], compression), compression) == []


SCHEMA = Schema.from_json(
    {
        "features": {
            "image": {"dtype": "float32", "shape": [2, 3]},
            "label": {"dtype": "int64"},
            "tags": {"dtype": "text", "shape": [None]},
        }
    }
)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_dataset_of_tensorflow_parses_our_rows(folder: Path, compression: Compression) -> None:
    rows: list[dict[str, Any]] = [
        {"image": [float(n)] * 6, "label": -n, "tags": [b"t"] * (n % 3)} for n in range(3000)
    ]
    arrow = arrow_schema(SCHEMA)
    batches = [
        pa.RecordBatch.from_pylist(rows[begin : begin + 700], schema=arrow) for begin in range(0, 3000, 700)
    ]
    data = encode("tfrecord", from_arrow(SCHEMA, iter(batches)), compression=compression)
    path = folder / f"rows-{compression}"
    path.write_bytes(data)
    spec = {
        "image": tf.io.FixedLenFeature([2, 3], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "tags": tf.io.RaggedFeature(tf.string),
    }
    dataset = tf.data.TFRecordDataset(str(path), _TENSORFLOWS[compression]).batch(3000)
    parsed = tf.io.parse_example(next(iter(dataset)), spec)
    assert parsed["image"].numpy().reshape(3000, 6).tolist() == [row["image"] for row in rows]
    assert parsed["label"].numpy().tolist() == [row["label"] for row in rows]
    assert parsed["tags"].to_list() == [row["tags"] for row in rows]
    records = decode("tfrecord", data, schema=SCHEMA)
    assert [row for batch in as_arrow(records) for row in batch.to_pylist()] == rows


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 10**6), st.integers(1, 255), st.integers(0, 3))
def test_whatever_is_accepted_of_a_mutated_file_tensorflow_reads_alike(
    folder: Path, position: int, flip: int, action: int
) -> None:
    data = bytearray(framed([b"", b"abc", b"x" * 50]))
    position %= len(data)
    if action == 0:
        data[position] ^= flip
    elif action == 1:
        del data[position : position + flip]
    elif action == 2:
        data[position:position] = data[position : position + flip]
    else:
        del data[position:]
    try:
        records = read(bytes(data), "none")
    except InputError as error:
        if error.code not in ("corrupt_record", "truncated", "record_too_large"):
            raise
        return
    assert read_by_tensorflow(folder / "mutated", bytes(data), "none") == records
