"""Tensors as Arrow IPC, in and out, through the form table."""

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.codecs.array import AnyTensor, Array
from app.codecs.columns import Strings
from app.domain.dtypes import BOOL, DTYPES, STRING, DType
from app.domain.limits import Limits
from app.domain.tensor import num_elements
from tests.support import format_cases
from tests.support.format_cases import Refusal, Values


def written(*batches: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def read(data: bytes, **options: Any) -> list[Values] | Refusal:
    return format_cases.read_tensors("arrow", data, **options)


def write(*named: AnyTensor, **options: Any) -> bytes:
    data = format_cases.write_tensors("arrow", named, **options)
    assert isinstance(data, bytes), data
    return data


def some(dtype: DType, shape: tuple[int, ...]) -> Array:
    count = num_elements(shape)
    if dtype is STRING:
        values = [bytes([index % 256]) * (index % 3) for index in range(count)]
        return Array(dtype, shape, Strings.pack(values))
    return Array(dtype, shape, (np.arange(count) % 2).astype(dtype.numpy))


@pytest.mark.parametrize("arrow", ["stream", "file"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3, 2), (0,), (2, 0, 3)])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_dtype_and_shape_come_back(dtype: DType, shape: tuple[int, ...], arrow: str) -> None:
    tensor = some(dtype, shape)
    data = write(replace(tensor, name="é"), arrow=arrow)
    plain = format_cases.values_of(replace(tensor, name="é"))
    assert repr(read(data, pieces=(None, 7))) == repr([plain])
    assert read(data[:-8] if arrow == "stream" else data) == [plain]
    with_others = write(replace(tensor, name="é"), replace(some(BOOL, (3,)), name="b"), arrow=arrow)
    assert read(with_others) == [plain, Values("bool", (3,), [False, True, False], "b")]


def test_others_see_tensors_of_a_fixed_shape() -> None:
    data = write(some(DTYPES["float32"], (2, 3)), replace(some(DTYPES["bool"], (2,)), name="b"))
    batch = pa.ipc.open_stream(data).read_next_batch()
    assert batch.schema.names == ["tensor_0", "b"]
    column: Any = batch.column(0)
    assert isinstance(column.type, pa.FixedShapeTensorType)
    assert column.to_numpy_ndarray().tolist() == [[[0, 1, 0], [1, 0, 1]]]
    assert batch.column(1).to_pylist() == [[False, True]]
    assert read(write(some(DTYPES["int8"], (2,)))) == [Values("int8", (2,), [0, 1], "tensor")]
    assert read(write()) == []


TENSOR = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=[1, 0])
SIX = pa.array([[0, 1, 2, 3, 4, 5]] * 2, pa.list_(pa.int32(), 6))


@pytest.mark.parametrize(
    ("array", "dtype", "row_shape", "values"),
    [
        (pa.array([1, 2, 3], pa.int8()), "int8", (), [[1], [2], [3]]),
        (pa.array([True, False]), "bool", (), [[True], [False]]),
        (pa.array(["a", "b"]), "string", (), [[b"a"], [b"b"]]),
        (pa.array(["a", "b"]).dictionary_encode(), "string", (), [[b"a"], [b"b"]]),
        (pa.array([[[1, 2], [3, 4]]], pa.list_(pa.list_(pa.int8(), 2), 2)), "int8", (2, 2), [[1, 2, 3, 4]]),
        (pa.ExtensionArray.from_storage(TENSOR, SIX), "int32", (3, 2), [[0, 3, 1, 4, 2, 5]] * 2),
        (pa.array([[1.5, 2.5]], pa.list_(pa.float32(), 2)), "float32", (2,), [[1.5, 2.5]]),
    ],
)
def test_rows_of_other_arrow_are_the_first_dimension(
    array: Any, dtype: str, row_shape: tuple[int, ...], values: Any
) -> None:
    batch = pa.RecordBatch.from_pydict({"x": array})
    flat = [value for row in values for value in row]
    assert read(written(batch)) == [Values(dtype, (len(array), *row_shape), flat, "x")]
    thrice = values + values[1:] + values
    flat = [value for row in thrice for value in row]
    found = read(written(batch, batch.slice(1), batch))
    assert found == [Values(dtype, (len(thrice), *row_shape), flat, "x")]


@pytest.mark.parametrize(
    ("array", "code"),
    [
        (pa.array([1, None]), "null_value"),
        (pa.array([[1, None]], pa.list_(pa.int8(), 2)), "null_value"),
        (pa.array([[1], [2]]), "ragged"),
        (pa.array([1], pa.timestamp("s")), "unsupported_type"),
        (pa.array([{"a": 1}]), "unsupported_type"),
    ],
)
def test_column_that_is_not_a_tensor_is_refused(array: Any, code: str) -> None:
    found = read(written(pa.RecordBatch.from_pydict({"x": array})))
    assert isinstance(found, Refusal)
    assert (found.code, found.feature) == (code, "x")


def test_a_stream_without_batches() -> None:
    sink = io.BytesIO()
    pa.ipc.new_stream(sink, pa.schema([("x", pa.int8())])).close()
    assert read(sink.getvalue()) == Refusal("no_rows", feature="x")


def marked(shape: bytes, num_batches: int = 1) -> bytes:
    field = pa.field("x", pa.list_(pa.int8(), 3), metadata={b"shardsmith:shape": shape})
    schema = pa.schema([field], {b"shardsmith:tensors": b"1"})
    batch = pa.RecordBatch.from_arrays([pa.array([[1, 2, 3]], field.type)], schema=schema)
    return written(*[batch] * num_batches)


@pytest.mark.parametrize(
    ("shape", "code"),
    [
        (b"", "invalid_shape"),
        (b"[2,", "invalid_shape"),
        (b"7", "invalid_shape"),
        (b'[{"a":1,"a":2}]', "invalid_shape"),
        (b"[" + b"1," * 100_000 + b"3]", "invalid_shape"),
        (b"[-1]", "invalid_shape"),
        (b"[4]", "shape_mismatch"),
    ],
)
def test_a_marked_batch_with_a_shape_that_does_not_fit(shape: bytes, code: str) -> None:
    found = read(marked(shape))
    assert isinstance(found, Refusal)
    assert found.code == code


def test_marked_batches_are_rows_where_there_are_several() -> None:
    assert read(marked(json.dumps([3, 1]).encode())) == [Values("int8", (3, 1), [1, 2, 3], "x")]
    assert read(marked(b"[3,1]", 2)) == [Values("int8", (2, 3), [1, 2, 3] * 2, "x")]


def test_declared_dtype_and_shape_must_match() -> None:
    data = write(some(DTYPES["int8"], (2,)))
    assert read(data, dtype=DTYPES["int8"], shape=(2,)) == [Values("int8", (2,), [0, 1], "tensor")]
    for options, code in (
        ({"dtype": DTYPES["int16"]}, "dtype_mismatch"),
        ({"shape": (3,)}, "shape_mismatch"),
    ):
        found = read(data, **options)
        assert isinstance(found, Refusal)
        assert found.code == code


def test_two_of_one_name_and_more_than_a_list_holds() -> None:
    one = replace(some(DTYPES["int8"], (2,)), name="x")
    found = format_cases.write_tensors("arrow", [one, one])
    assert isinstance(found, Refusal)
    assert found.code == "duplicate_name"
    large = Array(DTYPES["int8"], (2**31,), np.broadcast_to(np.int8(0), 2**31))
    assert format_cases.write_tensors("arrow", [large]) == Refusal("not_expressible", feature="tensor")


def test_memory_is_charged_and_hostile_bytes_are_refused() -> None:
    data = write(some(DTYPES["int8"], (2**20,)), some(DTYPES["int8"], (1,)))
    found = read(data, limits=Limits(max_decoded_bytes=2**20))
    assert isinstance(found, Refusal)
    assert found.code == "payload_too_large"
    for size in (len(data) - 100, 100, 3, 0):
        found = read(data[:size])
        assert isinstance(found, Refusal)
        assert found.code == "truncated"
