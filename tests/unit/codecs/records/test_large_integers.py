"""Integers that float32 does not hold exactly are found, in every layout."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.records.large_integers import LargeIntegers, are_exact
from app.domain.schema import Schema
from tests.arrow_rows import arrow_schema, from_arrow

LARGE = 2**24 + 1


def schema(**members: Any) -> Schema:
    return Schema.from_json({"features": {"x": {"dtype": "int64", "nullable": True, **members}}})


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 63).map(lambda bit: -(1 << bit))))
def test_exact_is_what_comes_back_from_float32(values: list[int]) -> None:
    expected = [int(np.float32(value)) == value for value in values]
    assert are_exact(np.array(values, np.int64)).tolist() == expected


@pytest.mark.parametrize(
    ("members", "cells"),
    [
        ({}, [1, None, LARGE]),
        ({}, [None, -LARGE]),
        ({"shape": [2]}, [[1, 2], None, [3, LARGE]]),
        ({"shape": [None]}, [[], None, [3, LARGE]]),
        ({"shape": [2, 2]}, [[1, 2, 3, 4], [1, 2, 3, LARGE]]),
        ({"shape": [None, None], "kind": "ragged"}, [[[1], []], None, [[2, LARGE]]]),
    ],
)
def test_a_large_integer_is_found_where_it_stands(members: Any, cells: list[Any]) -> None:
    of = schema(**members)
    batch = pa.record_batch([pa.array(cells, arrow_schema(of).field(0).type)], schema=arrow_schema(of))
    assert found(of, batch) == {"x"}
    assert found(of, batch.slice(0, len(cells) - 1)) == set()
    assert found(of, batch.slice(len(cells) - 1)) == {"x"}


def found(of: Schema, batch: pa.RecordBatch) -> set[str]:
    large = LargeIntegers(of, None)
    batches = list(from_arrow(of, [batch]).batches)
    assert list(large.watch(batches)) == batches
    return large.found


@pytest.mark.parametrize("members", [{"dtype": "float32"}, {"dtype": "int32"}, {"encoding": "raw"}])
def test_nothing_else_is_looked_at(members: Any) -> None:
    of = schema(**members)
    assert LargeIntegers(of, None)._columns == {}


def test_what_a_dataset_has_declared_is_not_looked_at() -> None:
    assert LargeIntegers(schema(), schema())._columns == {}
