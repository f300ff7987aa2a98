"""float64 values for a FloatList, which holds float32: rounded to nearest as TensorFlow does, or refused.

Where nobody declared float64, a value may be rounded if float32 distinguishes it from values that are 1
apart: up to 2^24. A larger value has to be exact, or the number that the shortest digits of its float32 are
read as: JSON and CSV of a float32 have these digits. `RecordsEncodeOptions` makes the rule stricter or drops
it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import orjson
from numpy.typing import NDArray

from ....domain.feature import Feature
from ....domain.immutable import immutable
from ....errors import LossyConversion
from ...columns import Column, Ints, Mask
from ...options import RecordsEncodeOptions

#: Up to here float32 holds every integer.
_EXACT_UP_TO: Final = np.float64(2**24)


@immutable()
class ValuePlaces:
    """Which row each value of a column is of.

    Attributes:
        num_rows: of the batch.
        first_row: the number of the first row in the whole input.
    """

    column: Column
    num_rows: int
    first_row: int

    def rows(self, values: Mask) -> Ints:
        """The rows of the values that are true, each once."""
        bounds = self.column.value_bounds(self.num_rows)
        found = np.unique(np.searchsorted(bounds, np.flatnonzero(values), "right") - 1)
        if self.column.present is not None:
            found = np.flatnonzero(self.column.present)[found]
        return found + self.first_row


def round_floats(
    feature: Feature, values: NDArray[np.float64], places: ValuePlaces, options: RecordsEncodeOptions
) -> NDArray[np.float32]:
    """The values as float32; features with a value that changed are noted in `options.rounded`.

    Raises:
        LossyConversion: a value that is not rounded, with row and feature.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        floats = values.astype(np.float32)
    changed = floats != values
    if not np.count_nonzero(changed):
        return floats
    # False where there is a NaN.
    is_small = bool(floats.max() < _EXACT_UP_TO and floats.min() > -_EXACT_UP_TO)
    if options.exact or not is_small:
        changed &= ~np.isnan(values)
        if not changed.any():
            return floats
        refused = _find_refused(values, floats, changed, options)
        if refused.any():
            raise _error(feature, values, floats, refused, places)
    if options.rounded is not None:
        options.rounded.add(feature.name, places.rows(changed) if options.rounded.with_rows else None)
    return floats


def _find_refused(
    values: NDArray[np.float64],
    floats: NDArray[np.float32],
    changed: NDArray[np.bool_],
    options: RecordsEncodeOptions,
) -> NDArray[np.bool_]:
    """Which of the values that change are not to be rounded."""
    if options.exact:
        return changed
    if options.lossy:
        return changed & np.isinf(floats)
    refused = changed & (np.abs(values) > _EXACT_UP_TO)
    refused[refused] = values[refused] != _read_digits(floats[refused])
    return refused


def _read_digits(floats: NDArray[np.float32]) -> NDArray[np.float64]:
    """What the shortest digits of each are read as; NaN for an infinity."""
    return np.array(orjson.loads(orjson.dumps(floats, option=orjson.OPT_SERIALIZE_NUMPY)), np.float64)


def _error(
    feature: Feature,
    values: NDArray[np.float64],
    floats: NDArray[np.float32],
    refused: NDArray[np.bool_],
    places: ValuePlaces,
) -> LossyConversion:
    index = int(np.argmax(refused))
    row = int(places.rows(refused)[0])
    value = values[index]
    if np.isinf(floats[index]):
        what = f"{value} is too large for the float32 of a FloatList"
        ways = "Declare float64 with encoding 'raw' or 'tensor' in a schema."
    else:
        what = f"{value} would become {float(floats[index])} in a FloatList, which holds float32"
        ways = (
            "Declare float64 with encoding 'raw' or 'tensor' in a schema to keep it, float32 to have it "
            "rounded, or set lossy=allow."
        )
    return LossyConversion(
        f"Feature {feature.name!r}, row {row}: {what}. {ways}", row=row, feature=feature.name
    )
