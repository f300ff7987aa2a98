from __future__ import annotations

from typing import Any

import pytest

from app.codecs.json.tensor_body import read_tensors
from app.codecs.options import TensorDecodeOptions
from app.domain.dtypes import FLOAT32, FLOAT64, INT64, DType
from app.domain.limits import Limits
from app.domain.tensor import NamedTensor, Tensor
from app.errors import AmbiguousInput, InputError, LimitExceeded, MalformedInput, UnprocessableInput

LIMITS = Limits()


def read(body: Any, **options: Any) -> list[NamedTensor]:
    found = read_tensors(body, TensorDecodeOptions(**options), LIMITS)
    return [NamedTensor(named.tensor, named.name) for named in found if isinstance(named.tensor, Tensor)]


def summary(body: Any, **options: Any) -> list[tuple[str | None, str, tuple[int, ...], list[Any]]]:
    return [
        (named.name, named.tensor.dtype.name, named.tensor.shape, named.tensor.values.tolist())
        for named in read(body, **options)
    ]


def refused(body: Any, **options: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read(body, **options)
    return caught.value


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"b64": "AAE"}, [(None, "string", (), [b"\0\1"])]),
        (5, [(None, "int64", (), [5])]),
        (True, [(None, "bool", (), [True])]),
        ("AA==", [(None, "string", (), [b"AA=="])]),
        ([1, 2.5], [(None, "float64", (2,), [1, 2.5])]),
        ([], [(None, "float32", (0,), [])]),
        ([[1, 2], [3, 4]], [(None, "int64", (2, 2), [1, 2, 3, 4])]),
        ([{"b64": "AA"}, "x"], [(None, "string", (2,), [b"\0", b"x"])]),
        ({"data": [1]}, [(None, "int64", (1,), [1])]),
        ({"name": "x", "dtype": "int8", "shape": [2, 1], "data": [1, 2]}, [("x", "int8", (2, 1), [1, 2])]),
        ({"datatype": "FP64", "shape": [], "data": 1, "parameters": {}}, [(None, "float64", (), [1])]),
        ({"dtype": "string", "data": ["a", {"b64": "/w"}]}, [(None, "string", (2,), [b"a", b"\xff"])]),
        (
            {"dtype": "complex64", "shape": [2], "data": [[1, 0], [0, -1]]},
            [(None, "complex64", (2,), [1, -1j])],
        ),
        ({"dtype": "complex128", "data": [1, 2]}, [(None, "complex128", (), [1 + 2j])]),
        ({"dtype": "complex64", "shape": [2, 0], "data": []}, [(None, "complex64", (2, 0), [])]),
        (
            {"tensors": [{"name": "a", "data": [1]}, 2.5, {"b64": ""}]},
            [("a", "int64", (1,), [1]), (None, "float64", (), [2.5]), (None, "string", (), [b""])],
        ),
        ({"tensors": []}, []),
        (
            {"inputs": [{"name": "a", "datatype": "BYTES", "shape": [1], "data": ["x"]}], "id": "7"},
            [("a", "string", (1,), [b"x"])],
        ),
        (
            {"outputs": [{"name": "a", "datatype": "BOOL", "shape": [1], "data": [True]}], "model_name": "m"},
            [("a", "bool", (1,), [True])],
        ),
        ({"instances": [[1], [2]], "signature_name": "s"}, [(None, "int64", (2, 1), [1, 2])]),
        ({"instances": [{"b64": "AA=="}]}, [(None, "string", (1,), [b"\0"])]),
        ({"inputs": [1, 2]}, [(None, "int64", (2,), [1, 2])]),
        ({"inputs": []}, [(None, "float32", (0,), [])]),
        (
            {"inputs": {"b": [1], "a": "x", "data": 2.5}, "parameters": {}},
            [("b", "int64", (1,), [1]), ("a", "string", (), [b"x"]), ("data", "float64", (), [2.5])],
        ),
        ({"columns": {"inputs": {"dtype": "int8", "data": [1]}}}, [("inputs", "int8", (1,), [1])]),
    ],
)
def test_every_form_of_the_contract(body: Any, expected: list[Any]) -> None:
    assert summary(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"x": [1]},
        {"b64": "AA==", "x": 1},
        {"tensors": [1], "id": "7"},
        {"columns": {"a": [1]}, "id": "7"},
        {"instances": {"a": [1]}},
        {"instances": [1], "inputs": [1]},
        {"outputs": [1]},
        {"outputs": {"a": [1]}},
        {"inputs": 5},
        {"tensors": {"a": [1]}},
        {"tensors": [{"tensors": [1]}]},
        {"inputs": {"a": {"x": 1}}},
    ],
)
def test_other_objects_are_ambiguous(body: Any) -> None:
    error = refused(body)
    assert isinstance(error, AmbiguousInput)
    assert error.code == "ambiguous_json"
    assert '{"tensors": [...]}' in error.detail


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        (None, "null_value", ""),
        ([1, [2]], "ragged", "/1"),
        ({"instances": [[1], [2, 3]]}, "ragged", "/instances/1"),
        ([[1, 2], [3, True]], "mixed_types", "/1/1"),
        ([[1.0, 2], [9007199254740993, 1]], "inexact_integer", "/1/0"),
        ([2**63], "out_of_range", "/0"),
        ([float("inf")], "out_of_range", "/0"),
        ([1, None], "null_value", "/1"),
        ([{"x": 1}], "type_mismatch", "/0"),
        ({"dtype": "int8", "shape": [2, 2], "data": [1, 2, 3, 300]}, "out_of_range", "/data/3"),
        ({"dtype": "bool", "data": 1}, "type_mismatch", "/data"),
        ({"dtype": "complex64", "data": [1, 2, 3]}, "type_mismatch", "/data/0"),
        ({"dtype": "complex64", "data": [[[1, 2], [3, "x"]]]}, "type_mismatch", "/data/0/1/1"),
        ({"shape": [3], "data": [1, 2]}, "shape_mismatch", "/data"),
        ({"inputs": {"a/b": [1, "x"]}}, "mixed_types", "/inputs/a~1b/1"),
        ({"inputs": [{"datatype": "INT8", "data": ["x"]}]}, "inexact_integer", "/inputs/0/data/0"),
        ({"tensors": [[1], {"data": [{"b64": "A"}]}]}, "invalid_base64", "/tensors/1/data/0"),
        ({"inputs": {"a": {"name": "b", "data": 1}}}, "name_mismatch", "/inputs/a/data"),
    ],
)
def test_the_pointer_leads_to_the_fault(body: Any, code: str, pointer: str) -> None:
    error = refused(body)
    assert (error.code, error.location.pointer) == (code, pointer)


def test_tensors_of_one_name_are_refused() -> None:
    assert refused({"tensors": [{"name": "a", "data": 1}] * 2}).code == "duplicate_name"


@pytest.mark.parametrize(
    "body",
    [[1, 2, 3, 4], {"data": [1, 2, 3, 4]}, {"instances": [[1, 2], [3, 4]]}, {"tensors": [[1, 2, 3, 4]]}],
)
def test_the_query_declares_what_the_body_does_not(body: Any) -> None:
    assert summary(body, dtype=FLOAT64, shape=(2, 2)) == [(None, "float64", (2, 2), [1, 2, 3, 4])]


@pytest.mark.parametrize(
    ("dtype", "shape", "code"),
    [(INT64, None, "dtype_mismatch"), (None, (2,), "shape_mismatch"), (FLOAT32, (1,), None)],
)
def test_the_query_and_the_body_must_agree(
    dtype: DType | None, shape: tuple[int, ...] | None, code: str | None
) -> None:
    body = {"dtype": "float32", "shape": [1], "data": [1]}
    if code is None:
        assert summary(body, dtype=dtype, shape=shape) == [(None, "float32", (1,), [1])]
    else:
        error = refused(body, dtype=dtype, shape=shape)
        assert isinstance(error, UnprocessableInput)
        assert error.code == code


def test_the_query_describes_no_several_tensors() -> None:
    for options in ({"dtype": FLOAT32}, {"shape": (1,)}):
        assert refused({"tensors": [[1], [2]]}, **options).code == "several_tensors"


def test_words_and_null_are_numbers_only_as_declared() -> None:
    assert refused(["NaN", 1.5]).code == "mixed_types"
    assert str(read(["NaN", 1.5], dtype=FLOAT32)[0].tensor.values.tolist()) == "[nan, 1.5]"
    assert str(read([None, 1], nonfinite="null")[0].tensor.values.tolist()) == "[nan, 1.0]"


def test_254_axes_and_no_more() -> None:
    nested: Any = 1
    for _ in range(254):
        nested = [nested]
    assert read(nested)[0].tensor.shape == (1,) * 254
    error = refused([nested])
    assert isinstance(error, LimitExceeded)
    assert (error.code, error.location.pointer) == ("rank_too_large", "")


def test_a_huge_declared_shape_allocates_nothing() -> None:
    assert refused({"shape": [2**40], "data": [1]}).code == "shape_mismatch"
    assert summary({"dtype": "int8", "shape": [0, 2**40], "data": []}) == [(None, "int8", (0, 2**40), [])]


def test_the_number_and_the_names_of_tensors_are_bounded() -> None:
    limits = Limits(max_members=2, max_name_bytes=2)
    with pytest.raises(LimitExceeded, match="3 tensors"):
        read_tensors({"tensors": [1, 2, 3]}, TensorDecodeOptions(), limits)
    with pytest.raises(LimitExceeded, match="longer than 2"):
        read_tensors({"inputs": {"abc": 1}}, TensorDecodeOptions(), limits)


def test_a_form_with_unknown_members_is_malformed() -> None:
    error = refused({"data": [1], "dtpye": "int8"})
    assert isinstance(error, MalformedInput)
    assert "'dtpye'" in error.detail
