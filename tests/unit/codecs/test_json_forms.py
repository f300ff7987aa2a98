from __future__ import annotations

from typing import Any

import pytest

from app.codecs.json.forms import DataForm, check_name, fit_shape, is_oip, member_pointer, read_data_form
from app.domain.dtypes import FLOAT32, STRING
from app.domain.limits import Limits
from app.errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput


def test_all_members_of_the_form() -> None:
    members = {"name": "x", "datatype": "FP32", "shape": [2, 0], "data": [], "parameters": {"a": 1}}
    assert read_data_form(members, "") == DataForm([], FLOAT32, (2, 0), "x")
    assert read_data_form({"dtype": "text", "data": 5}, "") == DataForm(5, STRING)


@pytest.mark.parametrize(
    ("value", "code", "pointer"),
    [
        ({"data": 1, "other": 2}, "invalid_tensor", "/t"),
        ({"datatype": "FP32"}, "invalid_tensor", "/t"),
        ({"data": 1, "dtype": "int8", "datatype": "INT8"}, "invalid_tensor", "/t"),
        ({"data": 1, "dtype": 5}, "invalid_tensor", "/t"),
        ({"data": 1, "dtype": "float99"}, "unknown_dtype", "/t"),
        ({"data": 1, "name": 5}, "invalid_tensor", "/t/name"),
        ({"data": 1, "shape": 5}, "invalid_tensor", "/t/shape"),
        ({"data": 1, "shape": [2.0]}, "invalid_shape", "/t/shape"),
        ({"data": 1, "shape": [True]}, "invalid_shape", "/t/shape"),
        ({"data": 1, "shape": [-1]}, "invalid_shape", "/t/shape"),
        ({"data": 1, "shape": [2**63]}, "invalid_shape", "/t/shape"),
        ({"data": 1, "shape": [2**32, 2**32]}, "shape_too_large", "/t/shape"),
        ({"data": 1, "shape": [1] * 255}, "rank_too_large", "/t/shape"),
    ],
)
def test_members_of_the_wrong_kind_are_refused(value: dict[str, Any], code: str, pointer: str) -> None:
    with pytest.raises(InputError) as caught:
        read_data_form(value, "/t")
    assert isinstance(caught.value, MalformedInput | LimitExceeded)
    assert (caught.value.code, caught.value.location.pointer) == (code, pointer)


def test_pointers_are_escaped() -> None:
    assert member_pointer("/inputs", "a/b~c") == "/inputs/a~1b~0c"
    assert member_pointer("", 3) == "/3"


def test_open_inference_lists_are_told_by_their_datatypes() -> None:
    assert is_oip([{"datatype": "FP32"}, {"datatype": "x", "name": "y"}])
    for other in ([], [{"datatype": "FP32"}, {}], [1], {"datatype": "FP32"}, None):
        assert not is_oip(other)


@pytest.mark.parametrize(
    ("found", "declared", "fitted"),
    [
        ((2, 3), None, (2, 3)),
        ((2, 3), (2, 3), (2, 3)),
        ((6,), (2, 3), (2, 3)),
        ((1,), (), ()),
        ((), (), ()),
        ((0,), (3, 0), (3, 0)),
        ((2, 0), (2, 0, 3), (2, 0, 3)),
    ],
)
def test_nested_and_flat_data_fit(
    found: tuple[int, ...], declared: tuple[int, ...] | None, fitted: tuple[int, ...]
) -> None:
    assert fit_shape(found, declared, "") == fitted


@pytest.mark.parametrize(
    ("found", "declared"),
    [
        ((5,), (2, 3)),
        ((3, 2), (2, 3)),
        ((), (1,)),
        ((6, 1), (6,)),
        ((2, 0), (3, 0, 3)),
        ((1,), (2**31, 2**31)),
    ],
)
def test_other_data_does_not_fit(found: tuple[int, ...], declared: tuple[int, ...]) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        fit_shape(found, declared, "/data")
    assert (caught.value.code, caught.value.location.pointer) == ("shape_mismatch", "/data")


def test_names_are_bounded_in_bytes() -> None:
    limits = Limits(max_name_bytes=4)
    check_name("éé", limits)
    with pytest.raises(LimitExceeded) as caught:
        check_name("ééé", limits)
    assert caught.value.code == "name_too_long"
