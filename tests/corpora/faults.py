"""The corpus of tests/contract/test_faults.py: bodies that must not be believed, and their answers."""

import gzip
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support import tensor_formats
from tests.support.feature_values import field as proto_field
from tests.support.feature_values import varint

__all__ = ["FAULTS", "MIB", "Fault"]

MIB = 1024 * 1024


@dataclass(frozen=True)
class Fault:
    """A request and its answer.

    Attributes:
        row: of the catalogue.
        form: the short name, empty where the headers say it.
        body: or what makes it, where it is large.
        answer: the status, the code, and the members of the problem that say where.
    """

    row: int
    name: str
    form: str
    body: bytes | Callable[[], bytes]
    answer: str
    path: str = "/v1/tensors/parse"
    params: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def routes(self) -> dict[str, dict[str, str]]:
        """Every route that takes such a body, with its query."""
        *_, noun, _ = self.path.split("/")
        asked = {**({"from": self.form} if self.form else {}), **self.params}
        plain = {name: value for name, value in asked.items() if name != "to"}
        routes = {f"/v1/{noun}/{verb}": asked for verb in ("serialize", "parse")}
        if noun != "examples":
            routes[f"/v1/{noun}/describe"] = plain
        if noun == "records":
            routes["/v1/datasets/faulty/records"] = {**plain, "publish": "true"}
        return routes


def npy(header: str, content: bytes = b"", *, size: int | None = None) -> bytes:
    """Version 1.0, with any header."""
    text = header.encode("latin-1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) if size is None else size) + text + content


def described(descr: str, shape: str, *, fortran: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n"


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, method)  # of no date
    return sink.getvalue()


def patched(data: bytes, *changes: tuple[bytes, int, bytes]) -> bytes:
    """Bytes written at an offset behind the first place of a mark."""
    changed = bytearray(data)
    for mark, offset, value in changes:
        at = data.index(mark) + offset
        changed[at : at + len(value)] = value
    return bytes(changed)


ONE = npy(described("'<i8'", "(1,)"), bytes(8))
LOCAL, ENTRY = b"PK\x03\x04", b"PK\x01\x02"
TWICE = zipped(("x.npy", ONE), ("y.npy", ONE)).replace(b"y.npy", b"x.npy")


def npz_bomb() -> bytes:
    return zipped(("x.npy", npy(described("'|u1'", f"({2**30},)"), bytes(160 * MIB))))


def proto(code: int, *dims: int, rest: bytes = b"") -> bytes:
    shape = b"".join(proto_field(0x12, b"\x08" + varint(dim)) for dim in dims)
    return b"\x08" + varint(code) + proto_field(0x12, shape) + rest


def example(feature: bytes) -> bytes:
    return proto_field(0x0A, proto_field(0x0A, proto_field(0x0A, b"x") + proto_field(0x12, feature)))


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :]


RECORD = tensor_formats.framed(example(b"\x1a\x03\x0a\x01\x05"))
GZIPPED = gzip.compress(RECORD, mtime=0)
#: A length of 2^40 whose checksum is right.
LONG = struct.pack("<Q", 2**40) + tensor_formats.masked_crc(struct.pack("<Q", 2**40))


def bomb() -> bytes:
    """One record of nothing, 160 MiB of it."""
    head = struct.pack("<Q", 160 * MIB)
    return head + tensor_formats.masked_crc(head) + bytes(160 * MIB)


def arrow(table: pa.Table, compression: Literal["zstd"] | None = None) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, write_statistics=False)
    return sink.getvalue()


TEXTS = arrow(pa.table({"t": ["abc", "defg"]}))
OFFSETS = struct.pack("<3i", 0, 3, 7)
RECORDS = "/v1/records/serialize"
EXAMPLE = "/v1/examples/parse"
X = json.dumps({"features": {"x": {"dtype": "int64", "shape": [None]}}})


def tensors(row: int, name: str, form: str, body: bytes | Callable[[], bytes], answer: str) -> Fault:
    return Fault(row, name, form, body, answer, params={"to": "npz"} if form == "npz" else {})


def rows(
    row: int, name: str, form: str, body: bytes | Callable[[], bytes], answer: str, **params: str
) -> Fault:
    return Fault(row, name, form, body, answer, RECORDS, {"to": "ndjson", **params})


FAULTS = [
    tensors(
        1, "object dtype", "npy", npy(described("'|O'", "(1,)"), b"\x80\x04."), "422 unsupported_dtype offset"
    ),
    tensors(
        1,
        "object in a structure",
        "npy",
        npy(described("[('a', '|O')]", "(1,)"), bytes(8)),
        "422 unsupported_dtype offset",
    ),
    tensors(
        2, "2^32 x 2^32", "npy", npy(described("'<i8'", f"({2**32}, {2**32})")), "413 shape_too_large offset"
    ),
    tensors(
        3, "a dimension of 2^64", "npy", npy(described("'<i8'", f"({2**64},)")), "400 invalid_shape offset"
    ),
    tensors(4, "a negative dimension", "npy", npy(described("'<i8'", "(-1,)")), "400 invalid_shape offset"),
    tensors(4, "a dimension of True", "npy", npy(described("'<i8'", "(True,)")), "400 invalid_shape offset"),
    tensors(5, "0 x 2^63", "npy", npy(described("'<i8'", f"(0, {2**63})")), "400 invalid_shape offset"),
    tensors(6, "S0 x 2^60", "npy", npy(described("'|S0'", f"({2**60},)")), "413 payload_too_large"),
    tensors(
        7, "V2147483647", "npy", npy(described("'|V2147483647'", "(1,)")), "422 unsupported_dtype offset"
    ),
    tensors(
        8,
        "a header over 10 kB",
        "npy",
        npy(described("'<i8'", "(1,)" + " " * 10_000), bytes(8)),
        "413 npy_header_too_large offset",
    ),
    tensors(
        8,
        "13 bytes that claim 4 GiB",
        "npy",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
        "413 npy_header_too_large offset",
    ),
    tensors(
        8, "4000 parentheses", "npy", npy(described("'<i8'", "(" * 4000)), "400 invalid_npy_header offset"
    ),
    tensors(
        8, "9000 minuses", "npy", npy(described("'<i8'", "-" * 9000 + "1")), "400 invalid_npy_header offset"
    ),
    tensors(9, "short", "npy", ONE[:-1], "400 truncated offset"),
    tensors(9, "long", "npy", ONE + b"\0", "400 trailing_bytes offset"),
    tensors(
        10, "datetime", "npy", npy(described("'<M8[s]'", "(1,)"), bytes(8)), "415 unsupported_dtype offset"
    ),
    tensors(
        10, "float128", "npy", npy(described("'<f16'", "(1,)"), bytes(16)), "415 unsupported_dtype offset"
    ),
    tensors(11, "a bomb", "npz", npz_bomb, "413 payload_too_large feature"),
    rows(11, "a bomb of rows", "npz", npz_bomb, "413 payload_too_large feature"),
    tensors(12, "duplicate members", "npz", TWICE, "422 duplicate_member feature"),
    tensors(12, "../x.npy", "npz", zipped(("../x.npy", ONE)), "422 invalid_member_name feature"),
    tensors(
        12, "a member that is no array", "npz", zipped(("x.txt", ONE)), "422 invalid_member_name feature"
    ),
    tensors(
        13,
        "encrypted",
        "npz",
        patched(zipped(("x.npy", ONE)), (LOCAL, 6, b"\x01\x00"), (ENTRY, 8, b"\x01\x00")),
        "422 encrypted_member feature",
    ),
    tensors(
        13,
        "bzip2",
        "npz",
        zipped(("x.npy", ONE), method=zipfile.ZIP_BZIP2),
        "422 unsupported_compression feature",
    ),
    tensors(
        13,
        "a size that lies",
        "npz",
        patched(zipped(("x.npy", ONE)), (ENTRY, 24, struct.pack("<I", 2**32 - 2))),
        "400 invalid_npz feature",
    ),
    rows(14, "a bomb in gzip", "tfrecord", lambda: gzip.compress(bomb(), 1), "413 payload_too_large"),
    rows(14, "a bomb in zlib", "tfrecord", lambda: zlib.compress(bomb(), 1), "413 payload_too_large"),
    rows(17, "gzip that ends early", "tfrecord", GZIPPED[:-9], "400 truncated offset"),
    rows(
        17,
        "a wrong trailer",
        "tfrecord",
        GZIPPED[:-8] + bytes(8),
        "400 invalid_compression offset",
    ),
    rows(17, "bytes behind gzip", "tfrecord", GZIPPED + b"more", "400 trailing_bytes offset"),
    tensors(
        18,
        "one value for 2^40",
        "tensorproto",
        proto(1, 2**20, 2**20, rest=b"\x2d\0\0\0\0"),
        "413 payload_too_large",
    ),
    tensors(
        19,
        "content of another size",
        "tensorproto",
        proto(1, 2, rest=b"\x22\x04" + bytes(4)),
        "422 content_size_mismatch offset",
    ),
    tensors(
        19,
        "content and values",
        "tensorproto",
        proto(1, 1, rest=b"\x22\x04" + bytes(4) + b"\x2d" + bytes(4)),
        "422 conflicting_values offset",
    ),
    tensors(
        20,
        "surplus values",
        "tensorproto",
        proto(3, 1, rest=b"\x3a\x02\x01\x02"),
        "422 surplus_values offset",
    ),
    tensors(20, "int8 300", "tensorproto", proto(6, 1, rest=b"\x3a\x02\xac\x02"), "422 out_of_range offset"),
    tensors(20, "a bool of 2", "tensorproto", proto(10, 1, rest=b"\x5a\x01\x02"), "422 invalid_bool offset"),
    tensors(21, "resource", "tensorproto", proto(20, 1), "422 unsupported_dtype offset"),
    tensors(21, "variant", "tensorproto", proto(21, 1), "422 unsupported_dtype offset"),
    tensors(21, "dtype 99", "tensorproto", proto(99, 1), "422 unsupported_dtype offset"),
    tensors(21, "unknown rank", "tensorproto", b"\x08\x01\x12\x02\x18\x01", "422 unknown_rank offset"),
    tensors(22, "a length beyond the end", "tensorproto", b"\x08\x01\x22\x7f\x00", "400 truncated offset"),
    tensors(22, "a varint cut short", "tensorproto", b"\x08\x80", "400 truncated offset"),
    Fault(22, "groups in groups", "example", b"\x0b" * 10_000, "400 malformed_example row offset", EXAMPLE),
    Fault(
        22,
        "lengths that lie",
        "example",
        b"\x0a\x05\x0a\x7f\x0a\x01x",
        "400 malformed_example row offset",
        EXAMPLE,
    ),
    rows(
        22,
        "an Example cut short",
        "tfrecord",
        tensor_formats.framed(b"\x0a\x05\x0a"),
        "400 malformed_example row offset",
    ),
    rows(23, "2^40 with a valid checksum", "tfrecord", RECORD + LONG, "413 record_too_large row offset"),
    rows(24, "a flipped length", "tfrecord", RECORD + flipped(RECORD, 0), "400 corrupt_record row offset"),
    rows(
        24,
        "a flipped checksum of it",
        "tfrecord",
        RECORD + flipped(RECORD, 9),
        "400 corrupt_record row offset",
    ),
    rows(24, "a flipped payload", "tfrecord", RECORD + flipped(RECORD, 14), "400 corrupt_record row offset"),
    rows(
        24,
        "a flipped checksum",
        "tfrecord",
        RECORD + flipped(RECORD, len(RECORD) - 1),
        "400 corrupt_record row offset",
    ),
    rows(25, "part of a header", "tfrecord", RECORD + RECORD[:7], "400 truncated row offset"),
    tensors(26, "NaN", "json", b"[1.5, NaN]", "400 nonfinite_token offset"),
    tensors(26, "Infinity", "json", b"[-Infinity]", "400 nonfinite_token offset"),
    tensors(26, "1e400", "json", b"[1e400]", "422 out_of_range pointer"),
    rows(26, "1e400 in a row", "ndjson", b'{"x": [1.5]}\n{"x": [1e400]}', "422 out_of_range row feature"),
    rows(26, "1e400 in CSV", "csv", b"x\n1.5\n1e400\n", "422 out_of_range row feature"),
    tensors(
        27, "2^63", "json", b'{"dtype": "int64", "data": [9223372036854775808]}', "422 out_of_range pointer"
    ),
    tensors(
        27,
        "2^24 + 1 as float32",
        "json",
        b'{"dtype": "float32", "data": [16777217]}',
        "422 inexact_integer pointer",
    ),
    rows(
        27,
        "2^63 in a row",
        "json",
        b'[{"x": [9223372036854775808]}]',
        "422 out_of_range row feature",
        schema=X,
    ),
    tensors(28, "a key twice", "json", b'{"data": [1], "data": [2]}', "400 duplicate_key offset"),
    rows(28, "a key twice in a row", "ndjson", b'{"x": 1}\n{"x": 1, "x": 2}', "400 duplicate_key row offset"),
    tensors(29, "a depth of 100,000", "json", b"[" * 100_000, "413 json_too_deep offset"),
    rows(
        29, "a depth of 100,000 in a row", "ndjson", b'{"x":' + b"[" * 100_000, "413 json_too_deep row offset"
    ),
    tensors(29, "5000 digits", "json", b"[" + b"9" * 5000 + b"]", "422 integer_too_large offset"),
    tensors(30, "half a surrogate pair", "json", b'["\\ud800"]', "400 lone_surrogate offset"),
    tensors(30, "no UTF-8", "json", b'["\xff"]', "400 invalid_utf8 offset"),
    tensors(30, "a NUL", "json", b'["\x00"]', "400 invalid_json offset"),
    tensors(31, "ragged", "json", b"[[1, 2], [3]]", "422 ragged pointer"),
    tensors(31, "true beside 1", "json", b"[true, 1]", "422 mixed_types pointer"),
    rows(31, "true beside 1 in a row", "ndjson", b'{"x": [true, 1]}', "422 schema_conflict row feature"),
    rows(
        32,
        "offsets that decrease",
        "arrow",
        patched(TEXTS, (OFFSETS, 4, struct.pack("<i", 9))),
        "400 invalid_arrow row",
    ),
    rows(
        32,
        "offsets beyond the data",
        "arrow",
        patched(TEXTS, (OFFSETS, 8, struct.pack("<i", 2**30))),
        "400 invalid_arrow row",
    ),
    rows(
        33,
        "compressed buffers",
        "arrow",
        lambda: arrow(pa.table({"x": np.zeros(20 * MIB, np.float32)}), "zstd"),
        "413 amplification_exceeded offset",
    ),
    rows(
        33,
        "compressed pages",
        "parquet",
        lambda: parquet(pa.table({"x": [bytes(160 * MIB)]})),
        "413 payload_too_large",
    ),
    rows(
        33,
        "10^9 nulls",
        "arrow",
        arrow(pa.table({"x": pa.nulls(10**9)})),
        "413 amplification_exceeded offset",
    ),
    rows(33, "a body cut short", "arrow", TEXTS[:-60], "400 truncated offset"),
]
