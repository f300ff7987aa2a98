"""Rows as Parquet, in and out, through the form table."""

import base64
import io
import json
from decimal import Decimal
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from app.codecs.columns import Records
from app.codecs.forms import RECORDS_CODECS
from app.codecs.options import RecordsEncodeOptions
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.runtime.budget import Budget
from tests.support import format_cases
from tests.support.format_cases import Refusal, Rows, assert_rows, schema_of
from tests.support.random_rows import records
from tests.unit.codecs.arrow.test_arrow import shared_fields

KINDS = ("scalar", "dense", "ragged", "sparse", "sequence")


def saved(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def written(**columns: Any) -> bytes:
    return saved(pa.table(columns))


def read(data: bytes, **options: Any) -> Rows | Refusal:
    return format_cases.read("parquet", data, **options)


def write(found: Records) -> bytes:
    data = format_cases.write("parquet", found)
    assert isinstance(data, bytes), data
    return data


def opened(data: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(io.BytesIO(data))


TABLE = pa.table({"x": [1, 2, None], "s": ["a", "b", "a"], "l": [[1.5], [], [2.0, 3.0]]})
ROWS: list[dict[str, Any]] = [
    {"x": 1, "s": b"a", "l": [1.5]},
    {"x": 2, "s": b"b", "l": []},
    {"x": None, "s": b"a", "l": [2.0, 3.0]},
]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_files_of_other_writers(compression: str, version: str, dictionary: bool) -> None:
    found = read(
        saved(
            TABLE,
            compression=compression,
            data_page_version=version,
            row_group_size=2,
            use_dictionary=dictionary,
        )
    )
    assert_rows(found, ROWS)
    assert isinstance(found, Rows)
    assert found.features == {"x": "int64?", "s": "text?", "l": "float64[null]?"}


#: Runs of strings that have much in common, little, and nothing; more than one block of deltas.
WORDS = [f"{'common' * (row % 90)}{row}" if row % 7 else "" for row in range(1000)]


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_encodings_of_strings(encoding: str, compression: str, version: str) -> None:
    lists = [WORDS[row : row + row % 4] for row in range(1000)]
    nulls = [None if row % 5 == 0 else word for row, word in enumerate(WORDS)]
    table = pa.table({"x": WORDS, "n": nulls, "l": lists})
    data = saved(
        table,
        compression=compression,
        data_page_version=version,
        use_dictionary=False,
        column_encoding=dict.fromkeys(("x", "n", "l.list.element"), encoding),
        data_page_size=2000,
    )
    found = read(data)
    assert isinstance(found, Rows)
    assert [row["x"].decode() for row in found.rows] == WORDS
    expected = [None if word is None else word.encode() for word in nulls]
    assert [row["n"] for row in found.rows] == expected
    assert [[text.decode() for text in row["l"]] for row in found.rows] == lists


def test_strings_of_a_dictionary_and_others_in_one_column() -> None:
    texts = ["long" * 1000 + str(row % 600) for row in range(2000)] + [str(row) for row in range(20_000)]
    data = saved(pa.table({"x": texts}), row_group_size=21_000, dictionary_pagesize_limit=2**20)
    found = read(data)
    assert isinstance(found, Rows)
    assert [row["x"].decode() for row in found.rows] == texts


@pytest.mark.parametrize("groups", [[], [0], [0, 0], [3, 0, 3], [0, 3]])
def test_tables_and_row_groups_without_rows(groups: list[int]) -> None:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, TABLE.schema) as writer:
        for num_rows in groups:
            writer.write_table(TABLE.slice(0, num_rows))
    found = read(sink.getvalue())
    assert_rows(found, ROWS * (sum(groups) // 3))
    assert isinstance(found, Rows)
    assert list(found.features) == ["x", "s", "l"]


def test_files_without_the_schema_of_arrow() -> None:
    table = pa.table({"x": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), "t": ["a"]})
    data = saved(table, store_schema=False)
    found = read(data)
    assert isinstance(found, Rows)
    assert found.features["x"] == "float32[null]?"
    declared = schema_of(x={"dtype": "float32", "shape": [2]}, t="text")
    assert_rows(read(data, schema=declared), [{"x": [1.0, 2.0], "t": b"a"}])


def test_times_decimals_and_structs() -> None:
    stamps = pa.array([1577840584123456], pa.timestamp("us", "UTC"))
    prices = pa.array([Decimal("1.50")], pa.decimal128(10, 2))
    data = written(t=stamps, p=prices, s=[{"a": 1, "b": {"c": "x"}}])
    found = read(data)
    assert_rows(found, [{"t": b"2020-01-01T01:03:04.123456Z", "p": b"1.50", "s.a": 1, "s.b.c": b"x"}])
    declared = schema_of(t="int64", p="float32")
    expected = [{"t": 1577840584123456, "p": 1.5}]
    assert_rows(read(data, schema=declared, undeclared="drop"), expected)


def test_a_time_outside_of_a_day_is_a_number() -> None:
    times: Any = pa.array([1, 86_400_000], pa.int32()).view(pa.time32("ms"))
    assert_rows(read(written(x=times), schema=schema_of(x="int64")), [{"x": 1}, {"x": 86_400_000}])
    assert read(written(x=times)) == Refusal("out_of_range", 1, "x")


def test_types_that_no_feature_has() -> None:
    refusal = Refusal("unsupported_type", feature="x")
    assert read(written(x=pa.array([1], pa.duration("ms")))) == refusal


def test_the_schema_in_the_metadata_counts_as_declared() -> None:
    declared = schema_of(x="int8")
    metadata = {"shardsmith:schema": json.dumps(declared.to_json())}
    data = saved(pa.table({"x": [1]}).replace_schema_metadata(metadata))
    found = read(data)
    assert isinstance(found, Rows)
    assert (found.schema, found.is_declared) == (declared, True)
    assert read(data, schema=declared) == Refusal("schema_twice")


@hypothesis.settings(max_examples=50, deadline=None)
@given(found=records(KINDS))
def test_rows_of_every_kind_round_trip(found: Records) -> None:
    batches = list(found.batches)
    data = write(Records(found.schema, iter(batches)))
    pq.read_table(io.BytesIO(data)).validate(full=True)
    back = read(data)
    assert isinstance(back, Rows)
    assert back.schema == found.schema
    assert_rows(back, format_cases.rows_of(batches, found.schema))
    same = format_cases.decode("parquet", data, Budget())
    assert same.num_rows == len(back.rows)
    once = write(same)
    assert write(format_cases.decode("parquet", once, Budget())) == once


def test_row_groups_are_bounded() -> None:
    rows = format_cases.decode("parquet", written(x=np.arange(33 * 8192)), Budget())
    budget = Budget()
    encode = RECORDS_CODECS["parquet"].encode
    assert encode is not None
    pieces = list(encode(rows, RecordsEncodeOptions(), budget))
    metadata = opened(b"".join(map(bytes, pieces))).metadata
    assert [metadata.row_group(i).num_rows for i in range(3)] == [131072, 131072, 8192]
    assert metadata.row_group(0).column(0).compression == "SNAPPY"
    assert budget.remaining == Budget().remaining
    assert budget.peak < 3 * 2**20


def test_memory_is_given_back_with_each_row_group() -> None:
    data = saved(pa.table({"x": np.arange(200_000), "s": ["abc"] * 200_000}), row_group_size=20_000)
    found = read(data)
    assert isinstance(found, Rows)
    assert len(found.rows) == 200_000
    assert found.peak < 3 * 2**20
    assert found.left < 100_000


def test_large_rows_make_small_batches() -> None:
    data = saved(pa.table({"x": [bytes([i]) * 2**22 for i in range(10)]}), use_dictionary=False)
    found = read(data)
    assert isinstance(found, Rows)
    assert max(found.batches) <= 4


@pytest.mark.parametrize("shape", [[0], [None, 0]])
def test_schema_without_a_parquet_form_is_refused(shape: list[int | None]) -> None:
    declared = schema_of(x={"dtype": "int8", "shape": shape, "encoding": "tensor"})
    assert format_cases.write("parquet", Records(declared, iter(()))) == Refusal(
        "not_expressible", feature="x"
    )
    assert format_cases.write("parquet", Records(Schema(()), iter(()))) == Refusal("not_expressible")


def test_features_that_can_be_null_leave_as_plain_lists() -> None:
    declared = schema_of(
        x={"dtype": "int8", "shape": [2], "nullable": True},
        y={"dtype": "int8", "shape": [2]},
        z={"dtype": "int8", "shape": [None, None], "nullable": True},
    )
    found = opened(write(Records(declared, iter(())))).schema_arrow
    assert [str(field.type) for field in found] == [
        "list<element: int8 not null>",
        "fixed_size_list<element: int8 not null>[2]",
        "struct<data: list<element: int8 not null> not null, shape: list<element: int32 not null> not null>",
    ]


# Hostile files.

DATA = saved(TABLE)


def footer_of(data: bytes) -> tuple[int, int]:
    """Where it begins and ends."""
    end = len(data) - 8
    return end - int.from_bytes(data[-8:-4], "little"), end


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
        (DATA[:-8] + b"\0" + DATA[-8:], "invalid_parquet"),
        (DATA[:-8] + b"\0" + (int.from_bytes(DATA[-8:-4], "little") + 1).to_bytes(4, "little") + b"PAR1",
         "invalid_parquet"),
        (DATA[:-4] + b"PARE", "unsupported_parquet"),
        (b"PARE" + DATA[4:], "unsupported_parquet"),
        *((b"PAR1" + body + bytes(8) + (len(body) + 8).to_bytes(4, "little") + b"PAR1", "invalid_parquet")
          for body in (b"\x1c" * 40, b"\x19\xfc\xff\xff\x7f", b"\x1d", b"\x15" + b"\xff" * 11)),
    ],
)  # fmt: skip
def test_malformed_parquet_is_refused(data: bytes, code: str) -> None:
    found = read(data)
    assert isinstance(found, Refusal)
    assert found.code == code


#: What takes the place of a byte: half of them in the quick tests.
REPLACEMENTS = [(0, 0x15, 0xFF), pytest.param((0x18, 0x1C, 0x7F), marks=pytest.mark.exhaustive)]


@pytest.mark.parametrize("replacements", REPLACEMENTS, ids=str)
def test_every_byte_of_a_footer_that_is_changed_is_refused_or_harmless(replacements: tuple[int, ...]) -> None:
    begin, end = footer_of(DATA)
    codes = set()
    for place in range(begin, end):
        for byte in replacements:
            found = read(DATA[:place] + bytes([byte]) + DATA[place + 1 :])
            codes.add(found.code if isinstance(found, Refusal) else "")
    known = {"", "invalid_parquet", "invalid_arrow", "unsupported_type", "unsupported_parquet"}
    assert codes <= known | {
        "duplicate_feature",
        "invalid_feature_name",
        "amplification_exceeded",
        "payload_too_large",
    }
    assert {"", "invalid_parquet"} <= codes


def test_a_flipped_bit_in_a_page_with_a_checksum() -> None:
    data = bytearray(saved(pa.table({"x": np.arange(100)}), write_page_checksum=True, use_dictionary=False))
    data[200] ^= 1
    assert read(bytes(data)) == Refusal("invalid_parquet", row=0)


@pytest.mark.parametrize(
    "data",
    [
        # A page that inflates.
        saved(pa.table({"x": [bytes(2**24)]}), compression="zstd", use_dictionary=False),
        # A row with many pages of strings.
        saved(pa.table({"x": pa.array([[bytes(2**20)] * 24])}), compression="zstd", use_dictionary=False),
        # A row of very many values.
        saved(pa.table({"x": pa.array([[1] * 2**22])}), compression="zstd"),
    ],
)
def test_parquet_beyond_the_budget_is_refused(data: bytes) -> None:
    assert len(data) < 2**16
    found = read(data, limits=Limits(max_decoded_bytes=24 * 2**20))
    assert isinstance(found, Refusal)
    assert found.code == "payload_too_large"


def test_a_footer_that_would_take_more_than_the_budget() -> None:
    data = saved(pa.table({"x": [1]}).replace_schema_metadata({"note": "a" * 2**20}))
    assert read(data, limits=Limits(max_decoded_bytes=2**26)) == Refusal("payload_too_large")


def test_a_long_string_that_is_named_again_and_again_is_taken_a_few_rows_at_a_time() -> None:
    indices: Any = np.zeros(3000, "i4")
    data = saved(pa.table({"x": pa.DictionaryArray.from_arrays(indices, pa.array(["a" * 2**16]))}))
    assert len(data) < 2**16
    budget = Budget()
    sizes = [batch.num_rows for batch in format_cases.decode("parquet", data, budget).batches]
    assert sum(sizes) == 3000
    assert max(sizes) <= 2**24 // 2**16
    assert budget.peak <= 2**26


def delta_encoded(texts: list[str], version: str = "1.0") -> bytes:
    options: Any = {"column_encoding": {"x": "DELTA_BYTE_ARRAY"}, "data_page_version": version}
    return saved(pa.table({"x": texts}), use_dictionary=False, compression="none", **options)


def test_strings_that_share_long_beginnings_are_taken_a_few_rows_at_a_time() -> None:
    texts = ["a" * 2**16] * 3000
    data = saved(
        pa.table({"x": texts}),
        use_dictionary=False,
        column_encoding={"x": "DELTA_BYTE_ARRAY"},
        compression="none",
    )
    assert len(data) < 2**18
    budget = Budget()
    sizes = [batch.num_rows for batch in format_cases.decode("parquet", data, budget).batches]
    assert sum(sizes) == 3000
    assert max(sizes) <= 2**24 // 2**16
    assert budget.peak <= 2**28
    lists = saved(
        pa.table({"x": [texts]}),
        use_dictionary=False,
        column_encoding={"x.list.element": "DELTA_BYTE_ARRAY"},
    )
    found = read(lists, limits=Limits(max_decoded_bytes=2**27))
    assert isinstance(found, Refusal)
    assert found.code == "payload_too_large"


@pytest.mark.parametrize("replacements", REPLACEMENTS, ids=str)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_every_byte_of_delta_encoded_strings_that_is_changed_is_refused_or_harmless(
    version: str, replacements: tuple[int, ...]
) -> None:
    data = delta_encoded(WORDS[:100], version)
    for place in range(4, 200):
        for byte in replacements:  # also fields of other types
            found = read(data[:place] + bytes([byte]) + data[place + 1 :])
            assert isinstance(found, Rows) or found.code in ("invalid_parquet", "unsupported_parquet")


def test_the_arrow_schema_in_the_footer_is_charged_as_the_tree_that_it_spells() -> None:
    """Its tables may be shared: a few hundred bytes stand for 11,110 fields."""
    spelled = base64.b64encode(shared_fields(fan=10, depth=4))
    table = pa.table({"x": [1]}).replace_schema_metadata({b"ARROW_schema": spelled})
    data = saved(table).replace(b"ARROW_schema", b"ARROW:schema")
    assert len(data) < 6000
    found = read(data, limits=Limits(max_decoded_bytes=2**22))
    assert isinstance(found, Refusal)
    assert found.code == "payload_too_large"


def test_delta_encoded_strings_under_a_compression_that_is_not_known() -> None:
    """LZ4 in Hadoop's framing is number 5, what pyarrow writes number 7; Thrift doubles them."""
    data = saved(
        pa.table({"x": WORDS[:100]}),
        compression="lz4",
        use_dictionary=False,
        column_encoding={"x": "DELTA_BYTE_ARRAY"},
    )
    assert isinstance(read(data), Rows)
    assert data.count(b"\x18\x01x\x15\x0e") == 1
    found = read(data.replace(b"\x18\x01x\x15\x0e", b"\x18\x01x\x15\x0a"))
    assert isinstance(found, Refusal)
    assert found.code == "unsupported_parquet"
