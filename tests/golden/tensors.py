"""Tensors of every dtype in every format, each as the library writes it whose format it is."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import safetensors.numpy
import tensorflow as tf
from numpy.typing import NDArray

from app.domain.dtypes import DTYPES, DType
from tests.golden.entries import Golden, Written, json_bytes, json_lines, npy_bytes
from tests.golden.images import images
from tests.golden.values import array_of, json_values
from tests.golden.writers import (
    SPECIFIED,
    arrow_of,
    b64_lines,
    in_numpy,
    in_safetensors,
    inference_binary,
    inference_json,
    instances,
    is_marked,
    save_npz,
    serialize,
    write_records,
)

DENSE: Final = "tensors/dense.json"
SPARSE: Final = "tensors/sparse.json"
RAGGED: Final = "tensors/ragged.json"

#: Every dtype under its name, and three shapes.
ARRAYS: Final[dict[str, tuple[DType, NDArray[Any]]]] = {
    **{dtype.name: (dtype, array_of(dtype)) for dtype in DTYPES.values()},
    "scalar": (DTYPES["float32"], np.array(-0.5, "<f4")),
    "empty": (DTYPES["float32"], np.empty((0, 3), "<f4")),
    "deep": (DTYPES["int64"], np.arange(-12, 12).reshape(2, 3, 1, 4)),
}


def tensors() -> Iterator[Golden]:
    yield Golden(
        DENSE,
        json_lines([{"name": name, **_flat(name)} for name in ARRAYS]).replace(b"[", b'{"tensors": [', 1)[:-1]
        + b"}\n",
        "json",
        "tensors",
        "json of Python, from the elements of numpy and ml_dtypes",
    )
    yield from _arrays()
    yield from _messages()
    yield from _named()
    yield from _inference()
    yield from _sparse()
    yield from _ragged()
    yield from images()


def lacks(found: Iterable[Golden]) -> dict[str, list[str]]:
    """By format, the dtypes that it does not have: those without a file."""
    files = list(found)
    held = {
        form: {name for file in files if file.form == form for name in file.names or ()}
        for form in ("raw", "npy", "oip", "safetensors")
    }
    return {form: [name for name in DTYPES if name not in names] for form, names in held.items()}


def _flat(name: str) -> dict[str, Any]:
    dtype, array = ARRAYS[name]
    return {"dtype": dtype.name, "shape": array.shape, "data": json_values(array)}


def _names(condition: Any) -> tuple[str, ...]:
    return tuple(name for name, (dtype, _) in ARRAYS.items() if condition(dtype))


def _dense(
    stem: str, content: bytes, form: str, made_with: str, names: tuple[str, ...], **more: Any
) -> Golden:
    return Golden(f"tensors/{stem}", content, form, "tensors", made_with, DENSE, names=names, **more)


def _arrays() -> Iterator[Golden]:
    """One array a file."""
    for name, (dtype, array) in ARRAYS.items():
        options = {"dtype": dtype.name, "shape": array.shape}
        if not dtype.is_string:
            made = "tobytes of numpy and ml_dtypes"
            # What lies in the upper bits of int4 and int2 means nothing.
            written: Written = "values" if dtype.is_narrow and dtype.kind == "int" else "bytes"
            yield _dense(
                f"{name}.raw", array.tobytes(), "raw", made, (name,), options=options, written=written
            )
        if dtype.in_numpy or dtype.name == "bfloat16":
            options = {"dtype": dtype.name} if not dtype.in_numpy else {}  # numpy says "V2"
            content = npy_bytes(in_numpy(array))
            yield _dense(f"{name}.npy", content, "npy", "numpy.save", (name,), options=options)
    deep = ARRAYS["deep"][1]
    options = {"dtype": "int64", "shape": deep.shape}
    for stem, content, more in (
        ("column-major", deep.tobytes("F"), {"order": "F"}),
        ("big-endian", deep.astype(">i8").tobytes(), {"byte_order": "big"}),
    ):
        made = "tobytes of numpy"
        yield _dense(f"{stem}.raw", content, "raw", made, ("deep",), options=options | more, written="bytes")
    for stem, array in (("column-major", np.asfortranarray(deep)), ("big-endian", deep.astype(">i8"))):
        yield _dense(f"{stem}.npy", npy_bytes(array), "npy", "numpy.save", ("deep",), written=None)
    nested = json_bytes(deep.tolist())
    yield _dense("nested.json", nested, "json", "json of Python", ("deep",), options={"layout": "nested"})


def _messages() -> Iterator[Golden]:
    """TensorProtos, one a file and all in a row."""
    kernels = _names(lambda dtype: dtype.has_kernel)
    messages = {}
    for name, (dtype, array) in ARRAYS.items():
        if dtype.has_kernel:
            made, written = "tf.io.serialize_tensor", "bytes"
            messages[name] = content = serialize(array, dtype)
        else:  # TensorFlow cannot serialize it, but reads what this makes
            made, written = "tf.make_tensor_proto", "values"
            kind = tf.dtypes.as_dtype(dtype.tf_enum)
            content = tf.make_tensor_proto(array, kind, array.shape).SerializeToString(deterministic=True)
            tf.io.parse_tensor(content, kind)
        yield _dense(f"{name}.pb", content, "tensorproto", made, (name,), written=written)
    for compression, suffix in (("", ""), ("GZIP", ".gz"), ("ZLIB", ".zlib")):
        yield _dense(
            f"dense.tfrecord{suffix}",
            write_records(list(messages.values()), compression),
            "tfrecord",
            "tf.io.serialize_tensor and tf.io.TFRecordWriter",
            kernels,
            written="values" if compression else "bytes",
            options={"compression": compression.lower()} if compression else {},
        )
    made = "tf.io.serialize_tensor and base64 of Python"
    yield _dense("dense.b64.json", b64_lines([*messages.values()]), "b64", made, kernels)
    made = "tf.io.serialize_tensor and tf.io.encode_base64"
    texts = [tf.io.encode_base64(message).numpy().decode() for message in messages.values()]
    content = instances([{"b64": text} for text in texts])
    yield _dense("dense.websafe.json", content, "b64", made, kernels, options={"b64": "websafe"})


def _named() -> Iterator[Golden]:
    """Several arrays under their names."""
    names = _names(lambda dtype: dtype.in_numpy)
    arrays = {name: ARRAYS[name][1] for name in names}
    for stem, save in (("dense", np.savez), ("compressed", np.savez_compressed)):
        content = save_npz(arrays, save)
        yield _dense(f"{stem}.npz", content, "npz", f"numpy.{save.__name__}", names)
    held = {name: array for name, (dtype, array) in ARRAYS.items() if in_safetensors(dtype)}
    content = safetensors.numpy.save(held)
    yield _dense("dense.safetensors", content, "safetensors", "safetensors.numpy.save", tuple(held))
    arrow = {name: named for name, named in ARRAYS.items() if named[1].size}
    for stem, new in (("arrow", pa.ipc.new_stream), ("arrow.file", pa.ipc.new_file)):
        options = {} if new is pa.ipc.new_stream else {"arrow": "file"}
        made = f"pyarrow.ipc.{new.__name__}"
        yield _dense(f"dense.{stem}", _arrow(arrow, new), "arrow", made, tuple(arrow), options=options)


def _arrow(arrays: Mapping[str, tuple[DType, NDArray[Any]]], new: Any) -> bytes:
    """One row, a column a tensor."""
    columns, fields = [], []
    for name, (dtype, array) in arrays.items():
        marks = {"shardsmith:shape": json.dumps(array.shape)}
        if is_marked(dtype):
            marks["shardsmith:dtype"] = dtype.name
        if array.shape and (dtype.is_integer or dtype.is_float):
            marks["ARROW:extension:name"] = "arrow.fixed_shape_tensor"
            marks["ARROW:extension:metadata"] = json.dumps({"shape": array.shape})
        column = pa.FixedSizeListArray.from_arrays(arrow_of(dtype, array), array.size)
        columns.append(column)
        fields.append(pa.field(name, column.type, nullable=False, metadata=marks))
    schema = pa.schema(fields, {"shardsmith:tensors": "1"})
    sink = io.BytesIO()
    with new(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return sink.getvalue()


def _inference() -> Iterator[Golden]:
    names = _names(lambda dtype: dtype.oip is not None)
    arrays = {name: ARRAYS[name] for name in names}
    yield _dense(
        "dense.oip.json", inference_json(arrays), "json", SPECIFIED, names, options={"layout": "oip"}
    )
    content, json_size = inference_binary(arrays)
    yield _dense("dense.oip", content, "oip", SPECIFIED, names, options={"json_bytes": json_size})


def _sparse() -> Iterator[Golden]:
    """One sparse tensor; where the format has no such, as its components."""
    indices, values = np.array([[0, 1], [2, 0], [2, 3]]), np.array([1.5, -2.0, 0.25], "<f4")
    components = {
        "s/indices": (DTYPES["int64"], indices),
        "s/values": (DTYPES["float32"], values),
        "s/dense_shape": (DTYPES["int64"], np.array([3, 4])),
    }
    body = {"values": values.tolist(), "indices": indices.tolist(), "dense_shape": [3, 4]}
    content = json_bytes({"tensors": [{"name": "s", "dtype": "float32", **body}]})
    yield Golden(SPARSE, content, "json", "tensors", "json of Python", options={"kind": "sparse"})
    tensor = tf.io.serialize_sparse(tf.sparse.SparseTensor(indices, values, [3, 4]))
    message = tf.io.serialize_tensor(tensor).numpy()
    made = "tf.io.serialize_sparse and tf.io.serialize_tensor"
    yield from _of_components("sparse", SPARSE, components, [message], made)
    yield _component("sparse.pb", message, "tensorproto", made, SPARSE, "bytes")


def _ragged() -> Iterator[Golden]:
    """One ragged tensor, as its components."""
    tensor = tf.RaggedTensor.from_nested_row_splits(
        tf.constant([1, -2, 3, 2**31 - 1], tf.int32), [[0, 2, 2, 3], [0, 1, 3, 4]]
    )
    components = {
        "r/values": (DTYPES["int32"], tensor.flat_values.numpy()),
        **{
            f"r/row_splits_{level}": (DTYPES["int64"], splits.numpy())
            for level, splits in enumerate(tensor.nested_row_splits)
        },
    }
    values, *splits = [array.tolist() for _, array in components.values()]
    content = json_bytes(
        {"tensors": [{"name": "r", "dtype": "int32", "values": values, "row_splits": splits}]}
    )
    yield Golden(RAGGED, content, "json", "tensors", "json of Python", options={"kind": "ragged"})
    messages = [serialize(array, dtype) for dtype, array in components.values()]
    yield from _of_components("ragged", RAGGED, components, messages, "tf.io.serialize_tensor")


def _of_components(
    kind: str,
    of: str,
    components: Mapping[str, tuple[DType, NDArray[Any]]],
    messages: list[bytes],
    made: str,
) -> Iterator[Golden]:
    arrays = {name: array for name, (_, array) in components.items()}
    yield _component(f"{kind}.npz", save_npz(arrays), "npz", "numpy.savez", of)
    content = safetensors.numpy.save(arrays)
    yield _component(f"{kind}.safetensors", content, "safetensors", "safetensors.numpy.save", of)
    content = _arrow(components, pa.ipc.new_stream)
    yield _component(f"{kind}.arrow", content, "arrow", "pyarrow.ipc.new_stream", of)
    content, json_size = inference_binary(components)
    yield _component(f"{kind}.oip", content, "oip", SPECIFIED, of, json_bytes=json_size)
    yield _component(f"{kind}.tfrecord", write_records(messages), "tfrecord", made, of, "bytes")
    yield _component(f"{kind}.b64.json", b64_lines(messages), "b64", made, of)


def _component(
    stem: str,
    content: bytes,
    form: str,
    made_with: str,
    of: str,
    written: Written = "values",
    **options: Any,
) -> Golden:
    options |= {"kind": of.removeprefix("tensors/").removesuffix(".json")}
    return Golden(f"tensors/{stem}", content, form, "tensors", made_with, of, written, options=options)
