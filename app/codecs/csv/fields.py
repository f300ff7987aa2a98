"""Convert the fields of a CSV column to values of a feature.

`kernels/number_fields.py` has the spellings of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import BOOL, FLOAT64, INT64, PRECISION, TEXT, DType
from ...domain.feature import Feature
from ...errors import SchemaConflict
from ...runtime.budget import Budget
from .. import kernels
from ..columns import Column, Mask, Strings, bounds_of_present
from ..json.errors import cell_error
from ..json.items import convert_scalars
from ..json.tape_reader import read_document
from ..json.texts import quote
from ..json.values import ItemError, Reading
from ..kernels.number_fields import MAX_FIELD, NEGATIVE_ZERO, OTHER, TRUE
from ..records.lease import Lease
from ..rounding import round_values
from ..schema_inference import HEAD_ROWS

#: Longer integers are refused: parsing takes time that grows with the square of their digits.
_MAX_DIGITS: Final = 1000
#: Number of texts that are converted one by one if one of them is special.
_TEXTS_AT_ONCE: Final = 8192
#: What such a text takes beside its characters: as bytes, decoded, and as JSON.
_OBJECT_BYTES: Final = 200
_INTEGER_TOKEN: Final = re.compile(r"-?(?:0|[1-9][0-9]*)", re.ASCII)
_NUMBER_TOKEN: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_WORDS: Final = {
    spelled: word for word in ("true", "false") for spelled in (word, word.title(), word.upper())
}
_NONFINITE: Final = re.compile(r"([+-]?)(?:(nan)|inf(?:inity)?)", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Fields:
    """One column of some rows: the texts of the rows that have a field.

    Attributes:
        present: by row, whether it has a field; None where every row has.
    """

    texts: Strings
    present: Mask | None
    num_rows: int


def find_fields(column: Any) -> Fields:
    """The fields of an Arrow array of strings, not copied; a null is a row without a field."""
    validity, offsets, data = column.buffers()
    first, num_rows = column.offset, len(column)
    bounds = np.frombuffer(offsets, np.int32)[first : first + num_rows + 1].astype(np.int64)
    present = None
    if column.null_count:
        bits = np.frombuffer(validity, np.uint8)
        present = np.unpackbits(bits, count=first + num_rows, bitorder="little")[first:].view(np.bool_)
    text = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    texts = Strings(text[bounds[0] : bounds[-1]], bounds - bounds[0])
    # Nulls have no characters.
    return Fields(Strings(texts.data, bounds_of_present(texts.offsets, present)), present, num_rows)


def infer_feature(name: str, chunks: Sequence[Fields]) -> Feature | None:
    """The feature that holds these fields, or None where there is none.

    int64 where each is an integer, float64 where each is a number, bool where each is `true` or
    `false`, else text.
    """
    dtypes = {_infer_dtype(fields.texts) for fields in chunks if len(fields.texts)}
    if not dtypes:
        return None
    if dtypes == {INT64, FLOAT64}:
        dtypes = {FLOAT64}
    dtype = dtypes.pop() if len(dtypes) == 1 else TEXT
    nullable = any(fields.present is not None for fields in chunks)
    return Feature(name, dtype, nullable=nullable, inferred=True)


def _infer_dtype(texts: Strings) -> DType:
    kinds, _ = read_numbers(texts)
    is_boolean = kinds >= TRUE
    if is_boolean.any():
        return BOOL if is_boolean.all() else TEXT
    is_integer = bool((kinds <= NEGATIVE_ZERO).all())
    for index in np.flatnonzero(kinds == OTHER).tolist():
        if (token := _number_token(_text(texts, index))) is None:
            return TEXT
        is_integer = is_integer and _INTEGER_TOKEN.fullmatch(token) is not None
    return INT64 if is_integer else FLOAT64


def _text(texts: Strings, index: int) -> str:
    return texts.data[texts.offsets[index] : texts.offsets[index + 1]].tobytes().decode()


def read_numbers(texts: Strings) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """The kind and the value of each text; see `kernels.number_fields`."""
    kinds, words = np.empty(len(texts), np.uint8), np.empty(len(texts), np.uint64)
    spelled = np.empty(2 * MAX_FIELD, np.uint8)
    kernels.load().read_number_fields(texts.data, texts.offsets, kinds, words, spelled)
    return kinds, words


def build_column(
    feature: Feature, fields: Fields, reading: Reading, first_row: int, budget: Budget
) -> Column:
    """The column of a scalar feature from its fields.

    Args:
        first_row: the row of the first field, for errors.

    Raises:
        SchemaConflict: a field that is no value of the feature's dtype, or none where it is not nullable.
        InputError: a value that the dtype does not hold. Errors carry feature and row.
    """
    present = fields.present
    if present is not None:
        require_nullable(feature, first_row + int(np.argmin(present)), reading)
    if feature.dtype.is_string:
        return Column(fields.texts, present=present)
    try:
        values = convert_texts(fields.texts, feature.dtype, reading, budget)
        return Column(values, present=present)
    except ItemError as error:
        row = error.index if present is None else int(np.flatnonzero(present)[error.index])
        raise cell_error(error, feature.name, first_row + row) from None


def convert_texts(texts: Strings, dtype: DType, reading: Reading, budget: Budget) -> NDArray[Any]:
    """The texts as numbers or booleans of `dtype`.

    Raises:
        ItemError: a text that is none, or a value that the dtype does not hold.
        LimitExceeded: more than the budget; the values themselves are the caller's to charge.
    """
    values = _convert_at_once(texts, dtype)
    if values is not None:
        return values
    parts = []
    for first in range(0, max(1, len(texts)), _TEXTS_AT_ONCE):
        some = texts.part(first, min(first + _TEXTS_AT_ONCE, len(texts)))
        try:
            parts.append(_convert_one_by_one(some, dtype, reading, budget))
        except ItemError as error:
            error.index += first
            raise
    return np.concatenate(parts)


def _convert_one_by_one(texts: Strings, dtype: DType, reading: Reading, budget: Budget) -> NDArray[Any]:
    """Convert the texts with the JSON reader, which takes many times their bytes."""
    with Lease(budget) as lease:
        lease.charge(_OBJECT_BYTES * len(texts) + 8 * len(texts.data), "Numbers in text")
        text = f"[{','.join(_in_json(text.decode()) for text in texts.unpack())}]".encode()
        tape = read_document(np.frombuffer(text, np.uint8), budget, bare=True)
        try:
            return convert_scalars(tape.roots.open()[0], dtype, reading)
        finally:
            budget.release(tape.num_bytes)


def require_nullable(feature: Feature, row: int, reading: Reading) -> None:
    """Refuse a row without a feature that has to be there.

    Raises:
        SchemaConflict: it is not nullable.
    """
    if feature.nullable:
        return
    hint = 'Declare it nullable; empty text is written as "".'
    if not reading.declared:
        hint = f"None of the first {HEAD_ROWS} rows does: set infer=all, or declare a schema."
    raise SchemaConflict(
        f"Row {row} has an empty field for {feature.name!r}. {hint}", row=row, feature=feature.name
    )


def _convert_at_once(texts: Strings, dtype: DType) -> NDArray[Any] | None:
    """The values of all texts, or None where one of them needs `_convert_one_by_one`."""
    kinds, words = read_numbers(texts)
    if dtype is BOOL:
        return kinds == TRUE if (kinds >= TRUE).all() else None
    if not kinds.all() or (kinds >= TRUE).any():
        return None
    if dtype.is_integer:
        return None if dtype.is_narrow else _integers(kinds, words.view(np.int64), dtype)
    return _floats(kinds, words, dtype)


def _integers(kinds: NDArray[np.uint8], values: NDArray[np.int64], dtype: DType) -> NDArray[Any] | None:
    low, high = dtype.bounds
    fits = (kinds <= NEGATIVE_ZERO).all() and (
        not len(values) or (low <= values.min() and values.max() <= high)
    )
    return values.astype(dtype.numpy) if fits else None


def _floats(kinds: NDArray[np.uint8], words: NDArray[np.uint64], dtype: DType) -> NDArray[Any] | None:
    doubles = words.view(np.float64)
    is_integer = kinds <= NEGATIVE_ZERO
    if is_integer.any():
        integers, exact = words.view(np.int64), 2 ** PRECISION[dtype.name]
        if (is_integer & ((integers < -exact) | (integers > exact))).any():
            return None
        doubles = np.where(is_integer, integers.astype(np.float64), doubles)
        doubles[kinds == NEGATIVE_ZERO] = -0.0
    values, lost = round_values(doubles, dtype)
    return None if lost.any() else values


def _in_json(text: str) -> str:
    token = _number_token(text)
    if token is None or (len(token) > _MAX_DIGITS and _INTEGER_TOKEN.fullmatch(token)):
        return _WORDS.get(text.strip(" \t")) or quote(text)
    return token


def _number_token(text: str) -> str | None:
    """The number as JSON spells it, or NaN, Infinity and -Infinity; None where the text is not a number."""
    text = text.strip(" \t")
    if word := _NONFINITE.fullmatch(text):
        return "NaN" if word[2] else f"{word[1].replace('+', '')}Infinity"
    if text.startswith("+") and not text.startswith("+-"):
        text = text[1:]
    text = re.sub(r"(?<![0-9])\.(?=[0-9])", "0.", text)
    text = re.sub(r"(?<=[0-9])\.(?![0-9])", ".0", text)
    return text if _NUMBER_TOKEN.fullmatch(text) else None
