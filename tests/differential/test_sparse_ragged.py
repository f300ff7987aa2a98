"""Sparse and ragged tensors against TensorFlow's own serializers and readers."""

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.array import AnyTensor, Array, RaggedTensor, SparseTensor
from app.codecs.columns import Strings
from app.codecs.forms import FormName
from app.domain.dtypes import DTYPES, INT64, STRING, DType
from app.errors import InputError
from tests.support.format_cases import serialize, tensors_of
from tests.support.random_elements import element_bytes, numpy_values

tf = importlib.import_module("tensorflow")

WITH_KERNEL = [dtype for dtype in DTYPES.values() if dtype.has_kernel]
BEYOND = [dtype for dtype in DTYPES.values() if not dtype.has_kernel and dtype.numpy.isbuiltin != 1]


def parsed(strings: Any) -> SparseTensor:
    """The sparse tensor that a tensor of strings stands for."""
    message = tf.io.serialize_tensor(strings).numpy()
    [found] = tensors_of("tensorproto", message, kind="sparse")
    assert isinstance(found, SparseTensor)
    return found


@st.composite
def sparse_tensors(draw: st.DrawFn, dtype: DType, *, rank: int | None = None) -> SparseTensor:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=rank or 0, max_size=rank or 4)))
    cells = st.tuples(*(st.integers(0, dim - 1) for dim in shape))
    indices = sorted(draw(st.sets(cells, max_size=6)))
    if dtype.is_string:
        values = np.empty(len(indices), object)
        values[:] = draw(st.lists(st.binary(max_size=4), min_size=len(indices), max_size=len(indices)))
    else:
        size = len(indices) * dtype.itemsize
        content = element_bytes(draw(st.binary(min_size=size, max_size=size)), dtype)
        values = np.frombuffer(content, dtype.numpy)
    coordinates = np.array(indices, np.int64).reshape(len(indices), len(shape))
    return SparseTensor(shape, coordinates, Array.of(values, dtype))


def tf_sparse(tensor: SparseTensor) -> Any:
    dtype = tf.dtypes.as_dtype(tensor.dtype.tf_enum)
    values = tf.constant(numpy_values(tensor.values), dtype, tensor.values.shape)
    return tf.sparse.SparseTensor(tensor.indices, values, np.array(tensor.dense_shape, np.int64))


def assert_same(ours: SparseTensor, theirs: Any) -> None:
    assert ours.dtype.tf_enum == theirs.dtype.as_datatype_enum
    assert ours.dense_shape == tuple(theirs.dense_shape.numpy().tolist())
    assert ours.indices.tolist() == theirs.indices.numpy().tolist()
    assert [repr(value) for value in numpy_values(ours.values)] == [
        repr(value) for value in theirs.values.numpy()
    ]


@pytest.mark.parametrize("dtype", [*WITH_KERNEL, *BEYOND], ids=str)
@given(data=st.data())
@settings(deadline=None, max_examples=15)
def test_serialize_sparse_is_equalled_and_read(dtype: DType, data: st.DataObject) -> None:
    ours = data.draw(sparse_tensors(dtype))
    theirs = tf.io.serialize_sparse(tf_sparse(ours))
    assert serialize("tensorproto", ours) == tf.io.serialize_tensor(theirs).numpy()
    assert_same(parsed(theirs), tf_sparse(ours))


@pytest.mark.parametrize("dtype", WITH_KERNEL, ids=str)
@given(data=st.data(), rank=st.integers(2, 4))
@settings(deadline=None, max_examples=15)
def test_serialize_many_sparse_is_equalled_and_read(dtype: DType, data: st.DataObject, rank: int) -> None:
    ours = data.draw(sparse_tensors(dtype, rank=rank))
    theirs = tf.io.serialize_many_sparse(tf_sparse(ours))
    assert serialize("tensorproto", ours, sparse="many") == tf.io.serialize_tensor(theirs).numpy()
    back = tf.io.deserialize_many_sparse(theirs, tf.dtypes.as_dtype(dtype.tf_enum))
    assert_same(parsed(theirs), back)


@given(rows=st.lists(sparse_tensors(INT64, rank=2), min_size=1, max_size=4))
@settings(deadline=None, max_examples=30)
def test_rows_of_different_shapes_are_read_as_tensorflow_reads_them(rows: list[SparseTensor]) -> None:
    stacked = tf.stack([tf.io.serialize_sparse(tf_sparse(row)) for row in rows])
    assert_same(parsed(stacked), tf.io.deserialize_many_sparse(stacked, tf.int64))


@pytest.mark.parametrize(
    ("indices", "shape"),
    [([[2, 0], [0, 1]], [3, 4]), ([[0, 1], [0, 1]], [3, 4]), ([[0], [1]], [3])],
)
def test_serialize_many_sparse_refuses_what_we_refuse(indices: Any, shape: Any) -> None:
    ours = SparseTensor(tuple(shape), np.array(indices), Array.of(np.array([1, 2]), INT64))
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.serialize_many_sparse(tf_sparse(ours))
    with pytest.raises(InputError):
        serialize("tensorproto", ours, sparse="many")


@pytest.mark.parametrize(
    ("indices", "values", "shape"),
    [([1], [1], [3]), ([[1]], [[1]], [3]), ([[1, 1]], [1], [3]), ([[1], [2]], [1], [3])],
)
def test_components_that_tensorflow_refuses_are_refused(indices: Any, values: Any, shape: Any) -> None:
    parts = [tf.io.serialize_tensor(tf.constant(part, tf.int64)) for part in (indices, values, shape)]
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.deserialize_many_sparse(tf.stack([parts]), tf.int64)
    with pytest.raises(InputError):
        parsed(tf.stack(parts))


ROW = st.lists(st.integers(-9, 9), max_size=3)
NESTED = st.recursive(ROW, lambda rows: st.lists(rows, max_size=3), max_leaves=8)


@given(nested=NESTED)
@settings(deadline=None, max_examples=50)
def test_nested_arrays_are_cut_as_tensorflow_cuts_them(nested: list[Any]) -> None:
    try:
        theirs = tf.ragged.constant(nested, tf.int64)
    except ValueError:
        return  # of different depths
    if not isinstance(theirs, tf.RaggedTensor) or not int(tf.size(theirs.flat_values)):
        return
    (ours,) = tensors_of("json", json.dumps(nested).encode(), dtype=INT64, kind="ragged")
    assert isinstance(ours, RaggedTensor)
    assert ours.values.values.tolist() == theirs.flat_values.numpy().tolist()
    cuts = [cut.numpy().tolist() for cut in theirs.nested_row_splits]
    assert [cut.tolist() for cut in ours.row_splits] == cuts


def test_a_tfrecord_of_a_ragged_tensor_is_put_together_by_tensorflow(tmp_path: Path) -> None:
    values = Array.of(np.arange(6, dtype="<f4").reshape(3, 2), DTYPES["float32"])
    ours = RaggedTensor(values, (np.array([0, 2, 2]), np.array([0, 1, 3])))
    path = tmp_path / "ragged"
    path.write_bytes(serialize("tfrecord", ours))
    flat, *splits = list(tf.data.TFRecordDataset(str(path)))
    theirs = tf.RaggedTensor.from_nested_row_splits(
        tf.io.parse_tensor(flat, tf.float32), [tf.io.parse_tensor(cut, tf.int64) for cut in splits]
    )
    assert theirs.to_list() == [[[[0, 1]], [[2, 3], [4, 5]]], []]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for part in (theirs.flat_values, *theirs.nested_row_splits):
            writer.write(tf.io.serialize_tensor(part).numpy())
    assert path.read_bytes() == serialize("tfrecord", ours)
    [found] = tensors_of("tfrecord", path.read_bytes(), kind="ragged")
    assert serialize("tfrecord", found) == path.read_bytes()


@pytest.mark.parametrize("form", ["json", "npz", "safetensors", "tfrecord", "b64"])
def test_tensors_of_different_shapes_are_records_of_their_own(form: FormName, tmp_path: Path) -> None:
    shapes = [(2, 3), (), (0, 4), (5,), (1, 1, 7)]
    arrays = [np.arange(np.prod(shape, dtype=int), dtype="<f4").reshape(shape) for shape in shapes]
    named = [replace(Array.of(array, DTYPES["float32"]), name=f"t{i}") for i, array in enumerate(arrays)]
    tensors = tensors_of(form, serialize(form, *named))
    path = tmp_path / "tensors"
    path.write_bytes(serialize("tfrecord", *tensors))
    records = tf.data.TFRecordDataset(str(path)).map(lambda record: tf.io.parse_tensor(record, tf.float32))
    for record, array in zip(records, arrays, strict=True):
        assert record.shape == array.shape
        assert record.numpy().tolist() == array.tolist()
    again = tensors_of("tfrecord", serialize(form, *tensors) if form == "tfrecord" else path.read_bytes())
    assert [item.shape for item in again if isinstance(item, Array)] == shapes


def only_string(tensors: list[AnyTensor]) -> Any:
    [tensor] = tensors
    assert isinstance(tensor, Array)
    [value] = tensor.strings.unpack()
    return value


@given(data=st.binary(max_size=40))
@settings(deadline=None, max_examples=50)
def test_the_websafe_alphabet_is_tensorflows(data: bytes) -> None:
    tensor = Array(STRING, (), Strings.pack([data]))
    digits = serialize("json", tensor, b64="websafe").split(b'"b64":"')[1].split(b'"')[0]
    assert digits == tf.io.encode_base64(data).numpy()
    assert only_string(tensors_of("json", b'{"b64":"' + digits + b'"}')) == data
    padded = tf.io.encode_base64(data, pad=True).numpy()
    assert only_string(tensors_of("json", b'{"b64":"' + padded + b'"}')) == data


def test_a_tensor_proto_as_websafe_base64_is_parsed_in_the_graph() -> None:
    tensor = Array.of(np.array([-np.inf, 1.5], "<f4"), DTYPES["float32"])
    digits = serialize("b64", tensor, b64="websafe").split(b'"')[3]
    parsed = tf.io.parse_tensor(tf.io.decode_base64(digits), tf.float32)
    assert parsed.numpy().tolist() == [-np.inf, 1.5]
    assert serialize("tensorproto", tensor) == tf.io.decode_base64(digits).numpy()
