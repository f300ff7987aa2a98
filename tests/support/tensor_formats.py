"""Tensors in every form, written and read without the service: by the libraries of others, or byte by byte.

A tensor is the list of its parts: a dense one is itself, a sparse or ragged one its components.
"""

import base64
import io
import json
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import safetensors.numpy
from numpy.typing import NDArray

from tests.support.feature_values import field, varint

Parts = list[tuple[str, NDArray[Any]]]
Request = dict[str, Any]

LENGTH = "Inference-Header-Content-Length"

#: Of each kind, with the names that its components have in forms of named tensors.
TENSORS: dict[str, Parts] = {
    "dense": [("x", np.array([[1.5, -2, 3], [4, 5, 6]], "<f4"))],
    "sparse": [
        ("indices", np.array([[0, 1], [2, 3]], "<i8")),
        ("values", np.array([1.5, -2], "<f4")),
        ("dense_shape", np.array([3, 4], "<i8")),
    ],
    "ragged": [("values", np.array([1, -2, 3], "<i4")), ("row_splits_0", np.array([0, 2, 2, 3], "<i8"))],
}
#: An image that every format gives back as it was: JPEG because it is of one grey.
IMAGE: Parts = [("x", np.full((4, 6, 3), 128, np.uint8))]
IMAGES = frozenset({"jpeg", "png", "webp", "gif", "bmp"})
_NAMES = {"|u1": "uint8", "<f4": "float32", "<i4": "int32", "<i8": "int64"}
#: DataType of tensorflow/core/framework/types.proto.
_CODES = {"|u1": 4, "<f4": 1, "<i4": 3, "<i8": 9}
_STRING = 7


def sample(kind: str, *forms: str) -> Parts:
    """A tensor that the forms can hold if they hold the kind at all."""
    return IMAGE if kind == "dense" and IMAGES.intersection(forms) else TENSORS[kind]


def written(form: str, parts: Parts) -> Request:
    """The request that carries them: content, headers and parameters."""
    request = _WRITERS[form](parts)
    return request if isinstance(request, dict) else {"content": request}


def read(form: str, kind: str, answer: httpx.Response) -> Parts:
    """The parts in an answer, in the order of `TENSORS`; without names by position."""
    found = _READERS[form](answer)
    wanted = [name for name, _ in TENSORS[kind]]
    if isinstance(found, list):
        return list(zip(wanted, found, strict=True))
    if kind == "dense":
        (array,) = found.values()
        return [("x", array)]
    assert sorted(found) == sorted(wanted)
    return [(name, found[name]) for name in wanted]


def framed(*messages: bytes) -> bytes:
    """TFRecord."""
    return b"".join(
        length + masked_crc(length) + message + masked_crc(message)
        for message in messages
        for length in [struct.pack("<Q", len(message))]
    )


def unframed(data: bytes) -> list[bytes]:
    """The records of a TFRecord, checked."""
    found = []
    while data:
        (size,) = struct.unpack_from("<Q", data)
        assert data[8:12] == masked_crc(data[:8])
        found.append(data[12 : 12 + size])
        assert data[12 + size : 16 + size] == masked_crc(found[-1])
        data = data[16 + size :]
    return found


def masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def b64_of(messages: list[bytes]) -> bytes:
    """One message, or several, as TensorFlow Serving takes them."""
    items = [{"b64": base64.b64encode(message).decode()} for message in messages]
    return json.dumps(items[0] if len(items) == 1 else {"instances": items}).encode()


def messages_of(document: Any) -> list[bytes]:
    """What `b64_of` was given."""
    return [base64.b64decode(item["b64"]) for item in document.get("instances", [document])]


def oip_of(arrays: dict[str, NDArray[Any]]) -> Request:
    """An Open Inference request with binary tensors."""
    kinds = {"|u1": "UINT8", "<f4": "FP32", "<i4": "INT32", "<i8": "INT64"}
    inputs = [
        {
            "name": name,
            "datatype": kinds[array.dtype.str],
            "shape": array.shape,
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in arrays.items()
    ]
    text = json.dumps({"inputs": inputs}).encode()
    content = text + b"".join(array.tobytes() for array in arrays.values())
    return {"content": content, "headers": {LENGTH: str(len(text))}}


def arrays_of_oip(answer: httpx.Response) -> dict[str, NDArray[Any]]:
    """The tensors of an Open Inference response."""
    dtypes = {"UINT8": "|u1", "FP32": "<f4", "INT32": "<i4", "INT64": "<i8"}
    length, found = int(answer.headers[LENGTH]), {}
    rest = answer.content[length:]
    for item in json.loads(answer.content[:length])["outputs"]:
        size = item["parameters"]["binary_data_size"]
        found[item["name"]] = np.frombuffer(rest[:size], dtypes[item["datatype"]]).reshape(item["shape"])
        rest = rest[size:]
    assert not rest
    return found


def npz_of(arrays: dict[str, NDArray[Any]]) -> bytes:
    """What `numpy.savez` writes."""
    sink = io.BytesIO()
    np.savez(sink, **arrays)  # type: ignore[arg-type]  # numpy's stub has allow_pickle among the names
    return sink.getvalue()


def arrays_of_npz(answer: httpx.Response) -> dict[str, NDArray[Any]]:
    """What `numpy.load` reads."""
    with np.load(io.BytesIO(answer.content), allow_pickle=False) as loaded:
        return dict(loaded)


def _json_of(parts: Parts) -> bytes:
    arrays = dict(parts)
    if "x" in arrays:
        array = arrays["x"]
        data = array.ravel().tolist()
        return json.dumps({"dtype": _NAMES[array.dtype.str], "shape": array.shape, "data": data}).encode()
    body: dict[str, Any] = {name: array.tolist() for name, array in parts if not name.startswith("row_")}
    if splits := [array.tolist() for name, array in parts if name.startswith("row_")]:
        body["row_splits"] = splits
    return json.dumps(body | {"dtype": _NAMES[arrays["values"].dtype.str]}).encode()


def _read_json(answer: httpx.Response) -> list[NDArray[Any]]:
    found = answer.json()
    dtype = found["dtype"]
    if "data" in found:
        return [np.array(found["data"], dtype).reshape(found["shape"])]
    values = np.array(found["values"], dtype)
    if "row_splits" in found:
        return [values, *(np.array(splits, "<i8") for splits in found["row_splits"])]
    return [np.array(found["indices"], "<i8"), values, np.array(found["dense_shape"], "<i8")]


def _npy_of(parts: Parts) -> bytes:
    sink = io.BytesIO()
    np.save(sink, parts[0][1])
    return sink.getvalue()


def _raw_of(parts: Parts) -> Request:
    array = parts[0][1]
    shape = ",".join(map(str, array.shape))
    return {"content": array.tobytes(), "params": {"dtype": _NAMES[array.dtype.str], "shape": shape}}


def _read_raw(answer: httpx.Response) -> list[NDArray[Any]]:
    shape = [int(dim) for dim in answer.headers["tensor-shape"].split(",")]
    assert answer.headers["tensor-byte-order"] == "little"
    return [np.frombuffer(answer.content, answer.headers["tensor-dtype"]).reshape(shape)]


def _arrow_of(parts: Parts) -> bytes:
    """One row of tensors under the canonical extension, marked as such."""
    columns, fields = [], []
    for name, array in parts:
        values = pa.array(array.ravel())
        kind = pa.fixed_shape_tensor(values.type, array.shape)
        columns.append(
            pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(values, array.size))
        )
        fields.append(pa.field(name, kind, metadata={"shardsmith:shape": json.dumps(array.shape)}))
    schema = pa.schema(fields, {"shardsmith:tensors": "1"})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return sink.getvalue()


def _read_arrow(answer: httpx.Response) -> dict[str, NDArray[Any]]:
    (batch,) = pa.ipc.open_stream(answer.content)
    columns: dict[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
    return {name: column.to_numpy_ndarray()[0] for name, column in columns.items()}


def _proto(array: NDArray[Any]) -> bytes:
    return _proto_of(_CODES[array.dtype.str], array.shape, field(0x22, array.tobytes()))


def _proto_of(code: int, shape: tuple[int, ...], content: bytes) -> bytes:
    dims = b"".join(field(0x12, b"\x08" + varint(dim)) for dim in shape)
    return b"\x08" + varint(code) + field(0x12, dims) + content


def _protos_of(parts: Parts) -> list[bytes]:
    """A sparse tensor as `tf.io.serialize_sparse` gives it, others one proto for each part."""
    protos = [_proto(array) for _, array in parts]
    if parts[0][0] != "indices":
        return protos
    return [_proto_of(_STRING, (3,), b"".join(field(0x42, proto) for proto in protos))]


def _read_proto(message: bytes) -> list[NDArray[Any]]:
    (code,), (shape,) = fields(message)[1], fields(message)[2]
    dims = [fields(dim).get(1, [0])[0] for dim in fields(shape).get(2, [])]
    if code == _STRING:
        assert dims == [3]
        return [array for proto in fields(message)[8] for array in _read_proto(proto)]
    dtype = {code: name for name, code in _CODES.items()}[code]
    return [np.frombuffer(fields(message)[4][0], dtype).reshape(dims)]


def fields(message: bytes) -> dict[int, list[Any]]:
    """Varints and length-delimited fields by their numbers."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        value: Any
        value, at = _varint(message, at)
        if tag & 7 == 2:
            value, at = message[at : at + value], at + value
        else:
            assert tag & 7 == 0
        found.setdefault(tag >> 3, []).append(value)
    return found


def varints(data: bytes) -> list[int]:
    """The numbers of a packed field."""
    found, at = [], 0
    while at < len(data):
        value, at = _varint(data, at)
        found.append(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] > 127:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
    return value | data[at] << shift, at + 1


def _read_protos(messages: list[bytes]) -> list[NDArray[Any]]:
    return [array for message in messages for array in _read_proto(message)]


def _image_of(form: str, parts: Parts) -> bytes:
    """The image; of other kinds, bytes that are refused before they are looked at."""
    # Imported where it is needed: most tests have no image.
    import PIL.Image

    array = parts[0][1]
    if array.dtype != np.uint8:
        return b"no image"
    sink = io.BytesIO()
    PIL.Image.fromarray(array).save(sink, form.upper(), **({"lossless": True} if form == "webp" else {}))
    return sink.getvalue()


def _read_image(answer: httpx.Response) -> list[NDArray[Any]]:
    import PIL.Image

    return [np.asarray(PIL.Image.open(io.BytesIO(answer.content)))]


_WRITERS: dict[str, Callable[[Parts], bytes | Request]] = {
    "json": _json_of,
    "npy": _npy_of,
    "npz": lambda parts: npz_of(dict(parts)),
    "raw": _raw_of,
    "oip": lambda parts: oip_of(dict(parts)),
    **{form: partial(_image_of, form) for form in IMAGES},
    "tensorproto": lambda parts: _protos_of(parts)[0],
    "safetensors": lambda parts: safetensors.numpy.save(dict(parts)),
    "arrow": _arrow_of,
    "tfrecord": lambda parts: framed(*_protos_of(parts)),
    "b64": lambda parts: b64_of(_protos_of(parts)),
}
_READERS: dict[str, Callable[[httpx.Response], list[NDArray[Any]] | dict[str, NDArray[Any]]]] = {
    "json": _read_json,
    "npy": lambda answer: [np.load(io.BytesIO(answer.content), allow_pickle=False)],
    "npz": arrays_of_npz,
    "raw": _read_raw,
    "oip": arrays_of_oip,
    "jpeg": _read_image,
    "png": _read_image,
    "tensorproto": lambda answer: _read_proto(answer.content),
    "safetensors": lambda answer: safetensors.numpy.load(answer.content),
    "arrow": _read_arrow,
    "tfrecord": lambda answer: _read_protos(unframed(answer.content)),
    "b64": lambda answer: _read_protos(messages_of(answer.json())),
}
