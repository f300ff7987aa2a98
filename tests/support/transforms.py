"""Rows through transforms, for tests: arrays in, arrays out."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from app.codecs.columns import Batch, Column, Records, Strings
from app.domain.dtypes import parse_feature_dtype
from app.domain.feature import Feature, FeatureShape
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.runtime.budget import Budget
from app.transforms.apply import SkippedRows, apply_transforms
from app.transforms.images.processes import ImageProcesses
from app.transforms.step import row_arrays, strings_of

Array = npt.NDArray[Any]
Steps = Sequence[dict[str, Any]]


def column_of(rows: Sequence[Any], shape: FeatureShape, dtype: str) -> tuple[Feature, Column]:
    """A dense feature called `x` and its column; a row of None lacks the feature."""
    feature = Feature("x", parse_feature_dtype(dtype), shape, nullable=None in [type(r) for r in rows])
    mask = np.array([row is not None for row in rows], np.bool_)
    found = [row for row in rows if row is not None]
    present = None if mask.all() else mask
    if feature.dtype.is_string:
        return feature, Column(Strings.pack(found), (), present, 1)
    arrays = [np.asarray(row, feature.dtype.numpy) for row in found]
    values = np.concatenate([np.empty(0, feature.dtype.numpy), *(array.reshape(-1) for array in arrays)])
    if not feature.num_unknown:
        return feature, Column(values, (), present, feature.known_values)
    splits = np.cumsum([0, *(array.size for array in arrays)], dtype=np.int64)
    shapes = np.array([array.shape for array in arrays], np.int64) if feature.num_unknown > 1 else None
    return feature, Column(values, (splits,), present, 1, shapes)


def applied(
    steps: Steps,
    rows: Sequence[Any],
    shape: FeatureShape,
    dtype: str,
    images: ImageProcesses,
    *,
    skipped: SkippedRows | None = None,
    limits: Limits | None = None,
) -> Records:
    """The rows, on their way through the steps."""
    feature, column = column_of(rows, shape, dtype)
    schema = Schema((replace(feature, transforms=json.dumps(list(steps))),))
    records = Records(schema, iter([Batch(len(rows), (column,))]), len(rows))
    return apply_transforms(records, images, Budget(limits), skipped)


def transform(
    steps: Steps, rows: Sequence[Any], shape: FeatureShape, dtype: str, images: ImageProcesses
) -> list[Any]:
    """What the steps make of each row: arrays, or bytes; None for a row that lacks the feature."""
    return list(results(applied(steps, rows, shape, dtype, images)))


def results(work: Records) -> Iterator[Any]:
    """The rows of `work`, checked against the feature that it declares."""
    (feature,) = work.schema
    for batch in work.batches:
        (column,) = batch.columns
        if feature.dtype.is_string:
            found: list[Any] = list(strings_of(column).unpack())
        else:
            assert not isinstance(column.values, Strings)
            assert column.values.dtype == feature.dtype.numpy
            found = [array.copy() for array in row_arrays(column, feature, batch.num_rows)]
            for array in found:
                dims = zip(array.shape, feature.shape, strict=True)
                assert all(known in (None, dim) for dim, known in dims)
        rest = iter(found)
        present = [True] * batch.num_rows if column.present is None else column.present.tolist()
        yield from (next(rest) if has else None for has in present)
