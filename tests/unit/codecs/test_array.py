"""Sparse and ragged tensors are what their components make, or none."""

from typing import Any

import numpy as np
import pytest

from app.codecs.array import Array, RaggedTensor, SparseTensor
from app.codecs.columns import Strings
from app.domain.dtypes import FLOAT32, STRING
from app.errors import UnprocessableInput


def floats(*shape: int) -> Array:
    return Array.of(np.zeros(shape, "<f4"), FLOAT32)


def sparse(indices: Any, shape: tuple[int, ...], count: int | None = None) -> SparseTensor:
    coordinates = np.array(indices, np.int64).reshape(-1, len(shape))
    return SparseTensor(shape, coordinates, floats(len(coordinates) if count is None else count))


def ragged(values: Array, *row_splits: list[int]) -> RaggedTensor:
    return RaggedTensor(values, tuple(np.array(splits, np.int64) for splits in row_splits))


def test_indices_stay_in_the_order_in_which_they_came_and_may_repeat() -> None:
    tensor = sparse([[2, 3], [0, 1], [0, 1]], (3, 4))
    assert tensor.indices.tolist() == [[2, 3], [0, 1], [0, 1]]
    assert tensor.num_bytes == 3 * (16 + 4)


def test_a_sparse_scalar_and_a_huge_dense_shape_take_nothing() -> None:
    scalar = SparseTensor((), np.zeros((1, 0), np.int64), floats(1))
    assert scalar.num_bytes == 4
    assert sparse([[2**61, 0]], (2**62, 1)).num_bytes == 20


@pytest.mark.parametrize(
    ("indices", "shape", "count", "code"),
    [
        ([[0, 4]], (3, 4), None, "index_out_of_bounds"),
        ([[0, 0], [3, 0]], (3, 4), None, "index_out_of_bounds"),
        ([[0, -1]], (3, 4), None, "index_out_of_bounds"),
        ([[0, 0]], (0, 4), None, "index_out_of_bounds"),
        ([[0, 0]], (3, 4), 2, "shape_mismatch"),
    ],
)
def test_indices_that_do_not_fit_are_refused(indices: Any, shape: Any, count: Any, code: str) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        sparse(indices, shape, count)
    assert caught.value.code == code


def test_row_splits_cut_the_first_axis_outermost_first() -> None:
    tensor = ragged(floats(4, 2), [0, 2, 2], [0, 1, 4])
    assert tensor.dtype is FLOAT32
    assert tensor.num_bytes == 4 * 2 * 4 + 6 * 8


@pytest.mark.parametrize(
    ("values", "row_splits"),
    [
        (floats(3), ([],)),
        (floats(3), ([1, 3],)),
        (floats(3), ([0, 2, 1, 3],)),
        (floats(3), ([0, 2],)),
        (floats(3), ([0, 4],)),
        (floats(3), ([0, 1], [0, 1, 3])),
        (floats(), ([0, 1],)),
    ],
)
def test_row_splits_that_do_not_fit_are_refused(values: Array, row_splits: Any) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        ragged(values, *row_splits)
    assert caught.value.code == "invalid_row_splits"


def test_more_dimensions_than_tensorflow_holds_are_refused() -> None:
    empty = Array(STRING, (0,), Strings.pack([]))
    assert len(ragged(empty, *[[0]] * 253).row_splits) == 253
    with pytest.raises(UnprocessableInput, match="254 dimensions"):
        ragged(empty, *[[0]] * 254)
