"""A TFRecord of TensorProtos against `tf.io.TFRecordWriter` and `tf.data.TFRecordDataset`."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.codecs.array import Array
from app.codecs.columns import Strings
from app.domain.compression import Compression
from app.domain.dtypes import DTYPES
from tests.support.format_cases import serialize, tensors_of
from tests.support.random_elements import numpy_values

tf = importlib.import_module("tensorflow")

TENSORS = [
    Array(DTYPES["float32"], (2, 3), np.arange(6, dtype="<f4")),
    Array(DTYPES["string"], (2,), Strings.pack([b"\xff\0", b"x" * 5000])),
    Array(DTYPES["bool"], (), np.array([True])),
    Array(DTYPES["int64"], (0, 4), np.zeros(0, "<i8")),
    Array(DTYPES["bfloat16"], (300_000,), np.ones(300_000, DTYPES["bfloat16"].numpy)),
]


def theirs() -> list[Any]:
    return [
        tf.reshape(tf.constant(numpy_values(item), tf.dtypes.as_dtype(item.dtype.tf_enum)), item.shape)
        for item in TENSORS
    ]


def ours(compression: Compression) -> bytes:
    return serialize("tfrecord", *TENSORS, compression=compression)


def test_bytes_are_those_of_tensorflows_writer(tmp_path: Path) -> None:
    path = tmp_path / "tensors"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for tensor in theirs():
            writer.write(tf.io.serialize_tensor(tensor).numpy())
    assert ours("none") == path.read_bytes()


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_tensorflow_reads_them(tmp_path: Path, compression: Compression) -> None:
    path = tmp_path / "tensors"
    path.write_bytes(ours(compression))
    records = tf.data.TFRecordDataset(str(path), "" if compression == "none" else compression.upper())
    for record, tensor in zip(records, theirs(), strict=True):
        parsed = tf.io.parse_tensor(record, tensor.dtype)
        assert parsed.shape == tensor.shape
        assert bool(tf.reduce_all(parsed == tensor))


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_we_read_tensorflows(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "tensors"
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for tensor in theirs():
            writer.write(tf.io.serialize_tensor(tensor).numpy())
    found = tensors_of("tfrecord", path.read_bytes())
    for item, expected in zip(found, TENSORS, strict=True):
        assert (item.dtype, item.shape) == (expected.dtype, expected.shape)
        assert numpy_values(item).tolist() == numpy_values(expected).tolist()
