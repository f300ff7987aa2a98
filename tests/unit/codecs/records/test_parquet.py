import io
import json
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from app.codecs.arrow.batches import arrow_schema
from app.codecs.arrow.parquet import decode, encode
from app.codecs.columns import Records
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile
from tests.arrow_rows import as_arrow, from_arrow
from tests.kinds import again, records

KINDS = ("scalar", "dense", "ragged", "sparse", "sequence")


def written(**columns: Any) -> bytes:
    return saved(pa.table(columns))


def saved(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def schema(**features: Any) -> Schema:
    return Schema.from_json({"features": features})


def decoded(data: bytes, budget: Budget | None = None, **options: Any) -> tuple[Schema, pa.Table]:
    found = decode(MemoryFile(data), RecordsDecodeOptions(**options), budget or Budget())
    batches = list(as_arrow(found))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == arrow_schema(found.schema)
    table = pa.Table.from_batches(batches, arrow_schema(found.schema))
    assert table.num_rows == found.num_rows
    return found.schema, table


def encoded(found: Records) -> bytes:
    return b"".join(encode(found, RecordsEncodeOptions(), Budget()))


def refused(data: bytes, error: type[InputError], code: str, **limits: int) -> InputError:
    with pytest.raises(error) as caught:
        decoded(data, Budget(Limits(**limits)))
    assert caught.value.code == code
    return caught.value


TABLE = pa.table({"x": [1, 2, None], "s": ["a", "b", "a"], "l": [[1.5], [], [2.0, 3.0]]})


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_files_of_other_writers(compression: str, version: str) -> None:
    data = saved(TABLE, compression=compression, data_page_version=version, row_group_size=2)
    found, table = decoded(data)
    assert [(one.name, one.dtype.name, one.shape) for one in found] == [
        ("x", "int64", ()),
        ("s", "text", ()),
        ("l", "float64", (None,)),
    ]
    assert table.to_pylist() == [
        {"x": 1, "s": b"a", "l": [1.5]},
        {"x": 2, "s": b"b", "l": []},
        {"x": None, "s": b"a", "l": [2.0, 3.0]},
    ]


def test_files_without_the_schema_of_arrow() -> None:
    table = pa.table({"x": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), "t": ["a"]})
    data = saved(table, store_schema=False)
    assert decoded(data)[0].by_name["x"].shape == (None,)
    declared = schema(x={"dtype": "float32", "shape": [2]}, t={"dtype": "text"})
    assert decoded(data, schema=declared)[1]["x"].to_pylist() == [[1.0, 2.0]]


def test_decimals_and_times_are_refused_before_a_row_is_read() -> None:
    refused(written(x=pa.array([1], pa.timestamp("ms"))), UnprocessableInput, "unsupported_type")


def test_the_schema_in_the_metadata_counts_as_declared() -> None:
    declared = schema(x={"dtype": "int8"})
    table = pa.table({"x": [1]}).replace_schema_metadata(
        {"shardsmith:schema": json.dumps(declared.to_json())}
    )
    assert decoded(saved(table))[0] == declared
    with pytest.raises(MalformedInput) as caught:
        decoded(saved(table), schema=declared)
    assert caught.value.code == "schema_twice"


@hypothesis.settings(max_examples=50, deadline=None)
@given(found=records(KINDS))
def test_rows_of_every_kind_round_trip(found: Records) -> None:
    found, table = again(found)
    data = encoded(found)
    pq.read_table(io.BytesIO(data)).validate(full=True)
    back, same = decoded(data)
    assert back == found.schema
    assert same.to_pylist() == table.to_pylist()
    assert encoded(from_arrow(back, iter(same.to_batches()))) == data or same.num_rows != table.num_rows


def test_row_groups_are_bounded() -> None:
    declared = schema(x={"dtype": "int64"})
    batch = pa.RecordBatch.from_pydict({"x": np.arange(8192)})
    budget = Budget()
    pieces = list(encode(from_arrow(declared, iter([batch] * 33)), RecordsEncodeOptions(), budget))
    assert len(pieces) == 4
    found = pq.ParquetFile(io.BytesIO(b"".join(bytes(piece) for piece in pieces)))
    assert [found.metadata.row_group(i).num_rows for i in range(3)] == [131072, 131072, 8192]
    assert budget.remaining == Budget().remaining
    assert budget.peak < 3 * 2**20
    assert found.metadata.row_group(0).column(0).compression == "SNAPPY"


def test_memory_is_given_back_with_each_row_group() -> None:
    data = saved(pa.table({"x": np.arange(200_000), "s": ["abc"] * 200_000}), row_group_size=20_000)
    budget = Budget()
    assert decoded(data, budget)[1].num_rows == 200_000
    assert budget.peak < 3 * 2**20
    assert budget.limits.max_decoded_bytes - budget.remaining < 100_000


def test_large_rows_make_small_batches() -> None:
    data = saved(pa.table({"x": [bytes([i]) * 2**22 for i in range(10)]}), use_dictionary=False)
    found = decode(MemoryFile(data), RecordsDecodeOptions(), Budget())
    assert max(batch.num_rows for batch in as_arrow(found)) <= 4


@pytest.mark.parametrize("shape", [[0], [None, 0]])
def test_dimensions_of_zero(shape: list[int | None]) -> None:
    declared = schema(x={"dtype": "int8", "shape": shape, "encoding": "tensor"})
    with pytest.raises(UnprocessableInput) as caught:
        encoded(from_arrow(declared, iter(())))
    assert caught.value.code == "not_expressible"


def test_rows_without_features() -> None:
    with pytest.raises(UnprocessableInput) as caught:
        encoded(from_arrow(Schema(()), iter(())))
    assert caught.value.code == "not_expressible"


# -- hostile files -----------------------------------------------------------------------------------


DATA = saved(TABLE)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "invalid_parquet"),
        (b"PAR1PAR1", "invalid_parquet"),
        (b"hello world, this is text", "invalid_parquet"),
        (DATA[:-1], "truncated"),
        (DATA + b"\n", "truncated"),
        (DATA[:-8] + b"\xff\xff\xff\x7fPAR1", "invalid_parquet"),
        (DATA[:-8] + b"\x01\x00\x00\x00PAR1", "invalid_parquet"),
    ],
)
def test_what_is_no_parquet_file(data: bytes, code: str) -> None:
    refused(data, MalformedInput, code)


def test_encrypted_files() -> None:
    refused(DATA[:-4] + b"PARE", UnprocessableInput, "unsupported_parquet")
    refused(b"PARE" + DATA[4:], UnprocessableInput, "unsupported_parquet")


def test_a_flipped_bit_in_a_page_with_a_checksum() -> None:
    data = bytearray(saved(pa.table({"x": np.arange(100)}), write_page_checksum=True, use_dictionary=False))
    data[200] ^= 1
    refused(bytes(data), MalformedInput, "invalid_parquet")


def test_a_page_that_inflates_beyond_the_budget() -> None:
    data = saved(pa.table({"x": [bytes(2**24)]}), compression="zstd", use_dictionary=False)
    assert len(data) < 2**16
    refused(data, LimitExceeded, "payload_too_large", max_decoded_bytes=2**24)


def test_a_row_with_more_values_than_memory() -> None:
    data = saved(pa.table({"x": pa.array([[1] * 2**22])}), compression="zstd")
    assert len(data) < 2**16
    refused(data, LimitExceeded, "payload_too_large", max_decoded_bytes=2**24)


def test_a_long_string_that_is_named_again_and_again_is_taken_a_few_rows_at_a_time() -> None:
    indices: Any = np.zeros(3000, "i4")
    data = saved(pa.table({"x": pa.DictionaryArray.from_arrays(indices, pa.array(["a" * 2**16]))}))
    assert len(data) < 2**16
    budget = Budget()
    batches = list(as_arrow(decode(MemoryFile(data), RecordsDecodeOptions(), budget)))
    assert sum(batch.nbytes for batch in batches) >= 3000 * 2**16
    assert max(batch.nbytes for batch in batches) <= 2**24
    assert budget.peak <= 2**26


def test_a_footer_that_would_take_more_than_the_budget() -> None:
    data = saved(pa.table({"x": [1]}).replace_schema_metadata({"note": "a" * 2**20}))
    refused(data, LimitExceeded, "payload_too_large", max_decoded_bytes=2**26)


def test_features_that_can_be_null_leave_as_plain_lists() -> None:
    declared = schema(
        x={"dtype": "int8", "shape": [2], "nullable": True},
        y={"dtype": "int8", "shape": [2]},
        z={"dtype": "int8", "shape": [None, None], "nullable": True},
    )
    found = pq.ParquetFile(io.BytesIO(encoded(from_arrow(declared, iter(()))))).schema_arrow
    assert [str(field.type) for field in found] == [
        "list<element: int8 not null>",
        "fixed_size_list<element: int8 not null>[2]",
        "struct<data: list<element: int8 not null> not null, shape: list<element: int32 not null> not null>",
    ]


def test_strings_in_an_encoding_that_is_not_read_are_refused_with_advice() -> None:
    table = pa.table({"x": ["ab", "abc"] * 10})
    data = saved(table, use_dictionary=False, column_encoding={"x": "DELTA_BYTE_ARRAY"})
    with pytest.raises(UnprocessableInput, match="dictionary-encoded") as caught:
        decoded(data)
    assert (caught.value.code, caught.value.location.row) == ("unsupported_parquet", 0)
