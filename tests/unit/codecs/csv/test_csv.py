"""CSV through the form table."""

import csv
import io
import json
import math
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.options import CsvDialect
from app.domain.dtypes import DTYPES
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.runtime.budget import Budget
from tests.support.format_cases import (
    PIECES,
    Refusal,
    Rows,
    assert_rows,
    decode,
    read,
    records,
    schema_of,
    write,
)
from tests.support.peak_memory import peak_bytes

TWO = schema_of(a="text", b="text")


def nullable(dtype: str) -> dict[str, Any]:
    return {"dtype": dtype, "nullable": True}


def read_csv(text: str | bytes, **options: Any) -> Rows | Refusal:
    return read("csv", text.encode() if isinstance(text, str) else text, **options)


def rows_of(text: str | bytes, **options: Any) -> Rows:
    found = read_csv(text, **options)
    assert isinstance(found, Rows), found
    return found


def column(*fields: str, end: str = "\n", **options: Any) -> tuple[str, list[Any]]:
    """The column `x` of these fields: what it is, and its values."""
    found = rows_of(end.join(["x,_", *(f"{field},0" for field in fields)]), **options)
    return found.features["x"], [row["x"] for row in found.rows]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("fields", "feature", "values"),
    [
        (["1", "-2", "0", "-0"], "int64", [1, -2, 0, 0]),
        (["9223372036854775807", "-9223372036854775808"], "int64", [2**63 - 1, -(2**63)]),
        (["1", "2.5", "-0"], "float64", [1.0, 2.5, -0.0]),
        (["1e3", "2.5E-1", "1E+2", "0.1"], "float64", [1000.0, 0.25, 100.0, 0.1]),
        (["3.141592653589793238462643383279", "1.5"], "float64", [math.pi, 1.5]),
        (["5e-324", "2.2250738585072011e-308", "1e-400"], "float64", [5e-324, 2.225073858507201e-308, 0.0]),
        (["0." + "1" * 2000, "1.5"], "float64", [1 / 9, 1.5]),
        (["9007199254740992", "1.5"], "float64", [2.0**53, 1.5]),
        (["18014398509481984", "1.5"], "float64", [2.0**54, 1.5]),
        (["true", "false"], "bool", [True, False]),
        (["TRUE", "False", "true"], "bool", [True, False, True]),
        (["tRUE"], "text", [b"tRUE"]),
        (["true", "1"], "text", [b"true", b"1"]),
        (["1", "true"], "text", [b"1", b"true"]),
        (["007", "1"], "text", [b"007", b"1"]),
        (["+007"], "text", [b"+007"]),
        (["+-1"], "text", [b"+-1"]),
        ([" a", "1 "], "text", [b" a", b"1 "]),
        (["1 2"], "text", [b"1 2"]),
        (["-"], "text", [b"-"]),
        (["0x10"], "text", [b"0x10"]),
        (["1.."], "text", [b"1.."]),
        (["."], "text", [b"."]),
        (["2026-11-28"], "text", [b"2026-11-28"]),
        (["1e"], "text", [b"1e"]),
        (["1_000"], "text", [b"1_000"]),
        (["\uff11"], "text", ["\uff11".encode()]),
        (["NaN", "Nanni"], "text", [b"NaN", b"Nanni"]),
        (["+true"], "text", [b"+true"]),
        ([" true", "False "], "bool", [True, False]),
        (["1", "nan"], "float64", [1.0, math.nan]),
        ([" " * 40 + "+9007199254740993"], "int64", [2**53 + 1]),
        ([" " * 40 + "-INF", " " * 40 + "5.", "NAN"], "float64", [-math.inf, 5.0, math.nan]),
        (["null"], "text", [b"null"]),
        (['"1"', "2"], "int64", [1, 2]),
        (["", "2"], "int64?", [None, 2]),
        (["", "a", '""'], "text?", [None, b"a", b""]),
        (['""', "1"], "text", [b"", b"1"]),
        (['"a,b"', '"say ""hi"""', '""""'], "text", [b"a,b", b'say "hi"', b'"']),
        (['"two\nlines"', '"\r\n"', '"\r"', '"\n\n"'], "text", [b"two\nlines", b"\r\n", b"\r", b"\n\n"]),
        (["é", "漢字", "\ufeff"], "text", ["é".encode(), "漢字".encode(), b"\xef\xbb\xbf"]),
    ],
)
def test_column_dtype_is_inferred(fields: list[str], feature: str, values: list[Any], end: str) -> None:
    assert repr(column(*fields, end=end, pieces=(None, 1))) == repr((feature, values))


#: Numbers as pandas, polars, numpy, R, Julia, C and SQL*Plus write them.
NUMBERS = {
    ".5": 0.5,
    "-.5": -0.5,
    "5.": 5.0,
    "5.e-3": 0.005,
    "+5": 5,
    " 2 ": 2,
    "\t-7": -7,
    "9007199254740993": 2**53 + 1,
    "+.25E+01": 2.5,
    "nan": math.nan,
    "NaN": math.nan,
    "-nan": math.nan,
    "inf": math.inf,
    "Inf": math.inf,
    "-inf": -math.inf,
    "+inf": math.inf,
    "infinity": math.inf,
    "-Infinity": -math.inf,
}


@pytest.mark.parametrize("row", [0, 4999])
@pytest.mark.parametrize("is_declared", [False, True])
@pytest.mark.parametrize(("field", "value"), NUMBERS.items())
def test_numbers_as_others_write_them(field: str, value: float, *, is_declared: bool, row: int) -> None:
    dtype = "int64" if isinstance(value, int) else "float64"
    schema = schema_of(x=dtype, _="int64") if is_declared else None
    fields = ["1" if isinstance(value, int) else "1.5"] * 5000
    fields[row] = field
    found, values = column(*fields, schema=schema)
    assert (found, repr(values[row])) == (dtype, repr(value))


@pytest.mark.parametrize(
    "text",
    [
        '\ufeffa,"b ""q""",c\r\n1,"x\r\ny, ""z""",1.5\n\n2,,\r\n3,"","2"',
        '"a","b ""q""","c"\n"1","x\r\ny, ""z""",1.5\r\n2,,\n\r\n\n3,"",2\n\n',
    ],
)
def test_a_table_however_it_arrives(text: str) -> None:
    found = rows_of(text, pieces=(*PIECES, 2, 5, 7, 11))
    assert found.features == {"a": "int64", 'b "q"': "text?", "c": "float64?"}
    expected: list[dict[str, Any]] = [
        {"a": 1, 'b "q"': b'x\r\ny, "z"', "c": 1.5},
        {"a": 2, 'b "q"': None, "c": None},
        {"a": 3, 'b "q"': b"", "c": 2.0},
    ]
    assert_rows(found, expected)


def test_pieces_end_where_lines_do_and_batches_are_small() -> None:
    texts = [f'line\n{"x" * (index % 50)}, "{index}"' for index in range(60_000)]
    # What looks like a byte order mark is text anywhere but at the beginning.
    rows = [(f"\ufeff{index}", text) for index, text in enumerate(texts)]
    file = io.StringIO(newline="")
    csv.writer(file).writerows([("n", "t"), *rows])
    found = rows_of(file.getvalue(), pieces=(None, 70_001))
    assert [(row["n"].decode(), row["t"].decode()) for row in found.rows] == rows
    assert max(found.batches) == 8192


def test_memory_is_given_back_with_each_piece() -> None:
    text = b"x,y\n" + b"12345,abcdef\n" * 1_000_000
    budget = Budget()
    free = budget.remaining
    found = decode("csv", text, budget)
    assert sum(batch.num_rows for batch in found.batches) == 1_000_000
    assert budget.peak < 64 * 2**20
    assert free - budget.remaining < 100


def test_rows_are_counted_from_piece_to_piece() -> None:
    """The body is read in pieces of a MiB, and rows that lack the feature count."""
    schema = schema_of(x=nullable("int8"), t="text")
    text = "x,t\n" + f"1,{'a' * 100}\n" * 30_000 + ",b\n"
    assert read_csv(text + "300,b\n", schema=schema) == Refusal("out_of_range", 30_001, "x")
    assert read_csv(text + "1\n", schema=schema) == Refusal("ragged_line", 30_001)
    assert read_csv(text + '1,"', schema=schema) == Refusal("invalid_csv", 30_001)


def test_a_header_alone_has_no_rows() -> None:
    found = rows_of("a,b\n", schema=TWO)
    assert (found.rows, found.schema) == ([], TWO)
    found = rows_of("a,b")
    assert (found.rows, found.features, found.dropped) == ([], {}, ("a", "b"))


def test_one_column_has_a_row_for_an_empty_line() -> None:
    text = 'x\n1\n\n2\r\n\r\n""\n'
    found = rows_of(text, schema=schema_of(x=nullable("text")), pieces=PIECES)
    assert [row["x"] for row in found.rows] == [b"1", None, b"2", None, b""]


@pytest.mark.parametrize(
    ("text", "dialect", "rows"),
    [
        ("x;y\n1,5;2\n", CsvDialect(";"), [{"x": b"1,5", "y": 2}]),
        ('x\ty\n"1\t2"\t3\n', CsvDialect("\t"), [{"x": b"1\t2", "y": 3}]),
        ("x|y\n1|\n", CsvDialect("|"), [{"x": 1}]),
        ('x;y\n1;"a;b"\n', CsvDialect(";"), [{"x": 1, "y": b"a;b"}]),
        ("x,y\n1,NA\n,NaN\n", CsvDialect(nulls=("NA", "NaN")), [{"x": 1}, {"x": None}]),
        ('x\n"NA"\nNA\n', CsvDialect(nulls=("NA",)), [{"x": b"NA"}, {"x": None}]),
        (",x\n0,1.5\n", CsvDialect(), [{"index": 0, "x": 1.5}]),
        ('"","x"\n"1",2\n', CsvDialect(), [{"index": 1, "x": 2}]),
    ],
)
def test_how_others_write_it(text: str, dialect: CsvDialect, rows: list[dict[str, Any]]) -> None:
    assert_rows(read_csv(text, csv=dialect, pieces=PIECES), rows)


def test_quote_with_another_delimiter_is_refused() -> None:
    assert read_csv('x;y\n"1",2;3\n', csv=CsvDialect(";")) == Refusal("invalid_csv", 0)


HEAD = "x,y\n" + "1,\n" * 1000


@pytest.mark.parametrize(
    ("rest", "refusal"),
    [
        ("1.5,\n", Refusal("schema_conflict", 1000, "x")),
        ("1,7\n", Refusal("schema_conflict", 1000, "y")),
        ("1,\n1,\n,\n", Refusal("schema_conflict", 1002, "x")),
        ("1,\n" * 9000 + "1,7\n", Refusal("schema_conflict", 10_000, "y")),
        ("true,\n", Refusal("schema_conflict", 1000, "x")),
    ],
)
def test_exactly_the_first_thousand_rows_are_looked_at(rest: str, refusal: Refusal) -> None:
    assert read_csv(HEAD + rest) == refusal


def test_all_rows_are_looked_at_where_asked() -> None:
    assert (rows_of(HEAD + "2,\n").features, rows_of(HEAD).dropped) == ({"x": "int64"}, ("y",))
    found = rows_of(HEAD + "1.5,a\n,\n", infer="all")
    assert (found.features, found.dropped) == ({"x": "float64?", "y": "text?"}, ())
    assert found.rows[-2:] == [{"x": 1.5, "y": b"a"}, {"x": None, "y": None}]


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        (["9007199254740993", "1.5"], Refusal("inexact_integer", 0, "x")),
        (["1", "1e400"], Refusal("out_of_range", 1, "x")),
        (["1", "-1e400"], Refusal("out_of_range", 1, "x")),
        (["1", "1" + "0" * 400 + ".5"], Refusal("out_of_range", 1, "x")),
        (["1", "9223372036854775808"], Refusal("out_of_range", 1, "x")),
        (["1", "-9223372036854775809"], Refusal("out_of_range", 1, "x")),
        (["9" * 900], Refusal("out_of_range", 0, "x")),
    ],
)
def test_inferred_numbers_are_exact_or_refused(fields: list[str], refusal: Refusal) -> None:
    assert read_csv("\n".join(["x", *fields])) == refusal


def test_a_number_of_too_many_digits_is_refused_at_once() -> None:
    assert isinstance(read_csv("x\n" + "9" * 5000), Refusal)


@pytest.mark.parametrize(
    ("field", "declared", "value"),
    [
        ("300", "uint16", 300),
        ("-0", "int8", 0),
        ("1.0", "int8", 1),
        ("1e2", "int8", 100),
        ('"1"', "int8", 1),
        ("18446744073709551615", "uint64", 2**64 - 1),
        ("7", "uint4", 7),
        ("-8", "int4", -8),
        ("9007199254740993.0", "float64", 2.0**53),
        ("0.1", "float32", 0.10000000149011612),
        ("16777216", "float32", 2.0**24),
        ("-0", "float32", -0.0),
        ("1.00390625000001", "bfloat16", 1.0078125),
        ("NaN", "float32", math.nan),
        ("-Infinity", "float16", -math.inf),
        ("1", "text", b"1"),
        ("NaN", "text", b"NaN"),
        ("é", "bytes", "é".encode()),
        ("true", "bool", True),
        ("False", "bool", False),
        ("TRUE", "bool", True),
        ("TRUE", "text", b"TRUE"),
        ('""', "text", b""),
        ("", nullable("float32"), None),
        ("", nullable("text"), None),
        ("", nullable("bool"), None),
        ("2", nullable("int32"), 2),
    ],
)
def test_declared_values(field: str, declared: Any, value: Any) -> None:
    assert repr(column(field, schema=schema_of(x=declared, _="int64"))[1]) == repr([value])


@pytest.mark.parametrize(
    ("field", "dtype", "code"),
    [
        ("256", "uint8", "out_of_range"),
        ("-1", "uint8", "out_of_range"),
        ("8", "int4", "out_of_range"),
        ("18446744073709551616", "uint64", "out_of_range"),
        ("1.5", "int8", "inexact_integer"),
        ("9007199254740992.0", "int64", "inexact_integer"),
        ("a", "int8", "inexact_integer"),
        ("NaN", "int8", "schema_conflict"),
        ("a", "float32", "schema_conflict"),
        ("007", "float32", "schema_conflict"),
        ("0x1p3", "float32", "schema_conflict"),
        ("true", "float32", "schema_conflict"),
        ("1e39", "float32", "out_of_range"),
        ("1e400", "float64", "out_of_range"),
        ("-1e400", "bfloat16", "out_of_range"),
        ("16777217", "float32", "inexact_integer"),
        ("2049", "float16", "inexact_integer"),
        ("1", "bool", "schema_conflict"),
        ("yes", "bool", "schema_conflict"),
        ("tRUE", "bool", "schema_conflict"),
        ("", "int8", "schema_conflict"),
        ("", "text", "schema_conflict"),
        ('""', "int8", "inexact_integer"),
        ('""', "bool", "schema_conflict"),
    ],
)
def test_declared_values_that_do_not_fit(field: str, dtype: str, code: str) -> None:
    schema = schema_of(x=dtype, _="int64")
    good = "true" if dtype == "bool" else "1"
    assert read_csv(f"x,_\n{good},0\n{field},0\n", schema=schema) == Refusal(code, 1, "x")


def test_the_row_of_a_value_counts_rows_that_lack_one() -> None:
    schema = schema_of(x=nullable("int8"), _="int64")
    assert read_csv("x,_\n,0\n1,0\n,0\n300,0\n", schema=schema) == Refusal("out_of_range", 3, "x")


@pytest.mark.parametrize(
    ("text", "schema", "options", "refusal"),
    [
        ("x,y\n1,2\n", schema_of(x="int64"), {}, Refusal("schema_conflict", feature="y")),
        ("z\n1\n", schema_of(x="int64", z="int64"), {}, Refusal("schema_conflict", feature="x")),
        ("x\n", schema_of(x={"dtype": "int8", "shape": [2]}), {}, Refusal("not_expressible", feature="x")),
        ("x\n", schema_of(x="complex64"), {}, Refusal("not_expressible", feature="x")),
        ("x\n1\n", None, {"message": "sequence_example"}, Refusal("not_expressible")),
    ],
)
def test_columns_and_features_without_a_counterpart(
    text: str, schema: Schema | None, options: dict[str, Any], refusal: Refusal
) -> None:
    assert read_csv(text, schema=schema, **options) == refusal


def test_undeclared_column_is_dropped_on_request() -> None:
    found = rows_of("y,x\n2,1\n", schema=schema_of(x="int64", z=nullable("int8")), undeclared="drop")
    assert found.rows == [{"x": 1, "z": None}]


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("", Refusal("no_header", 0)),
        ("\n", Refusal("no_header", 0)),
        ("\r\na\n", Refusal("no_header", 0)),
        ("\ufeff", Refusal("no_header", 0)),
        ("a,b\n1\n", Refusal("ragged_line", 0)),
        ("a,b\n1,2\n\n1,2,3\n", Refusal("ragged_line", 1)),
        ("a\n1\n1,2\n", Refusal("ragged_line", 1)),
        ("a,b\n \n", Refusal("ragged_line", 0)),
        ('a,b\n""\n', Refusal("ragged_line", 0)),
        ("a,b\n" + "1,2\n" * 9000 + "\n1\n", Refusal("ragged_line", 9000)),
        ('a\n"x\n', Refusal("invalid_csv", 0)),
        ('a,b\n1,2\n\n3,"4\n', Refusal("invalid_csv", 1)),
        ('a,b\n1,2\nx"y,3\n', Refusal("invalid_csv", 1)),
        ('a,b\n1,2\nx"y,3\n4,5"\n', Refusal("invalid_csv", 1)),
        ('a,b\n"x"y,3\n', Refusal("invalid_csv", 0)),
        ('a,b\n"x" ,3\n', Refusal("invalid_csv", 0)),
        ('a,b\n1,2\n "x",3\n', Refusal("invalid_csv", 1)),
        ('a,b\n"1\n2",2\n\n "x",3\n', Refusal("invalid_csv", 1)),
        ('"a"b,c\n', Refusal("invalid_csv", 0)),
        ('"a', Refusal("invalid_csv", 0)),
        ("a\n1\r2\n", Refusal("invalid_csv", 0)),
        ('a\n1\n"2"\r3\n', Refusal("invalid_csv", 1)),
        ("a\r1\r2\r", Refusal("invalid_csv", 0)),
        ("a\n1\n2\0\n", Refusal("invalid_csv", 1)),
        ('a\n1\n"\0"\n', Refusal("invalid_csv", 1)),
        ("a\0,b\n", Refusal("invalid_csv", 0)),
        (b"a,b\n1,2\n3,\xff\n", Refusal("invalid_utf8", 1)),
        (b'a,b\n"\n",2\n\n3,"\n\xff"\n', Refusal("invalid_utf8", 1)),
        (b"a,b\n1,\xe9", Refusal("invalid_utf8", 0)),
        (b"\xff,b\n", Refusal("invalid_utf8", 0)),
        (b"a,b\n1,2\n1,\xff,3\n", Refusal("invalid_utf8", 1)),
        # A fault further on, before which rows are counted.
        (b"a,b\n7\x9b\n1,\r,", Refusal("invalid_utf8", 0)),
        (b"a,b\n1,2,3\n1,\xff\n", Refusal("ragged_line", 0)),
        ("a,b,a\n", Refusal("duplicate_feature", feature="a")),
        ("a,\n", Refusal("invalid_feature_name", feature="")),
        ('""\n1\n', Refusal("invalid_feature_name", feature="")),
        (",index\n0,1\n", Refusal("duplicate_feature", feature="index")),
        ("a" * 5000 + "\n", Refusal("invalid_feature_name")),
        ('"' + "\n" * 500_000 + '"\n1\n', Refusal("invalid_feature_name")),
    ],
)
def test_malformed_csv_is_refused(text: str | bytes, refusal: Refusal) -> None:
    pieces = PIECES if len(text) < 1000 else (None, 10_007)
    found = read_csv(text, pieces=pieces)
    assert isinstance(found, Refusal)
    if refusal.feature is None:
        assert (found.code, found.row) == (refusal.code, refusal.row)
    else:
        assert found == refusal


@pytest.mark.parametrize("text", ["x\n" + "a" * 2**22, 'x\n"' + "a\n" * 2**21])
def test_a_line_that_never_ends(text: str) -> None:
    found = read_csv(text, limits=Limits(max_record_bytes=2**20), pieces=(2**16,))
    assert isinstance(found, Refusal)
    assert found.code == "record_too_large"


def test_more_than_the_budget() -> None:
    found = read_csv("x,y\n" + "1,2\n" * 2**18, limits=Limits(max_decoded_bytes=2**20))
    assert isinstance(found, Refusal)
    assert found.code == "payload_too_large"


@pytest.mark.parametrize(
    ("limits", "code", "most"),
    [
        (Limits(max_decoded_bytes=8 * 2**20, max_features=2**21), "payload_too_large", 8 * 2**20),
        (Limits(), "too_many_features", 8 * 2**20),
    ],
)
def test_a_header_is_charged_before_it_is_taken_apart(limits: Limits, code: str, most: int) -> None:
    text = b"," * 2**20 + b"\n1\n"
    found: list[Rows | Refusal] = []
    assert peak_bytes(lambda: found.append(read("csv", text, limits=limits))) < most
    assert isinstance(found[0], Refusal)
    assert found[0].code == code


# -- out ---------------------------------------------------------------------------------------------


OUT = schema_of(**{"a,b": nullable("text"), "n": nullable("float32")})
ROWS = [
    {"a,b": "x", "n": 1},
    {"a,b": "", "n": None},
    {"a,b": None, "n": "NaN"},
    {"a,b": 'q"', "n": "-Infinity"},
    {"a,b": "l\n", "n": 0.1},
    {"a,b": "c,", "n": 1e-30},
    {"a,b": "r\r", "n": "Infinity"},
]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {},
            b'"a,b",n\r\nx,1.0\r\n"",\r\n,NaN\r\n"q""",-Infinity\r\n"l\n",0.1\r\n"c,",1e-30\r\n"r\r",Infinity\r\n',
        ),
        (
            {"nonfinite": "null"},
            b'"a,b",n\r\nx,1.0\r\n"",\r\n,\r\n"q""",\r\n"l\n",0.1\r\n"c,",1e-30\r\n"r\r",\r\n',
        ),
        (
            {"delimiter": "\t"},
            b'a,b\tn\r\nx\t1.0\r\n""\t\r\n\tNaN\r\n"q"""\t-Infinity\r\n"l\n"\t0.1\r\nc,\t1e-30\r\n"r\r"\tInfinity\r\n',
        ),
        ({"nonfinite": "error"}, Refusal("nonfinite_value", 2, "n")),
    ],
)
def test_csv_is_written(options: dict[str, Any], expected: bytes | Refusal) -> None:
    assert write("csv", records(ROWS, schema=OUT), **options) == expected


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        ("bool", True, b"true"),
        ("bool", False, b"false"),
        ("int64", -(2**63), b"-9223372036854775808"),
        ("uint64", 2**64 - 1, b"18446744073709551615"),
        ("int4", -8, b"-8"),
        ("float64", 0.1, b"0.1"),
        ("float64", -0.0, b"-0.0"),
        ("float16", 0.5, b"0.5"),
        ("bytes", {"b64": "w6k="}, "é".encode()),
        ("bytes", {"b64": "/w=="}, Refusal("not_expressible", 1, "x")),
        ("bytes", {"b64": "YQBi"}, Refusal("not_expressible", 1, "x")),
    ],
)
def test_value_is_written_as_text(dtype: str, value: Any, text: bytes | Refusal) -> None:
    first = {"bool": True, "bytes": {"b64": "YQ=="}}.get(dtype, 1)
    found = write("csv", records([{"x": first}, {"x": value}], schema=schema_of(x=dtype)), int64="string")
    assert (found if isinstance(text, Refusal) else found.split(b"\r\n")[2]) == text  # type: ignore[union-attr]


def test_the_row_of_an_error_counts_all_batches() -> None:
    rows = [{"x": 1.5}] * 9000 + [{"x": "NaN"}]
    found = write("csv", records(rows, schema=schema_of(x="float32")), nonfinite="error")
    assert found == Refusal("nonfinite_value", 9000, "x")


@pytest.mark.parametrize(
    ("rows", "schema", "options"),
    [
        ([{"x": [1, 2]}], schema_of(x={"dtype": "float32", "shape": [2]}), {}),
        ([{"x": [1, 2]}], schema_of(x="complex64"), {}),
        ([{}], Schema(()), {}),
        ([{"context": {"x": 1}, "feature_lists": {}}], None, {"message": "sequence_example"}),
    ],
)
def test_value_without_a_field_form_is_refused(
    rows: Any, schema: Schema | None, options: dict[str, Any]
) -> None:
    found = write("csv", records(rows, schema=schema, **options))
    assert isinstance(found, Refusal)
    assert found.code == "not_expressible"


SCALARS = [
    name for name, dtype in DTYPES.items() if dtype.kind != "complex" and name not in ("string", "bytes")
]
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)


def values_of(name: str) -> st.SearchStrategy[Any]:
    dtype = DTYPES[name]
    if dtype.is_string:
        return TEXTS
    if dtype.kind == "bool":
        return st.booleans()
    # What every float dtype can be rounded to.
    return st.floats(-4, 4) if dtype.is_float else st.integers(*dtype.bounds)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, list[dict[str, Any]]]:
    dtypes = draw(st.lists(st.sampled_from(SCALARS), min_size=1, max_size=3))
    features = {f"x,{index}": nullable(dtype) for index, dtype in enumerate(dtypes)}
    row = {name: st.none() | values_of(feature["dtype"]) for name, feature in features.items()}
    return schema_of(**features), draw(st.lists(st.fixed_dictionaries(row), max_size=5))


@hypothesis.settings(max_examples=100, deadline=None)
@given(table=tables())
def test_rows_round_trip_under_their_schema(table: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = table
    text = write("csv", records(rows, schema=schema))
    assert isinstance(text, bytes)
    expected = read("json", json.dumps(rows).encode(), schema=schema)
    assert isinstance(expected, Rows)
    assert_rows(read("csv", text, schema=schema), expected.rows)


@hypothesis.settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.lists(TEXTS.filter(bool), min_size=2, max_size=2)))
def test_the_standard_library_writes_what_is_read(rows: list[list[str]]) -> None:
    file = io.StringIO(newline="")
    csv.writer(file).writerows([["a", "b"], *rows])
    found = rows_of(file.getvalue(), schema=TWO)
    assert [[row["a"].decode(), row["b"].decode()] for row in found.rows] == rows
