"""Convert times and decimals, which no feature holds as such, to text without loss, or to a declared number.

| Arrow type | text                               | number                                           |
|------------|------------------------------------|--------------------------------------------------|
| timestamp  | `2020-01-01T01:02:03.123456`; `...Z` in UTC if it has a zone | units since 1970       |
| date       | `2020-01-01`                       | days (date32) or milliseconds (date64) since 1970 |
| time       | `01:02:03.123456`                  | units since midnight                             |
| decimal    | `1.50`                             | the same number; a float is the nearest one      |
| duration   |                                    | units                                            |

Units are those of the column. A date64 that is no whole day and a time of more than a day have no text.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...domain.dtypes import DType
from ...errors import LossyConversion, UnprocessableInput
from ..records.lease import Lease

#: The largest scale, of either sign, at which Arrow writes decimals as text, by their bits.
_MAX_SCALES: Final = {32: 9, 64: 18, 128: 38, 256: 76}
_UNITS_OF_A_DAY: Final = {unit: 24 * 60 * 60 * 1000**n for n, unit in enumerate(("s", "ms", "us", "ns"))}


def has_text(layout: pa.DataType) -> bool:
    """Whether values of the type are read as text unless another dtype is declared."""
    types = pa.types
    is_time = types.is_timestamp(layout) or types.is_date(layout) or types.is_time(layout)
    return is_time or types.is_decimal(layout)


def has_numbers(layout: pa.DataType) -> bool:
    """Whether values of the type are read as numbers where those are declared."""
    return has_text(layout) or pa.types.is_duration(layout)


def write_out(values: Any, target: DType, lease: Lease, feature: str) -> pa.Array[Any]:
    """The values as text where `target` is a string, else as integers or floats.

    Args:
        values: of a type of the table above, without nulls.

    Raises, with the index of the value as its row:
        LossyConversion: a time that no calendar has, a date that is no whole day, a time outside of
            a day, a decimal that is no integer (`out_of_range`).
        UnprocessableInput: a duration as text, a decimal of a scale beyond 76 (`unsupported_type`).
    """
    lease.charge(96 * len(values), "Times and decimals, written out,")
    layout = values.type
    if pa.types.is_decimal(layout):
        return (
            _digits(values, lease, feature) if target.is_string else _number(values, target, lease, feature)
        )
    if not target.is_string:
        return _as_integers(values)
    if pa.types.is_duration(layout):
        raise UnprocessableInput(
            f"Feature {feature!r} is a duration, which has no text. Declare it as int64.",
            code="unsupported_type",
            feature=feature,
        )
    return _text(values, feature)


def _as_integers(values: Any) -> pa.Array[Any]:
    return values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())  # type: ignore[no-any-return]  # some Array


def _text(values: Any, feature: str) -> pa.Array[Any]:
    import pyarrow.compute as pc  # here: a service that needs it for no request is 9 MB smaller

    compute: Any = pc  # some of it is not declared
    layout = values.type
    in_zone = pa.types.is_timestamp(layout) and layout.tz is not None
    if in_zone:
        values = values.view(pa.int64()).view(pa.timestamp(layout.unit))
    units = np.asarray(_as_integers(values))
    if pa.types.is_date64(layout):
        _refuse(units % _UNITS_OF_A_DAY["ms"] != 0, f"type {layout} that is no whole day", feature)
    if pa.types.is_time(layout):
        outside = (units < 0) | (units >= _UNITS_OF_A_DAY[layout.unit])
        _refuse(outside, f"type {layout} that lies outside of a day", feature)
    text = values.cast(pa.string())
    beyond = compute.starts_with(text, "<").to_numpy(zero_copy_only=False)
    _refuse(beyond, f"type {layout} that no calendar has", feature)
    if pa.types.is_timestamp(layout):
        text = compute.replace_substring(text, " ", "T")
    return compute.binary_join_element_wise(text, "Z", "") if in_zone else text  # type: ignore[no-any-return]  # some Array


def _refuse(wrong: Any, what: str, feature: str) -> None:
    if np.any(wrong):
        raise LossyConversion(
            f"Feature {feature!r} has a value of {what}. Declare it as int64.",
            code="out_of_range",
            row=int(np.argmax(wrong)),
            feature=feature,
        )


def _digits(values: Any, lease: Lease, feature: str) -> pa.Array[Any]:
    """Decimals as text. Beyond a scale Arrow writes a remark instead of the digits, and raises no error."""
    layout = values.type
    if abs(layout.scale) > _MAX_SCALES[256]:
        raise UnprocessableInput(
            f"Feature {feature!r} has decimals of scale {layout.scale}; at most 76 is read. Cast them before "
            "you send them.",
            code="unsupported_type",
            feature=feature,
        )
    if abs(layout.scale) > _MAX_SCALES[layout.bit_width]:
        lease.charge(32 * len(values), "Decimals, widened,")
        values = values.cast(pa.decimal256(76, layout.scale))
    return values.cast(pa.string())  # type: ignore[no-any-return]  # some Array


def _number(values: Any, target: DType, lease: Lease, feature: str) -> pa.Array[Any]:
    if target.is_float or target.kind == "complex":
        # By their digits: Arrow's own cast multiplies, and is often one step off.
        return _digits(values, lease, feature).cast(pa.float64())
    integers = pa.uint64() if target.kind == "uint" else pa.int64()
    if values.type.bit_width < 128:  # which Arrow does not turn into integers where digits follow the point
        values = values.cast(pa.decimal128(38, values.type.scale))
    try:
        return values.cast(integers)  # type: ignore[no-any-return]  # some Array
    except pa.ArrowInvalid:
        pass
    # Found one by one, since Arrow does not say where.
    for row in range(len(values)):
        try:
            values[row : row + 1].cast(integers)
        except pa.ArrowInvalid:
            break
    raise LossyConversion(
        f"Feature {feature!r} has the decimal {values[row].as_py()}, which {target} does not hold.",
        code="out_of_range",
        row=row,
        feature=feature,
    )
