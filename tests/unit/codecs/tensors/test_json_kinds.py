"""Sparse and ragged tensors in JSON."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.json.tensors import decode, encode
from app.codecs.options import TensorDecodeOptions, TensorEncodeOptions
from app.codecs.tensors.components import components_of
from app.domain.dtypes import DTYPES, FLOAT32, FLOAT64, INT64
from app.domain.tensor import AnyTensor, NamedAny, RaggedTensor, SparseTensor, Tensor, tensor_from_array
from app.errors import InputError
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile


def read(body: Any, **options: Any) -> list[NamedAny]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return decode(MemoryFile(text), TensorDecodeOptions(**options), Budget())


def written(*tensors: NamedAny, **options: Any) -> Any:
    text = b"".join(encode(tensors, TensorEncodeOptions(**options)))
    return json.loads(text, parse_constant=pytest.fail)


def parts(tensor: AnyTensor) -> Any:
    found = [part.tensor for part in components_of(NamedAny(tensor))]
    return type(tensor), [(str(part.dtype), part.shape, repr(part.values.tolist())) for part in found]


def refused(body: Any, **options: Any) -> tuple[str, str | None]:
    with pytest.raises(InputError) as caught:
        read(body, **options)
    return caught.value.code, caught.value.location.pointer


def ragged(values: Any, *row_splits: list[int], dtype: str = "int64") -> RaggedTensor:
    tensor = tensor_from_array(np.array(values, DTYPES[dtype].numpy), DTYPES[dtype])
    return RaggedTensor(tensor, tuple(np.array(splits, np.int64) for splits in row_splits))


SPARSE = SparseTensor(FLOAT32, (3, 4), np.array([[0, 1], [2, 3]]), np.array([1, np.nan], "<f4"))
SPARSE_JSON = {"dtype": "float32", "values": [1.0, "NaN"], "indices": [[0, 1], [2, 3]], "dense_shape": [3, 4]}
RAGGED = ragged([1, 2, 3], [0, 2, 2, 3])
RAGGED_JSON = {"dtype": "int64", "values": [1, 2, 3], "row_splits": [[0, 2, 2, 3]]}


@pytest.mark.parametrize(("tensor", "body"), [(SPARSE, SPARSE_JSON), (RAGGED, RAGGED_JSON)])
def test_members_both_ways_alone_and_among_several(tensor: Any, body: dict[str, Any]) -> None:
    assert written(NamedAny(tensor)) == body
    assert written(NamedAny(tensor, "x")) == {"name": "x", **body}
    assert parts(read(body)[0].tensor) == parts(tensor)
    both = {"tensors": [{"name": "x", **body}, {"name": "y", "dtype": "int64", "shape": [1], "data": [5]}]}
    dense = NamedAny(tensor_from_array(np.array([5]), INT64), "y")
    assert written(NamedAny(tensor, "x"), dense) == both
    found = read(both)
    assert [named.name for named in found] == ["x", "y"]
    assert parts(found[0].tensor) == parts(tensor)


def test_as_a_member_under_its_name() -> None:
    for key in ("inputs", "columns"):
        found = read({key: {"a": SPARSE_JSON, "b": [1], "c": RAGGED_JSON}})
        assert [(named.name, type(named.tensor)) for named in found] == [
            ("a", SparseTensor),
            ("b", Tensor),
            ("c", RaggedTensor),
        ]


def test_dtypes_are_inferred_or_declared_beside() -> None:
    body = {"values": [1, 2.5], "indices": [[0], [1]], "dense_shape": [2]}
    assert read(body)[0].tensor.dtype is FLOAT64
    assert read(body, dtype=DTYPES["float64"])[0].tensor.dtype.name == "float64"
    assert read({"values": ["a"], "row_splits": [[0, 1]]})[0].tensor.dtype.name == "string"


def test_nothing_in_them_keeps_its_shapes() -> None:
    sparse = SparseTensor(FLOAT32, (0, 4), np.zeros((0, 2), np.int64), np.zeros(0, "<f4"))
    assert written(NamedAny(sparse))["indices"] == []
    inner = ragged(np.zeros((0, 2)), [0, 0])
    assert written(NamedAny(inner)) == {
        "dtype": "int64",
        "shape": [0, 2],
        "values": [],
        "row_splits": [[0, 0]],
    }
    for tensor in (sparse, inner, ragged([], [0])):
        assert parts(read(written(NamedAny(tensor)))[0].tensor) == parts(tensor)


def test_a_sparse_scalar() -> None:
    scalar = SparseTensor(INT64, (), np.zeros((1, 0), np.int64), np.array([7]))
    assert written(NamedAny(scalar)) == {"dtype": "int64", "values": [7], "indices": [[]], "dense_shape": []}
    assert parts(read(written(NamedAny(scalar)))[0].tensor) == parts(scalar)


def test_uniform_dimensions_of_ragged_values_are_nested_and_complex_numbers_pairs() -> None:
    tensor = ragged([[1, 2], [3, 4], [5, 6]], [0, 1, 3])
    assert written(NamedAny(tensor))["values"] == [[1, 2], [3, 4], [5, 6]]
    numbers = ragged([1j, 2], [0, 0, 2], dtype="complex64")
    assert written(NamedAny(numbers))["values"] == [[0, 1], [2, 0]]
    for value in (tensor, numbers):
        assert parts(read(written(NamedAny(value)))[0].tensor) == parts(value)


@pytest.mark.parametrize(
    ("tensor", "nested"),
    [
        (RAGGED, [[1, 2], [], [3]]),
        (ragged([1, 2, 3], [0, 2, 2, 3], [0, 1, 1, 3]), [[[1], []], [], [[2, 3]]]),
        (ragged([[1, 2], [3, 4], [5, 6]], [0, 1, 1, 3]), [[[1, 2]], [], [[3, 4], [5, 6]]]),
        (ragged(np.zeros((2, 0)), [0, 2, 2]), [[[], []], []]),
        (ragged([], [0]), []),
        (ragged([1j], [0, 1], dtype="complex64"), [[[0, 1]]]),
        (ragged(np.arange(8).reshape(2, 2, 2), [0, 2]), [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]]),
    ],
)
def test_nested_arrays_out(tensor: Any, nested: Any) -> None:
    assert written(NamedAny(tensor), layout="nested") == nested
    several = written(NamedAny(tensor, "a"), NamedAny(tensor, "b"), layout="nested")
    assert several == {"outputs": {"a": nested, "b": nested}}


@pytest.mark.parametrize(
    ("body", "row_splits", "values"),
    [
        ([[1, 2], [3]], [[0, 2, 3]], [1, 2, 3]),
        ([[1, 2], [3, 4]], [[0, 2, 4]], [1, 2, 3, 4]),
        ([[[1], []], [], [[2, 3]]], [[0, 2, 2, 3], [0, 1, 1, 3]], [1, 2, 3]),
        ([[], []], [[0, 0, 0]], []),
        ([[], [[1]]], [[0, 0, 1], [0, 1]], [1]),
        ({"instances": [[1], [2, 3]]}, [[0, 1, 3]], [1, 2, 3]),
        ({"data": [[1], []], "dtype": "int8"}, [[0, 1, 1]], [1]),
        ({"data": [[[1, 0]], []], "dtype": "complex64"}, [[0, 1, 1]], [1]),
    ],
)
def test_nested_arrays_in_where_the_kind_is_declared(body: Any, row_splits: Any, values: Any) -> None:
    [named] = read(body, kind="ragged")
    assert isinstance(named.tensor, RaggedTensor)
    assert [splits.tolist() for splits in named.tensor.row_splits] == row_splits
    assert named.tensor.values.values.tolist() == values


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.lists(st.integers(-9, 9), max_size=3), max_size=3), max_size=4))
def test_nested_arrays_return(nested: list[Any]) -> None:
    if any(any(row) for row in nested):
        [named] = read(nested, kind="ragged")
        assert written(named, layout="nested") == nested
        assert written(*read(written(named)), layout="nested") == nested


def test_rows_of_all_sizes_are_cut_at_the_right_places() -> None:
    lengths = np.random.default_rng(0).integers(0, 50, 2000)
    tensor = ragged(np.arange(lengths.sum()), [0, *np.cumsum(lengths).tolist()])
    nested = written(NamedAny(tensor), layout="nested")
    assert list(map(len, nested)) == lengths.tolist()
    assert [item for row in nested for item in row] == list(range(lengths.sum()))


def test_the_layouts_of_sparse_tensors() -> None:
    assert written(NamedAny(SPARSE, "x"), layout="nested") == SPARSE_JSON
    oip = written(NamedAny(SPARSE, "x"), layout="oip")
    assert [(item["name"], item["datatype"], item["shape"]) for item in oip["outputs"]] == [
        ("x/indices", "INT64", [2, 2]),
        ("x/values", "FP32", [2]),
        ("x/dense_shape", "INT64", [2]),
    ]


def test_int64_as_strings_reads_back() -> None:
    assert written(NamedAny(RAGGED), int64="string")["row_splits"] == [["0", "2", "2", "3"]]
    for tensor in (SPARSE, RAGGED):
        assert parts(read(written(NamedAny(tensor), int64="string"))[0].tensor) == parts(tensor)


def test_a_value_without_text_names_its_element() -> None:
    nans = ragged([1, np.nan], [0, 1, 2], dtype="float32")
    for layout in ("flat", "nested"):
        for tensor in (SPARSE, nans):
            with pytest.raises(InputError, match="Element 1 of 'x'") as caught:
                written(NamedAny(tensor, "x"), layout=layout, nonfinite="error")
            assert caught.value.code == "nonfinite_value"


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"values": [1, "x"]}, "type_mismatch", "/values/1"),
        ({"indices": [[0, 1]]}, "shape_mismatch", ""),
        ({"indices": [0, 1]}, "shape_mismatch", ""),
        ({"indices": [[0, 1], [2]]}, "ragged", "/indices/1"),
        ({"indices": [[0, 1], [2, 4]]}, "index_out_of_bounds", ""),
        ({"indices": [[0, 1], [2, -1]]}, "index_out_of_bounds", ""),
        ({"indices": [[0, 1], [2, 2**63]]}, "out_of_range", "/indices/1/1"),
        ({"dense_shape": 3}, "shape_mismatch", ""),
        ({"dense_shape": [3, -4]}, "invalid_shape", ""),
        ({"dense_shape": [3, 2.5]}, "inexact_integer", "/dense_shape/1"),
        ({"shape": [2]}, "invalid_tensor", ""),
        ({"dtype": 5}, "invalid_tensor", ""),
        ({"name": 5}, "invalid_tensor", "/name"),
        ({"row_splits": []}, "invalid_tensor", ""),
        ({"more": 1}, "invalid_tensor", ""),
    ],
)
def test_sparse_bodies_that_are_refused(change: dict[str, Any], code: str, pointer: str) -> None:
    assert refused({**SPARSE_JSON, **change}) == (code, pointer)
    assert refused({"tensors": [{**SPARSE_JSON, **change}]}) == (code, "/tensors/0" + pointer)


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"row_splits": [0, 2, 3]}, "invalid_tensor", "/row_splits"),
        ({"row_splits": []}, "invalid_tensor", "/row_splits"),
        ({"row_splits": {"a": 1}}, "invalid_tensor", "/row_splits"),
        ({"row_splits": [[0, 2.5, 3]]}, "inexact_integer", "/row_splits/0/1"),
        ({"row_splits": [[0, 2]]}, "invalid_row_splits", ""),
        ({"row_splits": [[0, 3, 2, 3]]}, "invalid_row_splits", ""),
        ({"values": 1}, "invalid_row_splits", ""),
        ({"values": [1, None, 3]}, "null_value", "/values/1"),
        ({"shape": [2]}, "shape_mismatch", "/values"),
    ],
)
def test_ragged_bodies_that_are_refused(change: dict[str, Any], code: str, pointer: str) -> None:
    assert refused({**RAGGED_JSON, **change}) == (code, pointer)


@pytest.mark.parametrize(
    ("body", "options", "code", "pointer"),
    [
        ([[1, 2], 3], {"kind": "ragged"}, "ragged", "/1"),
        ([[[1], 2]], {"kind": "ragged"}, "ragged", "/0/1"),
        ([[1], [2, "a"]], {"kind": "ragged"}, "mixed_types", "/1/1"),
        ([[], [1, 300]], {"kind": "ragged", "dtype": DTYPES["int8"]}, "out_of_range", "/1/1"),
        ([[1, 2], [3]], {"kind": "ragged", "dtype": DTYPES["complex64"]}, "type_mismatch", "/1/0"),
        ([[1], [2, 3]], {"kind": "ragged", "shape": (3,)}, "shape_mismatch", ""),
        ([1, 2], {"kind": "ragged"}, "kind_mismatch", None),
        ([1, 2], {"kind": "sparse"}, "kind_mismatch", None),
        (RAGGED_JSON, {"kind": "sparse"}, "kind_mismatch", None),
        (SPARSE_JSON, {"kind": "dense"}, "kind_mismatch", None),
        (SPARSE_JSON, {"dtype": INT64}, "dtype_mismatch", ""),
    ],
)
def test_what_does_not_fit_what_was_declared(body: Any, options: Any, code: str, pointer: Any) -> None:
    assert refused(body, **options) == (code, pointer)


def test_ragged_arrays_without_the_kind_name_it() -> None:
    with pytest.raises(InputError, match="kind=ragged") as caught:
        read([[1, 2], [3]])
    assert (caught.value.code, caught.value.location.pointer) == ("ragged", "/1")
