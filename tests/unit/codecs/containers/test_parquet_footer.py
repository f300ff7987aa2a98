import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.codecs.arrow.parquet_footer import ParquetFooter, parse_footer
from app.codecs.arrow.thrift import Incomplete, parse_struct
from app.errors import MalformedInput


def footer_of(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    data = sink.getvalue()
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


TABLE = pa.table({"x": [1, 2, 3], "l": [["a"], [], ["b", "c"]], "f": pa.array([b"ab"] * 3, pa.binary(2))})
FOOTER = footer_of(TABLE, row_group_size=2)


def test_a_struct_in_the_compact_protocol() -> None:
    # Fields 1: true, 2: i32 -2, 4: "ab", 5: list of i32 [1, 2], 6: struct {1: false}, stop.
    data = bytes.fromhex("11 15 03 28 02 6162 19 25 02 04 1c 12 00 00")
    assert parse_struct(data + b"rest") == (
        {1: True, 2: -2, 4: b"ab", 5: [1, 2], 6: {1: False}},
        len(data),
    )
    for size in range(len(data)):
        with pytest.raises(Incomplete):
            parse_struct(data[:size])


@pytest.mark.parametrize("data", [b"\x1c" * 40, b"\x19\xfc\xff\xff\x7f", b"\x1d", b"\x15" + b"\xff" * 11])
def test_what_is_no_struct(data: bytes) -> None:
    with pytest.raises((MalformedInput, Incomplete)):
        parse_struct(data + bytes(8))


def test_a_footer_says_where_the_columns_lie() -> None:
    footer: ParquetFooter = parse_footer(FOOTER)
    assert footer.num_rows == 3
    assert [group.num_rows for group in footer.row_groups] == [2, 1]
    x, strings, fixed = footer.row_groups[0].columns
    assert (x.path, x.repeated, x.value_bytes, x.num_values) == ("x", False, 8, 2)
    assert (strings.path, strings.repeated, strings.value_bytes) == ("l.list.element", True, 0)
    assert fixed.value_bytes == 2
    assert x.start == 4 < x.stop <= strings.start
    assert footer.string_columns() == ["l.list.element"]
    assert len(footer.arrow_schemas) == 1


def test_every_byte_that_is_changed_is_refused_or_harmless() -> None:
    for place in range(len(FOOTER)):
        for byte in (0, 0x11, 0x15, 0x19, 0x1C, 0x7F, 0xFF):
            changed = bytearray(FOOTER)
            changed[place] = byte
            try:
                parse_footer(bytes(changed))
            except MalformedInput as error:
                code = error.code
            else:
                code = "invalid_parquet"
            assert code == "invalid_parquet"


def test_a_footer_that_is_cut_short_or_followed_by_something() -> None:
    for data in (b"", FOOTER[:-1], FOOTER + b"\0"):
        with pytest.raises(MalformedInput):
            parse_footer(data)
