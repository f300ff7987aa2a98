"""What libraries and specifications make of arrays, for tensors and for rows."""

from __future__ import annotations

import io
import tempfile
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import tensorflow as tf
from numpy.typing import NDArray

from app.domain.dtypes import TEXT, DType
from tests.golden.entries import json_bytes, json_lines
from tests.golden.values import json_values

#: What safetensors has beside the dtypes of numpy; it has no complex128.
SAFETENSORS: Final = frozenset(
    {"bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"}
)

SPECIFIED: Final = "struct and json of Python, after the specification of the Open Inference Protocol"


def in_numpy(array: NDArray[Any]) -> NDArray[Any]:
    """The array as numpy can save it: strings at one width."""
    return array.astype("S") if array.dtype == object else array


def serialize(array: NDArray[Any], dtype: DType) -> bytes:
    tensor = tf.constant(array.tolist() if dtype.is_string else array, tf.dtypes.as_dtype(dtype.tf_enum))
    message: bytes = tf.io.serialize_tensor(tf.reshape(tensor, array.shape)).numpy()
    return message


def write_records(records: list[bytes], compression: str = "") -> bytes:
    """A TFRecord file, as TensorFlow writes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        with tf.io.TFRecordWriter(str(path), compression) as writer:
            for record in records:
                writer.write(record)
        return path.read_bytes()


def b64_lines(messages: list[bytes]) -> bytes:
    """The messages as TensorFlow Serving takes bytes."""
    return instances([{"b64": b64encode(message).decode()} for message in messages])


def instances(items: list[Any]) -> bytes:
    """JSON of items, as TensorFlow Serving takes several."""
    return json_lines(items).replace(b"[", b'{"instances": [', 1)[:-1] + b"}\n"


def save_npz(arrays: Mapping[str, NDArray[Any]], save: Any = np.savez) -> bytes:
    sink = io.BytesIO()
    save(sink, **{name: in_numpy(array) for name, array in arrays.items()})
    return sink.getvalue()


def in_safetensors(dtype: DType) -> bool:
    if dtype.is_string or dtype.name == "complex128":
        return False
    return dtype.in_numpy or dtype.name in SAFETENSORS


def is_marked(dtype: DType) -> bool:
    """Whether Arrow has no such type."""
    return dtype.kind == "complex" or not (dtype.in_numpy or dtype.is_string)


def arrow_of(dtype: DType, array: NDArray[Any]) -> Any:
    """The elements: of a type that Arrow lacks the bits, of narrow integers the values."""
    flat = array.reshape(-1)
    if dtype.kind == "complex":
        return pa.array([value.tobytes() for value in flat], pa.binary(dtype.itemsize))
    if dtype.is_string:
        return pa.array(flat.tolist(), pa.string() if dtype is TEXT else pa.binary())
    if dtype.is_float and not dtype.in_numpy:
        return pa.array(flat.view(f"u{dtype.itemsize}"))
    if dtype.is_narrow:
        return pa.array(flat.astype("i1" if dtype.kind == "int" else "u1"))
    return pa.array(flat)


def inference_json(arrays: Mapping[str, tuple[DType, NDArray[Any]]]) -> bytes:
    """An Open Inference request whose tensors stand in the JSON."""
    return json_bytes({"inputs": [_input(name, *array) for name, array in arrays.items()]})


def _input(name: str, dtype: DType, array: NDArray[Any]) -> dict[str, Any]:
    return {"name": name, "datatype": dtype.oip, "shape": array.shape, "data": json_values(array)}


def inference_binary(arrays: Mapping[str, tuple[DType, NDArray[Any]]]) -> tuple[bytes, int]:
    """An Open Inference request whose tensors stand behind the JSON, and the length of that."""
    parts = []
    inputs = []
    for name, (dtype, array) in arrays.items():
        parts.append(_binary(dtype, array))
        described = {"name": name, "datatype": dtype.oip, "shape": array.shape}
        inputs.append({**described, "parameters": {"binary_data_size": len(parts[-1])}})
    head = json_bytes({"inputs": inputs})
    return head + b"".join(parts), len(head)


def _binary(dtype: DType, array: NDArray[Any]) -> bytes:
    if not dtype.is_string:
        return array.tobytes()
    return b"".join(len(value).to_bytes(4, "little") + value for value in array.reshape(-1))
