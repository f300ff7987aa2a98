"""Flat items of a tape to numpy arrays, exactly: what cannot be held is refused, never altered.

The rules are those of "Values in" of the HTTP contract.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import (
    BOOL,
    BYTES,
    DTYPES,
    FLOAT32,
    FLOAT64,
    INT64,
    PRECISION,
    STRING,
    TEXT,
    DType,
)
from ...domain.tensor import Shape
from ...errors import LossyConversion, MalformedInput
from .. import kernels
from ..columns import Strings
from ..kernels.json.tape import (
    ARRAY,
    DECIMAL_NUMBER,
    FALSE,
    INTEGER,
    LARGE,
    NEGATIVE_ZERO,
    NONFINITE,
    NULL,
    OBJECT,
    TRUE,
    UNSIGNED,
)
from ..kernels.json.tape import STRING as TEXT_ITEM
from ..rounding import round_values
from .b64 import decode_b64
from .tape import KEY_OF, Items, Words, gather_strings
from .values import ItemError, Reading, null_error, unravel

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_INTEGERS: Final = frozenset({INTEGER, UNSIGNED, LARGE, NEGATIVE_ZERO})
_NUMBERS: Final = _INTEGERS | {DECIMAL_NUMBER, NONFINITE}
_OBJECTS: Final = frozenset({OBJECT})
_BOOLEANS: Final = frozenset({TRUE, FALSE})
_FAMILIES: Final = (
    (_BOOLEANS, "a boolean"),
    (_NUMBERS, "a number"),
    (frozenset({TEXT_ITEM}), "a string"),
    (_OBJECTS, "an object"),
    (frozenset({ARRAY}), "an array"),
)
_WORDS: Final = {b"NaN": np.nan, b"Infinity": np.inf, b"-Infinity": -np.inf}
#: Proto JSON writes 64-bit integers so. 20 digits are enough for uint64.
_DIGITS: Final = re.compile(rb"-?(?:0|[1-9][0-9]{0,19})")
#: An integral decimal token below this means exactly what it says; 2^53 itself is also what the float64
#: of 9007199254740993.0 is.
_EXACT_BELOW: Final = 2.0**53
#: The least integer that rounds to an infinite float64.
_OVERFLOW: Final = 2**1024 - 2**970
_64_BITS: Final = (1 << 64) - 1
#: What integers and floats are read from: where the dtype is inferred, and where it is declared.
_AS_INTEGERS: Final = (_INTEGERS, _INTEGERS | {DECIMAL_NUMBER, TEXT_ITEM})
_AS_FLOATS: Final = (_NUMBERS, _NUMBERS | {NULL})
_NO_SINGLES: Final = np.empty(0, np.float32)
_NO_DOUBLES: Final = np.empty(0, np.float64)
_SPARSE: Final = frozenset({"values", "indices"})
_RAGGED: Final = frozenset({"values", "row_splits"})


def convert(items: Items, dtype: DType, reading: Reading) -> NDArray[Any] | Strings:
    """The items as a flat array of `dtype`, or as strings.

    Complex items come as two floats each, the real part first. Decimals are rounded to nearest
    (`numpy.float32(float(token))`).

    Raises:
        ItemError: an item of another type, out of range, or not exact.
    """
    return _strings(items, dtype, reading) if dtype.is_string else convert_scalars(items, dtype, reading)


def convert_scalars(items: Items, dtype: DType, reading: Reading) -> NDArray[Any]:
    """As `convert`, of numbers or booleans."""
    if dtype.is_integer:
        return _integers(items, dtype, reading)
    if dtype.is_float:
        return _floats(items, dtype, reading)
    if dtype.kind == "complex":
        part = DTYPES["float32" if dtype.itemsize == 8 else "float64"]
        return _floats(items, part, reading).view(dtype.numpy)
    _require(items, _BOOLEANS, dtype)
    return np.asarray(items.kinds == TRUE)


def _mask_of(kinds: frozenset[int]) -> Mask:
    return np.isin(np.arange(256), list(kinds))


def _require(items: Items, allowed: frozenset[int], dtype: DType) -> frozenset[int]:
    """The kinds that occur, if all are allowed."""
    found = items.found()
    if not found <= allowed:
        index = int(np.argmin(_mask_of(allowed)[items.kinds]))
        raise unexpected(items, index, dtype)
    return found


def unexpected(items: Items, index: int, dtype: DType) -> ItemError:
    """The error of an item of the wrong type."""
    kind = items.kinds[index]
    if kind == NULL:
        return null_error(index)
    hint = ""
    if kind in _OBJECTS:
        names = set(items.member_names(index))
        if names >= _SPARSE or names >= _RAGGED:
            return ItemError(
                index,
                "A sparse or ragged value stands only where the schema declares that kind.",
                "unsupported_kind",
            )
        hint = ' The only object in place of a value is {"b64": ...}.'
    return ItemError(index, f"Expected {dtype}, found {items.describe(index)}.{hint}", "type_mismatch")


def _integers(items: Items, dtype: DType, reading: Reading) -> NDArray[Any]:
    found = _require(items, _AS_INTEGERS[reading.declared], dtype)
    low, high = dtype.bounds
    values = np.ascontiguousarray(items.words).view(np.int64)
    outside: Mask | None = None
    if found <= {INTEGER, NEGATIVE_ZERO}:
        if dtype is not INT64 and len(values) and (int(values.min()) < low or int(values.max()) > high):
            outside = (values < max(low, INT64.bounds[0])) | (values > min(high, INT64.bounds[1]))
    else:
        values, is_unsigned, outside = _exact_integers(items, values, found)
        is_wrong = (values < max(low, INT64.bounds[0])) | (values > min(high, INT64.bounds[1]))
        outside |= np.where(is_unsigned, high <= INT64.bounds[1], is_wrong)
    if outside is not None and outside.any():
        raise ItemError(
            int(np.argmax(outside)),
            f"An integer does not fit {dtype} ({low} to {high}). Declare a wider dtype.",
            "out_of_range",
        )
    if dtype.is_narrow:
        values = values.astype(np.int8 if dtype.kind == "int" else np.uint8)
    return values.astype(dtype.numpy)  # in memory of their own, not in that of the tape


def _exact_integers(items: Items, values: Ints, found: frozenset[int]) -> tuple[Ints, Mask, Mask]:
    """The integers, which of them are to be read as uint64, and which 64 bits do not hold."""
    values, kinds = values.copy(), items.kinds
    unsigned, outside = kinds == UNSIGNED, kinds == LARGE
    wrong = np.zeros(len(items), np.bool_)
    if DECIMAL_NUMBER in found:
        where = kinds == DECIMAL_NUMBER
        decimals = values[where].view(np.float64)
        exact = (np.trunc(decimals) == decimals) & (np.abs(decimals) < _EXACT_BELOW)
        wrong[where] = ~exact
        values[where] = np.where(exact, decimals, 0).astype(np.int64)
    if TEXT_ITEM in found:
        where = kinds == TEXT_ITEM
        texts = items.take(where).strings().unpack()
        found_numbers = [int(text) if _DIGITS.fullmatch(text) else None for text in texts]
        wrong[where] = [number is None for number in found_numbers]
        numbers = [number or 0 for number in found_numbers]
        if INT64.bounds[0] <= min(numbers) and max(numbers) <= INT64.bounds[1]:
            values[where] = numbers
        else:
            unsigned[where] = [INT64.bounds[1] < number < 1 << 64 for number in numbers]
            outside[where] = [not INT64.bounds[0] <= number < 1 << 64 for number in numbers]
            values[where] = np.array([number & _64_BITS for number in numbers], np.uint64).view(np.int64)
    if wrong.any():
        raise _inexact(items, int(np.argmax(wrong)))
    return values, unsigned, outside


def _inexact(items: Items, index: int) -> ItemError:
    if items.kinds[index] == TEXT_ITEM:
        what = repr(items.tape.string(int(items.words[index])).decode()[:40])
    else:
        what = repr(str(items.python(index))[:40])
    return ItemError(
        index,
        f"{what} is not an integer that can be read exactly. Send its digits, or declare a float dtype.",
        "inexact_integer",
        error=LossyConversion,
    )


def _floats(items: Items, dtype: DType, reading: Reading) -> NDArray[Any]:
    if items.has(TEXT_ITEM):
        items = _with_words(items)
    if (plain := _plain_floats(items, dtype)) is not None:
        return plain
    found = _require(items, _AS_FLOATS[reading.null_is_nan], dtype)
    exact = np.ascontiguousarray(items.words).view(np.float64)
    if not found <= {DECIMAL_NUMBER, NONFINITE}:
        exact = _as_doubles(items, exact, found, dtype)
    values, lost = round_values(exact, dtype)
    if lost.any() or not np.isfinite(values).all():
        is_finite = np.isfinite(exact)
        wrong = lost | ~is_finite
        is_meant = (items.kinds == NONFINITE) | (items.kinds == NULL)
        wrong &= lost | ~is_meant
        if wrong.any():
            index = int(np.argmax(wrong))
            if is_meant[index]:
                raise ItemError(
                    index, f"{dtype} has no {exact[index]}. Declare a wider dtype.", "out_of_range"
                )
            raise _float_overflow(index, dtype)
    if found & {INTEGER, UNSIGNED, LARGE}:
        _require_exact(items, exact, values, dtype)
    return values.copy() if values is exact else values


def _plain_floats(items: Items, dtype: DType) -> NDArray[Any] | None:
    """The items as float32 or float64, if nothing has to be asked about any of them."""
    if dtype is FLOAT32:
        values: NDArray[Any] = np.empty(len(items), np.float32)
        singles, doubles = values, _NO_DOUBLES
    elif dtype is FLOAT64:
        values = np.empty(len(items), np.float64)
        singles, doubles = _NO_SINGLES, values
    else:
        return None
    kinds, words = np.ascontiguousarray(items.kinds), np.ascontiguousarray(items.words)
    are_read = kernels.load().read_floats(kinds, words, 1 << PRECISION[dtype.name], singles, doubles)
    return values if are_read else None


def _with_words(items: Items) -> Items:
    """The items with NaN and infinities in place of the strings that name them, up to any other string."""
    if _word(items, int(np.argmax(items.kinds == TEXT_ITEM))) is None:
        return items
    kinds, words = items.kinds.copy(), items.words.copy()
    for index in np.flatnonzero(kinds == TEXT_ITEM):
        if (value := _word(items, int(index))) is None:
            break
        kinds[index] = NONFINITE
        words[index] = np.float64(value).view(np.uint64)
    return Items(items.tape, kinds, words)


def _word(items: Items, index: int) -> float | None:
    return _WORDS.get(items.tape.string(int(items.words[index])))


def _as_doubles(
    items: Items, exact: NDArray[np.float64], found: frozenset[int], dtype: DType
) -> NDArray[np.float64]:
    kinds, words = items.kinds, np.ascontiguousarray(items.words)
    if found == {INTEGER}:
        return words.view(np.int64).astype(np.float64)
    exact = exact.copy()
    for kind, number in ((INTEGER, np.int64), (UNSIGNED, np.uint64)):
        if kind in found:
            where = kinds == kind
            exact[where] = words[where].view(number).astype(np.float64)
    if NEGATIVE_ZERO in found:
        exact[kinds == NEGATIVE_ZERO] = -0.0
    if NULL in found:
        exact[kinds == NULL] = np.nan
    if LARGE in found:
        for index in np.flatnonzero(kinds == LARGE).tolist():
            integer = items.python(index)
            if abs(integer) >= _OVERFLOW:
                raise _float_overflow(index, dtype)
            exact[index] = float(integer)
    return exact


def _float_overflow(index: int, dtype: DType) -> ItemError:
    return ItemError(index, f"A number overflows {dtype}. Declare a wider dtype.", "out_of_range")


def _require_exact(items: Items, exact: NDArray[np.float64], values: NDArray[Any], dtype: DType) -> None:
    """Refuse an integer token that the dtype does not hold; `exact` are the items as float64."""
    limit = 2 ** PRECISION[dtype.name]
    if np.abs(exact).max() < limit:
        return
    integers = np.ascontiguousarray(items.words).view(np.int64)
    is_large = (items.kinds == UNSIGNED) | (items.kinds == LARGE)
    is_large |= (items.kinds == INTEGER) & ((integers < -limit) | (integers > limit))
    for index in np.flatnonzero(is_large).tolist():
        integer = items.python(index)
        if integer != float(values[index]):
            raise ItemError(
                index,
                f"{dtype} does not hold the integer {str(integer)[:40]} exactly. Declare a wider dtype, or "
                "write a decimal point to have it rounded.",
                "inexact_integer",
                error=LossyConversion,
            )


def _strings(items: Items, dtype: DType, reading: Reading) -> Strings:
    allowed = _OBJECTS | {TEXT_ITEM}
    if not reading.declared and dtype is not STRING:
        allowed = frozenset({TEXT_ITEM}) if dtype is TEXT else _OBJECTS
    found = _require(items, allowed, dtype)
    if OBJECT not in found:
        return items.strings()
    is_object = items.kinds == OBJECT
    numbers, is_cell = _b64_numbers(items, is_object)
    wrong = is_object & ~is_cell
    stop = int(np.argmax(wrong)) if wrong.any() else len(items)
    strings, fault = gather_strings(items.tape.strings, numbers[:stop], is_object[:stop].view(np.uint8))
    if fault >= 0:
        stop = fault
    if dtype is TEXT:
        _check_utf8(items, np.flatnonzero(is_object[:stop]))
    if stop < len(items):
        raise _no_bytes(items, stop, dtype)
    return strings


def _b64_numbers(items: Items, is_object: Mask) -> tuple[Words, Mask]:
    """The numbers of the strings that the items are or hold, and which items are `{"b64": "..."}`."""
    tape, numbers = items.tape, np.ascontiguousarray(items.words).copy()
    starts = numbers[is_object].view(np.int64)
    is_single = tape.words[starts] == 1  # a block of one member has two more entries
    blocks = starts[is_single]
    is_b64 = (tape.words[blocks + 1] == KEY_OF["b64"]) & (tape.kinds[blocks + 2] == TEXT_ITEM)
    where = np.flatnonzero(is_object)
    numbers[where] = 0
    where = where[is_single][is_b64]
    numbers[where] = tape.words[blocks[is_b64] + 2]
    is_cell = np.zeros(len(items), np.bool_)
    is_cell[where] = True
    return numbers, is_cell


def _check_utf8(items: Items, where: Ints) -> None:
    for index in where.tolist():
        try:
            decode_b64(items.python(index)["b64"]).decode()
        except UnicodeDecodeError:
            raise ItemError(index, "These bytes are not UTF-8 text.", "invalid_utf8") from None


def _no_bytes(items: Items, index: int, dtype: DType) -> ItemError:
    """The error of an object that is no `{"b64": ...}` with strict base64."""
    if items.member_names(index) != ["b64"]:
        return unexpected(items, index, dtype)
    try:
        decode_b64(items.python(index)["b64"])
    except MalformedInput as error:
        return ItemError(index, error.detail, error.code, error=MalformedInput)
    raise AssertionError("strict base64 has been decoded")  # pragma: no cover


def infer_dtype(items: Items, reading: Reading) -> DType:
    """The dtype of items that nobody declared: bool, int64, float64, text, bytes, or string for both.

    Any decimal makes all of them float64, and so do "NaN", "Infinity" and "-Infinity" if they are the only
    strings. No items at all are float32, as in TensorFlow.

    Raises:
        ItemError: a mixture, or a null.
    """
    if items.has(TEXT_ITEM) and not (read := _with_words(items)).has(TEXT_ITEM):
        items = read
    found = items.found()
    if not found:
        return FLOAT32
    if found <= _NUMBERS:
        return INT64 if found <= _INTEGERS else FLOAT64
    if NULL in found and (not reading.null_is_nan or found - _NUMBERS - {NULL}):
        raise null_error(int(np.argmax(items.kinds == NULL)))
    families = [name for kinds, name in _FAMILIES if found & kinds]
    if len(families) > 1 and families != ["a string", "an object"]:
        raise _mixed(items)
    if families and families[0] in ("a string", "an object"):
        return STRING if len(families) > 1 else TEXT if families[0] == "a string" else BYTES
    return BOOL if families == ["a boolean"] else FLOAT64


def _mixed(items: Items) -> ItemError:
    first, name = next(
        (_mask_of(kinds)[items.kinds], name) for kinds, name in _FAMILIES if int(items.kinds[0]) in kinds
    )
    index = int(np.argmin(first))
    other = next(name for kinds, name in _FAMILIES if int(items.kinds[index]) in kinds)
    return ItemError(
        index,
        f"{other.capitalize()} stands beside {name} in one array. "
        'Numbers never mix with booleans or strings, except "NaN", "Infinity" and "-Infinity".',
        "mixed_types",
    )


def flatten(items: Items) -> tuple[Items, Shape]:
    """The items of one rectangular value in nested arrays, in row-major order, and its shape.

    Raises:
        ItemError: the arrays are ragged.
    """
    shape: list[int] = []
    while ARRAY in (found := items.found()):
        if len(found) > 1:
            raise _ragged(items, shape)
        if len(items) == 1:
            items = items.children(0)
            shape.append(len(items))
            continue
        children, counts = items.open()
        if (counts != counts[0]).any():
            raise _ragged(items, shape)
        shape.append(counts.item(0))
        items = children
    return items, tuple(shape)


def _ragged(items: Items, shape: Sequence[int]) -> ItemError:
    """The error of arrays that differ from the first of them in length, or are none."""
    counts = np.full(len(items), -1, np.int64)
    is_array = items.kinds == ARRAY
    counts[is_array] = items.take(is_array).counts()
    index = int(np.argmax(counts != counts[0]))
    return ItemError(
        index,
        f"The nested arrays are ragged: {items.describe(index)} stands beside {items.describe(0)}.",
        "ragged",
        path=unravel(index, shape),
    )


class Nesting:
    """Nested arrays, opened one axis after the other.

    Attributes:
        counts: of every axis that was opened, outermost first: how many items each array holds.
    """

    def __init__(self) -> None:
        self.counts: list[Ints] = []

    def open(self, items: Items) -> Items:
        """The items of all the arrays: the next axis."""
        children, counts = items.open()
        self.counts.append(counts)
        return children

    def cell_of(self, index: int) -> int:
        """The cell that holds the item at `index` of those that were opened last."""
        for counts in reversed(self.counts):
            index = int(np.searchsorted(np.cumsum(counts), index, side="right"))
        return index

    def first_uneven(self) -> int | None:
        """The first cell in which two arrays of one axis differ in length, or None."""
        uneven: list[int] = []
        cells = np.arange(len(self.counts[0]) if self.counts else 0)
        for counts in self.counts:
            first = np.searchsorted(cells, cells)
            uneven += cells[counts != counts[first]][:1].tolist()
            cells = np.repeat(cells, counts)
        return min(uneven, default=None)
