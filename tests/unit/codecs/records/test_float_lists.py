"""float64 in a FloatList: what is rounded, what is refused, and what is told."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.arrow.batches import arrow_schema
from app.codecs.columns import Column
from app.codecs.messages.float_lists import ValuePlaces, round_floats
from app.codecs.messages.messages import encode_messages
from app.codecs.options import RecordsEncodeOptions
from app.domain.dtypes import FLOAT64
from app.domain.rounded import RoundedFeatures
from app.domain.schema import Feature, Schema
from app.errors import LossyConversion
from app.runtime.budget import Budget
from tests.arrow_rows import from_arrow

X = Feature("x", FLOAT64, (None,), inferred=True)
RULE, EXACT, ALLOW = (
    RecordsEncodeOptions(),
    RecordsEncodeOptions(exact=True),
    RecordsEncodeOptions(lossy=True),
)


def rounded(values: list[float], options: RecordsEncodeOptions = RULE) -> list[float]:
    """The values of one row."""
    places = ValuePlaces(Column(np.array(values), (np.array([0, len(values)]),)), 1, 0)
    result: list[float] = round_floats(X, np.array(values), places, options).tolist()
    return result


@pytest.mark.parametrize(
    ("value", "rule", "exact", "allow"),
    [
        (0.1, True, False, True),
        (0.5, True, True, True),
        (1e-300, True, False, True),
        (2.0**24 - 0.3, True, False, True),
        (2.0**24, True, True, True),
        (2.0**24 + 0.25, False, False, True),
        (2.0**24 + 1, False, False, True),
        (2.0**24 + 2, True, True, True),
        (-123456789.12, False, False, True),
        (1700000000.123, False, False, True),
        (2.0**100, True, True, True),
        (3.5e38, False, False, False),
        (-1e300, False, False, False),
        (math.inf, True, True, True),
        (math.nan, True, True, True),
    ],
)
def test_which_values_a_float_list_takes(value: float, rule: bool, exact: bool, allow: bool) -> None:
    for options, is_taken in ((RULE, rule), (EXACT, exact), (ALLOW, allow)):
        if is_taken:
            assert repr(rounded([1.5, value], options)[1]) == repr(float(np.float32(value)))
            continue
        with pytest.raises(LossyConversion, match=re.escape(str(value))) as caught:
            rounded([1.5, value], options)
        error = caught.value
        assert (error.code, error.location.row, error.location.feature) == ("lossy_encoding", 0, "x")


@given(st.lists(st.floats(width=64, min_value=-1e8, max_value=1e8) | st.just(math.nan)))
def test_what_is_taken_is_within_half_of_an_integer_step_and_what_numpy_rounds_to(
    values: list[float],
) -> None:
    wide = np.array(values)
    expected = wide.astype(np.float32)
    far = (np.abs(wide) > 2**24) & (expected != wide)
    if far.any():
        with pytest.raises(LossyConversion):
            rounded(values)
    else:
        assert np.array(rounded(values), np.float32).tobytes() == expected.tobytes()
        assert not (np.abs(expected.astype(np.float64) - wide) > 0.5).any()


KINDS: dict[str, tuple[Feature, Any]] = {
    "scalar": (Feature("x", FLOAT64), lambda value: value),
    "fixed": (Feature("x", FLOAT64, (2,)), lambda value: [0.5, value]),
    "varying": (X, lambda value: [0.5] * (value != 0.5) + [value]),
    "ragged": (
        Feature("x", FLOAT64, (None, None), "ragged"),
        lambda value: [[], [0.5, value], [2.0]],
    ),
    "sparse": (
        Feature("x", FLOAT64, (9,), "sparse"),
        lambda value: {"indices": [1, 2], "values": [0.5, value]},
    ),
    "sequence": (Feature("x", FLOAT64, (None, 2), "sequence"), lambda value: [[0.5, 0.5], [value, 0.5]]),
}


def encode(kind: str, cells: list[float | None], options: RecordsEncodeOptions) -> None:
    feature, cell = KINDS[kind]
    schema = Schema((replace(feature, nullable=True, inferred=True),))
    rows = [{"x": None if value is None else cell(value)} for value in cells]
    batches = (
        pa.RecordBatch.from_pylist(rows[start : start + 3], arrow_schema(schema))
        for start in range(0, len(rows), 3)
    )
    for _ in encode_messages(from_arrow(schema, batches), options, Budget()):
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_names_the_row_of_a_value_that_is_not_rounded(kind: str) -> None:
    with pytest.raises(LossyConversion, match=r"123456789\.12 would become 123456792\.0") as caught:
        encode(kind, [0.5, None, 0.1, 0.5, None, 123456789.12, 0.5], RULE)
    assert (caught.value.code, caught.value.location.row) == ("lossy_encoding", 5)
    assert caught.value.location.feature == "x"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_tells_which_rows_were_rounded(kind: str) -> None:
    found = RoundedFeatures(with_rows=True)
    encode(kind, [0.5, None, 0.1, 0.5, None, 0.3, 0.5], RecordsEncodeOptions(rounded=found))
    assert (found.names, found.candidates) == (["x"], ["x"])
    assert sorted(np.concatenate(found.rows["x"]).tolist()) == [2, 5]
    assert [found.names_between(row, row + 1) for row in range(7)] == [[], [], ["x"], [], [], ["x"], []]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_held_exactly_is_not_told(kind: str) -> None:
    found = RoundedFeatures()
    encode(kind, [0.5, None, 2.0**30, math.nan, -math.inf], RecordsEncodeOptions(rounded=found, exact=True))
    assert (found.names, found.candidates) == ([], ["x"])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_declared_needs_a_word(kind: str) -> None:
    schema = Schema((replace(KINDS[kind][0], inferred=False),))
    for options in (RULE, EXACT):
        with pytest.raises(LossyConversion, match=r"\?lossy=allow"):
            encode_messages(from_arrow(schema, iter(())), options, Budget())
