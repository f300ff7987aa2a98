"""Sparse tensors inside strings: literal bytes, and what is refused. `tests/differential` has TensorFlow."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

from app.codecs.messages.sparse_proto import (
    is_serialized_sparse,
    parse_sparse,
    serialize_many_sparse,
    serialize_sparse,
)
from app.codecs.messages.tensor_proto import Message, parse_tensor_proto
from app.domain.dtypes import DTYPES, FLOAT32, STRING
from app.domain.limits import Limits
from app.domain.tensor import SparseTensor, Tensor
from app.errors import InputError, LimitExceeded
from app.runtime.budget import Budget


def sparse(indices: Any, values: Any, shape: tuple[int, ...], dtype: str = "float32") -> SparseTensor:
    coordinates = np.array(indices, np.int64).reshape(-1, len(shape))
    return SparseTensor(DTYPES[dtype], shape, coordinates, np.array(values, DTYPES[dtype].numpy))


def strings(rows: Any, shape: tuple[int, ...]) -> Tensor:
    values = np.empty(len(rows), object)
    values[:] = rows
    return Tensor(STRING, shape, values)


def parsed(message: Message) -> Tensor:
    return parse_tensor_proto(b"".join(message), Budget())


#: `tf.io.serialize_sparse(tf.sparse.SparseTensor([[0, 1], [2, 3]], [1., 2.], [3, 4]))`.
TENSOR = sparse([[0, 1], [2, 3]], [1, 2], (3, 4))
ONE = [
    bytes.fromhex("0809120812020802120208022220" + "".join(f"{i:02x}" + "00" * 7 for i in (0, 1, 2, 3))),
    bytes.fromhex("080112041202080222080000803f00000040"),
    bytes.fromhex("0809120412020802221003000000000000000400000000000000"),
]
#: `tf.io.serialize_many_sparse` of the same.
MANY = [
    *map(
        bytes.fromhex,
        [
            "08091208120208011202080122080100000000000000",
            "080112041202080122040000803f",
            "080912041202080122080400000000000000",
            "08091206120012020801",
            "080112021200",
            "080912041202080122080400000000000000",
            "08091208120208011202080122080300000000000000",
            "0801120412020801220400000040",
            "080912041202080122080400000000000000",
        ],
    )
]


def described(tensor: SparseTensor) -> Any:
    return tensor.dtype, tensor.dense_shape, tensor.indices.tolist(), tensor.values.tolist()


def test_the_literal_bytes_of_one() -> None:
    found = parsed(serialize_sparse(TENSOR))
    assert (found.shape, found.values.tolist()) == ((3,), ONE)
    assert described(parse_sparse(strings(ONE, (3,)), Budget())) == described(TENSOR)


def test_the_literal_bytes_of_many() -> None:
    found = parsed(serialize_many_sparse(TENSOR))
    assert (found.shape, found.values.tolist()) == ((3, 3), MANY)
    assert described(parse_sparse(strings(MANY, (3, 3)), Budget())) == described(TENSOR)


def test_rows_of_nothing_are_written_without_being_held() -> None:
    """A short body asks for a million of them: all at once they would keep everything else waiting."""
    message = serialize_many_sparse(sparse([[5000, 1]], [1], (2**20, 2)))
    tracemalloc.start()
    size, longest = 0, 0
    for piece in message:
        size, longest = size + len(piece), max(longest, len(piece))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size == message.num_bytes > 40 * 2**20
    assert longest < 2**16
    assert peak < 2**18


def test_strings_inside_stand_in_tensor_content() -> None:
    values = np.empty(2, object)
    values[:] = [b"a", b""]
    tensor = SparseTensor(STRING, (3,), np.array([[0], [2]]), values)
    assert parsed(serialize_sparse(tensor)).values[1] == bytes.fromhex("08071204120208022203010061")
    assert described(parse_sparse(parsed(serialize_sparse(tensor)), Budget())) == described(tensor)


def test_rows_are_as_long_as_the_longest() -> None:
    rows = [
        *parsed(serialize_sparse(sparse([[1]], [5], (3,)))).values,
        *parsed(serialize_sparse(sparse([[6]], [7], (9,)))).values,
    ]
    assert described(parse_sparse(strings(rows, (2, 3)), Budget())) == (
        FLOAT32,
        (2, 9),
        [[0, 1], [1, 6]],
        [5, 7],
    )


@pytest.mark.parametrize("indices", [[[2, 0], [0, 1]], [[0, 3], [0, 1]], [[0, 1], [0, 1]]])
def test_many_take_sorted_indices(indices: Any) -> None:
    with pytest.raises(InputError) as caught:
        serialize_many_sparse(sparse(indices, [1, 2], (3, 4)))
    assert caught.value.code == "unsorted_indices"


def test_many_take_two_dimensions_and_a_bounded_number_of_rows() -> None:
    with pytest.raises(InputError) as caught:
        serialize_many_sparse(sparse([[0]], [1], (3,)))
    assert caught.value.code == "invalid_shape"
    with pytest.raises(LimitExceeded) as limit:
        serialize_many_sparse(sparse([[0, 0]], [1], (2**40, 1)))
    assert limit.value.code == "too_many_rows"


def test_what_counts_as_serialized() -> None:
    assert is_serialized_sparse(strings(ONE, (3,)))
    assert is_serialized_sparse(strings(MANY, (3, 3)))
    assert not is_serialized_sparse(strings(ONE, (3, 1)))
    assert not is_serialized_sparse(strings(MANY, (1, 3, 3)))
    assert not is_serialized_sparse(Tensor(FLOAT32, (3,), np.zeros(3, "<f4")))


NO_ROWS: list[bytes] = []


@pytest.mark.parametrize(
    ("protos", "shape", "code"),
    [
        ([ONE[0], ONE[1], b"\x08"], (3,), "truncated"),
        ([ONE[0], ONE[1], b""], (3,), "missing_dtype"),
        ([ONE[1], ONE[1], ONE[2]], (3,), "shape_mismatch"),
        ([ONE[0], ONE[2], ONE[1]], (3,), "dtype_mismatch"),
        ([MANY[0], ONE[1], ONE[2]], (3,), "shape_mismatch"),
        ([ONE[0], ONE[1], MANY[2]], (3,), "shape_mismatch"),
        ([*MANY[:3], *ONE], (2, 3), "invalid_serialized_sparse"),
        ([*MANY[:3], MANY[3], b"\x08\x02\x12\x02\x12\x00", MANY[5]], (2, 3), "invalid_serialized_sparse"),
        (NO_ROWS, (0, 3), "invalid_serialized_sparse"),
        ([ONE[0], ONE[1], b"\x08\x09\x12\x04\x12\x02\x08\x02\x50\x03\x50\x03"], (3,), "index_out_of_bounds"),
        # Protos of a few bytes that declare 2^28 elements of 8 bytes: refused before they are allocated.
        ([ONE[0], b"\x08\x02\x12\x08\x12\x06\x08\x80\x80\x80\x80\x01", ONE[2]], (3,), "payload_too_large"),
    ],
)
def test_hostile_protos_inside_are_refused(protos: list[bytes], shape: tuple[int, ...], code: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_sparse(strings(protos, shape), Budget(Limits(max_decoded_bytes=2**20)))
    assert caught.value.code == code


def test_an_error_in_a_row_names_it() -> None:
    with pytest.raises(InputError) as caught:
        parse_sparse(strings([*MANY[:3], b"\x08", *MANY[4:6]], (2, 3)), Budget())
    assert caught.value.location.feature == "row 1 of the sparse tensor"
