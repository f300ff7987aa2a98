"""What would make a dataset take rows that its schema refuses; their error says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ....codecs.schema_inference import HEAD_ROWS
from ....domain.dtypes import INT64
from ....domain.evolution import DECLARE_ANEW
from ....domain.schema import Schema
from ....errors import InputError, LossyConversion, SchemaConflict


@contextmanager
def explain_refusal(stored: Schema | None, *, evolve: bool) -> Iterator[None]:
    """Add to the error of refused rows what would make the dataset take them.

    Args:
        stored: the schema of the dataset.
        evolve: whether the rows were allowed to widen it.
    """
    try:
        yield
    except InputError as error:
        remedy = _find_remedy(error, stored, evolve=evolve)
        if not remedy:
            raise
        explained = type(error)(f"{error.detail} {remedy}", code=error.code, extra=error.extra)
        explained.location = error.location
        raise explained from None


def _find_remedy(error: InputError, stored: Schema | None, *, evolve: bool) -> str:
    """What makes the dataset take the rows; "" if the error says it already, or nothing does."""
    name = error.location.feature
    if stored is None or name is None or "schema" in error.extra:
        return ""
    feature = stored.by_name.get(name)
    if feature is None:
        is_told = evolve or not isinstance(error, SchemaConflict)
        return "" if is_told else "With evolve=widen it is added to the schema of the dataset."
    if error.code == "inexact_integer" and feature.dtype == INT64 and not feature.may_become_float32:
        why = "" if feature.inferred else ", since it was declared"
        if feature.beyond_float32:
            why = ", since float32 does not hold all its integers exactly"
        return f"It stays int64 in this dataset{why}. {DECLARE_ANEW}"
    if error.code == "lossy_encoding" and feature.inferred and feature.dtype.is_float:
        return f"Feature {name!r} stays {feature.dtype} in this dataset. To keep every digit: {DECLARE_ANEW}"
    has_length = feature.inferred and not feature.is_scalar and feature.num_values is not None
    ways = ["become float32"] * feature.may_become_float32 + ["have lists of any length"] * has_length
    if not ways or not isinstance(error, SchemaConflict | LossyConversion):
        return ""
    if evolve:
        is_late = (error.location.row or 0) >= HEAD_ROWS
        return f"evolve=widen looks at the first {HEAD_ROWS} rows: set infer=all." if is_late else ""
    return f"It was inferred from earlier rows: with evolve=widen it may {' and '.join(ways)}."
