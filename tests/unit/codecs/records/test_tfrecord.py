from __future__ import annotations

import gzip
import zlib
from typing import Any

import pyarrow as pa
import pytest

from app.codecs.arrow.batches import arrow_schema
from app.codecs.columns import Records
from app.codecs.messages.tfrecord import decode, encode
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.compression import Compression
from app.domain.schema import Schema
from app.errors import MalformedInput, SchemaConflict
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from tests.arrow_rows import as_arrow, from_arrow

SCHEMA = Schema.from_json({"features": {"x": {"dtype": "int64"}, "s": {"dtype": "text", "nullable": True}}})
ROWS: list[dict[str, Any]] = [{"x": 1, "s": b"one"}, {"x": -2, "s": None}]


def records_of(rows: list[dict[str, Any]], schema: Schema = SCHEMA) -> Records:
    return from_arrow(
        schema, iter([pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema))] if rows else [])
    )


def encoded(rows: list[dict[str, Any]], compression: Compression = "none") -> bytes:
    return b"".join(encode(records_of(rows), RecordsEncodeOptions(compression=compression), Budget()))


def decoded(data: bytes, **options: Any) -> list[dict[str, Any]]:
    records = decode(MemoryStream(data), RecordsDecodeOptions(**options), Budget())
    return [row for batch in as_arrow(records) for row in batch.to_pylist()]


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
@pytest.mark.parametrize("declared", [True, False])
def test_rows_return_in_every_compression(compression: Compression, declared: bool) -> None:
    data = encoded(ROWS, compression)
    assert decoded(data, schema=SCHEMA, compression=compression if declared else None) == ROWS


def test_compression_is_around_the_same_bytes() -> None:
    plain = encoded(ROWS)
    assert gzip.decompress(encoded(ROWS, "gzip")) == plain
    assert zlib.decompress(encoded(ROWS, "zlib")) == plain


def test_no_rows_are_no_bytes() -> None:
    assert encoded([]) == b""
    assert gzip.decompress(encoded([], "gzip")) == b""
    for compression in ("none", "gzip", "zlib"):
        assert decoded(encoded([], compression), schema=SCHEMA) == []
        assert decoded(encoded([], compression)) == []


def test_the_schema_is_known_before_the_first_batch() -> None:
    records = decode(MemoryStream(encoded(ROWS)), RecordsDecodeOptions(), Budget())
    assert {feature.name: (feature.dtype.name, feature.shape) for feature in records.schema} == {
        "s": ("bytes", (None,)),
        "x": ("int64", (None,)),
    }
    assert [row for batch in as_arrow(records) for row in batch.to_pylist()] == [
        {"s": [b"one"], "x": [1]},
        {"s": None, "x": [-2]},
    ]


def test_a_fault_in_the_file_is_found_while_rows_are_drawn() -> None:
    with pytest.raises(MalformedInput) as caught:
        decoded(encoded(ROWS)[:-1], schema=SCHEMA)
    assert (caught.value.code, caught.value.location.row) == ("truncated", 1)
    with pytest.raises(SchemaConflict) as conflict:
        decoded(encoded(ROWS), schema=Schema(SCHEMA.features[:1]))
    assert (conflict.value.code, conflict.value.location.feature) == ("schema_conflict", "s")
