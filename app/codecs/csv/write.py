"""Write records as CSV: a header, and a line for each row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from ...domain.feature import Feature
from ...domain.limits import MIB
from ...errors import InputError, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer
from ..columns import Batch, Column, Records, Strings
from ..json.errors import cell_error
from ..json.texts import gather
from ..json.values import ItemError
from ..json.write import joined_values
from ..options import RecordsEncodeOptions
from ..records.lease import Lease
from ..records.named_columns import without_features
from ..schemas.suggest import suggest_schema
from .read import holds_scalars, require_scalars

_LINE_END: Final = "\r\n"


def encode(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:
    """A header, and one line for each row. Fields have quotes only if they need them.

    Raises:
        UnprocessableInput: a feature that is no scalar, bytes that are not UTF-8 (`not_expressible`).
        InputError: a value that has no text under these options.
        LimitExceeded: as the text is drawn, strings that are too large for the budget.
    """
    require_scalars(records.schema, lambda: suggest_schema(records, holds_scalars))
    if not len(records.schema):
        raise without_features("CSV")
    return gather(_lines(records, replace(options, int64="number"), budget))


def _lines(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[str]:
    needs_quotes = re.compile(f'[{re.escape(options.delimiter)}"\r\n]')
    join = options.delimiter.join
    yield join([_quote(name, needs_quotes) for name in records.schema.names]) + _LINE_END
    first_row = 0
    for batch in records.batches:
        for start, piece in _slices(batch):
            with Lease(budget) as lease:
                lease.charge(_text_bytes(piece), "The text of strings")
                columns = [
                    _field_texts(column, feature, options, first_row + start, needs_quotes)
                    for feature, column in zip(records.schema, piece.columns, strict=True)
                ]
                yield "".join([join(fields) + _LINE_END for fields in zip(*columns, strict=True)])
        first_row += batch.num_rows


def _slices(batch: Batch) -> Iterator[tuple[int, Batch]]:
    """The batch in pieces whose text is a few MiB, with their first rows."""
    row_bytes = batch.nbytes // max(batch.num_rows, 1) + 8 * len(batch.columns) + 1
    step = max(1, MIB // row_bytes)
    for start in range(0, batch.num_rows, step):
        yield start, batch.rows(start, min(start + step, batch.num_rows))


def _text_bytes(batch: Batch) -> int:
    """What strings take as fields, in quotes, joined and encoded; beyond ASCII a character takes 4 bytes."""
    strings = (column.values.data for column in batch.columns if isinstance(column.values, Strings))
    return sum(len(data) * (5 if data.max(initial=0) < 128 else 14) for data in strings)


def _field_texts(
    column: Column,
    feature: Feature,
    options: RecordsEncodeOptions,
    first_row: int,
    needs_quotes: re.Pattern[str],
) -> list[str]:
    """One field for each row; what a row lacks is empty."""
    values, present = column.values, column.present
    try:
        if isinstance(values, Strings):
            texts = [_string_field(index, value, needs_quotes) for index, value in enumerate(values.unpack())]
        else:
            spelled = bytes(joined_values(values, feature.dtype, options)).decode()
            # NaN and infinities are strings or null in JSON.
            spelled = spelled.replace('"', "").replace("null", "")
            texts = spelled.split(",") if len(values) else []
    except ItemError as error:
        row = error.index if present is None else int(np.flatnonzero(present)[error.index])
        raise _locate_error(error, feature, first_row + row) from None
    if present is None:
        return texts
    given = iter(texts)
    return [next(given) if there else "" for there in present.tolist()]


def _string_field(index: int, value: bytes, needs_quotes: re.Pattern[str]) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise ItemError(
            index, "A string is not valid UTF-8, which is all that CSV holds.", "not_expressible"
        ) from None
    if "\0" in text:
        raise ItemError(index, "A string holds a NUL, which CSV does not.", "not_expressible")
    return _quote(text, needs_quotes)


def _quote(text: str, needs_quotes: re.Pattern[str]) -> str:
    """The text as a field, in quotes if necessary; empty text is `""`, since an empty field is null."""
    if text and not needs_quotes.search(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _locate_error(error: ItemError, feature: Feature, row: int) -> InputError:
    if error.code != "not_expressible":
        return cell_error(error, feature.name, row)
    return UnprocessableInput(
        f"Feature {feature.name!r}, row {row}: {error.detail} Choose another output format.",
        code="not_expressible",
        row=row,
        feature=feature.name,
    )
