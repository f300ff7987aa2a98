from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as npst

from app.codecs.json.text import NegativeZero, NonFinite
from app.codecs.json.values import ItemError, Reading, flatten, infer_dtype, unravel

NAN = NonFinite("nan")


@settings(deadline=None, max_examples=100)
@given(shape=npst.array_shapes(min_dims=1, max_dims=6, min_side=1, max_side=4))
def test_flatten_is_row_major_and_unravel_leads_back(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape)
    items, found = flatten(array.tolist())
    assert (items, found) == (list(range(array.size)), shape)
    assert all(array[unravel(index, shape)] == index for index in items)


@pytest.mark.parametrize(
    ("nested", "shape"),
    [([], (0,)), ([[], []], (2, 0)), ([[[], []]], (1, 2, 0)), ([1], (1,)), ([{"b64": ""}], (1,))],
)
def test_flatten_keeps_the_dimensions_that_it_sees(nested: list[Any], shape: tuple[int, ...]) -> None:
    assert flatten(nested)[1] == shape


def test_flatten_takes_more_axes_than_numpy() -> None:
    nested: list[Any] = [7]
    for _ in range(299):
        nested = [nested]
    assert flatten(nested) == ([7], (1,) * 300)


@pytest.mark.parametrize(
    ("nested", "path"),
    [
        ([[1], [2, 3]], (1,)),
        ([[1], 2], (1,)),
        ([1, [2]], (1,)),
        ([[1, 2], [3, [4]]], (1, 1)),
        ([[[1], [2]], [[3], [4, 5]]], (1, 1)),
        ([[], [1]], (1,)),
        ([None, [1]], (1,)),
    ],
)
def test_ragged_arrays_are_refused_at_the_first_that_differs(
    nested: list[Any], path: tuple[int, ...]
) -> None:
    with pytest.raises(ItemError, match="ragged") as caught:
        flatten(nested)
    assert (caught.value.code, caught.value.path) == ("ragged", path)


@pytest.mark.parametrize(
    ("items", "name"),
    [
        ([], "float32"),
        ([1, -2], "int64"),
        ([1, 2.5], "float64"),
        ([NegativeZero()], "int64"),
        ([NegativeZero(), 1], "int64"),
        ([NegativeZero(), 1.5], "float64"),
        ([NAN, 1], "float64"),
        ([True, False], "bool"),
        (["a", "b"], "text"),
        ([{"b64": "AA=="}], "bytes"),
        (["a", {"b64": "AA=="}], "string"),
    ],
)
def test_the_dtype_of_undeclared_items(items: list[Any], name: str) -> None:
    assert infer_dtype(items, Reading(declared=False)).name == name


def test_null_is_nan_among_numbers_only_when_asked_for() -> None:
    asked = Reading(declared=False, null_is_nan=True)
    assert infer_dtype([1, None], asked).name == "float64"
    assert infer_dtype([None], asked).name == "float64"
    mixtures: list[tuple[list[Any], Reading]] = [
        ([True, None], asked),
        (["a", None], asked),
        ([1, None], Reading()),
    ]
    for items, reading in mixtures:
        with pytest.raises(ItemError) as caught:
            infer_dtype(items, reading)
        assert (caught.value.code, caught.value.index) == ("null_value", 1)


@pytest.mark.parametrize(
    ("items", "index"),
    [
        ([1, 2, True], 2),
        ([True, 1.0], 1),
        (["a", 1], 1),
        ([1, "NaN"], 1),
        ([NegativeZero(), 1, True], 2),
        ([True, {"b64": ""}], 1),
    ],
)
def test_booleans_strings_and_numbers_never_mix(items: list[Any], index: int) -> None:
    with pytest.raises(ItemError) as caught:
        infer_dtype(items, Reading(declared=False))
    assert (caught.value.code, caught.value.index) == ("mixed_types", index)


def test_the_reading_follows_from_the_option() -> None:
    assert Reading.of("null", declared=True) == Reading(declared=True, null_is_nan=True)
    assert Reading.of("bare", declared=False) == Reading(declared=False, null_is_nan=False)
