"""Values of one dtype -> the dtype that the client declared, exactly or not at all.

Exactly means: an integer stays that integer. Only between floating dtypes (and complex ones) a
declared narrower dtype rounds to nearest, since that is what declaring it asks for; a finite number
that would become infinite is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..domain.dtypes import PRECISION, TEXT, DType
from ..errors import LossyConversion, SchemaConflict, UnprocessableInput
from .arrow.elements import first_not_utf8
from .columns import Strings
from .content import extend_sign
from .rounding import round_values


def convert_values(values: NDArray[Any], source: DType, target: DType, *, feature: str) -> NDArray[Any]:
    """The numbers as an array of `target.numpy`; the same array where nothing changes.

    Args:
        values: of `source.numpy`, any shape; the first axis counts rows.
        feature: names the column in errors.

    Raises:
        SchemaConflict: one of them is a string, or a complex number is declared real.
        LossyConversion: a value that `target` does not hold (`out_of_range`), with its row.
    """
    if source.numpy == target.numpy:
        return values
    if source.is_string or target.is_string or (source.kind == "complex" and target.kind != "complex"):
        raise _conflict(source, target, feature)
    if source.is_integer:
        values = extend_sign(values, source)  # an int4 compares with int4s only
    lost = _not_held(values, source, target)
    if target.kind in ("float", "complex"):
        converted, overflowing = round_values(values, target)
        lost |= overflowing
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            converted = values.astype(target.numpy)
    _refuse(lost, values, target, feature)
    return converted


def convert_strings(
    strings: Strings, source: DType, target: DType, *, feature: str, width: int = 1
) -> Strings:
    """The strings themselves, if `target` holds them.

    Args:
        width: strings of a row.

    Raises:
        SchemaConflict: `target` is a number.
        UnprocessableInput: bytes declared as text that are not UTF-8 (`invalid_utf8`), with the row.
    """
    if not target.is_string:
        raise _conflict(source, target, feature)
    if target is TEXT and source is not TEXT and (index := first_not_utf8(strings)) is not None:
        raise UnprocessableInput(
            f"Feature {feature!r} is declared as text, but holds bytes that are not UTF-8. Declare it as "
            "bytes.",
            code="invalid_utf8",
            row=index // width,
            feature=feature,
        )
    return strings


def _conflict(source: DType, target: DType, feature: str) -> SchemaConflict:
    return SchemaConflict(
        f"Feature {feature!r} is {source}, but the schema declares {target}.", feature=feature
    )


def _not_held(values: NDArray[Any], source: DType, target: DType) -> NDArray[np.bool_]:
    """Which values are lost, apart from floating overflow, which shows in the result."""
    if target.is_integer or target.kind == "bool":
        low, high = target.bounds
        if source.is_float:
            return ~_is_integer_within(values, low, high)
        if source.kind == "bool" or not values.size or (low <= values.min() and values.max() <= high):
            return np.zeros(values.shape, np.bool_)
        return _outside(values, source, low, high)
    if source.is_integer:
        return _more_digits_than(values, PRECISION[target.name])
    return np.zeros(values.shape, np.bool_)


def _outside(values: NDArray[Any], source: DType, low: int, high: int) -> NDArray[np.bool_]:
    """Integers below `low` or above `high`, either of which may lie beyond the dtype of `values`."""
    outside = np.zeros(values.shape, np.bool_)
    if low > source.bounds[0]:
        outside |= values < low
    if high < source.bounds[1]:
        outside |= values > high
    return outside


def _is_integer_within(values: NDArray[Any], low: int, high: int) -> NDArray[np.bool_]:
    wide = values.astype(np.float64)  # every float dtype widens exactly
    # high + 1 is a power of two, hence exact as float64; high itself may not be.
    return np.asarray((np.trunc(wide) == wide) & (wide >= low) & (wide < float(high + 1)))


def _more_digits_than(values: NDArray[Any], precision: int) -> NDArray[np.bool_]:
    """Integers that take more than `precision` binary digits, trailing zeros not counted."""
    if not values.size or max(-int(values.min()), int(values.max())) <= 2**precision:
        return np.zeros(values.shape, np.bool_)
    # The magnitude of the most negative int64, too, is right as uint64.
    wide = (
        values.astype(np.uint64)
        if values.dtype.kind == "u"
        else np.abs(values.astype(np.int64)).view(np.uint64)
    )
    lowest_bit = wide & (~wide + np.uint64(1))
    odd_part = wide // np.maximum(lowest_bit, np.uint64(1))
    return np.asarray(odd_part >= np.uint64(2**precision))


def _refuse(lost: NDArray[np.bool_], values: NDArray[Any], target: DType, feature: str) -> None:
    if not lost.any():
        return
    index = int(np.argmax(lost))
    row = index // (values.size // len(values)) if values.ndim else None
    raise LossyConversion(
        f"Feature {feature!r} holds {values.reshape(-1)[index]}, which {target}, as the schema declares it, "
        f"does not hold.",
        code="out_of_range",
        feature=feature,
        row=row,
    )
