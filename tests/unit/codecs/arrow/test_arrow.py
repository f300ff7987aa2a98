"""Rows as Arrow IPC, in and out, through the form table."""

import io
import json
import struct
from decimal import Context, Decimal
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given

from app.codecs.columns import MAX_BATCH_ROWS, AbsentColumns, Batch, Column, Records, Strings
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.errors import InputError
from app.runtime.amplification import Amplification
from app.runtime.budget import Budget
from tests.support import format_cases
from tests.support.format_cases import Refusal, Rows, assert_rows, schema_of
from tests.support.random_rows import records

compute: Any = pc  # some of it is not declared
END = b"\xff\xff\xff\xff\0\0\0\0"


def written(*batches: pa.RecordBatch, file: bool = False, **options: Any) -> bytes:
    sink = io.BytesIO()
    new = pa.ipc.new_file if file else pa.ipc.new_stream
    with new(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def columns(**arrays: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(arrays)


def read(data: bytes, **options: Any) -> Rows | Refusal:
    return format_cases.read("arrow", data, **options)


def read_x(array: Any, **options: Any) -> Rows | Refusal:
    return read(written(columns(x=array)), **options)


def code_of(data: bytes, **options: Any) -> str:
    found = read(data, **options)
    assert isinstance(found, Refusal), found
    return found.code


TENSOR = pa.fixed_shape_tensor(pa.int32(), [2, 3])
TRANSPOSED = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=[1, 0])
SIX = pa.array([[0, 1, 2, 3, 4, 5]], pa.list_(pa.int32(), 6))
PAIRS = pa.list_(pa.int8(), 2)

COLUMNS: list[tuple[Any, str, list[Any]]] = [
    (pa.array([True, None, False]), "bool?", [True, None, False]),
    (pa.array([1, None], pa.int8()), "int8?", [1, None]),
    (pa.array([2**64 - 1], pa.uint64()), "uint64?", [2**64 - 1]),
    (pa.array([1.5], pa.float16()), "float16?", [1.5]),
    (pa.array(["é"]), "text?", ["é".encode()]),
    (pa.array(["é", None], pa.large_string()), "text?", ["é".encode(), None]),
    (pa.array(["a", None, "b" * 20], pa.string_view()), "text?", [b"a", None, b"b" * 20]),
    (pa.array([b"\xff"]), "bytes?", [b"\xff"]),
    (pa.array([b"\xff" * 20], pa.binary_view()), "bytes?", [b"\xff" * 20]),
    (pa.array([b"ab", None], pa.binary(2)), "bytes?", [b"ab", None]),
    (pa.array(["b", "a", None, "b"]).dictionary_encode(), "text?", [b"b", b"a", None, b"b"]),
    (compute.run_end_encode(pa.array([7, 7, None])), "int64?", [7, 7, None]),
    (compute.run_end_encode(pa.array(["a", "a", "b"])), "text?", [b"a", b"a", b"b"]),
    (pa.array([[1, 2], [], None]), "int64[null]?", [[1, 2], [], None]),
    (pa.array([[1], [2, 3]], pa.large_list(pa.int8())), "int8[null]?", [[1], [2, 3]]),
    (pa.array([[1], None, [2]], pa.list_view(pa.int8())), "int8[null]?", [[1], None, [2]]),
    (pa.array([["a"], None], pa.large_list_view(pa.string_view())), "text[null]?", [[b"a"], None]),
    (pa.array([[1, 2], None], PAIRS), "int8[2]?", [[1, 2], None]),
    (pa.array([[[1, 2], [3, 4]]], pa.list_(PAIRS, 2)), "int8[2,2]?", [[[1, 2], [3, 4]]]),
    (pa.array([[[1, 2], [3, 4]], []], pa.list_(PAIRS)), "int8[null,2]?", [[[1, 2], [3, 4]], []]),
    (pa.array([[[1], []], []]), "ragged int64[null,null]?", [[[1], []], []]),
    (
        pa.array([[[1], [2, 3]]], pa.list_(pa.list_(pa.int8()), 2)),
        "ragged int8[2,null]?",
        [[[1], [2, 3]]],
    ),
    (
        pa.array([[["a"]]], pa.list_(pa.list_(pa.dictionary(pa.int8(), pa.string())))),
        "ragged text[null,null]?",
        [[[b"a"]]],
    ),
    (pa.ExtensionArray.from_storage(TENSOR, SIX), "int32[2,3]?", [[[0, 1, 2], [3, 4, 5]]]),
    (pa.ExtensionArray.from_storage(TRANSPOSED, SIX), "int32[3,2]?", [[[0, 3], [1, 4], [2, 5]]]),
    (pa.array([], pa.list_(pa.int8())), "int8[null]?", []),
]


@pytest.mark.parametrize(("array", "feature", "values"), COLUMNS)
def test_a_column_is_what_its_type_says(array: Any, feature: str, values: list[Any]) -> None:
    found = read_x(array)
    assert_rows(found, [{"x": value} for value in values])
    assert isinstance(found, Rows)
    assert found.features == {"x": feature}
    if values and not pa.types.is_run_end_encoded(array.type):
        # Slices of a batch, of which only the first one begins with it.
        times = 2 * MAX_BATCH_ROWS // len(array)
        assert_rows(read_x(pa.concat_arrays([array] * times)), [{"x": value} for value in values] * times)


def test_nullable_is_what_the_field_says() -> None:
    fields = pa.schema([pa.field("x", pa.int8(), nullable=False), pa.field("y", pa.int8())])
    found = read(written(pa.RecordBatch.from_arrays([pa.array([1], pa.int8())] * 2, schema=fields)))
    assert isinstance(found, Rows)
    assert found.features == {"x": "int8", "y": "int8?"}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ("{}", "int8[null,null]?"),
        ('{"uniform_shape":[null,2]}', "int8[null,2]?"),
        ('{"permutation":[0,1]}', "int8[null,null]?"),
        ('{"permutation":[1,0]}', Refusal("unsupported_type", feature="x")),
        ('{"uniform_shape":[2]}', Refusal("invalid_arrow")),
        ("[", Refusal("invalid_arrow")),
        ('{"uniform_shape":[NaN,2]}', Refusal("invalid_arrow")),
    ],
)
def test_a_tensor_whose_shapes_differ(metadata: str, expected: Any) -> None:
    storage = pa.array(
        [{"data": [1, 2, 3, 4], "shape": [2, 2]}, None, {"data": [], "shape": [0, 2]}],
        pa.struct([("data", pa.list_(pa.int8())), ("shape", pa.list_(pa.int32(), 2))]),
    )
    marks = {"ARROW:extension:name": "arrow.variable_shape_tensor", "ARROW:extension:metadata": metadata}
    fields = pa.schema([pa.field("x", storage.type, metadata=marks)])
    found = read(written(pa.RecordBatch.from_arrays([storage], schema=fields)))
    if isinstance(found, Refusal):
        assert found == expected
        return
    assert_rows(found, [{"x": [[1, 2], [3, 4]]}, {"x": None}, {"x": []}])
    assert found.features == {"x": expected}


@pytest.mark.parametrize("column", [pa.nulls(3), pa.array([[], None, [[]]], pa.list_(pa.list_(pa.null())))])
def test_a_column_of_nothing_but_null_and_empty_lists_is_not_a_feature(column: Any) -> None:
    found = read(written(columns(x=column, y=[1, 2, 3])))
    assert_rows(found, [{"y": 1}, {"y": 2}, {"y": 3}])
    assert isinstance(found, Rows)
    assert found.dropped == ("x",)
    declared = schema_of(x={"dtype": "int8", "shape": [2], "nullable": True})
    assert_rows(read_x(pa.nulls(3), schema=declared), [{"x": None}] * 3)
    lists = pa.array([[], None], pa.list_(pa.null()))
    assert_rows(
        read_x(lists, schema=schema_of(x={"dtype": "int8", "shape": [None], "nullable": True})),
        [{"x": []}, {"x": None}],
    )


@pytest.mark.parametrize("file", [False, True])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_chunk_size_changes_nothing(file: bool, compression: str | None) -> None:
    batch = columns(x=pa.array(["a", "b", None]).dictionary_encode(), y=[[1.5], [], None])
    data = written(batch, batch.slice(1), file=file, compression=compression)
    rows: list[dict[str, Any]] = [{"x": b"a", "y": [1.5]}, {"x": b"b", "y": []}, {"x": None, "y": None}]
    assert_rows(read(data, pieces=(None, 1, 3, 7, 100)), rows + rows[1:])


def test_batches_are_cut_by_rows_and_by_bytes() -> None:
    found = read_x(np.arange(20_000))
    assert isinstance(found, Rows)
    assert found.batches == [8192, 8192, 3616]
    wide = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(10 * 2**22, "u1")), 2**22)
    drawn = format_cases.decode("arrow", written(columns(x=wide)), Budget()).batches
    assert [batch.num_rows for batch in drawn] == [4, 4, 2]


def test_memory_is_given_back_with_each_batch_and_numbers_are_not_copied() -> None:
    budget = Budget()
    for _ in format_cases.decode("arrow", written(columns(x=np.arange(100_000.0))), budget).batches:
        assert budget.peak < 1_000_000
    budget = Budget()
    for _ in format_cases.decode("arrow", written(*[columns(x=range(1000))] * 50), budget).batches:
        assert budget.peak < 20_000
    assert Budget().remaining - budget.remaining < 3000  # the schema


# A declared schema.

INT8: dict[str, Any] = {"dtype": "int8"}
UNKNOWN = {**INT8, "shape": [None, None]}
SPARSE = {"dtype": "int8", "shape": [2, 3], "kind": "sparse"}


@pytest.mark.parametrize(
    ("array", "declared", "values"),
    [
        (pa.array([1, 2]), INT8, [1, 2]),
        (pa.array([1, None]), {"dtype": "float32", "nullable": True}, [1.0, None]),
        (pa.array([True, False]), {"dtype": "int64"}, [1, 0]),
        (pa.array(["a"]), {"dtype": "bytes"}, [b"a"]),
        (pa.array([b"a"]), {"dtype": "text"}, [b"a"]),
        (pa.array([[1, 2, 3]]), {"dtype": "int32", "shape": [3]}, [[1, 2, 3]]),
        (pa.array([[[1, 2], [3, 4]]]), {"dtype": "int64", "shape": [2, 2]}, [[[1, 2], [3, 4]]]),
        (pa.array([[[1, 2]], []]), {"dtype": "int64", "shape": [None, 2]}, [[[1, 2]], []]),
        (pa.array([[[1, 2], [3, 4]]]), {"dtype": "int64", "shape": [2, None]}, [[[1, 2], [3, 4]]]),
        (pa.array([[[1, 2], [3, 4]], []]), {"dtype": "int64", "shape": [None, None]}, [[[1, 2], [3, 4]], []]),
        (pa.array([[], []], pa.list_(pa.null())), {"dtype": "float32", "shape": [None]}, [[], []]),
        (
            pa.array([[[[1, 2]], []]]),
            {**INT8, "shape": [None, None, 2], "kind": "ragged"},
            [[[[1, 2]], []]],
        ),
        (
            pa.array([[[1, 2], [3]], []]),
            {**INT8, "shape": [None, None], "kind": "sequence"},
            [[[1, 2], [3]], []],
        ),
        (
            pa.array([[[1, 2], [3, 4]], None]),
            {**INT8, "shape": [None, 2], "kind": "sequence", "nullable": True},
            [[[1, 2], [3, 4]], None],
        ),
        (
            pa.array([[[[1, 2]], [[3], [4]]], []]),
            {**INT8, "shape": [None, None, None], "kind": "sequence"},
            [[[[1, 2]], [[3], [4]]], []],
        ),
        (
            pa.array([{"indices": [[0, 1], [1, 2]], "values": [5, 6]}, {"indices": [], "values": []}]),
            SPARSE,
            [{"values": [5, 6], "indices": [[0, 1], [1, 2]]}, {"values": [], "indices": []}],
        ),
        (
            pa.array([{"indices": [0, 1, 1, 2], "values": [5, 6]}]),
            SPARSE,
            [{"values": [5, 6], "indices": [[0, 1], [1, 2]]}],
        ),
    ],
)
def test_values_are_what_the_schema_declares(array: Any, declared: Any, values: Any) -> None:
    assert_rows(read_x(array, schema=schema_of(x=declared)), [{"x": value} for value in values])
    if None not in values:
        nullable = schema_of(x={**declared, "nullable": True})
        absent = pa.concat_arrays([pa.nulls(1, array.type), array])
        assert_rows(read_x(absent, schema=nullable), [{"x": value} for value in (None, *values)])


@pytest.mark.parametrize(
    ("array", "declared", "code", "row"),
    [
        (pa.array([1, 300]), INT8, "out_of_range", 1),
        (pa.array([[1], [], [2, 300]]), {**INT8, "shape": [None]}, "out_of_range", 2),
        (pa.array([2**24 + 1]), {"dtype": "float32"}, "out_of_range", 0),
        (pa.array(["a"]), INT8, "schema_conflict", None),
        (pa.array([b"a", b"\xff"]), {"dtype": "text"}, "invalid_utf8", 1),
        (pa.array([1, None]), {"dtype": "int64"}, "schema_conflict", 1),
        (pa.nulls(1), {"dtype": "int64"}, "schema_conflict", 0),
        (pa.array([1]), {"dtype": "int64", "shape": [1]}, "schema_conflict", 0),
        (pa.array([[1], [1, 2]]), {"dtype": "int64", "shape": [1]}, "schema_conflict", 1),
        (pa.array([[1]], pa.list_(pa.int64(), 1)), {"dtype": "int64", "shape": [2]}, "schema_conflict", 0),
        (pa.array([[], [[1], [1, 2]]]), {"dtype": "int64", "shape": [None, None]}, "ragged", 1),
        (
            pa.array([[[1, 2]]]),
            {**INT8, "shape": [None, None, 2], "kind": "ragged"},
            "schema_conflict",
            0,
        ),
        (pa.array([{"indices": [[2, 0]], "values": [1]}]), SPARSE, "index_out_of_bounds", 0),
        (pa.array([{"indices": [[0, -1]], "values": [1]}]), SPARSE, "index_out_of_bounds", 0),
        (pa.array([{"indices": [0], "values": [1]}]), SPARSE, "schema_conflict", 0),
        (pa.array([{"indices": [[0, 0, 0], [0]], "values": [1, 2]}]), SPARSE, "schema_conflict", 0),
        (pa.array([{"indices": [[0, 0]], "values": [1], "more": 1}]), SPARSE, "schema_conflict", 0),
        (pa.array([[1]]), {**INT8, "shape": [2], "kind": "sparse"}, "schema_conflict", 0),
        (pa.array([1]), {**INT8, "shape": [None], "kind": "sequence"}, "schema_conflict", 0),
        (
            pa.array([[], [[]]], pa.list_(pa.list_(pa.int8(), 0))),
            {**INT8, "shape": [None, 0], "encoding": "tensor"},
            "schema_conflict",
            1,
        ),
        (pa.array([{"data": [1, 2], "shape": [1, 3]}]), UNKNOWN, "schema_conflict", 0),
        (pa.array([{"data": [1], "shape": [1]}]), UNKNOWN, "schema_conflict", 0),
        (pa.array([{"data": [1], "shape": [-1, -1]}]), UNKNOWN, "schema_conflict", 0),
        (pa.array([{"data": [1], "shape": [2**32] * 2}]), UNKNOWN, "schema_conflict", 0),
    ],
)  # fmt: skip
def test_array_that_does_not_fit_the_schema_is_refused(
    array: Any, declared: Any, code: str, row: int | None
) -> None:
    assert read_x(array, schema=schema_of(x=declared)) == Refusal(code, row, "x")
    if row is not None and not pa.types.is_null(array.type) and array.null_count == 0:
        nullable = schema_of(x={**declared, "nullable": True})
        absent = pa.concat_arrays([pa.nulls(1, array.type), array])
        assert read_x(absent, schema=nullable) == Refusal(code, row + 1, "x")


def test_columns_and_features_that_have_no_counterpart() -> None:
    data = written(columns(x=[1], y=[2]))
    optional = {"dtype": "int64", "nullable": True}
    assert read(data, schema=schema_of(x="int64")) == Refusal("schema_conflict", feature="y")
    found = read(data, schema=schema_of(z=optional, x="int64"), undeclared="drop")
    assert_rows(found, [{"z": None, "x": 1}])
    assert read(data, schema=schema_of(z="int64"), undeclared="drop") == Refusal("schema_conflict", 0, "z")


def test_of_sequence_examples_lists_are_feature_lists() -> None:
    steps = pa.array([[[1.0, 2.0]]], pa.list_(pa.list_(pa.float32(), 2)))
    batch = columns(s=[["a", "b"]], v=steps, f=pa.array([[1, 2]], PAIRS), c=[1])
    found = read(written(batch), message="sequence_example")
    assert_rows(found, [{"s": [b"a", b"b"], "v": [[1.0, 2.0]], "f": [1, 2], "c": 1}])
    assert isinstance(found, Rows)
    assert found.schema.message == "sequence_example"
    features = ["sequence text[null]?", "sequence float32[null,2]?", "int8[2]?", "int64?"]
    assert list(found.features.values()) == features


def marked(text: str) -> bytes:
    return written(columns(x=[1]).replace_schema_metadata({"shardsmith:schema": text}))


def test_the_schema_in_the_metadata_counts_as_declared() -> None:
    declared = schema_of(x="int8")
    data = marked(json.dumps(declared.to_json()))
    found = read(data)
    assert isinstance(found, Rows)
    assert (found.schema, found.is_declared) == (declared, True)
    assert read(data, schema=declared, schema_of_dataset=True) == found
    assert code_of(data, schema=declared) == "schema_twice"
    assert code_of(data, schema=schema_of(x="int64"), schema_of_dataset=True) == "schema_conflict"


@pytest.mark.parametrize(
    ("text", "code"), [("{", "invalid_json"), ("[]", "invalid_schema"), ('{"features": 1}', "invalid_schema")]
)
def test_malformed_schema_metadata_is_refused(text: str, code: str) -> None:
    assert code_of(marked(text)) == code


# Refusals of types and values.


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1], pa.duration("s")),
        pa.array([{}], pa.struct([])),
        pa.array([[{"a": 1}]]),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
        pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([[1]])),
    ],
)
def test_types_that_no_feature_has(array: Any) -> None:
    assert read_x(array) == Refusal("unsupported_type", feature="x")


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[1], [2, None]]),
        pa.array([[1, 2], [2, None]], pa.list_(pa.int64(), 2)),
        pa.array([[[1]], [None]]),
        pa.array([["a"], [None]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    ],
)
def test_null_inside_a_list(array: Any) -> None:
    assert read_x(array) == Refusal("null_value", 1, "x")


#: Column, its text, the integer that it is declared as.
WRITTEN_OUT: list[tuple[Any, str | None, int]] = [
    (pa.array([1577840584123456], pa.timestamp("us")), "2020-01-01T01:03:04.123456", 1577840584123456),
    (pa.array([1577840584], pa.timestamp("s")), "2020-01-01T01:03:04", 1577840584),
    (pa.array([-1], pa.timestamp("ns")), "1969-12-31T23:59:59.999999999", -1),
    (pa.array([0], pa.timestamp("ms", "UTC")), "1970-01-01T00:00:00.000Z", 0),
    (pa.array([0], pa.timestamp("s", "Nowhere/At all")), "1970-01-01T00:00:00Z", 0),
    (pa.array([18262], pa.date32()), "2020-01-01", 18262),
    (pa.array([86_400_000], pa.date64()), "1970-01-02", 86_400_000),
    (pa.array([3661], pa.time32("s")), "01:01:01", 3661),
    (pa.array([1], pa.time64("ns")), "00:00:00.000000001", 1),
    (pa.array([5], pa.duration("us")), None, 5),
    (pa.array([Decimal("12.00")], pa.decimal128(10, 2)), "12.00", 12),
    (pa.array([Decimal("-7")], pa.decimal256(76, 0)), "-7", -7),
    (pa.array([Decimal("-7.0")], pa.decimal32(5, 1)), "-7.0", -7),
]


@pytest.mark.parametrize(("array", "text", "number"), WRITTEN_OUT)
def test_times_and_decimals_are_text_or_declared_numbers(array: Any, text: str | None, number: int) -> None:
    found = read_x(array)
    if text is None:
        assert found == Refusal("unsupported_type", feature="x")
    else:
        assert_rows(found, [{"x": text.encode()}])
        assert isinstance(found, Rows)
        assert found.features == {"x": "text?"}
        assert_rows(read_x(array, schema=schema_of(x="bytes")), [{"x": text.encode()}])
    assert_rows(read_x(array, schema=schema_of(x="int64")), [{"x": number}])
    lists = pa.ListArray.from_arrays(pa.array([0, 0, 1], pa.int32()), array)
    declared = schema_of(x={"dtype": "int64", "shape": [None]})
    assert_rows(read_x(lists, schema=declared), [{"x": []}, {"x": [number]}])


@pytest.mark.parametrize(
    ("array", "dtype", "expected"),
    [
        (pa.array([Decimal("0.1"), None], pa.decimal128(5, 1)), "float64", [0.1, None]),
        (pa.array([Decimal("7")], pa.decimal128(5, 1)), "uint8", [7]),
        (pa.array([Decimal("7"), Decimal("7.5")], pa.decimal128(5, 1)), "int64", ("out_of_range", 1)),
        (pa.array([Decimal("300")], pa.decimal128(5, 0)), "int8", ("out_of_range", 0)),
        (pa.array([Decimal(2**64)], pa.decimal128(38, 0)), "uint64", ("out_of_range", 0)),
        (pa.array([0, 2**62], pa.timestamp("us")), "text", ("out_of_range", 1)),
        (pa.array([0, 2**31 - 1], pa.date32()), "text", ("out_of_range", 1)),
        (pa.array([0, 300], pa.time32("s")), "int8", ("out_of_range", 1)),
        (pa.array([0], pa.duration("s")), "text", ("unsupported_type", None)),
    ],
)
def test_times_and_decimals_as_declared(array: Any, dtype: str, expected: Any) -> None:
    found = read_x(array, schema=schema_of(x={"dtype": dtype, "nullable": True}))
    if isinstance(found, Rows):
        assert [row["x"] for row in found.rows] == expected
    else:
        assert (found.code, found.row, found.feature) == (*expected, "x")


@pytest.mark.parametrize(
    ("digits", "scale", "layout"),
    [
        ("-83456", 2, pa.decimal128(5, 2)),
        ("-9643379942", 4, pa.decimal64(18, 4)),
        ("2308869782735665094774802995907791490", 20, pa.decimal128(38, 20)),
        ("21703098954392057323653989636856378158", 38, pa.decimal128(38, 38)),
        ("1", 60, pa.decimal256(76, 60)),
        ("0", 2, pa.decimal32(5, 2)),
    ],
)
def test_a_decimal_declared_as_a_float_is_the_nearest_one(digits: str, scale: int, layout: Any) -> None:
    value = Decimal(digits).scaleb(-scale, Context(prec=80))
    found = read_x(pa.array([value], layout), schema=schema_of(x={"dtype": "float64", "nullable": True}))
    assert_rows(found, [{"x": float(f"{digits}e-{scale}")}])


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (pa.decimal32(5, 12), "1.2345E-8"),
        (pa.decimal64(5, 19), "1.2345E-15"),
        (pa.decimal128(5, 39), "1.2345E-35"),
        (pa.decimal128(5, -39), "1.2345E+43"),
    ],
)
def test_a_decimal_has_digits_beyond_the_scales_that_arrow_writes(layout: Any, text: str) -> None:
    array = pa.array([Decimal(text)], pa.decimal256(76, layout.scale)).cast(layout)
    assert_rows(
        read_x(array, schema=schema_of(x={"dtype": "float64", "nullable": True})), [{"x": float(text)}]
    )
    found = read_x(array)
    assert isinstance(found, Rows)
    [row] = found.rows
    assert Decimal(row["x"].decode()) == Decimal(text)


def test_a_decimal_of_a_scale_that_nothing_writes_is_refused() -> None:
    array = pa.array([0], pa.int64()).view(pa.decimal64(5, 77))
    for dtype in ("text", "float64"):
        found = read_x(array, schema=schema_of(x={"dtype": dtype, "nullable": True}))
        assert found == Refusal("unsupported_type", feature="x")


@pytest.mark.parametrize(
    ("layout", "units", "text"),
    [
        (pa.date64(), [86_400_000, -1, None, 213_620_221_665_533], "1970-01-02"),
        (pa.time32("s"), [1, 86_400, None, -1], "00:00:01"),
        (pa.time32("ms"), [86_399_999, -1, None], "23:59:59.999"),
        (pa.time64("us"), [0, 2**62, None], "00:00:00.000000"),
        (pa.time64("ns"), [86_399_999_999_999, 86_400_000_000_000], "23:59:59.999999999"),
    ],
)
def test_dates_and_times_that_have_no_text_are_numbers(layout: Any, units: Any, text: str) -> None:
    """Arrow's own files have them; its validation refuses them."""
    times: Any = pa.array(units, pa.int32() if layout.bit_width == 32 else pa.int64()).view(layout)
    declared = schema_of(x={"dtype": "int64", "nullable": True})
    assert_rows(read_x(times, schema=declared), [{"x": value} for value in units])
    assert read_x(times) == Refusal("out_of_range", 1, "x")
    assert_rows(read_x(times.slice(0, 1)), [{"x": text.encode()}])
    batch = columns(x=times, y=pa.array(["abcd"] * len(units)))
    damaged = written(batch).replace(b"abcd", b"abc\xff")
    assert read(damaged, schema=declared, undeclared="drop") == Refusal("invalid_arrow", 0)


@pytest.mark.parametrize(
    ("dtype", "value", "fits"),
    [
        ("int4", 7, True),
        ("int4", -8, True),
        ("int4", 8, False),
        ("int4", -9, False),
        ("int2", -2, True),
        ("int2", 2, False),
        ("uint4", 15, True),
        ("uint4", 16, False),
        ("uint2", 4, False),
    ],
)
def test_a_marked_column_holds_what_its_dtype_does(dtype: str, value: int, fits: bool) -> None:
    storage = pa.int8() if dtype.startswith("i") else pa.uint8()
    marked = pa.schema([pa.field("x", storage, nullable=False, metadata={"shardsmith:dtype": dtype})])
    data = written(pa.RecordBatch.from_arrays([pa.array([1, value], storage)], schema=marked))
    if fits:
        assert_rows(read(data), [{"x": 1}, {"x": value}])
        assert_rows(read(data, schema=schema_of(x="float32")), [{"x": 1.0}, {"x": float(value)}])
    else:
        assert read(data) == Refusal("out_of_range", 1, "x")
        assert read(data, schema=schema_of(x="float32")) == Refusal("out_of_range", 1, "x")


def test_bits_that_a_float4_does_not_have() -> None:
    marks = {"shardsmith:dtype": "float4_e2m1fn"}
    marked = pa.schema([pa.field("x", pa.uint8(), nullable=False, metadata=marks)])
    found = read(written(pa.RecordBatch.from_arrays([pa.array([1, 16], pa.uint8())], schema=marked)))
    assert isinstance(found, Refusal)
    assert found.code == "out_of_range"


@pytest.mark.parametrize("row", [1, MAX_BATCH_ROWS, 2 * MAX_BATCH_ROWS + 3])
def test_errors_name_the_row_of_the_whole_body(row: int) -> None:
    values = np.zeros(MAX_BATCH_ROWS + 5, np.int64)
    batches = [values.copy(), values.copy()]
    batches[row // len(values)][row % len(values)] = 300
    data = written(*(columns(x=batch) for batch in batches))
    declared = schema_of(x={"dtype": "int8", "nullable": True})
    assert read(data, schema=declared) == Refusal("out_of_range", row, "x")


def test_values_that_are_converted_are_charged() -> None:
    data = written(columns(x=np.zeros(1000, "i1")))
    as_they_are, converted = (
        read(data),
        read(data, schema=schema_of(x={"dtype": "float64", "nullable": True})),
    )
    assert isinstance(as_they_are, Rows)
    assert isinstance(converted, Rows)
    assert converted.peak >= as_they_are.peak + 1000 * 8


def test_structs_become_features_of_dotted_names() -> None:
    inner = pa.struct([pa.field("b", pa.string(), nullable=False), pa.field("c", pa.list_(pa.int8()))])
    layout = pa.struct([pa.field("a", pa.int8(), nullable=False), pa.field("in", inner, nullable=False)])
    rows = [{"a": 1, "in": {"b": "x", "c": [1]}}, None, {"a": 2, "in": {"b": "", "c": None}}]
    array = pa.array(rows, layout)
    fields = [pa.field("s", layout), pa.field("y", pa.int8(), nullable=False)]
    batch = pa.RecordBatch.from_arrays([array, pa.array([1, 2, 3], pa.int8())], schema=pa.schema(fields))
    found = read(written(batch, batch.slice(1)))
    expected: list[dict[str, Any]] = [
        {"s.a": 1, "s.in.b": b"x", "s.in.c": [1], "y": 1},
        {"s.a": None, "s.in.b": None, "s.in.c": None, "y": 2},
        {"s.a": 2, "s.in.b": b"", "s.in.c": None, "y": 3},
    ]
    assert_rows(found, expected + expected[1:])
    assert isinstance(found, Rows)
    assert found.features == {"s.a": "int8?", "s.in.b": "text?", "s.in.c": "int8[null]?", "y": "int8"}
    some = schema_of(**{"s.a": {"dtype": "int64", "nullable": True}})
    assert_rows(read(written(batch), schema=some, undeclared="drop"), [{"s.a": n} for n in (1, None, 2)])
    assert read(written(batch), schema=some) == Refusal("schema_conflict", feature="s.in.b")
    same = pa.RecordBatch.from_arrays([array, array], names=["s", "s"])
    assert read(written(same)) == Refusal("duplicate_feature", feature="s")
    same = pa.RecordBatch.from_arrays([array, pa.array([1, 2, 3])], names=["s", "s.a"])
    assert read(written(same)) == Refusal("duplicate_feature", feature="s.a")


@pytest.mark.parametrize("declared", [None, schema_of(s={"dtype": "int8", "shape": [2], "kind": "sparse"})])
def test_a_name_of_a_member_that_is_not_utf8(declared: Schema | None) -> None:
    data = written(columns(s=[{"indices": [[0]], "vælues": [1]}]))
    assert code_of(data.replace("æ".encode(), b"\xff\xff"), schema=declared) == "invalid_arrow"


def test_two_columns_of_one_name() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1])] * 2, names=["x", "x"])
    assert read(written(batch)) == Refusal("duplicate_feature", feature="x")


def test_row_count_beyond_the_amplification_limit_is_refused() -> None:
    data = written(columns(x=pa.nulls(7)))
    for length in (2**40, 2**26):
        assert (
            code_of(data.replace((7).to_bytes(8, "little"), length.to_bytes(8, "little")))
            == "amplification_exceeded"
        )


LONG = 2**18
#: Of two such values one is taken at a time.
LONG_ALONE = 9 * 2**20


def long_again(num_rows: int) -> dict[str, Any]:
    """A long value in each of the first rows, which the body holds once, in every way of Arrow to do so."""
    named: Any = np.zeros(num_rows, "i1")
    texts = pa.DictionaryArray.from_arrays(named, pa.array(["a" * LONG]))
    views = np.zeros((num_rows, 4), np.int32)
    views[:] = [LONG, int.from_bytes(b"aaaa", "little"), 0, 0]
    buffers: list[pa.Buffer | None] = [None, pa.py_buffer(views.tobytes()), pa.py_buffer(b"a" * LONG)]
    ends = pa.array([num_rows], pa.int32())
    starts, sizes = (pa.array([number] * num_rows, pa.int32()) for number in (0, LONG))
    list_views: Any = pa.ListViewArray  # with sizes, which its declaration does not know
    return {
        "dictionary": texts,
        "dictionary in lists": pa.FixedSizeListArray.from_arrays(texts, 1),
        "view": pa.Array.from_buffers(pa.string_view(), num_rows, buffers),
        "runs": pa.RunEndEncodedArray.from_arrays(ends, pa.array(["a" * LONG])),
        "list view": list_views.from_arrays(starts, sizes, pa.array(np.zeros(LONG, "u1"))),
    }


@pytest.mark.parametrize("way", long_again(1))
def test_repeated_long_values_are_read_in_small_batches(way: str) -> None:
    budget = Budget(amplification=Amplification(1100, lambda: 2**20))
    found = format_cases.decode("arrow", written(columns(x=long_again(512)[way])), budget)
    sizes = [batch.num_rows for batch in found.batches]
    assert sum(sizes) == 512
    assert max(sizes) <= 2**24 // LONG
    assert budget.peak <= 2**26


def test_batches_grow_again_after_long_values() -> None:
    named: Any = np.ones(2 * MAX_BATCH_ROWS, "i1")
    named[[0, 1, 2, MAX_BATCH_ROWS]] = 0
    found = read_x(pa.DictionaryArray.from_arrays(named, pa.array(["a" * LONG_ALONE, "b"])))
    assert isinstance(found, Rows)
    assert [len(row["x"]) for row in found.rows] == [1 if number else LONG_ALONE for number in named]
    assert len(found.batches) < 200


def test_a_row_that_becomes_too_much_for_its_body_is_refused_before_it_is_made() -> None:
    texts = long_again(2000)["dictionary"]
    data = written(columns(x=pa.FixedSizeListArray.from_arrays(texts, 2000)))
    budget = Budget(amplification=Amplification(1, lambda: len(data)))
    with pytest.raises(InputError) as caught:
        next(format_cases.decode("arrow", data, budget).batches)
    assert caught.value.code == "amplification_exceeded"
    assert budget.peak <= 2**22


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("layout", [pa.string_view(), pa.binary_view()], ids=str)
def test_view_of_a_null_is_not_read(layout: pa.DataType, length: int) -> None:
    """`validate(full=True)` does not look at it either, but Arrow's cast does, and dies."""
    content = b"a string too long for its view"
    views = np.zeros((3, 4), np.int32)
    views[0] = [len(content), int.from_bytes(content[:4], "little"), 0, 0]
    views[1] = [length, -1, 7, -5]
    views[2] = [1, ord("b"), 0, 0]
    buffers: list[pa.Buffer | None] = [
        pa.py_buffer(b"\x05"),
        pa.py_buffer(views.tobytes()),
        pa.py_buffer(content),
    ]
    array = pa.Array.from_buffers(layout, 3, buffers)
    for sliced in (array, pa.concat_arrays([pa.array([None], layout), array]).slice(1)):
        assert_rows(read_x(sliced), [{"x": content}, {"x": None}, {"x": b"b"}])
    nested = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), array)
    assert read_x(nested) == Refusal("null_value", 1, "x")


def test_list_views_that_overlap() -> None:
    views: Any = pa.ListViewArray
    array = views.from_arrays(np.zeros(9, "i4"), np.full(9, 3, "i4"), pa.array(["a", "b", "c"]))
    assert read_x(array) == Refusal("unsupported_type", feature="x")
    starts, sizes = pa.array([0, 1], pa.int32()), pa.array([2, 2], pa.int32())
    assert_rows(read_x(views.from_arrays(starts, sizes, pa.array([1, 2, 3]))), [{"x": [1, 2]}, {"x": [2, 3]}])


# Bytes that nobody vouches for.

BATCH = columns(x=[1, 2, 3], s=pa.array(["a", "b", "a"]).dictionary_encode())
ROWS = [{"x": number, "s": text} for number, text in ((1, b"a"), (2, b"b"), (3, b"a"))]
STREAM = written(BATCH, BATCH)
FILE = written(BATCH, BATCH, file=True)


#: As polars writes files: the schema has no marker and no length.
BARE = FILE[:8] + FILE[16:]


@pytest.mark.parametrize(
    "data", [STREAM, STREAM[: -len(END)], FILE, BARE], ids=["stream", "no end", "file", "bare schema"]
)
def test_streams_and_files(data: bytes) -> None:
    assert_rows(read(data, pieces=format_cases.PIECES), ROWS * 2)


def test_the_footer_of_a_file_is_not_compared() -> None:
    end = len(FILE) - 10 - int.from_bytes(FILE[-10:-6], "little")
    assert_rows(read(FILE[:end] + b"anything" + bytes(4) + b"ARROW1"), ROWS * 2)


@pytest.mark.parametrize("data", [STREAM, FILE], ids=["stream", "file"])
def test_a_body_that_is_cut_short(data: bytes) -> None:
    # A stream may end wherever a message does; its schema is there by then.
    starts = {at for at in range(8, len(data)) if data is STREAM and data[at : at + 4] == END[:4]}
    for size in range(len(data)):
        found = read(data[:size])
        assert found.code == "truncated" if isinstance(found, Refusal) else size in starts


def replaced(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) == 1
    return data.replace(old, new)


def sized(size: int) -> bytes:
    return size.to_bytes(8, "little", signed=True)


HUNDRED = written(columns(x=range(100)))
PAIR = written(columns(x=range(100), y=range(100)))
TEXTS = written(columns(x=["ab", "cd", "ef"]))
SECOND = struct.pack("<4q", 800, 0, 800, 800)
OFFSETS = struct.pack("<4i", 0, 2, 4, 6)
UNREAD = [
    (b"", "truncated"),
    (b"\xff", "truncated"),
    (b"ARROW1\0\0", "truncated"),
    (b"ARROW1\1\0" + FILE[8:], "invalid_arrow"),
    (STREAM + b"\0", "trailing_bytes"),
    (STREAM + STREAM, "trailing_bytes"),
    (FILE + b"\0", "truncated"),
    (BARE[:-1], "truncated"),
    (BARE[:100], "unsupported_arrow"),
    (BARE[:8] + b"\0\0\0\0" + BARE[12:], "invalid_arrow"),
    (b"hello world, this is text", "unsupported_arrow"),
    (STREAM[4:], "unsupported_arrow"),
    (b"PAR1" + bytes(100), "unsupported_arrow"),
    *((END[:4] + struct.pack("<2i", size, 0), "invalid_arrow") for size in (-1, 2**31 - 1, 2**25 + 8)),
    (HUNDRED.replace(sized(800), sized(2**31)), "payload_too_large"),
    (HUNDRED.replace(sized(800), sized(2**50)), "invalid_arrow"),
    (HUNDRED.replace(sized(800), sized(816)), "truncated"),
    *(
        (replaced(PAIR, SECOND, struct.pack("<4q", 800, 0, *wrong)), "invalid_arrow")
        for wrong in ((801, 800), (-8, 800), (800, -1), (2**62, 2**62))
    ),
    *(
        (replaced(TEXTS, OFFSETS, struct.pack("<4i", *wrong)), "invalid_arrow")
        for wrong in ((0, 2, 4, 2**30), (0, -2, 4, 6), (0, 4, 2, 6))
    ),
    (written(columns(x=["grüße" * 4])).replace("ü".encode(), b"\xff\xff"), "invalid_arrow"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "code"), UNREAD)
def test_bytes_that_are_not_read(data: bytes, code: str) -> None:
    assert code_of(data) == code


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_buffers_are_charged_before_they_are_inflated(codec: str) -> None:
    data = written(columns(x=pa.array([bytes(2**22)])), compression=codec)
    assert len(data) < 2**17
    assert_rows(read(data), [{"x": bytes(2**22)}])
    assert code_of(data, limits=Limits(max_decoded_bytes=2**21)) == "payload_too_large"
    begin = data.rindex(sized(2**22))
    declared = data[begin : begin + 16]
    for size, code in ((2**62, "payload_too_large"), (-2, "invalid_arrow")):
        assert code_of(data.replace(declared, sized(size) + declared[8:])) == code


def test_dictionaries_in_pieces() -> None:
    longer = pa.DictionaryArray.from_arrays(pa.array([3], pa.int32()), pa.array(["a", "b", "c", "d"]))
    more = pa.RecordBatch.from_arrays([pa.array([1]), longer], schema=BATCH.schema)
    assert code_of(written(BATCH, more, emit_dictionary_deltas=True)) == "unsupported_arrow"
    assert_rows(read(written(BATCH, more)), [*ROWS, {"x": 1, "s": b"d"}])


def test_arrow_tensor_message_is_refused() -> None:
    sink = io.BytesIO()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(pa.array([1, 2, 3]).to_numpy()), pa.PythonFile(sink, "w"))
    assert code_of(sink.getvalue()) == "unsupported_arrow"


def nested(depth: int) -> pa.DataType:
    layout: pa.DataType = pa.int8()
    for _ in range(depth):
        layout = pa.list_(layout)
    return layout


def shared_fields(fan: int, depth: int) -> bytes:
    """A schema message of which every level has `fan` children that are all one table."""
    # Laid out backwards: FlatBuffers point forward, so the root stands first.
    out = bytearray(struct.pack("<I", 16) + bytes(12))
    # message: vtable at 4 (12 bytes), table at 16
    out[4:16] = struct.pack("<6H", 12, 16, 4, 6, 8, 0)
    out += struct.pack("<i", 12) + struct.pack("<hBxI", 4, 1, 0) + bytes(4)
    position = len(out) + 12
    struct.pack_into("<I", out, 16 + 8, position - 24)
    # schema: vtable (8 bytes: size, size of table, endianness, fields), padded
    out += struct.pack("<4H", 8, 8, 0, 4) + bytes(4)
    out += struct.pack("<iI", 12, 4)
    for _ in range(depth):
        start = len(out)
        table = start + 4 + 4 * fan + 16
        out += struct.pack("<I", fan)
        out += b"".join(struct.pack("<I", table - (start + 4 + 4 * i)) for i in range(fan))
        out += struct.pack("<8H", 16, 8, 0, 0, 0, 0, 0, 4)
        out += struct.pack("<iI", 16, 4)
    out += struct.pack("<I", 0) + bytes(4)
    out += bytes(-len(out) % 8)
    return END[:4] + struct.pack("<i", len(out)) + bytes(out)


@pytest.mark.parametrize(
    "data",
    [
        written(pa.RecordBatch.from_arrays([pa.array([], nested(40))], names=["x"])),
        # Shared tables are counted as the tree that they spell.
        shared_fields(fan=100, depth=10),
    ],
    ids=["deep", "shared"],
)
def test_a_schema_that_is_too_large(data: bytes) -> None:
    assert len(data) < 10_000
    assert code_of(data) == "schema_too_large"


# Out.

KINDS = ("scalar", "dense", "ragged", "sparse", "sequence")


def write(found: Records, **options: Any) -> bytes:
    data = format_cases.write("arrow", found, **options)
    assert isinstance(data, bytes), data
    return data


def test_a_tensor_of_unknown_shape_that_every_row_lacks_is_written() -> None:
    declared = schema_of(z={"dtype": "complex64", "shape": [None, None], "nullable": True})
    found = format_cases.decode("arrow", written(columns(z=pa.nulls(2))), Budget(), schema=declared)
    assert pa.ipc.open_stream(write(found)).read_all().column("z").to_pylist() == [None, None]


@pytest.mark.parametrize("arrow", ["stream", "file"])
@hypothesis.settings(max_examples=50, deadline=None)
@given(found=records(KINDS))
def test_rows_of_every_kind_round_trip(arrow: str, found: Records) -> None:
    batches = list(found.batches)
    data = write(Records(found.schema, iter(batches)), arrow=arrow)
    foreign = (pa.ipc.open_stream if arrow == "stream" else pa.ipc.open_file)(data).read_all()
    foreign.validate(full=True)
    back = read(data)
    assert isinstance(back, Rows)
    assert back.schema == found.schema
    assert_rows(back, format_cases.rows_of(batches, found.schema))
    assert foreign.num_rows == len(back.rows)
    once = write(format_cases.decode("arrow", data, Budget()), arrow=arrow)
    assert write(format_cases.decode("arrow", once, Budget()), arrow=arrow) == once


@hypothesis.settings(max_examples=25, deadline=None)
@given(found=records(KINDS))
def test_slices_of_columns_are_written_as_they_are(found: Records) -> None:
    batches = list(found.batches)
    pieces = [batch.rows(row, row + 1) for batch in batches for row in range(batch.num_rows)]
    data = write(Records(found.schema, iter(pieces)))
    assert_rows(read(data), format_cases.rows_of(batches, found.schema))


def test_other_languages_see_natural_types() -> None:
    declared = schema_of(
        b="bool",
        t={"dtype": "text", "nullable": True},
        m={"dtype": "float16", "shape": [2, 3]},
        v={"dtype": "int8", "shape": [None, 2]},
        n={"dtype": "int8", "shape": [None, None]},
        c="complex64",
        f={"dtype": "bfloat16", "shape": [None]},
        r={"dtype": "int8", "shape": [None, None, 2], "kind": "ragged"},
        s={"dtype": "float32", "shape": [9, 9], "kind": "sparse"},
        q={"dtype": "text", "shape": [None, 2], "kind": "sequence"},
    )
    found = pa.ipc.open_stream(write(Records(declared, iter(())))).schema
    assert [str(field.type) for field in found] == [
        "bool",
        "string",
        "fixed_size_list<item: fixed_size_list<item: halffloat not null>[3] not null>[2]",
        "list<item: fixed_size_list<item: int8 not null>[2] not null>",
        "extension<arrow.variable_shape_tensor[value_type=int8, ndim=2, uniform_shape=[null,null]]>",
        "fixed_size_binary[8]",
        "list<item: uint16 not null>",
        "list<item: list<item: fixed_size_list<item: int8 not null>[2] not null> not null>",
        "struct<indices: list<item: fixed_size_list<item: int64 not null>[2] not null> not null, "
        "values: list<item: float not null> not null>",
        "list<item: fixed_size_list<item: string not null>[2] not null>",
    ]
    assert [field.nullable for field in found][:2] == [False, True]
    assert found.field("f").metadata == {b"shardsmith:dtype": b"bfloat16"}


def test_varying_dimension_may_be_anywhere() -> None:
    rows = [{"x": [[[1]], [[2]]]}, {"x": [[[1], [2]], [[3], [4]]]}]
    declared = schema_of(x={"dtype": "int8", "shape": [2, None, 1]})
    data = write(format_cases.records(rows, schema=declared))
    assert pa.ipc.open_stream(data).read_all().to_pylist() == rows
    assert_rows(read(data), rows)


@pytest.mark.parametrize(
    ("feature", "rows"),
    [
        ({"dtype": "bool"}, [True, None, False]),
        ({"dtype": "text", "shape": [2]}, [["a", "é"], None, ["", "b"]]),
        ({"dtype": "int8", "shape": [2, 1]}, [None, [[1], [2]], [[3], [4]]]),
        ({"dtype": "int8", "shape": [None, 2]}, [[[1, 2]], None, []]),
        ({"dtype": "int8", "shape": [2, None]}, [[[1], [2]], None, [[], []], [[3, 4], [5, 6]]]),
        ({"dtype": "int8", "shape": [1, None]}, [[[1, 2]], None, [[3]]]),
        ({"dtype": "bool", "shape": [None, None, 2], "kind": "ragged"}, [[[], [[True, False]]], None, []]),
        ({"dtype": "text", "shape": [None, 1], "kind": "sequence"}, [[["a"], ["b"]], None, []]),
    ],
)
def test_nested_null_is_refused(feature: dict[str, Any], rows: list[Any]) -> None:
    declared = schema_of(x={**feature, "nullable": True})
    is_sequence = feature.get("kind") == "sequence"
    body = [{"feature_lists": {"x": row}} if is_sequence else {"x": row} for row in rows]
    found = pa.ipc.open_stream(write(format_cases.records(body, schema=declared))).read_all()
    found.validate(full=True)
    assert found.column("x").to_pylist() == rows
    values: Any = found.column("x").combine_chunks()
    while not pa.types.is_primitive(values.type) and not pa.types.is_string(values.type):
        values = values.values
        assert not values.null_count


def test_rows_without_features_keep_their_number() -> None:
    found = read(write(format_cases.records([{}, {}], schema=Schema(()))))
    assert_rows(found, [{}, {}])


def test_text_that_is_not_utf8_and_a_dimension_beyond_int32() -> None:
    text = format_cases.decode("arrow", written(columns(x=[b"a", b"\xff"])), Budget()).batches
    found = format_cases.write("arrow", Records(schema_of(x="text"), text))
    assert found == Refusal("invalid_utf8", 1, "x")
    declared = schema_of(x={"dtype": "int8", "shape": [None, None]})
    rows = format_cases.decode(
        "arrow", written(columns(x=[{"data": [], "shape": [2**40, 0]}])), Budget(), schema=declared
    )
    assert format_cases.write("arrow", rows) == Refusal("not_expressible", 0, "x")


@pytest.mark.parametrize(
    ("feature", "array"),
    [
        ({"dtype": "text"}, [b"a", None, b"\xff"]),
        ({"dtype": "text", "shape": [2]}, [[b"a", b"b"], None, [b"c", b"\xff"]]),
        ({"dtype": "text", "shape": [None]}, [[b"a", b"b"], None, [b"\xff"]]),
        (
            {"dtype": "text", "shape": [None, None], "kind": "ragged"},
            [[[b"a"], [b"b"]], None, [[], [b"\xff"]]],
        ),
        ({"dtype": "text", "shape": [None, 1], "kind": "sequence"}, [[[b"a"], [b"b"]], None, [[b"\xff"]]]),
        (
            {"dtype": "int8", "shape": [None, None, None], "kind": "sequence", "encoding": "tensor"},
            [[[2, 0], [3, 0]], None, [[2**31, 0], [2**31 + 1, 0]]],
        ),
    ],
)
def test_the_row_of_what_does_not_go_into_arrow(feature: dict[str, Any], array: list[Any]) -> None:
    """Bytes stand in place of text in columns that no reader would make so."""
    declared = schema_of(x={**feature, "nullable": True})
    if feature["dtype"] == "text":
        as_bytes = schema_of(x={**feature, "dtype": "bytes", "nullable": True})
        batches = list(
            format_cases.decode("arrow", written(columns(x=array)), Budget(), schema=as_bytes).batches
        )
        expected = Refusal("invalid_utf8", 5, "x")
    else:
        shapes = np.array([shape for row in array for shape in row or ()])
        column = Column(
            np.empty(0, np.int8),
            (np.array([0, 2, 4]), np.zeros(5, np.int64)),
            np.array([True, False, True]),
            shapes=shapes,
        )
        batches = [Batch(3, (column,))]
        expected = Refusal("not_expressible", 5, "x")
    empty = Batch(3, tuple(AbsentColumns(3).column(each) for each in declared))
    assert format_cases.write("arrow", Records(declared, iter([empty, *batches]))) == expected


def test_copies_next_to_nulls_are_charged() -> None:
    declared = schema_of(x={"dtype": "float32", "shape": [1000], "nullable": True})
    sparse = Column(np.zeros(1000, np.float32), (), np.arange(100) == 50, 1000)
    few = Limits(max_decoded_bytes=100_000)
    batch = Batch(100, (sparse,))
    found = format_cases.write("arrow", Records(declared, iter([batch])), limits=few)
    assert isinstance(found, Refusal)
    assert found.code == "payload_too_large"
    data = write(Records(declared, iter([batch])))
    assert code_of(data, limits=Limits(max_decoded_bytes=700_000)) == "payload_too_large"
    full = Column(np.zeros(100_000, np.float32), (), None, 1000)
    assert isinstance(
        format_cases.write("arrow", Records(declared, iter([Batch(100, (full,))])), limits=few), bytes
    )


@pytest.mark.parametrize("dtype", ["int8", "bytes"])
def test_the_offsets_of_lists_and_strings_are_charged(dtype: str) -> None:
    offsets = np.zeros(MAX_BATCH_ROWS + 1, np.int64)
    if dtype == "bytes":
        feature: dict[str, Any] = {"dtype": dtype}
        column = Column(Strings(np.empty(0, np.uint8), offsets))
    else:
        feature = {"dtype": dtype, "shape": [None]}
        column = Column(np.empty(0, np.int8), (offsets,))
    rows = Records(schema_of(x=feature), iter([Batch(MAX_BATCH_ROWS, (column,))] * 2))
    num_bytes = 4 * len(offsets)
    found = format_cases.write("arrow", rows, limits=Limits(max_decoded_bytes=num_bytes - 1))
    assert isinstance(found, Refusal)
    assert found.code == "payload_too_large"
    assert isinstance(format_cases.write("arrow", rows, limits=Limits(max_decoded_bytes=num_bytes)), bytes)


def test_features_that_no_row_has_are_written_from_one_column() -> None:
    absent = AbsentColumns(MAX_BATCH_ROWS)
    shaped = {"dtype": "float32", "shape": [4], "nullable": True}
    declared = schema_of(**{f"x{index}": shaped for index in range(100)})
    batch = Batch(MAX_BATCH_ROWS, tuple(map(absent.column, declared)))
    few = Limits(max_decoded_bytes=2 * 16 * MAX_BATCH_ROWS)
    data = format_cases.write("arrow", Records(declared, iter([batch])), limits=few)
    assert isinstance(data, bytes), data
    assert pa.ipc.open_stream(data).read_all().column("x99").null_count == MAX_BATCH_ROWS


@pytest.mark.parametrize("dtype", [np.uint8, None])
def test_more_values_or_bytes_than_arrow_counts(dtype: Any) -> None:
    many = np.zeros(2**31, np.uint8)  # memory that nothing touches
    splits = np.array([0, 2**31])
    if dtype is None:
        declared, column = schema_of(x="bytes"), Column(Strings(many, splits))
    else:
        declared, column = schema_of(x={"dtype": "uint8", "shape": [None]}), Column(many, (splits,))
    found = format_cases.write("arrow", Records(declared, iter([Batch(1, (column,))])))
    assert found == Refusal("column_too_large", feature="x")
