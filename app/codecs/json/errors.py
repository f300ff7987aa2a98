"""What a client sees of a cell that does not fit its feature."""

from __future__ import annotations

from typing import Final

from ...errors import InputError, SchemaConflict
from .values import ItemError

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
