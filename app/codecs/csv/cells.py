"""The fields of a CSV column <-> values of a feature. Numbers go by the rules of JSON values."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.dtypes import BOOL, FLOAT64, INT64, TEXT, DType
from ...domain.schema import Feature
from ...errors import InputError, SchemaConflict, UnprocessableInput
from ..json.convert import convert_items
from ..json.errors import cell_error
from ..json.text import NegativeZero, NonFinite
from ..json.values import ItemError, Reading
from ..json.write import Spelling, joined_values
from ..records.arrays import column_from_values, null_column, values_from_column
from ..records.lease import Lease
from ..records.nulls import spread_rows
from ..rounding import rounded
from ..schema_inference import HEAD_ROWS

__all__ = ["build_csv_column", "field_texts", "infer_csv_feature", "quoted_field"]

_INTEGER: Final = r"^-?(?:0|[1-9][0-9]*)$"
_NUMBER: Final = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"
_NONFINITE: Final = r"|^(?:NaN|-?Infinity)$"
_BOOL: Final = r"^(?:true|false)$"
#: What Arrow's own parser reads exactly as the rules of JSON values have it.
_SHORT_INTEGER: Final = r"^-?(?:0|[1-9][0-9]{0,17})$"
_DECIMAL: Final = r"(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)"
#: Integers of so many digits are exact in a float32 and in a float64.
_EXACT_DIGITS: Final = {"float32": 7, "float64": 15}
#: A number of more characters is one only to waste time.
_MAX_NUMBER: Final = 1000
_WORDS: Final[dict[str, object]] = {"true": True, "false": False}
_BARE: Final[dict[str, object]] = {
    "NaN": NonFinite("nan"),
    "Infinity": NonFinite("inf"),
    "-Infinity": NonFinite("-inf"),
}
_INTEGER_TOKEN: Final = re.compile(_INTEGER[1:-1])
_NUMBER_TOKEN: Final = re.compile(_NUMBER[1:-1])
_NEEDS_QUOTES: Final = re.compile('[",\r\n]')


def infer_csv_feature(name: str, fields: Any, *, bare: bool) -> Feature | None:
    """The feature that holds these fields, or None where all of them are null.

    int64 where each is an integer token, float64 where each is a number, bool where each is `true` or
    `false`, else text.

    Args:
        bare: NaN, Infinity and -Infinity are numbers.
    """
    present = fields.drop_null()
    if not len(present):
        return None
    dtype = TEXT
    for pattern, candidate in (
        (_INTEGER, INT64),
        (_NUMBER + _NONFINITE if bare else _NUMBER, FLOAT64),
        (_BOOL, BOOL),
    ):
        if _all_match(present, pattern):
            dtype = candidate
            break
    return Feature(name, dtype, nullable=len(present) < len(fields), inferred=True)


def _all_match(fields: Any, pattern: str) -> bool:
    import pyarrow.compute as pc  # here: a service that needs it for no request is 9 MB smaller

    matches = pc.match_substring_regex(fields, pattern)
    return bool(pc.all(matches, min_count=0).as_py())


def build_csv_column(
    feature: Feature, fields: Any, reading: Reading, first_row: int, lease: Lease, *, bare: bool
) -> pa.Array[Any]:
    """The column of a scalar feature from its fields.

    Args:
        fields: strings; a null is a row that lacks the feature. None: all rows do.
        first_row: the row of the first field, for errors.
        lease: charged for what is copied.

    Raises:
        SchemaConflict: a field that is no value of the feature's dtype, or a null where it is not nullable.
        InputError: a value that the dtype does not hold. Errors carry feature and row.
    """
    num_rows = len(fields)
    if not fields.null_count:
        return _present_column(
            feature, fields, reading, np.arange(first_row, first_row + num_rows), bare=bare
        )
    present = np.asarray(fields.is_valid().to_numpy(zero_copy_only=False))
    if not feature.nullable:
        raise _missing(feature, first_row + int(np.argmin(present)), reading)
    lease.charge((8 + feature.dtype.itemsize) * num_rows, "Rows that lack a feature")
    if not present.any():
        return null_column(feature, num_rows)
    if feature.dtype.is_string:
        return fields.cast(pa.binary())  # type: ignore[no-any-return]  # declared on each class apart
    rows = np.flatnonzero(present) + first_row
    return spread_rows(_present_column(feature, fields.drop_null(), reading, rows, bare=bare), present, lease)


def _missing(feature: Feature, row: int, reading: Reading) -> SchemaConflict:
    hint = 'Declare it nullable; empty text is written as "".'
    if not reading.declared:
        hint = f"None of the first {HEAD_ROWS} rows does: set ?infer=all, or declare a schema."
    return SchemaConflict(
        f"Row {row} has an empty field for {feature.name!r}. {hint}", row=row, feature=feature.name
    )


def _present_column(
    feature: Feature, fields: Any, reading: Reading, rows: NDArray[np.int64], *, bare: bool
) -> pa.Array[Any]:
    if feature.dtype.is_string:
        return fields.cast(pa.binary())  # type: ignore[no-any-return]  # declared on each class apart
    values = _parsed(fields, feature.dtype)
    if values is None:
        items = [_item(field, bare=bare) for field in fields.to_pylist()]
        try:
            values = convert_items(items, feature.dtype, reading)
        except ItemError as error:
            raise cell_error(error, feature.name, int(rows[error.index])) from None
    return column_from_values(values, feature, (), len(values))


def _parsed(fields: Any, dtype: DType) -> NDArray[Any] | None:
    """All fields at once, where nothing about them is special; else None."""
    if not dtype.has_kernel:
        return None
    if dtype.is_integer and _all_match(fields, _SHORT_INTEGER):
        whole: NDArray[Any] = fields.cast(pa.int64()).to_numpy()
        bounds = np.iinfo(dtype.numpy)
        fits = not len(whole) or (bounds.min <= whole.min() and whole.max() <= bounds.max)
        return whole.astype(dtype.numpy) if fits else None
    if dtype.name in _EXACT_DIGITS:
        integer = f"(?:0|[1-9][0-9]{{0,{_EXACT_DIGITS[dtype.name] - 1}}})"
        if _all_match(fields, f"^-?(?:{integer}|{_DECIMAL})$"):
            doubles = fields.cast(pa.float64()).to_numpy()  # infinite beyond float64, as in 1e400
            values, lost = rounded(doubles, dtype)
            return values if np.isfinite(doubles).all() and not lost.any() else None
    if dtype is BOOL and _all_match(fields, _BOOL):
        return np.asarray(fields.to_numpy(zero_copy_only=False) == "true")
    return None


def _item(field: str, *, bare: bool) -> object:
    """The field as what a JSON parser would have made of it."""
    if len(field) > _MAX_NUMBER:
        return field
    if _INTEGER_TOKEN.fullmatch(field):
        return NegativeZero() if field == "-0" else int(field)
    if _NUMBER_TOKEN.fullmatch(field):
        return float(field)
    return _WORDS.get(field, _BARE.get(field, field) if bare else field)


def field_texts(column: pa.Array[Any], feature: Feature, spelling: Spelling, first_row: int) -> list[str]:
    """One field for each row; what a row lacks is empty.

    Raises:
        InputError: a value that has no text under these options, or that CSV does not hold.
    """
    present = column.drop_null() if column.null_count else column
    values = values_from_column(present, feature)
    try:
        if feature.dtype.is_string:
            texts = [_string_field(index, value) for index, value in enumerate(values)]
        else:
            spelled = bytes(joined_values(values, feature.dtype, spelling)).decode()
            texts = [_UNQUOTED.get(text, text) for text in spelled.split(",")] if len(values) else []
    except ItemError as error:
        rows = np.flatnonzero(np.asarray(column.is_valid().to_numpy(zero_copy_only=False)))
        raise _located(error, feature, first_row + int(rows[error.index])) from None
    if present is column:
        return texts
    given = iter(texts)
    return [next(given) if valid else "" for valid in column.is_valid().to_pylist()]


_UNQUOTED: Final = {'"NaN"': "NaN", '"Infinity"': "Infinity", '"-Infinity"': "-Infinity", "null": ""}


def _string_field(index: int, value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise ItemError(
            index, "A string is not valid UTF-8, which is all that CSV holds.", "not_expressible"
        ) from None
    if "\0" in text:
        raise ItemError(index, "A string holds a NUL, which CSV does not.", "not_expressible")
    return quoted_field(text)


def quoted_field(text: str) -> str:
    """The text as a field, in quotes where it has to be; empty text is `""`, since an empty field is null."""
    if text and not _NEEDS_QUOTES.search(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _located(error: ItemError, feature: Feature, row: int) -> InputError:
    if error.code != "not_expressible":
        return cell_error(error, feature.name, row)
    return UnprocessableInput(
        f"Feature {feature.name!r}, row {row}: {error.detail} Choose another output form.",
        code="not_expressible",
        row=row,
        feature=feature.name,
    )
