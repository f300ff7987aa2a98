"""More bodies that must not be believed: lies that the catalogue of faults does not spell out."""

import io
import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.corpora.faults import MIB, RECORDS, Fault, arrow, patched, rows, tensors

__all__ = ["LIES"]

KIB = 1024


def nested(depth: int) -> bytes:
    """An Arrow stream with a column of lists in lists."""
    layout: pa.DataType = pa.int8()
    for _ in range(depth):
        layout = pa.list_(layout)
    return arrow(pa.table({"x": pa.array([None], layout)}))


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none", write_statistics=False, store_schema=False, **options)
    return sink.getvalue()


def safetensors(header: object, content: bytes = b"", size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + content


def tensor_at(begin: int, end: int, *shape: int) -> dict[str, object]:
    return {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}


def multipart(*parts: tuple[str, str, bytes]) -> bytes:
    """With the boundary `b`: names, headers that end with CRLF, and content."""
    return b"".join(
        b'--b\r\nContent-Disposition: form-data; name="%s"\r\n%s\r\n%s\r\n'
        % (name.encode(), headers.encode(), content)
        for name, headers, content in parts
    )


def beside_schema(schema: bytes) -> bytes:
    data = ("data", "Content-Type: application/x-ndjson\r\n", b'{"x": 1}')
    return multipart(("schema", "", schema), data) + b"--b--\r\n"


PLAIN = parquet(pa.table({"x": pa.array(range(100), pa.int64())}), use_dictionary=False)
WORDS = parquet(pa.table({"x": pa.array(["abc"] * 100)}))
FOOTER = len(PLAIN) - 8 - int.from_bytes(PLAIN[-8:-4], "little")
#: 100, and 8191, as thrift writes them.
MANY, MORE = b"\xc8\x01", b"\xfe\x7f"
VECTOR = np.zeros(4, np.float32).tobytes()
ENTRY = {"name": "x", "datatype": "FP32", "shape": [4], "parameters": {"binary_data_size": 16}}


def length(json_bytes: int) -> dict[str, str]:
    return {"Inference-Header-Content-Length": str(json_bytes)}


def binary(row: int, name: str, item: dict[str, object], answer: str, json_bytes: int | None = None) -> Fault:
    """A tensor whose content stands behind the JSON that describes it."""
    text = json.dumps({"inputs": [{**ENTRY, **item}]}).encode()
    headers = length(len(text) if json_bytes is None else json_bytes)
    return Fault(row, name, "oip", text + VECTOR, answer, headers=headers)


def form(row: int, name: str, body: bytes | Callable[[], bytes], answer: str) -> Fault:
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    return Fault(row, name, "", body, answer, RECORDS, {"to": "ndjson"}, headers)


LIES = [
    tensors(
        9,
        "a safetensors header of 2^63 bytes",
        "safetensors",
        safetensors({}, size=2**63),
        "413 safetensors_header_too_large offset",
    ),
    tensors(
        9,
        "a safetensors header beyond the end",
        "safetensors",
        safetensors({}, size=2**24),
        "400 truncated offset",
    ),
    tensors(
        9,
        "a safetensors header of 90 MB",
        "safetensors",
        lambda: safetensors(b" " * 90 * MIB),
        "413 payload_too_large",
    ),
    tensors(
        9,
        "safetensors that overlap",
        "safetensors",
        safetensors({"a": tensor_at(0, 8, 2), "b": tensor_at(4, 12, 2)}, bytes(12)),
        "400 invalid_safetensors feature",
    ),
    tensors(
        2,
        "a safetensors shape beyond its content",
        "safetensors",
        safetensors({"a": tensor_at(0, 8, 2**40, 2**40)}, bytes(8)),
        "413 shape_too_large feature",
    ),
    tensors(
        9,
        "a safetensors tensor beyond the end",
        "safetensors",
        safetensors({"a": tensor_at(0, 2**40, 2**38)}, bytes(8)),
        "413 payload_too_large feature",
    ),
    tensors(
        28,
        "a safetensors name twice",
        "safetensors",
        safetensors(b'{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"a":{}}', bytes(4)),
        "400 duplicate_key offset",
    ),
    binary(
        19,
        "a binary_data_size below the shape",
        {"parameters": {"binary_data_size": 8}},
        "400 binary_data_size_mismatch pointer",
    ),
    binary(
        19,
        "a binary_data_size beyond the body",
        {"shape": [2**20], "parameters": {"binary_data_size": 2**22}},
        "400 truncated pointer feature offset",
    ),
    binary(
        19,
        "a negative binary_data_size",
        {"parameters": {"binary_data_size": -16}},
        "400 invalid_tensor pointer",
    ),
    binary(
        19,
        "a binary_data_size of 2^70",
        {"parameters": {"binary_data_size": 2**70}},
        "400 binary_data_size_mismatch pointer",
    ),
    binary(2, "a shape of 2^40 x 2^40", {"shape": [2**40, 2**40]}, "413 shape_too_large pointer"),
    binary(4, "a shape of -1", {"shape": [-1]}, "400 invalid_shape pointer"),
    binary(22, "a JSON longer than the body", {}, "400 truncated offset", 10**6),
    binary(22, "a JSON of 2^63 - 1 bytes", {}, "413 payload_too_large", 2**63 - 1),
    binary(22, "a JSON cut short", {}, "400 invalid_json offset", 20),
    rows(22, "a CSV header of commas", "csv", lambda: b"," * 8 * MIB + b"\n1\n", "413 too_many_features row"),
    rows(
        22, "a CSV line that does not end", "csv", lambda: b"a\n" + b"b" * 100 * MIB, "413 payload_too_large"
    ),
    rows(
        22,
        "a CSV quote that is not closed",
        "csv",
        lambda: b'a\n"' + b"b\n" * 8 * MIB,
        "413 payload_too_large",
    ),
    rows(
        22,
        "an NDJSON line that does not end",
        "ndjson",
        lambda: b'{"x": "' + b"a" * 100 * MIB,
        "413 payload_too_large",
    ),
    rows(
        28,
        "a key twice behind a long string",
        "json",
        lambda: b'[{"x": "' + b"\\n" * 4 * MIB + b'", "y": 1, "y": 2}]',
        "400 duplicate_key offset",
    ),
    rows(
        22,
        "as many features as lines",
        "ndjson",
        lambda: b"".join(b'{"x%d": 1}\n' % i for i in range(10_001)),
        "413 too_many_features",
        infer="all",
    ),
    rows(22, "lists in lists in Arrow", "arrow", nested(60), "413 schema_too_large offset"),
    rows(
        33,
        "more rows than a Parquet page",
        "parquet",
        PLAIN[:FOOTER] + PLAIN[FOOTER:].replace(MANY, MORE),
        "400 invalid_parquet",
    ),
    rows(
        33, "more values than a Parquet page", "parquet", PLAIN.replace(MANY, MORE), "400 invalid_parquet row"
    ),
    rows(
        33,
        "row groups of other rows than the file",
        "parquet",
        PLAIN[:FOOTER] + PLAIN[FOOTER:].replace(MANY, MORE, 1),
        "400 invalid_parquet",
    ),
    rows(
        33,
        "a Parquet dictionary of more words",
        "parquet",
        patched(WORDS, (b"\x4c\x15\x02", 2, b"\x7e")),
        "400 invalid_parquet row",
    ),
    rows(
        33,
        "a Parquet page larger than the file",
        "parquet",
        patched(PLAIN, (b"PAR1\x15\x00", 10, b"\xfe\x7f")),
        "400 invalid_parquet row",
    ),
    form(
        22,
        "100,000 parts",
        lambda: multipart(*[(f"p{i}", "", b"") for i in range(100_000)]),
        "400 malformed_multipart",
    ),
    form(22, "100,000 headers", b"--b\r\n" + b"X: y\r\n" * 100_000, "400 malformed_multipart offset"),
    form(
        22,
        "a header that does not end",
        lambda: b"--b\r\nX: " + b"y" * 8 * MIB,
        "400 malformed_multipart offset",
    ),
    form(
        22,
        "100,000 labels without a file",
        lambda: multipart(*[("label", "", b"x")] * 100_000),
        "400 malformed_multipart offset",
    ),
    form(
        22,
        "a label of 8 MiB",
        lambda: multipart(("label", "", b"x" * 8 * MIB)),
        "413 member_name_too_long offset",
    ),
    form(
        22,
        "a file that does not end",
        lambda: multipart(("label", "", b"cat"), ('file"; filename="a.jpg', "", b"x" * 8 * MIB)),
        "400 malformed_multipart offset",
    ),
    form(22, "no boundary", lambda: b"x" * 8 * MIB, "400 malformed_multipart offset"),
    form(
        22,
        "a schema of one string",
        lambda: beside_schema(b'feature { name: "' + b"\\n" * 2040 * KIB),
        "400 invalid_pbtxt offset",
    ),
    form(
        22,
        "a schema of one list",
        lambda: beside_schema(b"a: [" + b"1, " * MIB),
        "413 schema_too_large offset",
    ),
    form(29, "a schema of braces", beside_schema(b"feature {" * 100_000), "413 too_deep offset"),
    form(
        29,
        "a schema of brackets",
        beside_schema(b'{"features": ' + b"[" * 100_000),
        "413 json_too_deep offset",
    ),
    form(22, "a schema of 5 MiB", lambda: beside_schema(b" " * 5 * MIB), "413 payload_too_large"),
]
