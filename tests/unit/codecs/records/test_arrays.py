from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.codecs.arrow.batches import column_type
from app.codecs.records.arrays import (
    column_from_values,
    keeps_shape,
    list_column,
    null_column,
    values_from_column,
    with_nulls,
)
from app.domain.dtypes import BYTES, DTYPES, TEXT, DType
from app.domain.schema import Feature, FeatureKind, FeatureShape
from app.errors import LimitExceeded

NUMERIC = [dtype for dtype in DTYPES.values() if not dtype.is_string]
STRINGS = np.array([b"a", b"", b"\xff", b"bc", b"d", b"e"], object)


def values_of(dtype: DType) -> Any:
    return STRINGS if dtype.is_string else np.array([0, 1, 1, 0, 0, 1]).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", [*NUMERIC, TEXT, BYTES], ids=str)
@pytest.mark.parametrize("row_shape", [(), (1,), (3, 2), (2,)])
def test_known_shapes_round_trip(dtype: DType, row_shape: tuple[int, ...]) -> None:
    feature = Feature("x", dtype, row_shape)
    values = values_of(dtype)
    num_rows = 6 // int(np.prod(row_shape))
    column = column_from_values(values, feature, row_shape, num_rows)
    column.validate(full=True)
    assert (column.type, len(column)) == (column_type(feature), num_rows)
    assert values_from_column(column, feature).tolist() == values.tolist()


@pytest.mark.parametrize("dtype", [DTYPES["int16"], DTYPES["complex64"], BYTES], ids=str)
def test_slices_of_columns(dtype: DType) -> None:
    values = values_of(dtype)
    scalars = column_from_values(values, Feature("x", dtype), (), 6)[2:5]
    assert values_from_column(scalars, Feature("x", dtype)).tolist() == values[2:5].tolist()
    pairs = column_from_values(values, Feature("x", dtype, (2,)), (2,), 3)[1:2]
    assert values_from_column(pairs, Feature("x", dtype, (2,))).tolist() == values[2:4].tolist()


@pytest.mark.parametrize("dtype", [dtype for dtype in NUMERIC if not dtype.is_narrow], ids=str)
def test_numbers_are_not_copied(dtype: DType) -> None:
    values = values_of(dtype)
    column = column_from_values(values, Feature("x", dtype), (), 6)
    assert np.shares_memory(values_from_column(column, Feature("x", dtype)), values)


@pytest.mark.parametrize(
    ("name", "numbers"), [("int4", [-8, -1, 7]), ("int2", [-2, -1, 1]), ("uint4", [0, 15]), ("uint2", [0, 3])]
)
def test_integers_of_few_bits_are_bytes_of_the_same_value(name: str, numbers: list[int]) -> None:
    dtype = DTYPES[name]
    column = column_from_values(np.array(numbers, dtype.numpy), Feature("x", dtype), (), len(numbers))
    assert column.to_pylist() == numbers
    assert values_from_column(column, Feature("x", dtype)).tolist() == numbers


def test_one_unknown_dimension_is_a_list() -> None:
    column = column_from_values(np.arange(6), Feature("x", DTYPES["int64"], (None, 1)), (3, 1), 2)
    column.validate(full=True)
    assert column.type == pa.list_(pa.int64())
    assert column.to_pylist() == [[0, 1, 2], [3, 4, 5]]


def test_several_unknown_dimensions_are_shape_and_values() -> None:
    feature = Feature("x", BYTES, (None, None), encoding="tensor")
    column = column_from_values(STRINGS, feature, (3, 1), 2)
    column.validate(full=True)
    assert column.type == column_type(feature)
    assert column.to_pylist() == [
        {"shape": [3, 1], "values": [b"a", b"", b"\xff"]},
        {"shape": [3, 1], "values": [b"bc", b"d", b"e"]},
    ]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (None,), (None, None)])
def test_rows_without_values(shape: tuple[int | None, ...]) -> None:
    feature = Feature("x", DTYPES["float32"], shape, encoding="tensor")
    row_shape = tuple(0 if dim is None else dim for dim in shape)
    column = column_from_values(np.zeros(0, "<f4"), feature, row_shape, 3)
    column.validate(full=True)
    assert (len(column), column.null_count) == (3, 0)
    if None not in shape:
        assert len(values_from_column(column, feature)) == 0


@pytest.mark.parametrize("shape", [(), (2,), (None,), (None, None)])
def test_a_column_that_every_row_lacks(shape: tuple[int | None, ...]) -> None:
    feature = Feature("x", DTYPES["float32"], shape, encoding="tensor", nullable=True)
    column = null_column(feature, 3)
    assert (column.type, len(column), column.null_count) == (column_type(feature), 3, 3)


@pytest.mark.parametrize("kind", ["dense", "ragged", "sparse", "sequence"])
@pytest.mark.parametrize("dtype", [DTYPES["float32"], TEXT, DTYPES["complex64"]], ids=str)
def test_below_a_null_there_are_no_nulls(kind: FeatureKind, dtype: DType) -> None:
    shapes: dict[FeatureKind, FeatureShape] = {
        "dense": (None, None),
        "ragged": (None, None, 2),
        "sparse": (4, 3),
        "sequence": (None, 2),
    }
    column = null_column(Feature("x", dtype, shapes[kind], kind, nullable=True), 3)
    column.validate(full=True)
    assert column.to_pylist() == [None, None, None]
    below: list[Any] = [column]
    while below:
        nested = below.pop()
        if isinstance(nested, pa.StructArray):
            below += [nested.field(index) for index in range(nested.type.num_fields)]
        elif isinstance(nested, pa.ListArray | pa.FixedSizeListArray):
            below.append(nested.values)
        assert nested is column or not nested.null_count


@pytest.mark.parametrize(
    ("shape", "found", "kept"),
    [
        ((None, 0), (3, 0), False),
        ((None, 0), (0, 0), True),
        ((0, None), (0, 1), False),
        ((None, 2), (3, 2), True),
        ((None, None, 0), (3, 1, 0), True),
        ((3, 0), (3, 0), True),
    ],
)
def test_a_zero_hides_an_unknown_dimension(shape: Any, found: tuple[int, ...], kept: bool) -> None:
    assert keeps_shape(Feature("x", DTYPES["int8"], shape, encoding="tensor"), found) == kept


def test_lists_of_given_lengths() -> None:
    items: Any = pa.array([1, 2, 3], pa.int8())
    assert list_column(np.array([2, 0, 1]), items, "x").to_pylist() == [[1, 2], [], [3]]
    assert with_nulls(items, np.array([True, False, True])).to_pylist() == [1, None, 3]


def test_more_items_than_a_column_holds_are_refused() -> None:
    storage: Any = pa.null()
    items = pa.Array.from_buffers(storage, 2**31, [None])
    with pytest.raises(LimitExceeded) as caught:
        list_column(np.array([2**31]), items, "x")
    assert (caught.value.code, caught.value.location.feature) == ("column_too_large", "x")
