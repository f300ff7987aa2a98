import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.codecs.arrow.tensors import decode, encode
from app.codecs.options import TensorDecodeOptions, TensorEncodeOptions
from app.domain.dtypes import DTYPES, STRING, DType
from app.domain.limits import Limits
from app.domain.tensor import NamedTensor, Tensor, num_elements
from app.errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream


def written(*batches: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def tensors(data: bytes, budget: Budget | None = None, **options: Any) -> list[NamedTensor]:
    return decode(MemoryStream(data), TensorDecodeOptions(**options), budget or Budget())


def encoded(*named: NamedTensor, **options: Any) -> bytes:
    return b"".join(encode(named, TensorEncodeOptions(**options)))


def some(dtype: DType, shape: tuple[int, ...]) -> Tensor:
    count = num_elements(shape)
    if dtype is STRING:
        values = np.empty(count, object)
        values[:] = [bytes([index % 256]) * (index % 3) for index in range(count)]
        return Tensor(dtype, shape, values)
    return Tensor(dtype, shape, (np.arange(count) % 2).astype(dtype.numpy))


@pytest.mark.parametrize("arrow", ["stream", "file"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3, 2), (0,), (2, 0, 3)])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_dtype_and_shape_come_back(dtype: DType, shape: tuple[int, ...], arrow: str) -> None:
    tensor = some(dtype, shape)
    data = encoded(NamedTensor(tensor, "é"), arrow=arrow)
    (found,) = tensors(data)
    assert found.name == "é"
    assert (found.tensor.dtype, found.tensor.shape) == (dtype, shape)
    assert found.tensor.values.tolist() == tensor.values.tolist()
    assert encoded(found, arrow=arrow) == data


def test_others_see_tensors_of_a_fixed_shape() -> None:
    data = encoded(NamedTensor(some(DTYPES["float32"], (2, 3))), NamedTensor(some(DTYPES["bool"], (2,)), "b"))
    batch = pa.ipc.open_stream(data).read_next_batch()
    assert batch.schema.names == ["tensor_0", "b"]
    column: Any = batch.column(0)
    assert isinstance(column.type, pa.FixedShapeTensorType)
    assert column.to_numpy_ndarray().tolist() == [[[0, 1, 0], [1, 0, 1]]]
    assert batch.column(1).to_pylist() == [[False, True]]
    assert tensors(encoded(NamedTensor(some(DTYPES["int8"], (2,)))))[0].name == "tensor"
    assert tensors(encoded()) == []


TENSOR = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=[1, 0])
SIX = pa.array([[0, 1, 2, 3, 4, 5]] * 2, pa.list_(pa.int32(), 6))


@pytest.mark.parametrize(
    ("array", "dtype", "expected"),
    [
        (pa.array([1, 2, 3], pa.int8()), "int8", [1, 2, 3]),
        (pa.array([True, False]), "bool", [True, False]),
        (pa.array(["a", "b"]), "string", [b"a", b"b"]),
        (pa.array(["a", "b"]).dictionary_encode(), "string", [b"a", b"b"]),
        (pa.array([[[1, 2], [3, 4]]], pa.list_(pa.list_(pa.int8(), 2), 2)), "int8", [[[1, 2], [3, 4]]]),
        (pa.ExtensionArray.from_storage(TENSOR, SIX), "int32", [[[0, 3], [1, 4], [2, 5]]] * 2),
    ],
)
def test_rows_of_other_arrow_are_the_first_dimension(array: Any, dtype: str, expected: Any) -> None:
    batch = pa.RecordBatch.from_pydict({"x": array})
    (found,) = tensors(written(batch))
    assert found.tensor.dtype.name == dtype
    assert found.tensor.values.reshape(found.tensor.shape).tolist() == expected
    (twice,) = tensors(written(batch, batch.slice(1), batch))
    assert twice.tensor.shape[0] == 3 * len(array) - 1
    assert twice.tensor.values.reshape(twice.tensor.shape).tolist() == expected + expected[1:] + expected


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
def test_columns_that_are_no_tensors(array: Any, code: str) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        tensors(written(pa.RecordBatch.from_pydict({"x": array})))
    assert (caught.value.code, caught.value.location.feature) == (code, "x")


def test_a_stream_without_batches() -> None:
    sink = io.BytesIO()
    pa.ipc.new_stream(sink, pa.schema([("x", pa.int8())])).close()
    with pytest.raises(UnprocessableInput) as caught:
        tensors(sink.getvalue())
    assert caught.value.code == "no_rows"


@pytest.mark.parametrize("shape", [b"", b"[2,", b"7", b"[-1]", b"[4]"])
def test_a_marked_batch_with_a_shape_that_does_not_fit(shape: bytes) -> None:
    field = pa.field("x", pa.list_(pa.int8(), 3), metadata={b"shardsmith:shape": shape})
    schema = pa.schema([field], {b"shardsmith:tensors": b"1"})
    batch = pa.RecordBatch.from_arrays([pa.array([[1, 2, 3]], field.type)], schema=schema)
    with pytest.raises(InputError) as caught:
        tensors(written(batch))
    assert caught.value.code in ("invalid_shape", "shape_mismatch")


def test_what_was_declared_has_to_agree() -> None:
    data = encoded(NamedTensor(some(DTYPES["int8"], (2,))))
    assert tensors(data, dtype=DTYPES["int8"], shape=(2,))
    with pytest.raises(UnprocessableInput):
        tensors(data, dtype=DTYPES["int16"])


def test_two_of_one_name_and_more_than_a_list_holds() -> None:
    one = NamedTensor(some(DTYPES["int8"], (2,)), "x")
    with pytest.raises(UnprocessableInput) as caught:
        encoded(one, one)
    assert caught.value.code == "duplicate_name"
    large = Tensor(DTYPES["int8"], (2**31,), np.broadcast_to(np.int8(0), 2**31))
    with pytest.raises(UnprocessableInput) as caught:
        encoded(NamedTensor(large))
    assert caught.value.code == "not_expressible"


def test_memory_is_charged_and_hostile_bytes_are_refused() -> None:
    data = encoded(NamedTensor(some(DTYPES["int8"], (2**20,))))
    with pytest.raises(LimitExceeded):
        tensors(data, Budget(Limits(max_decoded_bytes=2**20)))
    with pytest.raises(MalformedInput):
        tensors(data[:-100])
