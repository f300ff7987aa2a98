"""Batches of rows out of an Arrow stream as numpy arrays, without pyarrow.

It reads what the service writes: uncompressed record batches, whose schema in JSON stands in the metadata.
Of Arrow's metadata, which are flatbuffers, only what is needed for that is looked at.

Sources: https://arrow.apache.org/docs/format/Columnar.html (messages, buffers), Message.fbs and Schema.fbs
beside it (tables), https://flatbuffers.dev/internals/ (offsets and vtables).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .errors import ClientError

#: The schema of the service in the metadata of Arrow's.
_SCHEMA_KEY: Final = b"shardsmith:schema"
_CONTINUES: Final = 0xFFFFFFFF
#: `MessageHeader` of Message.fbs.
_SCHEMA: Final = 1
_RECORD_BATCH: Final = 3
#: No message of the service has longer metadata; a longer one is no Arrow.
_MAX_METADATA: Final = 1 << 26
#: What numpy itself knows, by the names of the service.
_NUMBERS: Final = frozenset(
    {"float16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
)
_STRINGS: Final = frozenset({"string", "text", "bytes"})

#: An array for each feature, whose first axis counts rows.
Batch = dict[str, NDArray[Any]]
#: Features as a schema in JSON has them.
Features = Mapping[str, Mapping[str, Any]]


class NotReadable(ClientError, ValueError):
    """What came is not what the service writes, or has features that no array holds."""


class ArrowStream:
    """The record batches of a stream, each once all of it is there.

    Numbers have their own dtypes and shapes. Texts are `str`, other strings `bytes`, in arrays of objects.

    Attributes:
        features: dtype, shape and kind of each, by name.

    Args:
        read: gives exactly so many of the next bytes, or raises.

    Raises:
        NotReadable: no such stream, or see `features_of`.
    """

    def __init__(self, read: Callable[[int], bytearray]) -> None:
        self._read = read
        with _faults():
            kind, table, _ = _read_message(read)
            if kind != _SCHEMA:
                raise NotReadable("The answer is no Arrow stream of this service: it has no schema.")
            self.features = features_of(_read_schema(table))

    def __iter__(self) -> Iterator[Batch]:
        while True:
            with _faults():
                kind, table, body = _read_message(self._read)
                if kind == 0:
                    return
                if kind != _RECORD_BATCH:
                    raise NotReadable("The answer has a message that is no record batch.")
                batch = _Columns(table, body).read(self.features)
            yield batch


@contextmanager
def _faults() -> Iterator[None]:
    """Report bytes that make no sense as what they are."""
    try:
        yield
    except (struct.error, AttributeError, LookupError, StopIteration, TypeError) as error:
        raise NotReadable(f"The answer is no Arrow stream of this service: {error!r}") from error
    except ValueError as error:
        if isinstance(error, NotReadable):
            raise
        raise NotReadable(f"The answer is no Arrow stream of this service: {error}") from error


def no_rows(features: Features) -> Batch:
    """A batch without rows."""
    return {
        name: np.empty((0, *feature["shape"]), object if feature["dtype"] in _STRINGS else feature["dtype"])
        for name, feature in features.items()
    }


def features_of(schema: Mapping[str, Any]) -> Features:
    """The features of a schema in JSON, by name.

    Raises:
        NotReadable: one whose values are no array: of a dtype that numpy has not, ragged, sparse, or of a
            shape that is not known.
    """
    for name, feature in schema["features"].items():
        what = None
        if feature["kind"] != "dense" or None in feature["shape"]:
            what = f"is {feature['kind']} of shape {feature['shape']}"
        elif feature["dtype"] not in _NUMBERS | _STRINGS | {"bool"}:
            what = f"has the dtype {feature['dtype']}"
        if what is not None:
            raise NotReadable(
                f"Feature {name!r} {what}; a batch holds arrays of one shape and of dtypes that numpy has. "
                f"Add transforms for it, such as pad_to or cast."
            )
    found: Features = schema["features"]
    return found


def _read_message(read: Callable[[int], bytearray]) -> tuple[int, _Table, memoryview]:
    """The kind of the next message, its header and its body; 0 and nothing at the end of the stream."""
    marker, size = struct.unpack("<II", read(8))
    if marker != _CONTINUES or size > _MAX_METADATA:
        raise NotReadable("The answer is no Arrow stream.")
    if not size:
        return 0, _Table(b"\0" * 8, 4), memoryview(b"")
    message = _Table.root(read(size))
    num_bytes = message.number(3, "q")
    if num_bytes < 0:
        raise NotReadable("The answer has a message of a negative size.")
    return message.number(1, "B"), message.table(2), memoryview(read(num_bytes))


def _read_schema(table: _Table) -> Mapping[str, Any]:
    for entry in table.tables(2):
        if entry.string(0) == _SCHEMA_KEY:
            schema: Mapping[str, Any] = json.loads(entry.string(1))
            return schema
    raise NotReadable("The answer is no Arrow stream of this service: it has no schema of its own.")


class _Table:
    """A table of a flatbuffer: fields by number."""

    def __init__(self, data: bytes | bytearray, at: int) -> None:
        self._data = data
        self._at = at

    @classmethod
    def root(cls, data: bytes | bytearray) -> _Table:
        return cls(data, struct.unpack_from("<I", data)[0])

    def number(self, field: int, form: str) -> int:
        """A scalar; 0 where it is left out."""
        at = self._find(field)
        return int(struct.unpack_from("<" + form, self._data, at)[0]) if at else 0

    def table(self, field: int) -> _Table:
        return _Table(self._data, self._follow(self._require(field)))

    def string(self, field: int) -> bytes:
        begin, size = self._vector(field)
        return bytes(self._data[begin : begin + size])

    def tables(self, field: int) -> Iterator[_Table]:
        begin, size = self._vector(field)
        for at in range(begin, begin + 4 * size, 4):
            yield _Table(self._data, self._follow(at))

    def pairs(self, field: int) -> NDArray[np.int64]:
        """A vector of structs of two int64: `[n, 2]`."""
        begin, size = self._vector(field)
        return np.frombuffer(self._data, "<i8", 2 * size, begin).reshape(-1, 2)

    def has(self, field: int) -> bool:
        return bool(self._find(field))

    def _find(self, field: int) -> int:
        vtable = self._at - int(struct.unpack_from("<i", self._data, self._at)[0])
        size = struct.unpack_from("<H", self._data, vtable)[0]
        place = 4 + 2 * field
        offset = struct.unpack_from("<H", self._data, vtable + place)[0] if place < size else 0
        return self._at + int(offset) if offset else 0

    def _require(self, field: int) -> int:
        at = self._find(field)
        if not at:
            raise NotReadable("The metadata of an Arrow message lack a field.")
        return at

    def _follow(self, at: int) -> int:
        return at + int(struct.unpack_from("<I", self._data, at)[0])

    def _vector(self, field: int) -> tuple[int, int]:
        if not self._find(field):
            return 0, 0
        at = self._follow(self._find(field))
        return at + 4, int(struct.unpack_from("<I", self._data, at)[0])


class _Columns:
    """The columns of a record batch, read one after the other as they lie there."""

    def __init__(self, table: _Table, body: memoryview) -> None:
        if table.has(3):
            raise NotReadable("The record batches are compressed.")
        self._num_rows = table.number(0, "q")
        self._nodes = iter(table.pairs(1).tolist())
        self._buffers = iter(table.pairs(2).tolist())
        self._body = body

    def read(self, features: Features) -> Batch:
        return {
            name: self._column(name, feature["dtype"], feature["shape"]) for name, feature in features.items()
        }

    def _column(self, name: str, dtype: str, shape: list[int]) -> NDArray[Any]:
        for _ in shape:  # each level of lists of a fixed size is a node and which of them are null
            self._next_node(name)
        count = self._next_node(name)
        if dtype in _STRINGS:
            values = self._strings(count, text=dtype == "text")
        elif dtype == "bool":
            bits = np.frombuffer(self._next_buffer(), np.uint8)
            values = np.unpackbits(bits, count=count, bitorder="little").view(np.bool_)
        else:
            values = np.frombuffer(self._next_buffer(), np.dtype(dtype).newbyteorder("<"), count)
        return values.reshape(self._num_rows, *shape)

    def _strings(self, count: int, *, text: bool) -> NDArray[Any]:
        found = self._next_buffer()
        offsets = np.frombuffer(found, "<i4", count + 1).tolist() if count else [0]
        data = bytes(self._next_buffer())
        values = np.empty(count, object)
        for row in range(count):
            value = data[offsets[row] : offsets[row + 1]]
            values[row] = value.decode() if text else value
        return values

    def _next_node(self, name: str) -> int:
        count, num_null = next(self._nodes)
        self._next_buffer()
        if num_null:
            raise NotReadable(
                f"{num_null} rows of a batch lack feature {name!r}. Add the transform fill_missing for it."
            )
        return int(count)

    def _next_buffer(self) -> memoryview:
        offset, size = next(self._buffers)
        return self._body[offset : offset + size]
