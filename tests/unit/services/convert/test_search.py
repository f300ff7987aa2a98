"""Searching rows by a value, a range, a part of a text, or for being absent."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from app.codecs.columns import Batch, Column, Records, Strings
from app.domain.feature import Feature
from app.domain.schema import Schema
from app.services.convert.search import Condition, Search
from tests.unit.api.ui.columns import feature


def column_of(values: Sequence[Any]) -> Column:
    """A scalar column; None is absent."""
    present = np.array([value is not None for value in values])
    given = [value for value in values if value is not None]
    packed = Strings.pack(given) if isinstance(given[0], bytes) else np.array(given)
    return Column(packed, present=None if present.all() else present)


def found(
    of: Feature, batches: Sequence[Column], condition: Condition, *, most: int = 100, late: bool = False
) -> tuple[list[int], Search]:
    def rows_of(column: Column) -> int:
        return len(column.values) if column.present is None else len(column.present)

    drawn = (Batch(rows_of(column), (column,)) for column in batches)
    search = Search(Records(Schema((of,)), drawn), condition, most=most, is_late=lambda: late)
    numbers = []
    for number, row in search.rows():
        assert row.num_rows == 1
        numbers.append(number)
    return numbers, search


NUMBERS = column_of([3, None, 5, 4, None, 3])


@pytest.mark.parametrize(
    ("condition", "numbers"),
    [
        (Condition("x", low=3, high=3), [0, 5]),
        (Condition("x", low=4), [2, 3]),
        (Condition("x", high=4), [0, 3, 5]),
        (Condition("x"), [0, 2, 3, 5]),
        (Condition("x", low=9), []),
        (Condition("x", is_absent=True), [1, 4]),
    ],
)
def test_numbers(condition: Condition, numbers: list[int]) -> None:
    found_numbers, search = found(feature("x", "int64"), [NUMBERS], condition)
    assert found_numbers == numbers
    assert (search.searched, search.is_whole) == (6, True)


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int64", "uint64", "float16", "bfloat16", "float32", "float64"]
)
@pytest.mark.parametrize("number", [10**400, 10**30, 1e300, math.inf])
def test_numbers_beyond_all_values_are_bounds_like_others(dtype: str, number: float) -> None:
    of = feature("x", dtype)
    column = Column(np.array([1, 0, 1]).astype(of.dtype.numpy))
    for low, high, numbers in [
        (-number, number, [0, 1, 2]),
        (number, None, []),
        (None, -number, []),
        (number, number, []),
    ]:
        assert found(of, [column], Condition("x", low=low, high=high))[0] == numbers


@pytest.mark.parametrize(
    ("text", "is_part", "numbers"),
    [
        (b"ab", False, [0, 5]),
        (b"ab", True, [0, 2, 5]),
        # Across the end of one string and the beginning of the next there is nothing.
        (b"bx", True, []),
        (b"", False, [3]),
        (b"a", True, [0, 2, 5]),
        (b"", True, [0, 1, 2, 3, 5]),
    ],
)
def test_strings(text: bytes, is_part: bool, numbers: list[int]) -> None:
    column = column_of([b"ab", b"xx", b"xabab", b"", None, b"ab"])
    condition = Condition("x", text=text, is_part=is_part)
    assert found(feature("x", "bytes"), [column], condition)[0] == numbers


def test_one_of_several_values_suffices() -> None:
    splits = np.array([0, 2, 2, 5])
    column = Column(np.array([1.0, 7.0, 2.0, 3.0, 7.0], np.float32), (splits,))
    ragged = feature("x", "float32", (None,))
    drawn = iter([Batch(3, (column,))])
    search = Search(
        Records(Schema((ragged,)), drawn), Condition("x", low=7, high=7), most=9, is_late=lambda: False
    )
    assert [number for number, _ in search.rows()] == [0, 2]


def test_a_search_goes_on_where_the_last_one_ended() -> None:
    condition = Condition("x", low=3, high=3)
    numbers, search = found(feature("x", "int64"), [NUMBERS, NUMBERS], condition, most=3)
    assert numbers == [0, 5, 6]
    assert (search.searched, search.is_whole) == (7, False)


def test_a_search_that_takes_long_says_how_far_it_came() -> None:
    numbers, search = found(feature("x", "int64"), [NUMBERS, NUMBERS], Condition("x", low=5), late=True)
    assert numbers == [2]
    assert (search.searched, search.is_whole) == (6, False)
