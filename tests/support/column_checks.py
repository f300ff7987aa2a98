"""What holds for every batch of columns (see app/codecs/columns.py)."""

from typing import Any

import numpy as np

from app.codecs.columns import MAX_BATCH_ROWS, Batch, Column, Strings, item_width, num_splits
from app.domain.feature import Feature
from app.domain.schema import Schema


def check_batch(batch: Batch, schema: Schema, *, max_rows: int = MAX_BATCH_ROWS) -> Batch:
    """The batch, whose columns are as the schema says."""
    assert 0 <= batch.num_rows <= max_rows
    assert len(batch.columns) == len(schema)
    for feature, column in zip(schema, batch.columns, strict=True):
        check_column(column, feature, batch.num_rows)
    return batch


def check_column(column: Column, feature: Feature, num_rows: int) -> None:
    if column.present is not None:
        assert column.present.dtype == np.bool_
        assert column.present.shape == (num_rows,)
        assert feature.nullable or column.present.all()
    assert column.width == item_width(feature)
    assert len(column.splits) == num_splits(feature)
    count = column.count(num_rows)
    above = count
    for split in column.splits:
        above = count
        count = _check_cut(split, count)
    assert len(column.values) == count * column.width
    _check_values(column.values, feature)
    item = feature.step if feature.kind == "sequence" else feature
    if feature.kind in ("dense", "sequence") and item.num_unknown > 1:
        assert column.shapes is not None
        assert column.shapes.dtype == np.int64
        assert column.shapes.shape == (above, len(item.shape))
        np.testing.assert_array_equal(np.diff(column.splits[-1]), column.shapes.prod(axis=1))
    else:
        assert column.shapes is None
    if feature.kind == "sparse":
        assert column.coordinates is not None
        assert column.coordinates.dtype == np.int64
        assert column.coordinates.shape == (count, len(feature.shape))
        assert (column.coordinates >= 0).all()
        assert (column.coordinates < np.array(feature.shape)).all()
    else:
        assert column.coordinates is None
    if feature.num_unknown and feature.kind == "dense" and feature.known_values:
        assert not (np.diff(column.splits[0]) % feature.known_values).any()


def _check_cut(offsets: Any, count: int) -> int:
    """Whether they cut something into `count` items; of how many."""
    assert offsets.dtype == np.int64
    assert offsets.shape == (count + 1,)
    assert offsets[0] == 0
    assert (np.diff(offsets) >= 0).all()
    return int(offsets[-1])


def _check_values(values: Any, feature: Feature) -> None:
    dtype = feature.dtype
    if dtype.is_string:
        assert isinstance(values, Strings)
        assert values.data.dtype == np.uint8
        assert _check_cut(values.offsets, len(values)) == len(values.data)
        if dtype.name == "text":
            for value in values.unpack():
                value.decode()
        return
    assert values.ndim == 1
    assert values.dtype == dtype.numpy
    assert values.flags.c_contiguous
    if dtype.kind == "bool":
        assert (values.view(np.uint8) <= 1).all()
