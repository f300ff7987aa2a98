"""Requests that ask for very much with few bytes, each with what it is answered.

Held to bounds by tests/contract/test_http_amplification.py, timed by benchmarks/bench_hostile.py.
"""

import base64
import gzip
import io
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from zipfile import ZIP_STORED

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.archives import tar_of, zip_of
from tests.support.images import png_of
from tests.support.tfrecord_frames import frame

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


def example(features: dict[str, bytes]) -> bytes:
    entries = b"".join(
        delimited(1, delimited(1, name.encode()) + delimited(2, feature))
        for name, feature in features.items()
    )
    return delimited(1, entries)


def with_schema(schema: Any) -> bytes:
    return json.dumps({"schema": schema, "instances": [{}] * 100_000}).encode()


def optional_text() -> dict[str, Any]:
    return {"pythonClassName": f"{TFDS}.Tensor", "tensor": {"dtype": "string", "shape": {}, "optional": True}}


def features_json(features: dict[str, Any]) -> dict[str, Any]:
    return {"pythonClassName": f"{TFDS}.FeaturesDict", "featuresDict": {"features": features}}


def nested_features_json(depth: int) -> dict[str, Any]:
    """So many dictionaries in one another, so that names are long."""
    found = optional_text()
    for _ in range(depth):
        found = features_json({"n" * 60: found, "m": optional_text()})
    return found


def nullable_integers(count: int) -> bytes:
    feature = {"dtype": "int64", "nullable": True}
    return json.dumps({"features": dict.fromkeys(names(count), feature)}).encode()


def multipart(*parts: tuple[str, str, bytes]) -> bytes:
    """Of a name, a media type, and content each, with the boundary `b`."""
    head = '--b\r\nContent-Disposition: form-data; name="{}"\r\nContent-Type: {}\r\n\r\n'
    return (
        b"".join(head.format(name, kind).encode() + content + b"\r\n" for name, kind, content in parts)
        + b"--b--\r\n"
    )


def oip(datatype: str, shape: list[int], data: bytes, size: int | None = None) -> bytes:
    """A request of the binary extension; `size` is that of data which follows."""
    size = len(data) if size is None else size
    tensor = {"name": "x", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}
    return json.dumps({"inputs": [tensor]}).encode() + data


def b64_records(payloads: list[bytes]) -> bytes:
    rows = [{"b64": base64.b64encode(payload).decode()} for payload in payloads]
    return json.dumps({"instances": rows}).encode()


def lists(features: list[str]) -> bytes:
    """A SequenceExample of feature lists, each of one step."""
    entries = (
        delimited(1, delimited(1, name.encode()) + delimited(2, delimited(1, INT64_ONE))) for name in features
    )
    return delimited(2, b"".join(entries))


INT64_ONE = b"\x1a\x03\x0a\x01\x01"
TFDS = "tensorflow_datasets.core.features"

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
        "zeros to be repaired",
        f"{RECORDS}/repair",
        "application/x-tfrecord",
        lambda: frame(b"") + bytes(4 * MIB),
        "200",
    ),
    Hostile(
        "good records between bad ones, to be repaired",
        f"{RECORDS}/repair",
        "application/x-tfrecord",
        lambda: (frame(b"") + b"x") * 60_000,
        "200",
    ),
    Hostile(
        "gzip of empty rows",
        f"{RECORDS}/serialize?to=ndjson",
        "application/x-ndjson",
        lambda: gzip.compress(b'{"abc":1}\n' + b"{}\n" * 20_000_000),
        "cut",
        {"Content-Encoding": "gzip"},
    ),
    Hostile(
        "gzip of an NPY of zeros, as JSON",
        f"{TENSORS}/parse?to=json",
        "application/x-npy",
        lambda: gzip.compress(npy(np.zeros(200 * MIB, np.uint8))),
        "cut",
        {"Content-Encoding": "gzip"},
    ),
    Hostile(
        "9,900 tensors of nothing in safetensors",
        f"{TENSORS}/parse?from=safetensors&to=npz",
        "application/octet-stream",
        lambda: safetensors(
            {name: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for name in names(9900)}
        ),
        "200",
    ),
    Hostile(
        "9,900 tensors of nothing in OIP",
        f"{TENSORS}/parse?to=json",
        "application/json",
        lambda: json.dumps(
            {"inputs": [{"name": n, "datatype": "FP32", "shape": [0], "data": []} for n in names(9900)]}
        ).encode(),
        "200",
    ),
    Hostile(
        "a million rows of nothing as sparse tensors",
        f"{TENSORS}/serialize?sparse=many&to=tfrecord",
        "application/json",
        lambda: b'{"dtype":"float32","values":[],"indices":[],"dense_shape":[1048576,2]}',
        "200",
    ),
    Hostile(
        "bools one by one in a TensorProto",
        f"{TENSORS}/parse?to=json",
        "application/octet-stream",
        lambda: filled(10, 500_000, b"\x58\x01" * 500_000),
        "200",
    ),
    Hostile(
        "empty strings in a TensorProto",
        f"{TENSORS}/parse?to=json",
        "application/octet-stream",
        lambda: filled(7, 500_000, b"\x42\x00" * 500_000),
        "200",
    ),
    Hostile(
        "a long string in an Arrow dictionary",
        f"{RECORDS}/serialize?to=ndjson",
        "application/vnd.apache.arrow.stream",
        lambda: arrow(pa.table({"x": again("a" * 50_000, 500_000)})),
        "cut",
    ),
    Hostile(
        "100 batches of one row and 1,000 columns in Arrow",
        f"{RECORDS}/serialize",
        "application/vnd.apache.arrow.stream",
        lambda: batches_of_one_row(1000, 100),
        "200",
    ),
    Hostile(
        "runs in Arrow",
        f"{RECORDS}/serialize?to=json",
        "application/vnd.apache.arrow.stream",
        lambda: arrow(
            pa.table({"x": pa.RunEndEncodedArray.from_arrays(pa.array([2**30], pa.int32()), pa.array([1]))})
        ),
        TOO_MUCH,
    ),
    Hostile(
        "a long string in a Parquet dictionary",
        f"{RECORDS}/serialize?to=ndjson",
        "application/vnd.apache.parquet",
        lambda: parquet(pa.table({"x": again("a" * 50_000, 100_000)})),
        "cut",
    ),
    Hostile(
        "runs in Parquet",
        f"{RECORDS}/serialize?to=json",
        "application/vnd.apache.parquet",
        lambda: parquet(pa.table({"x": np.zeros(50_000_000, np.int64)})),
        "cut",
    ),
    Hostile(
        "300 row groups of one row and 100 columns in Parquet",
        f"{RECORDS}/serialize",
        "application/vnd.apache.parquet",
        lambda: parquet(pa.table({name: np.arange(300) for name in names(100)}), row_group_size=1),
        "200",
    ),
    Hostile(
        "a schema.pbtxt of 9,900 features, and empty rows",
        f"{RECORDS}/serialize?to=ndjson",
        "application/json",
        lambda: with_schema("".join(f'feature {{ name: "{n}" type: INT }}\n' for n in names(9900))),
        "cut",
    ),
    Hostile(
        "a features.json of 9,900 features, and empty rows",
        f"{RECORDS}/serialize?to=ndjson",
        "application/json",
        lambda: with_schema(features_json(dict.fromkeys(names(9900), optional_text()))),
        "cut",
    ),
    Hostile(
        "a features.json of dictionaries in one another",
        f"{RECORDS}/serialize?to=ndjson",
        "application/json",
        lambda: with_schema(nested_features_json(60)),
        "cut",
    ),
    Hostile(
        "a part with a schema of 9,900 features, and empty rows in another",
        f"{RECORDS}/serialize?to=ndjson",
        "multipart/form-data; boundary=b",
        lambda: multipart(
            ("schema", "application/json", nullable_integers(9900)),
            ("data", "application/x-ndjson", b"{}\n" * 100_000),
        ),
        "cut",
    ),
    Hostile(
        "10,000 files of nothing under a long label",
        f"{RECORDS}/serialize?to=ndjson",
        "multipart/form-data; boundary=b",
        lambda: multipart(
            ("label", "text/plain", b"n" * 4096),
            *[('file"; filename="a.jpg', "image/jpeg", b"")] * 10_000,
        ),
        "200",
    ),
    Hostile(
        "100,000 parts of nothing",
        f"{RECORDS}/serialize",
        "multipart/form-data; boundary=b",
        lambda: multipart(*[("schema", "application/json", b"")] * 100_000),
        "400 malformed_multipart",
    ),
    Hostile(
        "zstd of an NPY of zeros",
        f"{TENSORS}/parse?to=json",
        "application/x-npy",
        lambda: pa.compress(npy(np.zeros(800 * MIB, np.uint8)), "zstd", asbytes=True),
        "cut",
        {"Content-Encoding": "zstd"},
    ),
    Hostile(
        "10^9 raw rows of nothing",
        f"{TENSORS}/serialize?from=raw&dtype=float32&shape=1000000000,0&to=json&layout=nested",
        "application/octet-stream",
        lambda: b"",
        "422 shape_too_large",
    ),
    Hostile(
        "10^9 rows of nothing in an NPY",
        f"{TENSORS}/parse?to=json&layout=nested",
        "application/x-npy",
        lambda: npy(np.zeros((10**9, 0), np.float32)),
        "422 shape_too_large",
    ),
    Hostile(
        "binary OIP of 10^6 empty strings",
        f"{TENSORS}/parse?from=oip&to=json",
        "application/octet-stream",
        lambda: oip("BYTES", [10**6], bytes(4 * 10**6)),
        "200",
        {"Inference-Header-Content-Length": str(len(oip("BYTES", [10**6], b"", 4 * 10**6)))},
    ),
    Hostile(
        "binary OIP of 10^9 rows of nothing",
        f"{RECORDS}/parse?from=oip&to=ndjson",
        "application/octet-stream",
        lambda: oip("FP32", [10**9, 0], b""),
        "413 payload_too_large",
        {"Inference-Header-Content-Length": str(len(oip("FP32", [10**9, 0], b"")))},
    ),
    Hostile(
        "records in base64 that are empty but for the first",
        f"{RECORDS}/parse?from=b64&to=ndjson",
        "application/json",
        lambda: b64_records([example(dict.fromkeys(names(2000), INT64_ONE)), *[b""] * 50_000]),
        "cut",
    ),
    Hostile(
        "10^6 ragged rows of nothing",
        f"{TENSORS}/serialize?to=json&layout=nested",
        "application/json",
        lambda: b'{"dtype":"float32","values":[],"row_splits":[[' + b",".join([b"0"] * 10**6) + b"]]}",
        "200",
    ),
    Hostile(
        "blank lines of CSV under a long name",
        f"{RECORDS}/serialize?to=json",
        "text/csv",
        lambda: b"n" * 4000 + b"\n1\n" + b"\n" * 1_000_000,
        "cut",
    ),
    Hostile(
        "an Example of 9,900 features, then empty ones",
        f"{RECORDS}/parse?to=ndjson&infer=all",
        "application/x-tfrecord",
        lambda: frame(example(dict.fromkeys(names(9900), INT64_ONE))) + frame(b"") * 60_000,
        TOO_MUCH,
    ),
    Hostile(
        "Examples of one feature each, by turns",
        f"{RECORDS}/describe?infer=all",
        "application/x-tfrecord",
        lambda: b"".join(frame(example({name: INT64_ONE})) for name in names(3000)) * 10,
        "200",
    ),
    Hostile(
        "SequenceExamples of one feature list each, by turns",
        f"{RECORDS}/describe?infer=all&message=sequence_example",
        "application/x-tfrecord",
        lambda: b"".join(frame(lists([name])) for name in names(3000)) * 10,
        "200",
    ),
    Hostile(
        "samples of one file each, by turns",
        f"{RECORDS}/describe?infer=all",
        "application/x-tar",
        lambda: tar_of(*((f"{number}.f{number % 3000}", b"") for number in range(30_000))),
        "200",
    ),
    Hostile(
        "a long key for every one of 9,900 files",
        f"{RECORDS}/serialize?to=tar",
        "application/json",
        lambda: json.dumps([{"__key__": "k" * 4000, **dict.fromkeys(names(9900), 1)}]).encode(),
        "200",
    ),
    Hostile(
        "30,000 empty files in a ZIP archive",
        f"{RECORDS}/describe",
        "application/zip",
        lambda: zip_of(*((f"a/{number}.jpg", b"") for number in range(30_000)), method=ZIP_STORED),
        "200",
    ),
    Hostile(
        "a PNG that claims 9,000 x 9,000 pixels",
        f"{TENSORS}/serialize",
        "image/png",
        lambda: png_of(9000, 9000),
        TOO_MUCH,
    ),
    Hostile(
        "a PNG of 4,000 x 4,000 pixels of one colour",
        f"{TENSORS}/describe",
        "image/png",
        lambda: png_of(4000, 4000, content=zlib.compress(bytes(4000 * 12_001), 9)),
        "200",
    ),
    Hostile(
        "a picture of one colour as JSON",
        f"{TENSORS}/serialize?to=json",
        "image/png",
        lambda: png_of(4000, 4000, content=zlib.compress(bytes(4000 * 12_001), 9)),
        "cut",
    ),
]
