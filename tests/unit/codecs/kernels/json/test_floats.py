from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs import kernels
from app.codecs.kernels.json import floats
from app.codecs.kernels.json.tape import (
    DECIMAL_NUMBER,
    INTEGER,
    LARGE,
    NEGATIVE_ZERO,
    NONFINITE,
    NULL,
    STRING,
    TRUE,
    UNSIGNED,
)

SINGLE_LIMIT, DOUBLE_LIMIT = 1 << 24, 1 << 53
BOTH = pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])

ITEM = (
    st.tuples(st.just(INTEGER), st.integers(-(2**25), 2**25) | st.integers(-(2**54), 2**54))
    | st.tuples(st.just(DECIMAL_NUMBER), st.floats(allow_nan=False))
    | st.tuples(st.just(NONFINITE), st.sampled_from([np.nan, np.inf, -np.inf]))
    | st.tuples(st.just(NEGATIVE_ZERO), st.just(0))
)


def read(items: list[tuple[int, float]], dtype: type[np.floating[Any]], *, compiled: bool) -> Any:
    """The floats, or None where the kernel leaves them to others."""
    kinds = np.array([kind for kind, _ in items], np.uint8)
    words = np.array(
        [
            np.float64(value) if kind in (DECIMAL_NUMBER, NONFINITE) else np.int64(value)
            for kind, value in items
        ],
        object,
    )
    words = np.frombuffer(b"".join(word.tobytes() for word in words), np.uint64)
    singles = np.full(len(items) if dtype is np.float32 else 0, 7, np.float32)
    doubles = np.full(len(items) if dtype is np.float64 else 0, 7, np.float64)
    kernel = kernels.load().read_floats if compiled else floats.read_floats
    limit = SINGLE_LIMIT if dtype is np.float32 else DOUBLE_LIMIT
    are_read = kernel(kinds, words, limit, singles, doubles)
    return (singles if dtype is np.float32 else doubles) if are_read else None


@settings(deadline=None, max_examples=200)
@given(
    items=st.lists(ITEM, max_size=20), dtype=st.sampled_from([np.float32, np.float64]), compiled=st.booleans()
)
def test_numbers_are_rounded_as_numpy_rounds_them(
    items: list[tuple[int, float]], dtype: type[np.floating[Any]], compiled: bool
) -> None:
    limit = SINGLE_LIMIT if dtype is np.float32 else DOUBLE_LIMIT
    with np.errstate(over="ignore"):
        expected = np.array([-0.0 if kind == NEGATIVE_ZERO else value for kind, value in items]).astype(dtype)
    are_held = all(
        abs(value) <= limit if kind == INTEGER else kind != DECIMAL_NUMBER or np.isfinite(rounded)
        for (kind, value), rounded in zip(items, expected, strict=True)
    )
    found = read(items, dtype, compiled=compiled)
    assert (found is not None) == are_held
    if found is not None:
        assert found.tobytes() == expected.tobytes()


@BOTH
@pytest.mark.parametrize(
    ("dtype", "kind", "value", "is_read"),
    [
        (np.float32, INTEGER, 2**24, True),
        (np.float32, INTEGER, -(2**24), True),
        (np.float32, INTEGER, 2**24 + 1, False),
        (np.float32, INTEGER, -(2**24) - 1, False),
        (np.float64, INTEGER, 2**53, True),
        (np.float64, INTEGER, -(2**53), True),
        (np.float64, INTEGER, 2**53 + 1, False),
        (np.float32, DECIMAL_NUMBER, 3.4028235677973362e38, True),
        (np.float32, DECIMAL_NUMBER, -3.4028235677973362e38, True),
        (np.float32, DECIMAL_NUMBER, 3.4028235677973366e38, False),
        (np.float32, DECIMAL_NUMBER, -3.4028235677973366e38, False),
        (np.float64, DECIMAL_NUMBER, 1.7976931348623157e308, True),
        (np.float64, DECIMAL_NUMBER, np.inf, False),
        (np.float64, DECIMAL_NUMBER, -np.inf, False),
        *[(np.float64, kind, 0, False) for kind in (NULL, TRUE, UNSIGNED, LARGE, STRING)],
    ],
)
def test_other_kinds_of_items_are_left_unread(
    compiled: bool, dtype: type[np.floating[Any]], kind: int, value: float, is_read: bool
) -> None:
    one = (DECIMAL_NUMBER, 1.0)
    for items in ([(kind, value)], [(kind, value), one], [one, (kind, value)]):
        assert (read(items, dtype, compiled=compiled) is not None) == is_read


@BOTH
def test_output_without_room_is_refused(compiled: bool) -> None:
    kernel = kernels.load().read_floats if compiled else floats.read_floats
    kinds, words = np.full(3, DECIMAL_NUMBER, np.uint8), np.zeros(3, np.uint64)
    none: Any = np.empty(0, np.float32)
    assert kernel(kinds, words, DOUBLE_LIMIT, none, np.empty(3))
    assert not kernel(kinds, words, DOUBLE_LIMIT, none, np.empty(2))
    assert not kernel(kinds, words[:2], DOUBLE_LIMIT, none, np.empty(3))
