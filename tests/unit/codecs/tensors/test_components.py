"""The dense tensors that a sparse or a ragged one consists of, and back."""

from typing import Any, Literal

import numpy as np
import pytest

from app.codecs.tensors.components import assemble, components_of
from app.domain.dtypes import DTYPES, FLOAT32, INT64, dtype_from_numpy
from app.domain.tensor import NamedAny, NamedTensor, RaggedTensor, SparseTensor, Tensor, tensor_from_array
from app.errors import InputError


def dense(values: Any, dtype: str = "int64") -> Tensor:
    array = np.array(values, DTYPES[dtype].numpy)
    found = dtype_from_numpy(array.dtype)
    assert found is not None
    return tensor_from_array(array, found)


SPARSE = SparseTensor(FLOAT32, (3, 4), np.array([[0, 1], [2, 3]]), np.array([1, 2], "<f4"))
RAGGED = RaggedTensor(dense([1, 2, 3], "float32"), (np.array([0, 2, 2]), np.array([0, 1, 3])))


def listed(tensors: list[NamedTensor]) -> list[tuple[str | None, str, tuple[int, ...], list[Any]]]:
    return [
        (item.name, str(item.tensor.dtype), item.tensor.shape, item.tensor.values.tolist())
        for item in tensors
    ]


def test_components_of_a_sparse_tensor() -> None:
    assert listed(components_of(NamedAny(SPARSE, "x"))) == [
        ("x/indices", "int64", (2, 2), [0, 1, 2, 3]),
        ("x/values", "float32", (2,), [1, 2]),
        ("x/dense_shape", "int64", (2,), [3, 4]),
    ]
    assert [item.name for item in components_of(NamedAny(SPARSE))] == ["indices", "values", "dense_shape"]


def test_components_of_a_ragged_tensor() -> None:
    assert listed(components_of(NamedAny(RAGGED, "r"))) == [
        ("r/values", "float32", (3,), [1, 2, 3]),
        ("r/row_splits_0", "int64", (3,), [0, 2, 2]),
        ("r/row_splits_1", "int64", (3,), [0, 1, 3]),
    ]


def test_a_dense_tensor_is_its_own_component() -> None:
    assert listed(components_of(NamedAny(dense([1]), "d"))) == [("d", "int64", (1,), [1])]


@pytest.mark.parametrize("tensor", [SPARSE, RAGGED])
@pytest.mark.parametrize("name", ["x", "a/b", "", None])
@pytest.mark.parametrize("kept", [True, False])
def test_they_are_put_together_again(tensor: Any, name: str | None, *, kept: bool) -> None:
    kind: Literal["sparse", "ragged"] = "sparse" if tensor is SPARSE else "ragged"
    parts = components_of(NamedAny(tensor, name))
    if not kept:
        parts = [NamedTensor(part.tensor) for part in parts]
    else:
        parts.reverse()
    [found] = assemble(parts, kind)
    assert found.name == (name if kept else None)
    assert listed(components_of(NamedAny(found.tensor))) == listed(components_of(NamedAny(tensor)))


def test_several_by_their_prefixes_and_dense_ones_beside_them() -> None:
    parts = [
        *components_of(NamedAny(SPARSE, "a")),
        NamedTensor(dense([7]), "d"),
        *components_of(NamedAny(SPARSE, "b/c")),
    ]
    found = assemble(parts, "sparse")
    assert [(item.name, type(item.tensor)) for item in found] == [
        ("a", SparseTensor),
        ("b/c", SparseTensor),
        ("d", Tensor),
    ]


def test_several_sparse_tensors_by_position() -> None:
    parts = [NamedTensor(part.tensor) for part in components_of(NamedAny(SPARSE)) * 2]
    assert [type(item.tensor) for item in assemble(parts, "sparse")] == [SparseTensor] * 2


def test_indices_may_be_integers_of_any_width() -> None:
    parts = [dense([[0, 1]], "int32"), dense([1.5], "float64"), dense([3, 4], "uint8")]
    [found] = assemble([NamedTensor(part) for part in parts], "sparse")
    assert isinstance(found.tensor, SparseTensor)
    assert (found.tensor.indices.dtype.name, found.tensor.indices.tolist()) == ("int64", [[0, 1]])


def test_no_coordinates_have_no_second_axis() -> None:
    parts = [dense([]), dense([], "float32"), dense([3, 4])]
    [found] = assemble([NamedTensor(part) for part in parts], "sparse")
    assert isinstance(found.tensor, SparseTensor)
    assert found.tensor.indices.shape == (0, 2)


NONE: list[Tensor] = []


@pytest.mark.parametrize(
    ("parts", "kind", "code"),
    [
        (NONE, "sparse", "missing_component"),
        (NONE, "ragged", "missing_component"),
        ([dense([[0]]), dense([1])], "sparse", "missing_component"),
        ([dense([1])], "ragged", "missing_component"),
        ([dense([[0.0]], "float32"), dense([1]), dense([1])], "sparse", "dtype_mismatch"),
        ([dense([[0]]), dense([1]), dense([1.0], "float32")], "sparse", "dtype_mismatch"),
        ([dense([0]), dense([1]), dense([1])], "sparse", "shape_mismatch"),
        ([dense([[0]]), dense([[1]]), dense([1])], "sparse", "shape_mismatch"),
        ([dense([[0]]), dense([1]), dense([[1]])], "sparse", "shape_mismatch"),
        ([dense([[0]]), dense([1]), dense([-1])], "sparse", "invalid_shape"),
        ([dense([[2**63]], "uint64"), dense([1]), dense([5])], "sparse", "index_out_of_bounds"),
        ([dense([[0]]), dense([1]), dense([0] * 255)], "sparse", "rank_too_large"),
        ([dense([1]), dense([0.0, 1.0], "float32")], "ragged", "dtype_mismatch"),
        ([dense([1]), dense([[0, 1]])], "ragged", "shape_mismatch"),
        ([dense([1]), dense([0, 2])], "ragged", "invalid_row_splits"),
    ],
)
def test_components_that_make_no_tensor(parts: list[Tensor], kind: Any, code: str) -> None:
    with pytest.raises(InputError) as caught:
        assemble([NamedTensor(part) for part in parts], kind)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("names", "kind", "missing"),
    [
        (["a/indices", "a/values", "a/shape"], "sparse", "a/dense_shape"),
        (["indices", "values", "b/dense_shape"], "sparse", "'dense_shape'"),
        (["a/values", "a/row_splits_1"], "ragged", "a/row_splits_0"),
        (["a/values", "b"], "ragged", "a/row_splits_0"),
        (["a/row_splits_0", "b"], "ragged", "a/values"),
        (["a", "b", "c"], "sparse", "none of the tensors"),
    ],
)
def test_a_component_that_is_missing_is_named(names: list[str], kind: Any, missing: str) -> None:
    with pytest.raises(InputError, match=missing) as caught:
        assemble([NamedTensor(dense([0]), name) for name in names], kind)
    assert caught.value.code == "missing_component"


def test_an_error_names_the_tensor() -> None:
    parts = [("x/indices", [[9]]), ("x/values", [1]), ("x/dense_shape", [3])]
    with pytest.raises(InputError) as caught:
        assemble([NamedTensor(dense(values), name) for name, values in parts], "sparse")
    assert (caught.value.code, caught.value.location.feature) == ("index_out_of_bounds", "x")


def test_the_dtype_of_indices_is_that_of_tensorflow() -> None:
    assert [part.tensor.dtype for part in components_of(NamedAny(SPARSE))] == [INT64, FLOAT32, INT64]
