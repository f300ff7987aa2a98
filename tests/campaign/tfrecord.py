"""A reader of TFRecord files of the campaign's rows that shares no code with the service."""

import gzip
import struct
import zlib
from collections.abc import Iterator

from tests.support.shard_readers import masked_crc32c

__all__ = ["inflate", "read_rows"]

#: Longer payloads are left to the SHA-256 of the shard, and to TensorFlow.
_CHECKED_BYTES = 2000


def inflate(data: bytes, compression: str) -> bytes:
    """The file without its compression: none, gzip, zlib."""
    match compression:
        case "gzip":
            return gzip.decompress(data)
        case "zlib":
            return zlib.decompress(data)
        case _:
            return data


def read_rows(data: bytes) -> Iterator[tuple[int, float, str]]:
    """The rows of an uncompressed file; ValueError where it is damaged."""
    position = 0
    while position < len(data):
        length, check = struct.unpack_from("<QI", data, position)
        if check != masked_crc32c(data[position : position + 8]):
            raise ValueError(f"the length at {position} is damaged")
        payload = data[position + 12 : position + 12 + length]
        (check,) = struct.unpack_from("<I", data, position + 12 + length)
        if length <= _CHECKED_BYTES and check != masked_crc32c(payload):
            raise ValueError(f"the record at {position} is damaged")
        yield _row(payload)
        position += length + 16


def _row(payload: bytes) -> tuple[int, float, str]:
    values: dict[str, bytes] = {}
    for _, features in _fields(payload):
        for _, entry in _fields(features):
            (_, name), (_, value) = _fields(entry)
            ((_, items),) = _fields(value)
            # A list of bytes is a field per item, the others are packed.
            ((_, values[name.decode()]),) = _fields(items)
    return _varint(values["id"], 0)[0], struct.unpack("<f", values["score"])[0], values["text"].decode()


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message, all of which are length-delimited here."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        if tag & 7 != 2:
            raise ValueError("a field of another type than expected")
        length, position = _varint(data, position)
        yield tag >> 3, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
