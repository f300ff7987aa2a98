import csv
import io
import math
from typing import Any

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.csv.records import decode, encode
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.codecs.records.columns import MAX_BATCH_ROWS, Records, arrow_schema
from app.domain.dtypes import DTYPES, TEXT
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.errors import (
    InputError,
    LimitExceeded,
    LossyConversion,
    MalformedInput,
    SchemaConflict,
    UnprocessableInput,
)
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from tests.kinds import again, records
from tests.memory import peak_bytes


def schema(**features: Any) -> Schema:
    return Schema.from_json({"features": features})


def decoded(
    text: str | bytes, budget: Budget | None = None, chunk: int | None = None, **options: Any
) -> tuple[Schema, pa.Table]:
    data = text.encode() if isinstance(text, str) else text
    found = decode(MemoryStream(data, chunk=chunk), RecordsDecodeOptions(**options), budget or Budget())
    batches = list(found.batches)
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == arrow_schema(found.schema)
        assert batch.num_rows <= MAX_BATCH_ROWS
    return found.schema, pa.Table.from_batches(batches, arrow_schema(found.schema))


def column(*fields: str, **options: Any) -> tuple[str, list[Any]]:
    """The dtype that a column `x` has, and its values."""
    found, table = decoded("\n".join(["x,_", *(f"{field},0" for field in fields)]), **options)
    return found.by_name["x"].dtype.name, table["x"].to_pylist()


def refused(
    text: str | bytes, error: type[InputError], code: str, row: int | None, **options: Any
) -> InputError:
    with pytest.raises(error) as caught:
        decoded(text, **options)
    assert (caught.value.code, caught.value.location.row) == (code, row)
    return caught.value


def encoded(found: Records, **options: Any) -> str:
    return b"".join(map(bytes, encode(found, RecordsEncodeOptions(**options), Budget()))).decode()


@pytest.mark.parametrize(
    ("fields", "dtype", "values"),
    [
        (["1", "-2", "0"], "int64", [1, -2, 0]),
        (["9223372036854775807", "9007199254740993"], "int64", [2**63 - 1, 2**53 + 1]),
        (["1", "2.5"], "float64", [1.0, 2.5]),
        (["1e3", "-0"], "float64", [1000.0, -0.0]),
        (["0.1"], "float64", [0.1]),
        (["true", "false"], "bool", [1, 0]),
        (["true", "1"], "text", [b"true", b"1"]),
        (["007", "1"], "text", [b"007", b"1"]),
        (["+1"], "text", [b"+1"]),
        ([" 1"], "text", [b" 1"]),
        (["0x10"], "text", [b"0x10"]),
        (["1."], "text", [b"1."]),
        (["NaN", "1.5"], "text", [b"NaN", b"1.5"]),
        (["True"], "text", [b"True"]),
        (['"1"', "2"], "int64", [1, 2]),
        (["", "2"], "int64", [None, 2]),
        (["", "a", '""'], "text", [None, b"a", b""]),
        (
            ['"a,b"', '"say ""hi"""', '"two\nlines"', '""""'],
            "text",
            [b"a,b", b'say "hi"', b"two\nlines", b'"'],
        ),
        (["é", "漢字"], "text", ["é".encode(), "漢字".encode()]),
    ],
)
def test_a_column_is_what_its_fields_are(fields: list[str], dtype: str, values: list[Any]) -> None:
    assert column(*fields) == (dtype, values)
    assert decoded("\n".join(["x,_", *(f"{one},0" for one in fields)]).replace("\n", "\r\n"))[0].names


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 7, 11])
def test_it_is_the_same_at_every_split(chunk: int) -> None:
    text = '\ufeffa,"b ""q""",c\r\n1,"x\r\ny, ""z""",1.5\n\n2,,\r\n3,"","2"'
    assert decoded(text, chunk=chunk)[1].to_pylist() == decoded(text)[1].to_pylist()
    assert decoded(text)[1].to_pylist() == [
        {"a": 1, 'b "q"': b'x\r\ny, "z"', "c": 1.5},
        {"a": 2, 'b "q"': None, "c": None},
        {"a": 3, 'b "q"': b"", "c": 2.0},
    ]


def test_blocks_end_where_lines_do() -> None:
    rows = [f'{index},"line\n{"x" * (index % 50)}, ""{index}"""' for index in range(60_000)]
    _, table = decoded("\n".join(["n,t", *rows]), chunk=70_001)
    expected = list(csv.DictReader(io.StringIO("\n".join(["n,t", *rows]))))
    assert table["t"].to_pylist() == [row["t"].encode() for row in expected]
    assert table["n"].to_pylist() == list(range(60_000))


def test_memory_is_given_back_with_each_block() -> None:
    budget = Budget()
    text = "x,y\n" + "12345,abcdef\n" * 1_000_000
    found = decode(MemoryStream(text.encode()), RecordsDecodeOptions(), budget)
    assert sum(batch.num_rows for batch in found.batches) == 1_000_000
    assert budget.peak < 64 * 2**20
    assert budget.limits.max_decoded_bytes - budget.remaining < 100


def test_one_column_has_a_row_for_an_empty_line() -> None:
    assert decoded('x\n1\n\n2\n""\n', schema=schema(x={"dtype": "text", "nullable": True}))[1][
        "x"
    ].to_pylist() == [
        b"1",
        None,
        b"2",
        b"",
    ]


def test_exactly_the_first_thousand_rows_are_looked_at() -> None:
    head = "x,y\n" + "1,\n" * 1000
    found, table = decoded(head + "2,\n")
    assert (found.names, table.num_rows) == (("x",), 1001)
    refused(head + "1.5,\n", SchemaConflict, "schema_conflict", 1000)
    refused(head + "1,7\n", SchemaConflict, "schema_conflict", 1000)
    refused(head + ",\n", SchemaConflict, "schema_conflict", 1000)
    found, _ = decoded(head + "1.5,a\n,\n", infer="all")
    assert [(one.name, one.dtype.name, one.nullable) for one in found] == [
        ("x", "float64", True),
        ("y", "text", True),
    ]


def test_numbers_are_exact_or_refused() -> None:
    refused("x\n9007199254740993\n1.5\n", LossyConversion, "inexact_integer", 0)
    assert column("9007199254740992", "1.5")[1] == [2.0**53, 1.5]
    for overflows in ("1e400", "-1e400", "1" + "0" * 400 + ".5"):
        refused(f"x\n1\n{overflows}\n", UnprocessableInput, "out_of_range", 1)
    refused("x\n1\n9223372036854775808\n", UnprocessableInput, "out_of_range", 1)


def test_a_number_of_too_many_digits() -> None:
    with pytest.raises(InputError):
        decoded("x\n" + "9" * 5000)


@pytest.mark.parametrize(
    ("field", "declared", "value"),
    [
        ("300", {"dtype": "uint16"}, 300),
        ("1.0", {"dtype": "int8"}, 1),
        ("18446744073709551615", {"dtype": "uint64"}, 2**64 - 1),
        ("9007199254740993.0", {"dtype": "float64"}, 2.0**53),
        ("NaN", {"dtype": "float32"}, math.nan),
        ("-Infinity", {"dtype": "float16"}, -math.inf),
        ("1", {"dtype": "text"}, b"1"),
        ("é", {"dtype": "bytes"}, "é".encode()),
        ("true", {"dtype": "bool"}, 1),
        ('""', {"dtype": "text"}, b""),
        ("", {"dtype": "float32", "nullable": True}, None),
        ("", {"dtype": "text", "nullable": True}, None),
    ],
)
def test_declared_values(field: str, declared: Any, value: Any) -> None:
    found = column(field, schema=schema(x=declared, _={"dtype": "int64"}))[1]
    assert repr(found) == repr([value])


@pytest.mark.parametrize(
    ("field", "declared", "error", "code"),
    [
        ("300", {"dtype": "uint8"}, UnprocessableInput, "out_of_range"),
        ("-1", {"dtype": "uint8"}, UnprocessableInput, "out_of_range"),
        ("1.5", {"dtype": "int8"}, LossyConversion, "inexact_integer"),
        ("a", {"dtype": "int8"}, LossyConversion, "inexact_integer"),
        ("a", {"dtype": "float32"}, SchemaConflict, "schema_conflict"),
        ("1e39", {"dtype": "float32"}, UnprocessableInput, "out_of_range"),
        ("1e400", {"dtype": "float64"}, UnprocessableInput, "out_of_range"),
        ("-1e400", {"dtype": "bfloat16"}, UnprocessableInput, "out_of_range"),
        ("2049", {"dtype": "float16"}, LossyConversion, "inexact_integer"),
        ("1", {"dtype": "bool"}, SchemaConflict, "schema_conflict"),
        ("True", {"dtype": "bool"}, SchemaConflict, "schema_conflict"),
        ("", {"dtype": "int8"}, SchemaConflict, "schema_conflict"),
        ("", {"dtype": "text"}, SchemaConflict, "schema_conflict"),
        ('""', {"dtype": "int8"}, LossyConversion, "inexact_integer"),
    ],
)
def test_declared_values_that_do_not_fit(
    field: str, declared: Any, error: type[InputError], code: str
) -> None:
    one = schema(x=declared, _={"dtype": "int64"})
    ok = "true" if declared["dtype"] == "bool" else "1"
    assert refused(f"x,_\n{ok},0\n{field},0\n", error, code, 1, schema=one).location.feature == "x"


def test_columns_and_features_that_have_no_counterpart() -> None:
    declared = schema(x={"dtype": "int64"}, z={"dtype": "int8", "nullable": True})
    refused("x,y\n1,2\n", SchemaConflict, "schema_conflict", None, schema=declared)
    _, table = decoded("y,x\n2,1\n", schema=declared, undeclared="drop")
    assert table.to_pylist() == [{"x": 1, "z": None}]
    refused("z\n1\n", SchemaConflict, "schema_conflict", None, schema=declared)


@pytest.mark.parametrize(
    ("text", "code", "row"),
    [
        ("", "no_header", 0),
        ("\n", "no_header", 0),
        ("\ufeff", "no_header", 0),
        ("a,b\n1\n", "ragged_line", 0),
        ("a,b\n1,2\n\n1,2,3\n", "ragged_line", 1),
        ('a\n"x\n', "invalid_csv", 0),
        ('a,b\n1,2\nx"y,3\n', "invalid_csv", 1),
        ('a,b\n"x"y,3\n', "invalid_csv", 0),
        ('a,b\n"x" ,3\n', "invalid_csv", 0),
        ('a,b\n1,2\n "x",3\n', "invalid_csv", 1),
        ('"a"b,c\n', "invalid_csv", 0),
        ("a\n1\r2\n", "invalid_csv", 0),
        ("a\n1\n2\0\n", "invalid_csv", 1),
        (b"a,b\n1,2\n3,\xff\n", "invalid_utf8", 1),
        (b"\xff,b\n", "invalid_utf8", 0),
    ],
)
def test_what_is_no_csv(text: str | bytes, code: str, row: int) -> None:
    refused(text, MalformedInput, code, row)


def test_names_that_no_feature_can_have() -> None:
    refused("a,b,a\n", UnprocessableInput, "duplicate_feature", None)
    refused("a,\n", UnprocessableInput, "invalid_feature_name", None)
    refused("a" * 5000 + "\n", UnprocessableInput, "invalid_feature_name", None)


def test_a_line_that_never_ends() -> None:
    budget = Budget(Limits(max_record_bytes=2**20))
    for text in ("x\n" + "a" * 2**22, 'x\n"' + "a\n" * 2**21):
        with pytest.raises(LimitExceeded) as caught:
            decoded(text, budget, chunk=2**16)
        assert caught.value.code == "record_too_large"
    with pytest.raises(LimitExceeded):
        decoded("x,y\n" + "1,2\n" * 2**18, Budget(Limits(max_decoded_bytes=2**20)))


def test_a_header_is_charged_before_it_is_taken_apart() -> None:
    text = ("," * 2**20 + "\n1\n").encode()

    def read(limits: Limits, code: str) -> None:
        with pytest.raises(LimitExceeded) as caught:
            decode(MemoryStream(text), RecordsDecodeOptions(), Budget(limits))
        assert caught.value.code == code

    assert peak_bytes(lambda: read(Limits(max_decoded_bytes=8 * 2**20), "payload_too_large")) < 8 * 2**20
    assert peak_bytes(lambda: read(Limits(), "too_many_features")) < 45 * 2**20


def test_a_name_of_many_lines_is_found_in_one_pass() -> None:
    refused('"' + "\n" * 500_000 + '"\n1\n', UnprocessableInput, "invalid_feature_name", None)


def test_what_a_field_does_not_hold() -> None:
    vector = schema(x={"dtype": "float32", "shape": [2]})
    refused("x\n1\n", UnprocessableInput, "not_expressible", None, schema=vector)
    refused("x\n1\n", UnprocessableInput, "not_expressible", None, message="sequence_example")
    for declared in (vector, schema(x={"dtype": "complex64"}), Schema(())):
        with pytest.raises(UnprocessableInput) as caught:
            encoded(Records(declared, iter(())))
        assert caught.value.code == "not_expressible"


# -- out ---------------------------------------------------------------------------------------------


def text_records(*values: bytes, dtype: str = "text") -> Records:
    return Records(schema(x={"dtype": dtype}), iter([pa.RecordBatch.from_pydict({"x": pa.array(values)})]))


def test_quotes_stand_where_they_have_to() -> None:
    found = schema(
        **{"a,b": {"dtype": "text", "nullable": True}, "n": {"dtype": "float32", "nullable": True}}
    )
    batch = pa.RecordBatch.from_pydict(
        {
            "a,b": pa.array([b"x", b"", None, b'q"', b"l\n", b"c,"]),
            "n": pa.array([1, None, math.nan, -math.inf, 0.1, 1e-30], pa.float32()),
        }
    )
    assert encoded(Records(found, iter([batch]))) == (
        '"a,b",n\r\nx,1.0\r\n"",\r\n,NaN\r\n"q""",-Infinity\r\n"l\n",0.1\r\n"c,",1e-30\r\n'
    )
    assert encoded(Records(found, iter([batch])), nonfinite="null").splitlines()[3] == ","
    with pytest.raises(UnprocessableInput) as caught:
        encoded(Records(found, iter([batch])), nonfinite="error")
    assert (caught.value.code, caught.value.location.row) == ("nonfinite_value", 2)


def test_strings_that_csv_does_not_hold() -> None:
    for value in (b"\xff", b"a\0b"):
        with pytest.raises(UnprocessableInput) as caught:
            encoded(text_records(b"a", value, dtype="bytes"))
        assert (caught.value.code, caught.value.location.row) == ("not_expressible", 1)


SCALARS = [dtype for dtype in DTYPES.values() if not dtype.is_string and dtype.kind != "complex"] + [TEXT]


@hypothesis.settings(max_examples=50, deadline=None)
@given(found=records(("scalar",), SCALARS))
def test_rows_round_trip_under_their_schema(found: Records) -> None:
    found, table = again(found)
    strings = [value for one in table.columns for value in one.to_pylist() if isinstance(value, bytes)]
    hypothesis.assume(b"\0" not in b"".join(strings))
    # Which NaN it was is not text.
    hypothesis.assume(not any(one.dtype.is_float and not one.dtype.in_numpy for one in found.schema))
    text = encoded(found)
    assert len(list(csv.reader(io.StringIO(text, newline="")))) >= 1
    _, same = decoded(text, schema=found.schema)
    assert repr(same.to_pylist()) == repr(table.to_pylist())


@hypothesis.settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(
        st.lists(
            st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), min_size=2, max_size=2
        )
    )
)
def test_the_standard_library_writes_what_is_read(rows: list[list[str]]) -> None:
    file = io.StringIO(newline="")
    csv.writer(file).writerows([["a", "b"], *rows])
    declared = schema(a={"dtype": "text"}, b={"dtype": "text"})
    _, table = decoded(file.getvalue(), schema=declared)
    assert [[row["a"].decode(), row["b"].decode()] for row in table.to_pylist()] == rows
