import io
import zipfile
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.codecs.arrays.npz_records import decode, encode
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.codecs.records.columns import MAX_BATCH_ROWS, Records, arrow_schema
from app.domain.dtypes import DTYPES
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.errors import InputError, LimitExceeded, LossyConversion, SchemaConflict, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile


def saved(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def schema(**features: Any) -> Schema:
    return Schema.from_json({"features": features})


def decoded(data: bytes, budget: Budget | None = None, **options: Any) -> tuple[Schema, pa.Table]:
    records = decode(MemoryFile(data), RecordsDecodeOptions(**options), budget or Budget())
    batches = list(records.batches)
    for batch in batches:
        batch.validate(full=True)
        assert batch.num_rows <= MAX_BATCH_ROWS
    return records.schema, pa.Table.from_batches(batches, arrow_schema(records.schema))


def reencoded(data: bytes, **options: Any) -> bytes:
    records = decode(MemoryFile(data), RecordsDecodeOptions(**options), Budget())
    return b"".join(encode(records, RecordsEncodeOptions(), Budget()))


def refused(data: bytes, error: type[InputError], code: str, feature: str, **options: Any) -> InputError:
    with pytest.raises(error) as caught:
        decoded(data, **options)
    assert (caught.value.code, caught.value.location.feature) == (code, feature)
    return caught.value


def test_every_array_is_a_column_and_its_first_axis_counts_the_rows() -> None:
    found, table = decoded(
        saved(
            x=np.arange(6, dtype="<f4").reshape(2, 3), label=np.array([7, 8], "<u2"), s=np.array(["é", "b"])
        )
    )
    assert found.to_json()["features"] == {
        "x": {"dtype": "float32", "shape": [3], "kind": "dense", "encoding": "list", "nullable": False},
        "label": {"dtype": "uint16", "shape": [], "kind": "dense", "encoding": "list", "nullable": False},
        "s": {"dtype": "text", "shape": [], "kind": "dense", "encoding": "list", "nullable": False},
    }
    assert table.to_pylist() == [
        {"x": [0, 1, 2], "label": 7, "s": "é".encode()},
        {"x": [3, 4, 5], "label": 8, "s": b"b"},
    ]


def test_bytes_are_bytes_and_complex_numbers_are_tensors() -> None:
    found, table = decoded(saved(b=np.array([b"\xff"]), c=np.array([[1j, 2]], "<c8")))
    assert found.by_name["b"].dtype.name == "bytes"
    assert found.by_name["c"].encoding == "tensor"
    assert table["c"].to_pylist() == [[np.complex64(1j).tobytes(), np.complex64(2).tobytes()]]


@pytest.mark.parametrize("code", ["?", "i1", "<i8", "<u8", "<f2", "<f8", "<c16", "S3", "<U2"])
@pytest.mark.parametrize("row_shape", [(), (2, 2), (0,)])
def test_arrays_round_trip_to_the_same_bytes(code: str, row_shape: tuple[int, ...]) -> None:
    array = np.ones((3, *row_shape), "i1").astype(code)
    assert np.load(io.BytesIO(reencoded(saved(x=array))))["x"].tolist() == array.tolist()
    once = reencoded(saved(x=array))
    assert reencoded(once) == once


def test_rows_come_in_batches_over_the_memory_of_the_arrays() -> None:
    array = np.arange(3 * MAX_BATCH_ROWS + 1)
    budget = Budget()
    records = decode(MemoryFile(saved(x=array)), RecordsDecodeOptions(), budget)
    batches = list(records.batches)
    assert [batch.num_rows for batch in batches] == [MAX_BATCH_ROWS] * 3 + [1]
    assert pa.Table.from_batches(batches)["x"].to_pylist() == array.tolist()
    addresses = [buffer.address for batch in batches[:2] if (buffer := batch.column(0).buffers()[1])]
    assert addresses[1] - addresses[0] == 8 * MAX_BATCH_ROWS


def test_large_rows_make_small_batches() -> None:
    records = decode(MemoryFile(saved(x=np.zeros((10, 2**22), "u1"))), RecordsDecodeOptions(), Budget())
    assert [batch.num_rows for batch in records.batches] == [4, 4, 2]


def test_no_rows_and_no_arrays() -> None:
    assert decoded(saved(x=np.zeros((0, 2), "<f4")))[1].num_rows == 0
    assert len(decoded(saved())[0]) == 0


def test_an_array_without_a_first_axis() -> None:
    refused(saved(x=np.zeros(2), y=np.array(1)), UnprocessableInput, "no_rows", "y")


def test_arrays_of_different_lengths() -> None:
    error = refused(saved(x=np.zeros(2), y=np.zeros(3)), UnprocessableInput, "row_count_mismatch", "y")
    assert "'y' has 3 rows, but 'x' has 2" in error.detail


def test_a_few_bytes_that_declare_endless_rows() -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976, 0), }"
    member = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    data = saved(x=np.zeros(1))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", member)
    with pytest.raises(LimitExceeded):
        decoded(file.getvalue())
    assert decoded(data)[1].num_rows == 1


def test_a_declared_dtype_converts_exactly() -> None:
    declared = schema(x={"dtype": "int8", "shape": [2]}, y={"dtype": "float32"})
    found, table = decoded(saved(x=np.array([[1, 2], [3, -4]]), y=np.array([0.1, 2])), schema=declared)
    assert found is declared
    assert table.schema == arrow_schema(declared)
    assert table["x"].to_pylist() == [[1, 2], [3, -4]]
    assert table["y"].to_pylist() == [float(np.float32(0.1)), 2]


def test_a_value_that_the_declared_dtype_does_not_hold() -> None:
    data = saved(x=np.array([[1, 2], [3, 300]]))
    error = refused(
        data, LossyConversion, "out_of_range", "x", schema=schema(x={"dtype": "int8", "shape": [2]})
    )
    assert error.location.row == 1


@pytest.mark.parametrize("shape", [[], [3], [2, 1], [None, None]])
def test_a_declared_shape_must_be_that_of_a_row(shape: list[int | None]) -> None:
    declared = schema(x={"dtype": "float64", "shape": shape, "encoding": "tensor"})
    refused(saved(x=np.zeros((4, 2))), SchemaConflict, "schema_conflict", "x", schema=declared)


def test_unknown_dimensions_take_any_length() -> None:
    declared = schema(
        x={"dtype": "int64", "shape": [None]},
        y={"dtype": "int64", "shape": [None, None], "encoding": "tensor"},
    )
    _, table = decoded(saved(x=np.arange(4).reshape(2, 2), y=np.arange(4).reshape(2, 1, 2)), schema=declared)
    assert table["x"].to_pylist() == [[0, 1], [2, 3]]
    assert table["y"].to_pylist()[1] == {"shape": [1, 2], "values": [2, 3]}


def test_features_and_arrays_must_match() -> None:
    data = saved(x=np.zeros(2, "<f4"), y=np.zeros(2, "<f4"))
    float32 = {"dtype": "float32"}
    refused(data, SchemaConflict, "schema_conflict", "y", schema=schema(x=float32))
    error = refused(
        data, SchemaConflict, "schema_conflict", "z", schema=schema(x=float32, y=float32, z=float32)
    )
    assert "declare the feature nullable" in error.detail
    _, table = decoded(data, schema=schema(x=float32), undeclared="drop")
    assert table.column_names == ["x"]


def test_a_nullable_feature_may_be_absent() -> None:
    declared = schema(x={"dtype": "int64"}, y={"dtype": "float32", "shape": [2], "nullable": True})
    _, table = decoded(saved(x=np.zeros(3, "<i8")), schema=declared)
    assert table["y"].to_pylist() == [None] * 3


def test_room_for_an_absent_feature_is_charged_and_makes_small_batches() -> None:
    declared = schema(x={"dtype": "int64"}, y={"dtype": "float32", "shape": [2**20], "nullable": True})
    data = saved(x=np.zeros(9, "<i8"))
    records = decode(MemoryFile(data), RecordsDecodeOptions(schema=declared), Budget())
    assert next(records.batches).num_rows == 3
    with pytest.raises(LimitExceeded):
        decoded(data, Budget(Limits(max_decoded_bytes=2**20)), schema=declared)


def test_bfloat16_comes_in_where_declared() -> None:
    data = saved(x=np.array([1.5, 2], DTYPES["bfloat16"].numpy))
    declared = schema(x={"dtype": "bfloat16"})
    assert decoded(data, schema=declared)[1]["x"].to_pylist() == [0x3FC0, 0x4000]
    again = reencoded(data, schema=declared)
    assert np.load(io.BytesIO(again))["x"].tobytes() == np.load(io.BytesIO(data))["x"].tobytes()
    refused(data, UnprocessableInput, "unsupported_dtype", "x")


def test_bytes_declared_as_text_must_be_utf8() -> None:
    error = refused(
        saved(s=np.array([b"a", b"\xff"])),
        UnprocessableInput,
        "invalid_utf8",
        "s",
        schema=schema(s={"dtype": "text"}),
    )
    assert error.location.row == 1


def test_names_must_be_names_of_features() -> None:
    with pytest.raises(LimitExceeded) as caught:
        decoded(saved(x=np.zeros(1), y=np.zeros(1)), Budget(Limits(max_features=1)))
    assert caught.value.code == "too_many_features"


def batch_of(features: Schema, *columns: Any) -> Records:
    types = arrow_schema(features)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, types, strict=True)]
    return Records(features, iter([pa.RecordBatch.from_arrays(arrays, schema=types)]))


def encoded(records: Records, budget: Budget | None = None) -> bytes:
    return b"".join(encode(records, RecordsEncodeOptions(), budget or Budget()))


def test_numpy_loads_text_as_text_and_bytes_as_bytes() -> None:
    features = schema(t={"dtype": "text"}, b={"dtype": "bytes", "shape": [2]}, n={"dtype": "bool"})
    data = encoded(batch_of(features, ["é".encode(), b"b"], [[b"1", b"22"], [b"", b"3"]], [1, 0]))
    with np.load(io.BytesIO(data)) as loaded:
        assert loaded["t"].tolist() == ["é", "b"]
        assert loaded["b"].tolist() == [[b"1", b"22"], [b"", b"3"]]
        assert loaded["n"].tolist() == [True, False]


def test_no_rows_keep_their_dtypes_and_shapes() -> None:
    features = schema(x={"dtype": "float32", "shape": [2]})
    with np.load(io.BytesIO(encoded(Records(features, iter([]))))) as loaded:
        assert (loaded["x"].dtype, loaded["x"].shape) == (np.dtype("<f4"), (0, 2))


def test_variable_lengths_have_no_array() -> None:
    features = schema(x={"dtype": "int64", "shape": [None]})
    with pytest.raises(UnprocessableInput) as caught:
        encoded(batch_of(features, [[1, 2], [3, 4]]))
    assert (caught.value.code, caught.value.location.feature) == ("not_expressible", "x")


def test_an_absent_value_has_no_place_in_an_array() -> None:
    features = schema(x={"dtype": "int64", "nullable": True})
    with pytest.raises(UnprocessableInput) as caught:
        encoded(batch_of(features, [1, None]))
    assert caught.value.code == "not_expressible"
    assert (caught.value.location.feature, caught.value.location.row) == ("x", 1)


def test_a_string_that_numpy_cannot_hold_names_its_feature() -> None:
    with pytest.raises(UnprocessableInput) as caught:
        encoded(batch_of(schema(s={"dtype": "bytes"}), [b"a\0"]))
    assert (caught.value.code, caught.value.location.feature) == ("not_expressible", "s")


def test_what_is_gathered_is_charged() -> None:
    features = schema(x={"dtype": "int64"})
    with pytest.raises(LimitExceeded):
        encoded(batch_of(features, [1] * 1000), Budget(Limits(max_decoded_bytes=7999)))


STEPS = {"dtype": "int16", "shape": [None, 2], "kind": "sequence"}


@pytest.mark.parametrize(
    ("feature", "row_shape", "values"),
    [
        (STEPS, (3, 2), [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]),
        (STEPS | {"shape": [None]}, (3,), [[0, 1, 2], [3, 4, 5]]),
        (STEPS | {"shape": [None, None]}, (1, 2), [[[0, 1]], [[2, 3]]]),
        (STEPS, (0, 2), [[], []]),
        (
            STEPS | {"shape": [None, None, None]},
            (1, 2, 1),
            [[{"shape": [2, 1], "values": [0, 1]}], [{"shape": [2, 1], "values": [2, 3]}]],
        ),
    ],
)
def test_a_sequence_is_an_array_of_rows_of_steps(feature: Any, row_shape: Any, values: list[Any]) -> None:
    array = np.arange(2 * int(np.prod(row_shape)), dtype="<i8").reshape(2, *row_shape)
    declared = schema(x=feature)
    assert decoded(saved(x=array), schema=declared)[1]["x"].to_pylist() == values
    if feature["shape"] in ([None], [None, 2]):
        again = np.load(io.BytesIO(reencoded(saved(x=array), schema=declared)))["x"]
        assert (again.dtype, again.tolist()) == (np.dtype("<i2"), array.tolist())


@pytest.mark.parametrize(
    ("shape", "row_shape", "values"),
    [
        ([None, None], (1, 2), [[[0, 1]], [[2, 3]]]),
        ([2, None], (2, 1), [[[0], [1]], [[2], [3]]]),
        ([None, None, 2], (1, 1, 2), [[[[0, 1]]], [[[2, 3]]]]),
        ([None, 1, None], (2, 1, 1), [[[[0]], [[1]]], [[[2]], [[3]]]]),
        ([None, None], (2, 0), [[[], []], [[], []]]),
        ([None, None], (0, 2), [[], []]),
    ],
)
def test_a_rectangular_array_is_ragged_where_declared(
    shape: list[int | None], row_shape: Any, values: list[Any]
) -> None:
    array = np.arange(2 * int(np.prod(row_shape))).reshape(2, *row_shape)
    declared = schema(x={"dtype": "text" if 0 in row_shape else "int64", "shape": shape, "kind": "ragged"})
    array = array.astype("U1") if 0 in row_shape else array
    assert decoded(saved(x=array), schema=declared)[1]["x"].to_pylist() == values


def test_kinds_keep_the_shapes_that_they_declare() -> None:
    data = saved(x=np.zeros((2, 3, 4), "i2"))
    refused(data, SchemaConflict, "schema_conflict", "x", schema=schema(x=STEPS))
    ragged = {"dtype": "int16", "shape": [2, None], "kind": "ragged"}
    refused(data, SchemaConflict, "schema_conflict", "x", schema=schema(x=ragged))
    ragged = {"dtype": "int16", "shape": [None, None, None], "kind": "ragged"}
    refused(data, SchemaConflict, "schema_conflict", "x", schema=schema(x=ragged))


@pytest.mark.parametrize("kind", ["dense", "sequence"])
def test_a_length_that_a_column_would_lose_is_refused(kind: str) -> None:
    shape: list[int | None] = [None, 0] if kind == "dense" else [None, None, 0]
    declared = schema(x={"dtype": "int64", "shape": shape, "kind": kind, "encoding": "tensor"})
    outer = (2,) if kind == "dense" else (2, 3)
    refused(saved(x=np.zeros((*outer, 4, 0), "i8")), SchemaConflict, "schema_conflict", "x", schema=declared)
    assert decoded(saved(x=np.zeros((*outer, 0, 0), "i8")), schema=declared)[1].num_rows == 2


def test_a_sparse_feature_is_no_array() -> None:
    declared = schema(x={"dtype": "int64", "shape": [2], "kind": "sparse"})
    error = refused(
        saved(x=np.zeros((1, 2), "i8")), UnprocessableInput, "unsupported_kind", "x", schema=declared
    )
    assert "JSON" in error.detail


def test_object_arrays_are_never_read_as_ragged_ones() -> None:
    lists = np.array([[1], [2, 3]], object)
    declared = schema(x={"dtype": "int64", "shape": [None, None], "kind": "ragged"})
    with pytest.raises(InputError):
        decoded(saved(x=lists), schema=declared)


def test_empty_arrays_that_declare_endless_lists() -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1099511627776, 0), }"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    for feature in (
        {"dtype": "float32", "shape": [None, None], "kind": "ragged"},
        {"dtype": "float32", "shape": [None, None], "kind": "sequence"},
        {"dtype": "float32", "shape": [None, 0], "kind": "sequence"},
    ):
        with pytest.raises(LimitExceeded):
            decoded(file.getvalue(), schema=schema(x=feature))


@pytest.mark.parametrize("kind", ["ragged", "sparse", "sequence"])
def test_a_nullable_feature_of_any_kind_may_be_absent(kind: str) -> None:
    shape: list[int | None] = [2**40] if kind == "sparse" else [None, None]
    feature = {"dtype": "float32", "shape": shape, "kind": kind, "nullable": True}
    _, table = decoded(saved(y=np.zeros(3, "<i8")), schema=schema(x=feature, y={"dtype": "int64"}))
    assert table["x"].to_pylist() == [None] * 3


def test_arrays_of_a_sequence_example_are_its_context() -> None:
    found, _ = decoded(saved(x=np.zeros((2, 3))), message="sequence_example")
    assert (found.message, found.by_name["x"].kind) == ("sequence_example", "dense")


@pytest.mark.parametrize(
    ("kind", "shape"), [("ragged", [None, None]), ("sparse", [3]), ("sequence", [None, None])]
)
def test_kinds_that_no_array_holds_are_named(kind: str, shape: list[int | None]) -> None:
    features = schema(x={"dtype": "int64", "shape": shape, "kind": kind})
    with pytest.raises(UnprocessableInput) as caught:
        encoded(Records(features, iter([])))
    assert (caught.value.code, caught.value.location.feature) == ("not_expressible", "x")
    assert "Choose another output form" in caught.value.detail


def test_sequences_of_differing_lengths_have_no_array() -> None:
    features = schema(x={"dtype": "int64", "shape": [None], "kind": "sequence"})
    table = arrow_schema(features)
    batches = [
        pa.RecordBatch.from_arrays([pa.array(rows, table.field(0).type)], schema=table)
        for rows in ([], [[1, 2], [3, 4]], [[5, 6], [7]])
    ]
    with pytest.raises(UnprocessableInput) as caught:
        encoded(Records(features, iter(batches)))
    assert caught.value.code == "not_expressible"
    assert (caught.value.location.feature, caught.value.location.row) == ("x", 3)


def test_strings_of_steps_round_trip() -> None:
    array = np.array([["a", "bc"], ["é", ""]])
    features = schema(x={"dtype": "text", "shape": [None], "kind": "sequence"})
    assert np.load(io.BytesIO(reencoded(saved(x=array), schema=features)))["x"].tolist() == array.tolist()
    empty = encoded(Records(features, iter([])))
    assert np.load(io.BytesIO(empty))["x"].shape == (0, 0)


@pytest.mark.parametrize("kind", ["ragged", "sequence"])
@pytest.mark.parametrize("code", ["<f8", "<u8"])
def test_wide_arrays_of_every_kind_are_lossy_in_a_list(kind: str, code: str) -> None:
    array = np.ones((2, 2, 2), code)
    feature = {"dtype": str(array.dtype), "shape": [None, None], "kind": kind}
    found, _ = decoded(saved(x=array), schema=schema(x=feature))
    with pytest.raises(LossyConversion) as caught:
        found.require_lossless()
    assert (caught.value.code, caught.value.location.feature) == ("lossy_encoding", "x")
