"""The values in the golden files: arrays of every dtype, as numpy and ml_dtypes have them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from app.domain.dtypes import DTYPES, DType

STRINGS: Final = (b"", b"a", b"\xff\0b", "é".encode(), b"x" * 127, b"y" * 128, b"NaN", b'"\\\n')


def array_of(dtype: DType) -> NDArray[Any]:
    """`[2, 4]` elements: zeros, the least and the greatest, NaN and infinities where there are such."""
    if dtype.is_string:
        values: Any = np.array([*STRINGS, None], object)[:-1]  # of objects, whose NULs at the end are kept
    elif dtype.kind == "complex":
        floats = _floats(DTYPES["float32" if dtype.name == "complex64" else "float64"])
        values = np.empty(8, dtype.numpy)
        values.real, values.imag = floats, floats[::-1]
    elif dtype.is_float:
        values = _floats(dtype)
    else:
        least, greatest = dtype.bounds
        values = np.array([min(max(value, least), greatest) for value in _INTEGERS], dtype.numpy)
    return np.asarray(values.reshape(2, 4))


_INTEGERS: Final = (0, 1, -1, -(2**63), 2**64 - 1, 7, 100, -40_000)


def _floats(dtype: DType) -> NDArray[Any]:
    limits: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]  # theirs
    highest = -limits.max if not dtype.has_infinity else np.inf
    last = 0.5 if not dtype.has_nan else np.nan
    values = [0.0, -0.0, 1.5, -1.0, limits.smallest_subnormal, limits.max, highest, last]
    return np.array(values, dtype.numpy)


def json_value(value: Any) -> Any:
    """An element as JSON has it."""
    if isinstance(value, bytes):
        return {"b64": b64encode(value).decode()}
    if isinstance(value, complex | np.complexfloating):
        return [json_value(value.real), json_value(value.imag)]
    if isinstance(value, bool | np.bool_ | str):
        return value if isinstance(value, str) else bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    number = float(value)
    if np.isfinite(number):
        return number
    return "NaN" if np.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def json_values(array: NDArray[Any]) -> list[Any]:
    """The elements, flat. Integers of fewer than 8 bits are of a type that is no `np.integer`."""
    flat = array.reshape(-1)
    if flat.dtype.kind == "V" and flat.dtype.name.lstrip("u").startswith("int"):
        flat = flat.astype(np.int8)
    return [json_value(value) for value in flat]
