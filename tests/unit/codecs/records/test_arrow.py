import io
import json
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given

from app.codecs.arrow.batches import arrow_schema
from app.codecs.arrow.records import decode, encode
from app.codecs.columns import MAX_BATCH_ROWS, Records
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.schema import Schema
from app.errors import (
    InputError,
    LimitExceeded,
    LossyConversion,
    MalformedInput,
    SchemaConflict,
    UnprocessableInput,
)
from app.runtime.amplification import Amplification
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from tests.arrow_rows import as_arrow, from_arrow
from tests.kinds import again, records


def written(*batches: pa.RecordBatch, file: bool = False, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    codec: Any = compression
    options = pa.ipc.IpcWriteOptions(compression=codec)
    new = pa.ipc.new_file if file else pa.ipc.new_stream
    with new(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def columns(**arrays: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(arrays)


def schema(**features: Any) -> Schema:
    return Schema.from_json({"features": features})


def decoded(
    data: bytes, budget: Budget | None = None, chunk: int | None = None, **options: Any
) -> tuple[Schema, pa.Table]:
    found = decode(MemoryStream(data, chunk=chunk), RecordsDecodeOptions(**options), budget or Budget())
    batches = list(as_arrow(found))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == arrow_schema(found.schema)
        assert batch.num_rows <= MAX_BATCH_ROWS
    return found.schema, pa.Table.from_batches(batches, arrow_schema(found.schema))


def rows(array: Any, **options: Any) -> tuple[Any, list[Any]]:
    """The feature that a column `x` becomes, and its rows."""
    found, table = decoded(written(columns(x=array)), **options)
    return found.by_name["x"].to_json(), table["x"].to_pylist()


def refused(array: Any, error: type[InputError], code: str, **options: Any) -> InputError:
    with pytest.raises(error) as caught:
        rows(array, **options)
    assert (caught.value.code, caught.value.location.feature) == (code, "x")
    return caught.value


def feature(dtype: str, *shape: int | None, kind: str = "dense", encoding: str = "list") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "kind": kind, "encoding": encoding, "nullable": True}


compute: Any = pc  # some of it is not declared
TENSOR = pa.fixed_shape_tensor(pa.int32(), [2, 3])
TRANSPOSED = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=[1, 0])
SIX = pa.array([[0, 1, 2, 3, 4, 5]], pa.list_(pa.int32(), 6))


@pytest.mark.parametrize(
    ("array", "expected", "values"),
    [
        (pa.array([True, None, False]), feature("bool"), [1, None, 0]),
        (pa.array([1, None], pa.int8()), feature("int8"), [1, None]),
        (pa.array([2**64 - 1], pa.uint64()), feature("uint64"), [2**64 - 1]),
        (pa.array([1.5], pa.float16()), feature("float16"), [1.5]),
        (pa.array(["é"]), feature("text"), ["é".encode()]),
        (pa.array(["é", None], pa.large_string()), feature("text"), ["é".encode(), None]),
        (pa.array(["a", None, "b" * 20], pa.string_view()), feature("text"), [b"a", None, b"b" * 20]),
        (pa.array([b"\xff"]), feature("bytes"), [b"\xff"]),
        (pa.array([b"\xff" * 20], pa.binary_view()), feature("bytes"), [b"\xff" * 20]),
        (pa.array([b"ab", None], pa.binary(2)), feature("bytes"), [b"ab", None]),
        (pa.array(["b", "a", None, "b"]).dictionary_encode(), feature("text"), [b"b", b"a", None, b"b"]),
        (compute.run_end_encode(pa.array([7, 7, None])), feature("int64"), [7, 7, None]),
        (compute.run_end_encode(pa.array(["a", "a", "b"])), feature("text"), [b"a", b"a", b"b"]),
        (pa.array([[1, 2], [], None]), feature("int64", None), [[1, 2], [], None]),
        (pa.array([[1], [2, 3]], pa.large_list(pa.int8())), feature("int8", None), [[1], [2, 3]]),
        (pa.array([[1], None, [2]], pa.list_view(pa.int8())), feature("int8", None), [[1], None, [2]]),
        (
            pa.array([["a"], None], pa.large_list_view(pa.string_view())),
            feature("text", None),
            [[b"a"], None],
        ),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), feature("int8", 2), [[1, 2], None]),
        (
            pa.array([[[1, 2], [3, 4]]], pa.list_(pa.list_(pa.int8(), 2), 2)),
            feature("int8", 2, 2),
            [[1, 2, 3, 4]],
        ),
        (
            pa.array([[[1, 2], [3, 4]], []], pa.list_(pa.list_(pa.int8(), 2))),
            feature("int8", None, 2),
            [[1, 2, 3, 4], []],
        ),
        (pa.array([[[1], []], []]), feature("int64", None, None, kind="ragged"), [[[1], []], []]),
        (
            pa.array([[[1], [2, 3]]], pa.list_(pa.list_(pa.int8()), 2)),
            feature("int8", 2, None, kind="ragged"),
            [[[1], [2, 3]]],
        ),
        (
            pa.array([[["a"]]], pa.list_(pa.list_(pa.dictionary(pa.int8(), pa.string())))),
            feature("text", None, None, kind="ragged"),
            [[[b"a"]]],
        ),
        (pa.ExtensionArray.from_storage(TENSOR, SIX), feature("int32", 2, 3), [[0, 1, 2, 3, 4, 5]]),
        (pa.ExtensionArray.from_storage(TRANSPOSED, SIX), feature("int32", 3, 2), [[0, 3, 1, 4, 2, 5]]),
        (pa.array([], pa.list_(pa.int8())), feature("int8", None), []),
    ],
)
def test_a_column_is_what_its_type_says(array: Any, expected: Any, values: list[Any]) -> None:
    assert rows(array) == (expected, values)
    padded = pa.concat_arrays([array, array]) if not pa.types.is_run_end_encoded(array.type) else array
    if padded is not array:
        assert rows(padded.slice(len(array)))[1] == values


def test_nullable_is_what_the_field_says() -> None:
    fields = pa.schema([pa.field("x", pa.int8(), nullable=False), pa.field("y", pa.int8())])
    batch = pa.RecordBatch.from_arrays([pa.array([1], pa.int8())] * 2, schema=fields)
    found, _ = decoded(written(batch))
    assert [one.nullable for one in found] == [False, True]


def test_a_tensor_whose_shapes_differ() -> None:
    storage = pa.array(
        [{"data": [1, 2, 3, 4], "shape": [2, 2]}, None, {"data": [], "shape": [0, 2]}],
        pa.struct([("data", pa.list_(pa.int8())), ("shape", pa.list_(pa.int32(), 2))]),
    )
    marks = {"ARROW:extension:name": "arrow.variable_shape_tensor", "ARROW:extension:metadata": "{}"}
    batch = pa.RecordBatch.from_arrays(
        [storage], schema=pa.schema([pa.field("x", storage.type, metadata=marks)])
    )
    found, table = decoded(written(batch))
    assert found.by_name["x"].to_json() == feature("int8", None, None, encoding="tensor")
    assert table["x"].to_pylist() == [
        {"shape": [2, 2], "values": [1, 2, 3, 4]},
        None,
        {"shape": [0, 2], "values": []},
    ]
    marks["ARROW:extension:metadata"] = '{"uniform_shape":[null,2]}'
    batch = pa.RecordBatch.from_arrays(
        [storage], schema=pa.schema([pa.field("x", storage.type, metadata=marks)])
    )
    assert decoded(written(batch))[0].by_name["x"].shape == (None, 2)
    marks["ARROW:extension:metadata"] = '{"permutation":[1,0]}'
    batch = pa.RecordBatch.from_arrays(
        [storage], schema=pa.schema([pa.field("x", storage.type, metadata=marks)])
    )
    with pytest.raises(UnprocessableInput) as caught:
        decoded(written(batch))
    assert caught.value.code == "unsupported_type"


def test_a_column_of_nothing_but_null_is_no_feature() -> None:
    found, table = decoded(written(columns(x=pa.nulls(3), y=[1, 2, 3])))
    assert found.names == ("y",)
    assert table.num_rows == 3
    declared = Schema.from_json({"features": {"x": {"dtype": "int8", "shape": [2], "nullable": True}}})
    _, table = decoded(written(columns(x=pa.nulls(3))), schema=declared)
    assert table["x"].to_pylist() == [None] * 3


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
@pytest.mark.parametrize("file", [False, True])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_it_is_the_same_at_every_split(chunk: int, *, file: bool, compression: str | None) -> None:
    batch = columns(x=pa.array(["a", "b", None]).dictionary_encode(), y=[[1.5], [], None])
    data = written(batch, batch.slice(1), file=file, compression=compression)
    budget = Budget()
    found = decoded(data, budget, chunk)
    assert found[1].to_pylist() == decoded(data)[1].to_pylist()
    assert found[1]["x"].to_pylist() == [b"a", b"b", None, b"b", None]


def test_batches_are_cut_by_rows_and_by_bytes() -> None:
    found = decode(MemoryStream(written(columns(x=np.arange(20_000)))), RecordsDecodeOptions(), Budget())
    assert [batch.num_rows for batch in as_arrow(found)] == [8192, 8192, 3616]
    wide = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(10 * 2**22, "u1")), 2**22)
    found = decode(MemoryStream(written(columns(x=wide))), RecordsDecodeOptions(), Budget())
    assert [batch.num_rows for batch in as_arrow(found)] == [4, 4, 2]


def test_numbers_are_views_of_the_body() -> None:
    budget = Budget()
    data = written(columns(x=np.arange(100_000.0)))
    for batch in decode(MemoryStream(data), RecordsDecodeOptions(), budget).batches:
        assert batch.num_rows
    assert budget.peak < 1_000_000


# -- a declared schema -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "declared", "values"),
    [
        (pa.array([1, 2]), {"dtype": "int8"}, [1, 2]),
        (pa.array([1, None]), {"dtype": "float32", "nullable": True}, [1.0, None]),
        (pa.array([True, False]), {"dtype": "int64"}, [1, 0]),
        (pa.array(["a"]), {"dtype": "bytes"}, [b"a"]),
        (pa.array([b"a"]), {"dtype": "text"}, [b"a"]),
        (pa.array([[1, 2, 3]]), {"dtype": "int32", "shape": [3]}, [[1, 2, 3]]),
        (pa.array([[[1, 2], [3, 4]]]), {"dtype": "int64", "shape": [2, 2]}, [[1, 2, 3, 4]]),
        (pa.array([[[1, 2], [3, 4]], []]), {"dtype": "int64", "shape": [None, 2]}, [[1, 2, 3, 4], []]),
        (pa.array([[[1, 2], [3, 4]]]), {"dtype": "int64", "shape": [2, None]}, [[1, 2, 3, 4]]),
        (
            pa.array([[[1, 2], [3, 4]], []]),
            {"dtype": "int64", "shape": [None, None]},
            [{"shape": [2, 2], "values": [1, 2, 3, 4]}, {"shape": [0, 0], "values": []}],
        ),
        (
            pa.array([[[1, 2], [3, 4]], []]),
            {"dtype": "int8", "shape": [None, None, 2], "kind": "ragged"},
            None,
        ),
        (pa.array([[], []], pa.list_(pa.null())), {"dtype": "float32", "shape": [None]}, [[], []]),
        (
            pa.array([[[[1, 2]], []]]),
            {"dtype": "int8", "shape": [None, None, 2], "kind": "ragged"},
            [[[[1, 2]], []]],
        ),
        (
            pa.array([[[1, 2], [3]], []]),
            {"dtype": "int8", "shape": [None, None], "kind": "sequence"},
            [[[1, 2], [3]], []],
        ),
        (
            pa.array([[[1, 2], [3, 4]], None]),
            {"dtype": "int8", "shape": [None, 2], "kind": "sequence", "nullable": True},
            [[[1, 2], [3, 4]], None],
        ),
        (
            pa.array([{"indices": [[0, 1], [1, 2]], "values": [5, 6]}, {"indices": [], "values": []}]),
            {"dtype": "int8", "shape": [2, 3], "kind": "sparse"},
            [{"indices": [0, 1, 1, 2], "values": [5, 6]}, {"indices": [], "values": []}],
        ),
        (
            pa.array([{"indices": [0, 1, 1, 2], "values": [5, 6]}]),
            {"dtype": "int8", "shape": [2, 3], "kind": "sparse"},
            [{"indices": [0, 1, 1, 2], "values": [5, 6]}],
        ),
    ],
)
def test_values_are_what_the_schema_declares(array: Any, declared: Any, values: Any) -> None:
    if values is None:
        refused(array, SchemaConflict, "schema_conflict", schema=schema(x=declared))
    else:
        assert rows(array, schema=schema(x=declared))[1] == values


@pytest.mark.parametrize(
    ("array", "declared", "error", "code", "row"),
    [
        (pa.array([1, 300]), {"dtype": "int8"}, LossyConversion, "out_of_range", 1),
        (
            pa.array([[1], [], [2, 300]]),
            {"dtype": "int8", "shape": [None]},
            LossyConversion,
            "out_of_range",
            2,
        ),
        (pa.array([2**24 + 1]), {"dtype": "float32"}, LossyConversion, "out_of_range", 0),
        (pa.array(["a"]), {"dtype": "int8"}, SchemaConflict, "schema_conflict", None),
        (pa.array([b"a", b"\xff"]), {"dtype": "text"}, UnprocessableInput, "invalid_utf8", 1),
        (pa.array([1, None]), {"dtype": "int64"}, SchemaConflict, "schema_conflict", 1),
        (pa.array([1]), {"dtype": "int64", "shape": [1]}, SchemaConflict, "schema_conflict", 0),
        (pa.array([[1], [1, 2]]), {"dtype": "int64", "shape": [1]}, SchemaConflict, "schema_conflict", 1),
        (
            pa.array([[1]], pa.list_(pa.int64(), 1)),
            {"dtype": "int64", "shape": [2]},
            SchemaConflict,
            "schema_conflict",
            0,
        ),
        (
            pa.array([[], [[1], [1, 2]]]),
            {"dtype": "int64", "shape": [None, None]},
            UnprocessableInput,
            "ragged",
            1,
        ),
        (
            pa.array([{"indices": [[2, 0]], "values": [1]}]),
            {"dtype": "int8", "shape": [2, 3], "kind": "sparse"},
            UnprocessableInput,
            "index_out_of_bounds",
            0,
        ),
        (
            pa.array([{"indices": [0], "values": [1]}]),
            {"dtype": "int8", "shape": [2, 3], "kind": "sparse"},
            SchemaConflict,
            "schema_conflict",
            0,
        ),
        (
            pa.array([[1]]),
            {"dtype": "int8", "shape": [2], "kind": "sparse"},
            SchemaConflict,
            "schema_conflict",
            0,
        ),
        (
            pa.array([1]),
            {"dtype": "int8", "shape": [None], "kind": "sequence"},
            SchemaConflict,
            "schema_conflict",
            0,
        ),
        (
            pa.array([[], [[]]], pa.list_(pa.list_(pa.int8(), 0))),
            {"dtype": "int8", "shape": [None, 0], "encoding": "tensor"},
            SchemaConflict,
            "schema_conflict",
            1,
        ),
        (pa.array([1], pa.timestamp("us")), {"dtype": "int64"}, UnprocessableInput, "unsupported_type", None),
        (pa.nulls(1), {"dtype": "int64"}, SchemaConflict, "schema_conflict", 0),
    ],
)  # fmt: skip
def test_what_the_schema_does_not_hold_is_refused(
    array: Any, declared: Any, error: type[InputError], code: str, row: int | None
) -> None:
    assert refused(array, error, code, schema=schema(x=declared)).location.row == row


def test_columns_and_features_that_have_no_counterpart() -> None:
    data = written(columns(x=[1], y=[2]))
    optional = {"dtype": "int64", "nullable": True}
    with pytest.raises(SchemaConflict) as caught:
        decoded(data, schema=schema(x={"dtype": "int64"}))
    assert caught.value.location.feature == "y"
    _, table = decoded(data, schema=schema(z=optional, x={"dtype": "int64"}), undeclared="drop")
    assert table.to_pylist() == [{"z": None, "x": 1}]
    with pytest.raises(SchemaConflict):
        decoded(data, schema=schema(z={"dtype": "int64"}), undeclared="drop")


def test_of_sequence_examples_lists_are_feature_lists() -> None:
    batch = columns(s=[["a", "b"]], v=pa.array([[[1.0, 2.0]]], pa.list_(pa.list_(pa.float32(), 2))), c=[1])
    found, table = decoded(written(batch), message="sequence_example")
    assert found.message == "sequence_example"
    assert [(one.kind, one.shape) for one in found] == [
        ("sequence", (None,)),
        ("sequence", (None, 2)),
        ("dense", ()),
    ]
    assert table["v"].to_pylist() == [[[1.0, 2.0]]]


def marked(text: str) -> bytes:
    return written(columns(x=[1]).replace_schema_metadata({"shardsmith:schema": text}))


def test_the_schema_in_the_metadata_counts_as_declared() -> None:
    declared = schema(x={"dtype": "int8"})
    data = marked(json.dumps(declared.to_json()))
    assert decoded(data)[0] == declared
    assert decoded(data, schema=declared, schema_of_dataset=True)[0] == declared
    with pytest.raises(MalformedInput) as twice:
        decoded(data, schema=declared)
    assert twice.value.code == "schema_twice"
    with pytest.raises(SchemaConflict):
        decoded(data, schema=schema(x={"dtype": "int64"}), schema_of_dataset=True)


@pytest.mark.parametrize("text", ["{", "[]", '{"features": 1}'])
def test_metadata_that_is_no_schema(text: str) -> None:
    with pytest.raises(MalformedInput):
        decoded(marked(text))


# -- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1], pa.timestamp("us")),
        pa.array([1], pa.date32()),
        pa.array([1], pa.time64("us")),
        pa.array([1], pa.duration("s")),
        pa.array([1], pa.decimal128(5, 2)),
        pa.array([{"a": 1}]),
        pa.array([[{"a": 1}]]),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
        pa.array([[None]], pa.list_(pa.null())),
        pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([[1]])),
    ],
)
def test_types_that_no_feature_has(array: Any) -> None:
    refused(array, UnprocessableInput, "unsupported_type")


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
    assert refused(array, UnprocessableInput, "null_value").location.row == 1


def test_two_columns_of_one_name() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1])] * 2, names=["x", "x"])
    with pytest.raises(UnprocessableInput) as caught:
        decoded(written(batch))
    assert caught.value.code == "duplicate_feature"


def test_more_rows_than_bytes_can_stand_for() -> None:
    data = bytearray(written(columns(x=pa.nulls(7))))
    for length in (2**40, 2**26):
        few = data.replace((7).to_bytes(8, "little"), length.to_bytes(8, "little"))
        with pytest.raises(LimitExceeded) as caught:
            decoded(bytes(few))
        assert caught.value.code == "amplification_exceeded"


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
def test_long_values_that_few_bytes_stand_for_are_taken_a_few_rows_at_a_time(way: str) -> None:
    long = columns(x=long_again(512)[way])
    budget = Budget(amplification=Amplification(1100, lambda: 2**20))
    found = decode(MemoryStream(written(long)), RecordsDecodeOptions(), budget)
    batches = list(as_arrow(found))
    assert sum(batch.num_rows for batch in batches) == 512
    assert sum(batch.nbytes for batch in batches) >= 512 * LONG
    assert max(batch.nbytes for batch in batches) <= 2**24 + 2**16
    assert budget.peak <= 2**26


def test_rows_behind_long_values_are_taken_many_at_a_time_again() -> None:
    named: Any = np.ones(2 * MAX_BATCH_ROWS, "i1")
    named[[0, 1, 2, MAX_BATCH_ROWS]] = 0
    texts = pa.DictionaryArray.from_arrays(named, pa.array(["a" * LONG_ALONE, "b"]))
    data = written(columns(x=texts))
    batches = list(as_arrow(decode(MemoryStream(data), RecordsDecodeOptions(), Budget())))
    rows_read: list[Any] = [text for batch in batches for text in batch["x"].to_pylist()]
    assert [len(text) for text in rows_read] == [1 if number else LONG_ALONE for number in named]
    assert len(batches) < 200


def test_a_row_that_becomes_too_much_for_its_body_is_refused_before_it_is_made() -> None:
    texts = long_again(2000)["dictionary"]
    data = written(columns(x=pa.FixedSizeListArray.from_arrays(texts, 2000)))
    budget = Budget(amplification=Amplification(1, lambda: len(data)))
    with pytest.raises(LimitExceeded) as caught:
        decoded(data, budget)
    assert caught.value.code == "amplification_exceeded"
    assert budget.peak <= 2**22


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("layout", [pa.string_view(), pa.binary_view()], ids=str)
def test_what_stands_in_the_view_of_a_null_is_not_looked_at(layout: pa.DataType, length: int) -> None:
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
    array.validate(full=True)
    for sliced in (array, pa.concat_arrays([pa.array([None], layout), array]).slice(1)):
        assert rows(sliced)[1] == [content, None, b"b"]
    nested = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), array)
    refused(nested, UnprocessableInput, "null_value")


def test_list_views_that_overlap() -> None:
    views: Any = pa.ListViewArray
    array = views.from_arrays(np.zeros(9, "i4"), np.full(9, 3, "i4"), pa.array(["a", "b", "c"]))
    refused(array, UnprocessableInput, "unsupported_type")
    numbers = views.from_arrays(
        pa.array([0, 1], pa.int32()), pa.array([2, 2], pa.int32()), pa.array([1, 2, 3])
    )
    assert rows(numbers)[1] == [[1, 2], [2, 3]]


# -- out ---------------------------------------------------------------------------------------------


def encoded(found: Records, **options: Any) -> bytes:
    return b"".join(encode(found, RecordsEncodeOptions(**options), Budget()))


def test_a_tensor_of_unknown_shape_that_every_row_lacks_is_written() -> None:
    declared = schema(z={"dtype": "complex64", "shape": [None, None], "nullable": True})
    body = written(columns(z=pa.nulls(2)))
    found = decode(MemoryStream(body), RecordsDecodeOptions(schema=declared), Budget())
    assert pa.ipc.open_stream(encoded(found)).read_all().column("z").to_pylist() == [None, None]


KINDS = ("scalar", "dense", "ragged", "sparse", "sequence")


@pytest.mark.parametrize("arrow", ["stream", "file"])
@hypothesis.settings(max_examples=50, deadline=None)
@given(found=records(KINDS))
def test_rows_of_every_kind_round_trip(arrow: str, found: Records) -> None:
    found, table = again(found)
    data = encoded(found, arrow=arrow)
    reader = pa.ipc.open_stream(data) if arrow == "stream" else pa.ipc.open_file(data)
    foreign = reader.read_all()
    foreign.validate(full=True)
    assert foreign.num_rows == table.num_rows
    back, same = decoded(data)
    assert back == found.schema
    assert same.to_pylist() == table.to_pylist()
    assert encoded(from_arrow(back, iter(same.to_batches())), arrow=arrow) == encoded(
        from_arrow(back, iter(same.to_batches())), arrow=arrow
    )


@hypothesis.settings(max_examples=25, deadline=None)
@given(found=records(KINDS))
def test_slices_of_columns_are_written_as_they_are(found: Records) -> None:
    found, table = again(found)
    pieces = [batch.slice(row, 1) for batch in table.to_batches() for row in range(batch.num_rows)]
    assert decoded(encoded(from_arrow(found.schema, iter(pieces))))[1].to_pylist() == table.to_pylist()


def test_other_languages_see_natural_types() -> None:
    declared = schema(
        b={"dtype": "bool"},
        t={"dtype": "text", "nullable": True},
        m={"dtype": "float16", "shape": [2, 3]},
        v={"dtype": "int8", "shape": [None, 2]},
        n={"dtype": "int8", "shape": [None, None]},
        c={"dtype": "complex64"},
        f={"dtype": "bfloat16", "shape": [None]},
        r={"dtype": "int8", "shape": [None, None, 2], "kind": "ragged"},
        s={"dtype": "float32", "shape": [9, 9], "kind": "sparse"},
        q={"dtype": "text", "shape": [None, 2], "kind": "sequence"},
    )
    found = pa.ipc.open_stream(encoded(from_arrow(declared, iter(())))).schema
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


def test_rows_without_features_keep_their_number() -> None:
    empty: Any = pa.array([{}, {}], pa.struct([]))
    batch = pa.RecordBatch.from_struct_array(empty)
    data = encoded(from_arrow(Schema(()), iter([batch])))
    assert decoded(data)[1].num_rows in (0, 2)
    found = decode(MemoryStream(data), RecordsDecodeOptions(), Budget())
    assert [one.num_rows for one in as_arrow(found)] == [2]


def test_text_that_is_not_utf8_and_a_dimension_beyond_int32() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([b"a", b"\xff"])], names=["x"])
    with pytest.raises(UnprocessableInput) as caught:
        encoded(from_arrow(schema(x={"dtype": "text"}), iter([batch])))
    assert (caught.value.code, caught.value.location.feature) == ("invalid_utf8", "x")
    declared = schema(x={"dtype": "int8", "shape": [None, None]})
    layout = arrow_schema(declared)
    batch = pa.RecordBatch.from_pylist([{"x": {"shape": [2**40, 0], "values": []}}], layout)
    with pytest.raises(UnprocessableInput) as caught:
        encoded(from_arrow(declared, iter([batch])))
    assert caught.value.code == "not_expressible"
