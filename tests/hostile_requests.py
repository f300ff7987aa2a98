"""Requests that ask for very much with few bytes, each with what it is answered.

Held to bounds by tests/contract/test_http_amplification.py, timed by benchmarks/bench_hostile.py.
"""

import io
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["HOSTILE", "Hostile"]

MIB = 1024 * 1024
TENSORS, RECORDS = "/v1/tensors", "/v1/records"
APPEND = "/v1/datasets/{dataset}/records"
TOO_MUCH = "413 amplification_exceeded"


@dataclass(frozen=True)
class Hostile:
    """One request.

    Attributes:
        path: `{dataset}` stands for a dataset of its own.
        body: makes it.
        answer: the status, and the code of the problem; "cut" for an answer that is broken off.
    """

    name: str
    path: str
    content_type: str
    body: Callable[[], bytes]
    answer: str
    headers: dict[str, str] = field(default_factory=dict)


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def delimited(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def filled(dtype: int, count: int, value: bytes) -> bytes:
    """A TensorProto of `count` elements, of which one is given."""
    return b"\x08" + varint(dtype) + delimited(2, delimited(2, b"\x08" + varint(count))) + value


def npz(**arrays: Any) -> bytes:
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)
    return sink.getvalue()


def arrow(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def npy(array: Any) -> bytes:
    sink = io.BytesIO()
    np.save(sink, array)
    return sink.getvalue()


def safetensors(header: dict[str, Any]) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


def again(text: str, count: int) -> Any:
    """The text so many times, by reference."""
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int8), pa.array([text]))


def batches_of_one_row(num_columns: int, num_rows: int) -> bytes:
    table = pa.table({name: np.arange(num_rows) for name in names(num_columns)})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    return sink.getvalue()


def names(count: int) -> list[str]:
    return [f"f{index}" for index in range(count)]


def keys_then_empty_rows(num_keys: int, num_rows: int, separator: bytes = b",") -> bytes:
    first = json.dumps(dict.fromkeys(names(num_keys), 1), separators=(",", ":")).encode()
    rows = separator.join([first, *[b"{}"] * num_rows])
    return b"[" + rows + b"]" if separator == b"," else rows + b"\n"


def cycling(num_keys: int, num_rows: int) -> bytes:
    """Rows of one key each, by turns."""
    return b"".join(b'{"f%d":1}\n' % (index % num_keys) for index in range(num_rows))


def crc32c_masked(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def frame(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return length + crc32c_masked(length) + payload + crc32c_masked(payload)


def example(features: dict[str, bytes]) -> bytes:
    entries = b"".join(
        delimited(1, delimited(1, name.encode()) + delimited(2, feature))
        for name, feature in features.items()
    )
    return delimited(1, entries)


INT64_ONE = b"\x1a\x03\x0a\x01\x01"
ALL_KEYS = "json and all keys, then empty rows"

HOSTILE = [
    Hostile(
        "a string 10^8 times",
        f"{TENSORS}/describe?from=tensorproto",
        "application/octet-stream",
        lambda: b"\x08\x07\x12\x07\x12\x05\x08\x80\xc2\xd7\x2f\x42\x01x",
        TOO_MUCH,
    ),
    Hostile(
        "a string of 300 bytes 10^7 times",
        f"{TENSORS}/parse?to=json",
        "application/octet-stream",
        lambda: filled(7, 10**7, delimited(8, b"x" * 300)),
        "413 payload_too_large",
    ),
    Hostile(
        "a float 10^8 times",
        f"{TENSORS}/parse?to=json",
        "application/octet-stream",
        lambda: filled(1, 100_000_000, delimited(5, bytes(4))),
        TOO_MUCH,
    ),
    Hostile(
        "the longest number 8 * 10^6 times",
        f"{TENSORS}/parse?to=json",
        "application/octet-stream",
        lambda: filled(2, 8_000_000, delimited(6, struct.pack("<d", -2.2250738585072014e-308))),
        "cut",
    ),
    Hostile(
        "400 TensorProtos of 10^6 floats",
        f"{TENSORS}/describe?from=tfrecord",
        "application/x-tfrecord",
        lambda: frame(filled(1, 1_000_000, delimited(5, bytes(4)))) * 400,
        TOO_MUCH,
    ),
    Hostile(
        "an NPZ feature of a long name in 500,000 rows",
        APPEND,
        "application/x-npz",
        lambda: npz(**{"n" * 4000: np.zeros(500_000, np.uint8)}),
        TOO_MUCH,
    ),
    Hostile(
        "a CSV feature of a long name in 500,000 rows",
        APPEND,
        "text/csv",
        lambda: b"n" * 4000 + b"\n" + b"1\n" * 500_000,
        TOO_MUCH,
    ),
    Hostile(
        "a Parquet feature of a long name in 500,000 rows",
        APPEND,
        "application/vnd.apache.parquet",
        lambda: parquet(pa.table({"n" * 4000: np.zeros(500_000, np.int64)})),
        TOO_MUCH,
    ),
    Hostile(
        "9,900 keys, then 33,000 empty rows",
        f"{RECORDS}/serialize?to=json",
        "application/json",
        lambda: keys_then_empty_rows(9900, 33_000),
        "cut",
    ),
    Hostile(
        "9,900 keys, then 33,000 empty lines",
        f"{RECORDS}/serialize?to=ndjson",
        "application/x-ndjson",
        lambda: keys_then_empty_rows(9900, 33_000, b"\n"),
        "cut",
    ),
    Hostile(
        "9,900 keys, then 33,000 empty rows, as TFRecord",
        f"{RECORDS}/serialize",
        "application/json",
        lambda: keys_then_empty_rows(9900, 33_000),
        TOO_MUCH,
    ),
    Hostile(
        "3,000 keys by turns",
        f"{RECORDS}/serialize?infer=all",
        "application/x-ndjson",
        lambda: cycling(3000, 140_000),
        "cut",
    ),
    Hostile(
        "3,000 keys by turns, described",
        f"{RECORDS}/describe?infer=all",
        "application/x-ndjson",
        lambda: cycling(3000, 140_000),
        TOO_MUCH,
    ),
    Hostile(
        "a row of many keys, then empty rows, appended",
        APPEND + "?evolve=widen",
        "application/x-ndjson",
        lambda: keys_then_empty_rows(3000, 100_000, b"\n"),
        TOO_MUCH,
    ),
    Hostile(
        "empty lists by turns",
        f"{RECORDS}/describe?infer=all",
        "application/x-ndjson",
        lambda: cycling(1000, 100_000).replace(b":1}", b":[]}"),
        "200",
    ),
    Hostile(
        "as many features as lines, as Python",
        f"{RECORDS}/describe?infer=all&to=python",
        "application/x-ndjson",
        lambda: cycling(9900, 9900),
        TOO_MUCH,
    ),
    Hostile(
        "columns of JSON, a schema of 9,900 features beside them",
        f"{RECORDS}/serialize?to=ndjson",
        "application/json",
        lambda: json.dumps(
            {
                "schema": {"features": {n: {"dtype": "int64", "nullable": True} for n in names(9900)}},
                "columns": {"f0": [1] * 100_000},
            }
        ).encode(),
        "cut",
    ),
    Hostile(
        "blank lines of CSV under a long name",
        f"{RECORDS}/serialize?to=json",
        "text/csv",
        lambda: b"n" * 4000 + b"\n1\n" + b"\n" * 1_000_000,
        "cut",
    ),
]
