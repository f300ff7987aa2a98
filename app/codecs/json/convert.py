"""Flat items of parsed JSON to numpy arrays, exactly: what cannot be held is refused, never altered.

The rules are those of "Values in" of the HTTP contract.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import DTYPES, PRECISION, STRING, TEXT, DType
from ...errors import LossyConversion, MalformedInput
from ..rounding import rounded
from .text import NegativeZero, NonFinite
from .values import INTEGER_TYPES, NUMBER_TYPES, ItemError, Reading, described, null_error

__all__ = ["convert_items", "decode_b64"]

_NONE: Final = type(None)
_WORDS: Final[dict[object, NonFinite]] = {
    "NaN": NonFinite("nan"),
    "Infinity": NonFinite("inf"),
    "-Infinity": NonFinite("-inf"),
    None: NonFinite("nan"),
}
#: Proto JSON writes 64-bit integers so. 20 digits are enough for uint64.
_DIGITS: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,19})", re.ASCII)
#: An integral decimal token below this means exactly what it says; 2^53 itself is also what the float64
#: of 9007199254740993.0 is.
_EXACT_BELOW: Final = 2**53
#: The least integer that rounds to an infinite float64.
_OVERFLOW: Final = 2**1024 - 2**970

_URL_SAFE: Final = str.maketrans("-_", "+/")
_ALPHABET: Final = re.compile(r"[A-Za-z0-9+/]*", re.ASCII)
#: The last digit of 2 or 3 must leave the bits unset that belong to no byte (RFC 4648, 3.5).
_LAST_DIGITS: Final = {0: None, 2: frozenset("AQgw"), 3: frozenset("AEIMQUYcgkosw048")}

_SPARSE: Final = frozenset({"values", "indices"})
_RAGGED: Final = frozenset({"values", "row_splits"})


def convert_items(items: list[Any], dtype: DType, reading: Reading) -> NDArray[Any]:
    """The items as a flat array of `dtype`.

    Complex items come as two floats each, the real part first. Decimals are rounded to nearest
    (`numpy.float32(float(token))`).

    Raises:
        ItemError: an item of another type, out of range, or not exact.
    """
    types = set(map(type, items))
    if dtype.is_integer:
        return _integers(items, types, dtype, reading)
    if dtype.is_float:
        return _floats(items, types, dtype, reading)
    if dtype.kind == "complex":
        part = DTYPES["float32" if dtype.itemsize == 8 else "float64"]
        return _floats(items, types, part, reading).view(dtype.numpy)
    if dtype.is_string:
        return _strings(items, types, dtype, reading)
    _require_types(items, types, {bool}, dtype)
    return np.array(items, dtype=dtype.numpy)


def _require_types(items: list[Any], types: set[type], allowed: Iterable[type], dtype: DType) -> None:
    unexpected = types.difference(allowed)
    if not unexpected:
        return
    index = next(i for i, item in enumerate(items) if type(item) in unexpected)
    raise _unexpected(index, items[index], dtype)


def _unexpected(index: int, item: object, dtype: DType) -> ItemError:
    if item is None:
        return null_error(index)
    if isinstance(item, dict) and (item.keys() >= _SPARSE or item.keys() >= _RAGGED):
        return ItemError(
            index,
            "A sparse or ragged value stands only where the schema declares that kind.",
            "unsupported_kind",
        )
    hint = ' The only object in place of a value is {"b64": ...}.' if isinstance(item, dict) else ""
    return ItemError(index, f"Expected {dtype}, found {described(item)}.{hint}", "type_mismatch")


def _integers(items: list[Any], types: set[type], dtype: DType, reading: Reading) -> NDArray[Any]:
    allowed = INTEGER_TYPES | ({float, str} if reading.declared else set())
    _require_types(items, types, allowed, dtype)
    if types - INTEGER_TYPES:
        items = [
            item if isinstance(item, int) else _exact_integer(index, item) for index, item in enumerate(items)
        ]
    try:
        if not dtype.is_narrow:
            return np.array(items, dtype=dtype.numpy)
        numbers = np.array(items, dtype=np.int8 if dtype.kind == "int" else np.uint8)
    except OverflowError:
        raise _out_of_range(items, dtype) from None
    low, high = dtype.bounds
    if ((numbers < low) | (numbers > high)).any():
        raise _out_of_range(items, dtype)
    return numbers.astype(dtype.numpy)


def _exact_integer(index: int, item: float | str) -> int:
    if isinstance(item, str):
        if _DIGITS.fullmatch(item):
            return int(item)
    elif item.is_integer() and abs(item) < _EXACT_BELOW:
        return int(item)
    raise ItemError(
        index,
        f"{str(item)[:40]!r} is not an integer that can be read exactly. Send its digits, or declare a "
        "float dtype.",
        "inexact_integer",
        error=LossyConversion,
    )


def _out_of_range(items: list[int], dtype: DType) -> ItemError:
    low, high = dtype.bounds
    index = next(i for i, item in enumerate(items) if not low <= item <= high)
    return ItemError(
        index,
        f"An integer does not fit {dtype} ({low} to {high}). Declare a wider dtype.",
        "out_of_range",
    )


def _floats(items: list[Any], types: set[type], dtype: DType, reading: Reading) -> NDArray[Any]:
    allowed = NUMBER_TYPES | ({_NONE} if reading.null_is_nan else set())
    if reading.declared and str in types:
        types = set(map(type, items := [_WORDS.get(v, v) if type(v) is str else v for v in items]))
    _require_types(items, types, allowed, dtype)
    if _NONE in types:
        items = [_WORDS[None] if item is None else item for item in items]
    if NegativeZero in types:
        items = [-0.0 if type(item) is NegativeZero else item for item in items]
    try:
        exact = np.array(items, dtype=np.float64)
    except OverflowError:
        raise _float_overflow(
            next(i for i, v in enumerate(items) if type(v) is int and abs(v) >= _OVERFLOW), dtype
        ) from None
    values, lost = rounded(exact, dtype)
    for index in np.flatnonzero(lost | ~np.isfinite(exact)).tolist():
        if type(items[index]) is not NonFinite:
            raise _float_overflow(index, dtype)
        if lost[index]:
            raise ItemError(index, f"{dtype} has no {items[index]}. Declare a wider dtype.", "out_of_range")
    if int in types:
        _require_exact(items, values, dtype)
    return values


def _float_overflow(index: int, dtype: DType) -> ItemError:
    return ItemError(
        index,
        f"A number overflows {dtype}. Declare a wider dtype.",
        "out_of_range",
    )


def _require_exact(items: list[Any], values: NDArray[Any], dtype: DType) -> None:
    limit = 2 ** PRECISION[dtype.name]
    integers = [item for item in items if type(item) is int]
    if -limit <= min(integers) and max(integers) <= limit:
        return
    for index, (item, held) in enumerate(zip(items, values.astype(np.float64).tolist(), strict=True)):
        if type(item) is int and item != held:
            raise ItemError(
                index,
                f"{dtype} does not hold the integer {str(item)[:40]} exactly. Declare a wider dtype, or "
                "write a decimal point to have it rounded.",
                "inexact_integer",
                error=LossyConversion,
            )


def _strings(items: list[Any], types: set[type], dtype: DType, reading: Reading) -> NDArray[Any]:
    allowed: set[type] = {str, dict}
    if not reading.declared and dtype is not STRING:
        allowed = {str} if dtype is TEXT else {dict}
    _require_types(items, types, allowed, dtype)
    encoded = [
        item.encode() if type(item) is str else _cell_bytes(index, item, dtype)
        for index, item in enumerate(items)
    ]
    values = np.empty(len(encoded), dtype=object)
    values[:] = encoded
    return values


def _cell_bytes(index: int, cell: dict[str, Any], dtype: DType) -> bytes:
    if cell.keys() != {"b64"}:
        raise _unexpected(index, cell, dtype)
    try:
        data = decode_b64(cell["b64"])
        if dtype is TEXT:
            data.decode()
    except MalformedInput as error:
        raise ItemError(index, error.detail, error.code, error=MalformedInput) from None
    except UnicodeDecodeError:
        raise ItemError(index, "These bytes are not UTF-8 text.", "invalid_utf8") from None
    return data


def decode_b64(text: object) -> bytes:
    """The bytes of the member of `{"b64": ...}`: either alphabet, padding optional, else strict.

    Source: RFC 4648, sections 4 and 5.

    Raises:
        MalformedInput: `invalid_base64`.
    """
    if not isinstance(text, str):
        raise MalformedInput('{"b64": ...} takes a string of base64.', code="invalid_base64")
    digits = text.rstrip("=")
    if "+" not in digits and "/" not in digits:
        digits = digits.translate(_URL_SAFE)
    last = _LAST_DIGITS.get(len(digits) % 4, frozenset())
    padding = -len(digits) % 4
    is_padded = len(text) - len(digits) in (0, padding)
    if is_padded and (last is None or digits[-1] in last):
        with suppress(ValueError):  # binascii.Error, or characters beyond ASCII
            return binascii.a2b_base64(digits + "=" * padding, strict_mode=True)
    raise MalformedInput(
        f'The base64 in {{"b64": ...}} {_b64_fault(digits, is_padded=is_padded)}.', code="invalid_base64"
    )


def _b64_fault(digits: str, *, is_padded: bool) -> str:
    # The alphabet first: a stray character shifts all that the other two count.
    if not _ALPHABET.fullmatch(digits):
        return "has a character of neither alphabet, or of both"
    return "ends inside a byte" if is_padded else "has the wrong padding"
