"""What a client sees of a cell that does not fit its feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...domain.schema import Feature
from ...errors import InputError, SchemaConflict
from .values import ItemError, described, null_error

__all__ = ["Rows", "cell_error", "misfit"]

#: The row of each cell. An array takes 8 bytes for each step of a sequence, a list 40.
Rows = Sequence[int] | NDArray[np.int64]

#: Codes of `ItemError` that say: these cells are of another kind than the schema says.
_CONFLICTS: Final = frozenset({"type_mismatch", "mixed_types"})


def cell_error(error: ItemError, feature: str, row: int) -> InputError:
    """What the client sees of an item that cannot be read."""
    conflict = error.code in _CONFLICTS
    return (SchemaConflict if conflict else error.error)(
        f"Feature {feature!r}, row {row}: {error.detail}",
        code="schema_conflict" if conflict else error.code,
        row=int(row),
        feature=feature,
    )


def misfit(feature: Feature, item: object, row: int) -> InputError:
    """An item that stands where the shape of the feature has something else."""
    if item is None:
        return cell_error(null_error(0), feature.name, row)
    return SchemaConflict(
        f"Feature {feature.name!r} is {feature.kind} of shape {list(feature.shape)} in the schema, but in "
        f"row {row} {described(item)} stands where it does not fit.",
        row=int(row),
        feature=feature.name,
    )
