"""A schema as Python source that reads its rows into PyTorch, without TensorFlow.

Framing and `tf.train.Example` are read by some lines of the source itself, so that it needs torch and numpy
alone. A feature is told by where it is stored and what it becomes:

| feature                    | what the loader gives for a row                              |
|----------------------------|--------------------------------------------------------------|
| numbers, `list` or `raw`   | a tensor of its shape                                        |
| strings                    | `str` or `bytes`; lists of them unless it is a scalar        |
| ragged, with one cut       | a list of tensors                                            |
| sparse                     | a sparse tensor                                              |
| what may be absent         | None where it is                                             |

Names go in as Python literals, so that no name can be code.
"""

from __future__ import annotations

from typing import Final

from ...domain.feature import Feature, FeatureShape, stored_features
from ...domain.schema import Schema
from ...errors import UnprocessableInput

#: dtypes that torch has; what it has no arithmetic for, it holds.
_DTYPES: Final = frozenset(
    ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16",
     "float32", "float64", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128")
)  # fmt: skip
_HEAD: Final = '''\
"""Reads tf.train.Examples from TFRecord files into PyTorch. Made from a schema; needs torch and numpy alone.

Lengths are checked, so that a file which was cut short is an error; checksums are not.
"""

import glob
import gzip
import io
import zlib

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
'''
_PARSE: Final = '''

def parse(record):
    """One row, by the names of its features."""
    found, row = lists(record), {}
'''
_READ: Final = '''
def load(pattern, batch_size=None, compression_type="", num_workers=0):
    """The rows of all files that match, in the order of their names; in batches, if a size is given."""
    rows = Rows(pattern, compression_type)
    if batch_size is None:
        return rows
    return DataLoader(rows, batch_size, num_workers=num_workers, collate_fn=collate)


class Rows(IterableDataset):
    """The rows of files, dealt out to the workers of a DataLoader."""

    def __init__(self, pattern, compression_type=""):
        self.files = sorted(glob.glob(pattern))
        self.compression_type = compression_type
        if not self.files:
            raise FileNotFoundError(f"No file matches {pattern!r}.")

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        number = 0
        for file in self.files:
            for record in records(file, self.compression_type):
                if number % step == first:
                    yield parse(record)
                number += 1


def collate(rows):
    """Values that have one shape become one tensor; others, and strings, stay a list."""
    batch = {name: [row[name] for row in rows] for name in rows[0]}
    for name, values in batch.items():
        shapes = {tuple(v.shape) if isinstance(v, torch.Tensor) and not v.is_sparse else None for v in values}
        if len(shapes) == 1 and None not in shapes:
            batch[name] = torch.stack(values)
    return batch


def records(file, compression_type=""):
    """The records of a TFRecord file."""
    with open(file, "rb") as stored:
        if compression_type == "GZIP":
            stored = gzip.open(stored)
        elif compression_type == "ZLIB":
            stored = io.BytesIO(zlib.decompress(stored.read()))
        while head := stored.read(12):
            size = int.from_bytes(head[:8], "little")
            record, checksum = stored.read(size), stored.read(4)
            if len(head) < 12 or len(record) < size or len(checksum) < 4:
                raise EOFError(f"{file} ends in the middle of a record.")
            yield record


def fields(message):
    """Number and value of each field of a message of Protocol Buffers."""
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(message, at)
        else:
            size, at = varint(message, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = message[at : at + size], at + size
        if at > len(message):
            raise ValueError("A record is damaged.")
        yield tag >> 3, value


def varint(message, at):
    value = shift = 0
    while True:
        value |= (message[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 128:
            return value & (1 << 64) - 1, at


def varints(packed):
    octets = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(octets < 128)
    begins = np.append(0, ends + 1)[:-1]
    shifts = 7 * (np.arange(len(octets)) - np.repeat(begins, ends + 1 - begins))
    parts = (octets & 127).astype(np.uint64) << shifts.astype(np.uint64)
    return np.add.reduceat(parts, begins).view(np.int64) if len(begins) else np.zeros(0, np.int64)


def inside(message, number):
    return [value for found, value in fields(message) if found == number]


def lists(record):
    """The values of each feature of an Example: bytes in a list, numbers in an array."""
    entries = (entry for features in inside(record, 1) for entry in inside(features, 1))
    found = {}
    for entry in entries:
        name = b"".join(inside(entry, 1)[-1:]).decode()
        for kind, values in fields(b"".join(inside(entry, 2)[-1:])):
            parts = inside(values, 1)
            if kind == 2:
                parts = np.frombuffer(b"".join(parts), "<f4")
            elif kind == 3:
                alone = (each.to_bytes(8, "little") for each in parts if isinstance(each, int))
                packed = (varints(each) for each in parts if not isinstance(each, int))
                parts = np.concatenate([np.frombuffer(b"".join(alone), "<i8"), *packed])
            if len(parts):
                found[name] = parts
    return found


def tensor(values, dtype, shape):
    """Numbers of a list, or of the bytes that are all of it, as a tensor."""
    if isinstance(values, list):
        data = bytearray(values[0])
        made = torch.frombuffer(data, dtype=dtype) if data else torch.zeros(0, dtype=dtype)
    elif dtype == torch.uint64:
        made = torch.from_numpy(values.astype(np.uint64))
    else:
        made = torch.from_numpy(values.copy()).to(dtype)
    return made.reshape(shape)
'''


def serialize_torch(schema: Schema) -> bytes:
    """Python source that reads the rows which are written with this schema. Equal schemas, equal bytes.

    Raises:
        UnprocessableInput: what the source cannot read (`inexpressible_schema`): SequenceExamples, serialized
            tensors, dtypes that PyTorch does not have, several unknown lengths, and nested strings.
    """
    if schema.message == "sequence_example":
        raise _inexpressible("SequenceExamples are")
    parse = "".join(f"    row[{feature.name!r}] = {_value(feature)}\n" for feature in schema)
    names = "".join(
        f"    {feature.name!r}: {list(feature.meaning.class_names)!r},\n"
        for feature in schema
        if feature.meaning.class_names
    )
    classes = f"\n\nclass_names = {{\n{names}}}\n" if names else ""
    return f"{_HEAD}{classes}{_PARSE}{parse}    return row\n\n{_READ}".encode()


def _value(feature: Feature) -> str:
    """The value of a feature out of `found`, the lists of a row."""
    if feature.encoding == "tensor" or (feature.kind == "dense" and feature.num_unknown > 1):
        raise _inexpressible(
            f"Feature {feature.name!r}, a serialized tensor or one with several unknown lengths, is"
        )
    if not feature.dtype.is_string and feature.dtype.name not in _DTYPES:
        raise _inexpressible(f"Feature {feature.name!r}, of {feature.dtype.name}, is")
    if feature.kind == "ragged":
        return _ragged(feature)
    if feature.kind == "sparse":
        return _sparse(feature)
    stored = f"found[{feature.name!r}]"
    is_told = feature.num_unknown == 0 and feature.known_values > 0  # it is stored wherever a row has it
    if not is_told and feature.encoding == "list":
        empty = "[]" if feature.dtype.is_string else "varints(b'')"
        stored = f"found.get({feature.name!r}, {empty})"
    value = _strings(feature, stored) if feature.dtype.is_string else _tensor(feature, stored, feature.shape)
    may_lack = feature.nullable and (is_told or feature.encoding != "list")
    return f"{value} if {feature.name!r} in found else None" if may_lack else value


def _strings(feature: Feature, stored: str) -> str:
    if feature.kind != "dense" or len(feature.shape) > 1:
        raise _inexpressible(f"Feature {feature.name!r}, strings of several dimensions, is")
    one = "value.decode()" if feature.dtype.name == "text" else "value"
    return f"[{one} for value in {stored}]" + ("[0]" if feature.is_scalar else "")


def _tensor(feature: Feature, stored: str, shape: FeatureShape) -> str:
    dims = [-1 if dim is None else dim for dim in shape]
    return f"tensor({stored}, torch.{feature.dtype.name}, {dims})"


def _ragged(feature: Feature) -> str:
    values, *cuts = stored_features(feature)
    if len(cuts) > 1 or feature.dtype.is_string:
        raise _inexpressible(f"Feature {feature.name!r}, ragged with several cuts or of strings, is")
    numbers = _tensor(feature, _stored(values), (None, *feature.inner_shape))
    return f"list({numbers}.split({_stored(cuts[0])}.tolist()))"


def _sparse(feature: Feature) -> str:
    *indices, values = stored_features(feature)
    if feature.dtype.is_string:
        raise _inexpressible(f"Feature {feature.name!r}, sparse strings, is")
    places = ", ".join(_stored(index) for index in indices)
    numbers = _tensor(feature, _stored(values), (None,))
    size = list(feature.shape)
    return f"torch.sparse_coo_tensor(np.stack([{places}]), {numbers}, {size}, check_invariants=True)"


def _stored(feature: Feature) -> str:
    return f"found.get({feature.name!r}, varints(b''))"


def _inexpressible(what: str) -> UnprocessableInput:
    return UnprocessableInput(
        f"{what} not read by source for PyTorch. Ask for python, which reads with TensorFlow.",
        code="inexpressible_schema",
    )
