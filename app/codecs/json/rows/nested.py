"""Nested arrays of a feature's shape, and where an item of them belongs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....domain.feature import Feature, FeatureShape
from ....errors import InputError, SchemaConflict
from ...kernels.json.tape import ARRAY, NULL
from ..errors import cell_error
from ..tape import Items
from ..values import null_error

Ints = NDArray[np.int64]


def misfit(feature: Feature, items: Items, index: int, row: int) -> InputError:
    """The error of an item that stands where the shape of the feature has something else."""
    if items.kinds[index] == NULL:
        return cell_error(null_error(0), feature.name, row)
    return misplaced(feature, items.describe(index), int(row))


def misplaced(feature: Feature, found: str, row: int) -> SchemaConflict:
    """The error of a cell in which `found` stands where the shape of the feature has something else."""
    return SchemaConflict(
        f"Feature {feature.name!r} is {feature.kind} of shape {list(feature.shape)} in the schema, but in "
        f"row {row} {found} stands where it does not fit.",
        row=row,
        feature=feature.name,
    )


def count_bounds(counts: Ints) -> Ints:
    """Where stretches of these lengths begin, and where the last one ends."""
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    return bounds


def cell_at(bounds: Ints, index: int) -> int:
    """Which of the cells that are cut at `bounds` holds the item."""
    return int(np.searchsorted(bounds, index, side="right")) - 1


def open_nested(
    feature: Feature, items: Items, shape: FeatureShape, rows: Ints, outer: tuple[Ints, ...] = ()
) -> tuple[Items, list[Ints]]:
    """The items in nested arrays of `shape`, and how many each array of each axis holds.

    Args:
        outer: the same of the axes that are open already.
    """
    counts = list(outer)
    for dim in shape:
        is_array = items.kinds == ARRAY
        wrong = ~is_array
        if dim is not None:
            wrong[is_array] = items.take(is_array).counts() != dim
        if wrong.any():
            index = cell = int(np.argmax(wrong))
            for of_axis in reversed(counts):
                cell = cell_at(count_bounds(of_axis), cell)
            raise misfit(feature, items, index, rows[cell])
        items, of_axis = items.open()
        counts.append(of_axis)
    return items, counts
