"""Rows as the service writes them in NDJSON, as values of Python; arrays as tensors."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .connection import read_json
from .errors import Damaged, Unsendable

Read = Callable[[Any], Any]
_LENGTH: Final = struct.Struct("<I")


def row_reader(schema: Mapping[str, Any]) -> Callable[[bytes], dict[str, Any]]:
    """What makes a row of a line: numbers, bool, str and bytes, lists where there are several.

    Args:
        schema: of the version, as JSON.
    """
    readers = {
        name: read for name, feature in schema["features"].items() if (read := _reader(feature["dtype"]))
    }

    def read_row(line: bytes) -> dict[str, Any]:
        row: dict[str, Any] = read_json(line)
        parts = [row["context"], row["feature_lists"]] if _is_sequence(row, schema) else [row]
        for part in parts:
            for name, read in readers.items():
                if name in part:
                    part[name] = _map(read, part[name])
        return row

    return read_row


def _is_sequence(row: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    return row.keys() == {"context", "feature_lists"} and not row.keys() <= schema["features"].keys()


def _reader(dtype: str) -> Read | None:
    """What makes of a scalar of JSON what it stands for; None where it stands for itself."""
    if dtype in ("bytes", "string"):
        return lambda value: base64.b64decode(value["b64"]) if isinstance(value, dict) else value
    if "float" in dtype:
        return lambda value: float(value) if isinstance(value, str) else value
    if dtype.startswith("complex"):
        return lambda value: float(value) if isinstance(value, str) else value
    return None


def _map(read: Read, value: Any) -> Any:
    if isinstance(value, list):
        return [_map(read, item) for item in value]
    if isinstance(value, dict) and "values" in value:  # a sparse cell
        return {**value, "values": _map(read, value["values"])}
    return read(value)


# Arrays


def to_array(what: str, values: Any) -> NDArray[Any]:
    """An array of values; strings that are in none yet stay objects, since numpy drops NUL from their ends.

    Raises:
        Unsendable: lists of several lengths.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind in "SU" and not isinstance(values, np.ndarray | np.generic):
            return np.asarray(values, object)
    except ValueError as error:
        raise Unsendable(
            f"{what} is no array, since its lists differ in length. Append rows instead."
        ) from error
    return array


def write_tensor(values: Any) -> tuple[bytes, dict[str, str], dict[str, str]]:
    """The content, the headers and the parameters that send an array to be serialized.

    Raises:
        Unsendable: of a dtype that tensors do not have.
    """
    array = to_array("The tensor", values)
    kind = array.dtype.kind
    shape = ",".join(map(str, array.shape))
    octets = {"Content-Type": "application/octet-stream"}
    if kind in "biufc" or (kind == "V" and array.dtype.names is None):
        little = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
        return little.tobytes(), octets, {"dtype": array.dtype.name, "shape": shape}
    strings = [_to_bytes(value) for value in array.ravel().tolist()] if kind in "SUO" else None
    if strings is None:
        raise Unsendable(f"A tensor cannot be of {array.dtype}. Make it numbers, text or bytes first.")
    data = b"".join(_LENGTH.pack(len(value)) + value for value in strings)
    tensor = {
        "name": "x",
        "datatype": "BYTES",
        "shape": array.shape,
        "parameters": {"binary_data_size": len(data)},
    }
    head = json.dumps({"inputs": [tensor]}).encode()
    return head + data, {**octets, "Inference-Header-Content-Length": str(len(head))}, {}


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise Unsendable(f"A tensor of strings has a value of {type(value).__name__}; they are str or bytes.")


def read_raw(content: bytes, dtype: str, shape: str) -> NDArray[Any]:
    """An array of the bytes of its elements, little-endian, as the headers of the answer say."""
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise Unsendable(
            f"numpy knows no {dtype} by itself: pip install ml-dtypes, and import ml_dtypes before."
        ) from None
    return np.frombuffer(content, found.newbyteorder("<")).reshape(_shape(shape)).astype(found)


def read_strings(content: bytes, head_bytes: int) -> NDArray[Any]:
    """An array of `bytes`, out of an answer in the Open Inference Protocol with binary data."""
    [tensor] = json.loads(content[:head_bytes])["outputs"]
    values = list(_cut(memoryview(content)[head_bytes:]))
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(tensor["shape"])


def _cut(data: memoryview) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        [size] = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size + size
        if at > len(data):
            raise Damaged("A string of the tensor goes beyond the end of the answer.")
        yield bytes(data[at - size : at])


def _shape(text: str) -> list[int]:
    return [int(size) for size in text.split(",")] if text else []
