"""Large tensors that stream, against what TensorFlow and numpy read and write of the same elements."""

import importlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.codecs.forms import FormName
from app.codecs.options import TensorDecodeOptions, TensorEncodeOptions
from app.domain.dtypes import DTYPES, DType
from app.domain.limits import KIB, Limits
from app.runtime.budget import Budget
from app.runtime.spool import Spool
from app.runtime.workspace import Workspace
from app.services.convert.tensors import TensorConversion, convert_tensors
from tests.support.bodies import stream_of

tf = importlib.import_module("tensorflow")

#: All that `tf.io.serialize_tensor` has a kernel for, but strings, which do not stream.
DTYPES_OF_NUMBERS = [dtype for dtype in DTYPES.values() if dtype.has_kernel and not dtype.is_string]
SHAPE = (97, 5000)
#: Far less than any of the tensors takes.
LITTLE = Limits(max_decoded_bytes=64 * KIB)


def array_of(dtype: DType) -> Any:
    raw = np.random.default_rng(7).integers(0, 256, SHAPE[0] * SHAPE[1] * dtype.itemsize, np.uint8)
    return (raw % 2 if dtype.name == "bool" else raw).view(dtype.numpy).reshape(SHAPE)


def converted(data: bytes, form: FormName, to: FormName, dtype: DType) -> bytes:
    options = TensorDecodeOptions(dtype=dtype, shape=SHAPE)
    conversion = TensorConversion(form, to, True, options, TensorEncodeOptions())
    source = stream_of(data, 65_521)
    return b"".join(convert_tensors(source, conversion, Workspace(Budget(LITTLE), Spool(None, 0))).chunks)


@pytest.mark.parametrize("dtype", DTYPES_OF_NUMBERS, ids=str)
def test_streams_are_what_tensorflow_and_numpy_write(dtype: DType, tmp_path: Path) -> None:
    array = array_of(dtype)
    proto = tf.io.serialize_tensor(tf.constant(array)).numpy()
    path = tmp_path / "records"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(proto)
    saved = io.BytesIO()
    np.save(saved, array)
    bodies: dict[FormName, bytes] = {
        "npy": saved.getvalue(),
        "raw": array.tobytes(),
        "tensorproto": proto,
        "tfrecord": path.read_bytes(),
    }
    for form, body in bodies.items():
        for to, wanted in bodies.items():
            assert converted(body, form, to, dtype) == wanted, (form, to)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_compressed_records_of_tensorflow_stream(compression: str, tmp_path: Path) -> None:
    array = array_of(DTYPES["float32"])
    path = tmp_path / "records"
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        writer.write(tf.io.serialize_tensor(tf.constant(array)).numpy())
    assert converted(path.read_bytes(), "tfrecord", "raw", DTYPES["float32"]) == array.tobytes()
