"""Readers of TFRecord shards that share no code with the service: the struct module and a table for CRC32C.

For tests that compare what others read with what the service says is there. They refuse all that is not
exactly right, so what they return was framed, summed and indexed as it should be.
"""

import gzip
import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from app.domain.compression import Compression

#: The names of `tf.data.TFRecordDataset`'s compressions.
TENSORFLOWS: dict[Compression, str] = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC32C = _table()
#: From here on a payload is summed in rows side by side.
_LONG_BYTES = 4096


def crc32c(data: bytes) -> int:
    crc, done = _sum_rows(data) if len(data) >= _LONG_BYTES else (0xFFFFFFFF, 0)
    for byte in data[done:]:
        crc = _CRC32C[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _sum_rows(data: bytes) -> tuple[int, int]:
    """The register after the first bytes of `data`, which make a square, and how many those are.

    A step is linear: what a row makes of the register is the sum of what it makes of each of its bits.
    """
    side = math.isqrt(len(data))
    square = np.frombuffer(data, np.uint8, side * side).reshape(side, side)
    table = np.array(_CRC32C, np.uint32)
    rows, bits = np.zeros(side, np.uint32), np.uint32(1) << np.arange(32, dtype=np.uint32)
    for column in square.T:
        rows = table[(rows ^ column) & 0xFF] ^ rows >> 8
        bits = table[bits & 0xFF] ^ bits >> 8
    crc, moved = 0xFFFFFFFF, bits.tolist()
    for row in rows.tolist():
        for bit, sum_ in enumerate(moved):
            row ^= sum_ if crc >> bit & 1 else 0
        crc = row
    return crc, side * side


def parse_frame(data: bytes, offset: int) -> tuple[bytes, int]:
    """The payload of the frame at `offset`, and where the next one begins."""
    length, length_crc = struct.unpack_from("<QI", data, offset)
    begin, end = offset + 12, offset + 12 + length
    assert length_crc == masked_crc32c(data[offset : offset + 8]), f"length at {offset}"
    payload = data[begin:end]
    assert struct.unpack_from("<I", data, end)[0] == masked_crc32c(payload), f"payload at {offset}"
    return payload, end + 4


def parse_frames(data: bytes) -> Iterator[bytes]:
    """The payloads of a whole uncompressed TFRecord file."""
    offset = 0
    while offset < len(data):
        payload, offset = parse_frame(data, offset)
        yield payload


def inflate(data: bytes, compression: Compression) -> bytes:
    """What a compressed file holds, which must be a single member or stream with nothing behind it."""
    if compression == "none":
        return data
    inflater = zlib.decompressobj({"gzip": 31, "zlib": 15}[compression])
    raw = inflater.decompress(data)
    assert inflater.eof
    assert inflater.unused_data == b""
    assert raw == (gzip.decompress(data) if compression == "gzip" else zlib.decompress(data))
    return raw


def inflate_piece(data: bytes, compression: Compression, *, first: bool) -> bytes:
    """What one piece of a compressed file holds, without any other piece."""
    header = {"gzip": 10, "zlib": 2}[compression] if first else 0
    return zlib.decompressobj(-15).decompress(data[header:])


def read_shard(path: Path, compression: Compression = "none") -> list[bytes]:
    """The payloads of one shard."""
    return list(parse_frames(inflate(path.read_bytes(), compression)))


def read_split(folder: Path, split: str, compression: Compression = "none") -> list[bytes]:
    """The payloads of a split, shard after shard, found by their names as any reader finds them."""
    shards = sorted(folder.glob(f"[!_]*-{split}.tfrecord-*-of-*"))
    return [payload for shard in shards for payload in read_shard(shard, compression)]


def parse_index(text: str) -> list[tuple[int, int]]:
    """Offset and size of each record, as DALI's TFRecord reader takes them from an index file."""
    assert text == "" or text.endswith("\n")
    lines = (line.split(" ") for line in text.splitlines())
    return [(int(offset), int(size)) for offset, size in lines]


def read_by_index(shard: Path, index: Path) -> list[bytes]:
    """The payloads that an index leads to; it must cover its shard without gap or overlap."""
    data, found, position = shard.read_bytes(), [], 0
    for offset, size in parse_index(index.read_text("ascii")):
        assert offset == position
        payload, position = parse_frame(data, offset)
        assert position == offset + size
        found.append(payload)
    assert position == len(data)
    return found
