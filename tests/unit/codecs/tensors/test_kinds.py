"""Which form takes a sparse or a ragged tensor, as what, and how it comes back."""

from typing import Any

import numpy as np
import pytest

from app.codecs.forms import TENSOR_CODECS, FormName
from app.codecs.options import TensorDecodeOptions, TensorEncodeOptions
from app.codecs.tensors.components import components_of
from app.codecs.tensors.forms import in_memory, num_messages
from app.domain.dtypes import FLOAT32, INT64
from app.domain.tensor import AnyTensor, NamedAny, RaggedTensor, SparseTensor, tensor_from_array
from app.errors import InputError
from app.runtime.budget import Budget
from tests.bodies import body_of

DENSE = tensor_from_array(np.arange(3, dtype="<f4"), FLOAT32)
SPARSE = SparseTensor(FLOAT32, (3, 4), np.array([[0, 1], [2, 3]]), np.array([1, 2], "<f4"))
RAGGED = RaggedTensor(DENSE, (np.array([0, 2, 2]), np.array([0, 1, 3])))
KINDS: dict[str, AnyTensor] = {"sparse": SPARSE, "ragged": RAGGED}


def written(form: FormName, *tensors: NamedAny, **options: Any) -> bytes:
    encode = TENSOR_CODECS[form].encode
    return b"".join(encode(tensors, TensorEncodeOptions(**options), Budget()))


def read(form: FormName, data: bytes, **options: Any) -> list[NamedAny]:
    codec, given = TENSOR_CODECS[form], TensorDecodeOptions(**options, held=True)
    return [in_memory(item, Budget()) for item in codec.decode(body_of(codec, data), given, Budget())]


def described(tensor: AnyTensor) -> Any:
    parts = [part.tensor for part in components_of(NamedAny(tensor))]
    return type(tensor), [(part.dtype, part.shape, part.values.tolist()) for part in parts]


def refused(code: str, call: Any, *args: Any, **options: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        call(*args, **options)
    assert caught.value.code == code
    return caught.value


SEVERAL: list[FormName] = [form for form in TENSOR_CODECS if form not in ("npy", "raw", "tensorproto")]


@pytest.mark.parametrize("form", SEVERAL)
@pytest.mark.parametrize("kind", KINDS)
def test_forms_of_several_tensors_return_them(form: FormName, kind: Any) -> None:
    data = written(form, NamedAny(KINDS[kind], "x"))
    options = {} if form == "json" else {"kind": kind}
    json_bytes = data.index(b"]}") + 2 if form == "oip" else None
    [found] = read(form, data, json_bytes=json_bytes, **options)
    assert described(found.tensor) == described(KINDS[kind])
    assert found.name == (None if form in ("tfrecord", "b64") else "x")


@pytest.mark.parametrize("form", ["npz", "safetensors"])
def test_names_of_the_components_are_those_documented(form: FormName) -> None:
    found = read(form, written(form, NamedAny(SPARSE, "x"), NamedAny(RAGGED), NamedAny(DENSE, "d")))
    assert sorted(str(named.name) for named in found) == [
        "d",
        "row_splits_0",
        "row_splits_1",
        "values",
        "x/dense_shape",
        "x/indices",
        "x/values",
    ]


@pytest.mark.parametrize("form", ["npz", "oip", "safetensors", "arrow"])
def test_several_without_a_name_are_refused(form: FormName) -> None:
    error = refused("duplicate_name", written, form, NamedAny(SPARSE), NamedAny(RAGGED))
    assert "Give each tensor a name" in error.detail
    assert written(form, NamedAny(SPARSE), NamedAny(RAGGED, "r"), NamedAny(DENSE))


def test_what_numpy_saves_is_read(tmp_path: Any) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, indices=SPARSE.indices.astype("i4"), values=SPARSE.values, dense_shape=[3, 4])
    [found] = read("npz", path.read_bytes(), kind="sparse")
    assert (found.name, described(found.tensor)) == (None, described(SPARSE))


@pytest.mark.parametrize("form", ["npy", "raw"])
@pytest.mark.parametrize("kind", KINDS)
def test_forms_of_one_dense_tensor_refuse_them(form: FormName, kind: Any) -> None:
    error = refused("unsupported_kind", written, form, NamedAny(KINDS[kind]))
    assert "'npz'" in error.detail
    refused("unsupported_kind", read, form, b"", kind=kind)


def test_a_sparse_tensor_is_one_tensor_proto() -> None:
    [found] = read("tensorproto", written("tensorproto", NamedAny(SPARSE)), kind="sparse")
    assert described(found.tensor) == described(SPARSE)
    [many] = read("tensorproto", written("tensorproto", NamedAny(SPARSE), sparse="many"), kind="sparse")
    assert described(many.tensor) == described(SPARSE)


def test_without_its_kind_it_is_a_tensor_of_strings() -> None:
    [found] = read("tensorproto", written("tensorproto", NamedAny(SPARSE)))
    assert not isinstance(found.tensor, (SparseTensor, RaggedTensor))
    assert found.tensor.shape == (3,)


def test_a_ragged_tensor_is_no_single_tensor_proto() -> None:
    refused("several_tensors", written, "tensorproto", NamedAny(RAGGED))
    refused("missing_component", read, "tensorproto", written("tensorproto", NamedAny(DENSE)), kind="ragged")
    refused("missing_component", read, "tensorproto", written("tensorproto", NamedAny(DENSE)), kind="sparse")


def test_a_tfrecord_of_three_protos_is_a_sparse_tensor_too() -> None:
    data = written("tfrecord", *components_of(NamedAny(SPARSE)))
    [found] = read("tfrecord", data, kind="sparse")
    assert described(found.tensor) == described(SPARSE)


def test_sparse_tensors_of_a_tfrecord_are_one_record_each() -> None:
    data = written("tfrecord", NamedAny(SPARSE), NamedAny(SPARSE))
    assert len(read("tfrecord", data)) == 2
    assert [described(named.tensor) for named in read("tfrecord", data, kind="sparse")] == [
        described(SPARSE)
    ] * 2
    mixed = written("tfrecord", NamedAny(SPARSE), NamedAny(DENSE))
    refused("missing_component", read, "tfrecord", mixed, kind="sparse")


def test_messages_are_counted() -> None:
    tensors = [NamedAny(DENSE), NamedAny(SPARSE), NamedAny(RAGGED)]
    assert num_messages(tensors) == 1 + 1 + 3 == len(read("tfrecord", written("tfrecord", *tensors)))


@pytest.mark.parametrize("form", ["npz", "safetensors", "tensorproto", "tfrecord", "b64", "json"])
def test_what_is_declared_holds_for_the_whole_tensor(form: FormName) -> None:
    data = written(form, NamedAny(SPARSE))
    [found] = read(form, data, kind="sparse", dtype=FLOAT32, shape=(3, 4))
    assert described(found.tensor) == described(SPARSE)
    refused("dtype_mismatch", read, form, data, kind="sparse", dtype=INT64)
    refused("shape_mismatch", read, form, data, kind="sparse", shape=(2,))


def test_a_ragged_tensor_has_no_shape_to_declare() -> None:
    for form in ("npz", "json"):
        refused("shape_mismatch", read, form, written(form, NamedAny(RAGGED)), kind="ragged", shape=(3,))


def test_kind_dense_leaves_components_what_they_are() -> None:
    assert len(read("npz", written("npz", NamedAny(SPARSE)), kind="dense")) == 3
