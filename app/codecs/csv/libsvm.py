"""Rows as LibSVM text (SVMlight): a label and one sparse feature a line, read as a stream.

    1 3:0.5 17:2 # a comment
    -1 qid:7 1:0.25

Source: the README of LIBSVM ("Data format"); https://www.cs.cornell.edu/people/tj/svm_light/ for `qid` and
comments. Indices stay as they are, from 0 or from 1: the size of the feature is the highest index plus one.
`kernels/number_fields.py` has the spellings of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import FLOAT64, INT64
from ...domain.feature import Feature
from ...domain.schema import Schema
from ...domain.tensor import MAX_DIM
from ...errors import MalformedInput, SchemaConflict, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream
from ..columns import MAX_BATCH_ROWS, Batch, Column, Ints, Mask, Records, Strings, part
from ..json.errors import cell_error
from ..json.texts import gather
from ..json.values import ItemError, Reading
from ..json.write import joined_values
from ..kernels.number_fields import INTEGER, NEGATIVE_ZERO
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from ..records.lease import Lease
from ..schema_inference import HEAD_ROWS
from .fields import convert_texts, read_numbers
from .lines import drain, whole_lines

#: The names of the features where no schema is declared.
_LABEL, _QUERY, _FEATURES = "label", "qid", "features"
#: The most bytes held for a byte of text: a mark, and offsets and numbers of tokens of two bytes.
_BYTES_A_BYTE: Final = 72
#: The most bytes that a number takes while it is read.
_VALUE_BYTES: Final = 42
#: Entries that are written at a time.
_ENTRIES_AT_ONCE: Final = 4096
_LF, _COLON = b"\n:"
_IS_BREAK: Final = np.isin(np.arange(256), list(b" \t\r\n:"))
_COMMENT: Final = re.compile(rb"#[^\n]*+")


@dataclass(frozen=True, slots=True)
class _Lines:
    """Some consecutive rows; entries are the `index:value` of all rows.

    Attributes:
        labels, queries, values: as they are spelled, of rows, of rows that have a query, and of entries.
        has_query: by row.
        indices: of the entries.
        bounds: where the entries of each row begin, and where the last ones end.
    """

    first_row: int
    labels: Strings
    queries: Strings
    has_query: Mask
    indices: Ints
    values: Strings
    bounds: Ints

    @property
    def num_rows(self) -> int:
        return len(self.labels)

    @property
    def nbytes(self) -> int:
        """What is charged for them."""
        parts = (self.labels, self.queries, self.has_query, self.indices, self.values, self.bounds)
        return sum(part.nbytes for part in parts)


def decode(source: ByteStream, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The lines of the body as rows, a batch at a time.

    Without a schema, `label` is int64 where each is an integer and else float64, `features` has the size
    that the first 1,000 rows need (all, with `options.infer`), and `qid` is there if one of them has it.

    Raises:
        MalformedInput: a line that is not of the format (`invalid_libsvm`).
        LimitExceeded: a line longer than `Limits.max_record_bytes` (`record_too_large`).
        UnprocessableInput: a schema that LibSVM does not hold (`not_expressible`).
        SchemaConflict: values that do not fit.
    """
    blocks = _read(source, budget)
    if options.schema is None:
        head = list(_head(blocks, options))
        if not any(block.num_rows for block in head):
            return Records(Schema(()).with_message(options.message), iter(()))
        schema = _infer(head, options).with_message(options.message)
        blocks = chain(drain(head), blocks)
    else:
        schema = options.schema.with_message(options.message).as_read()
    reading = Reading(declared=options.schema is not None)
    drops = options.undeclared == "drop"
    builder = _BatchBuilder(schema, _find_roles(schema), reading, drops, budget)
    return Records(schema, builder.build(blocks))


def encode(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:  # noqa: ARG001 (one signature for all)
    """One line for each row; entries keep their order.

    Raises:
        UnprocessableInput: features that LibSVM does not hold, a row without a label (`not_expressible`).
        InputError: NaN and infinities.
    """
    roles = _find_roles(records.schema)
    return gather(_lines(records, roles, replace(options, int64="number", nonfinite="error")))


def _find_roles(schema: Schema) -> dict[str, int]:
    """Which feature is the label, which the entries, and which the query, by its place in the schema."""
    roles: dict[str, int] = {}
    for place, feature in enumerate(schema):
        role = _role(feature)
        if role is None or role in roles:
            raise UnprocessableInput(
                f"LibSVM does not hold feature {feature.name!r}: a row is one number (the label), a number "
                "called qid if any, and one sparse feature of numbers with one dimension. Declare these "
                "alone, or choose another format.",
                code="not_expressible",
                feature=feature.name,
            )
        roles[role] = place
    if schema.message != "example" or not {_LABEL, _FEATURES} <= roles.keys():
        raise UnprocessableInput(
            "A row of LibSVM is a label and one sparse feature of one dimension, and the schema does not "
            "have both. Declare them, or choose another format.",
            code="not_expressible",
        )
    return roles


def _role(feature: Feature) -> str | None:
    if not (feature.dtype.is_float or feature.dtype.is_integer):
        return None
    if feature.kind == "sparse":
        return _FEATURES if len(feature.shape) == 1 else None
    if not feature.is_scalar:
        return None
    return _QUERY if feature.name == _QUERY else _LABEL


def _read(source: ByteStream, budget: Budget) -> Iterator[_Lines]:
    row = 0
    for text in whole_lines(source, budget, "LibSVM", lambda text: text.rfind(b"\n") + 1):
        held = len(text) + _BYTES_A_BYTE * len(text)
        budget.charge(held - len(text), "Lines of LibSVM, split,")
        block = _split(text, row, budget)
        budget.release(held - block.nbytes)
        row += block.num_rows
        yield block


def _split(text: bytes, first_row: int, budget: Budget) -> _Lines:
    """The rows of whole lines.

    Raises:
        MalformedInput: a line that is not of the format; with its row.
    """
    raw = np.frombuffer(b"\n" + _COMMENT.sub(b"", text) + b"\n", np.uint8)
    is_break = _IS_BREAK[raw]
    edges = np.flatnonzero(is_break[1:] != is_break[:-1]) + 1
    begins, ends = edges[::2], edges[1::2]
    line_ends = np.flatnonzero(raw == _LF)
    line = np.searchsorted(line_ends, begins)
    is_label = np.ones(len(begins), np.bool_)
    is_label[1:] = line[1:] != line[:-1]
    row = np.cumsum(is_label) - 1
    if len(foreign := np.flatnonzero(raw > 127)):
        at = int(row[np.searchsorted(begins, foreign[0], "right") - 1])
        raise _malformed_error(first_row + at, "has characters that are not ASCII")
    # A colon stands right between a key and its value, and nowhere else.
    is_key, is_value = raw[ends] == _COLON, raw[begins - 1] == _COLON
    wrong = np.where(is_label, is_key | is_value, is_key == is_value)
    wrong[1:] |= is_value[1:] & (~is_key[:-1] | (ends[:-1] + 1 != begins[1:]))
    wrong[:-1] |= is_key[:-1] & (ends[:-1] + 1 != begins[1:])
    wrong[-1:] |= is_key[-1:]
    if wrong.any():
        raise _malformed_error(
            first_row + int(row[np.argmax(wrong)]), "is not a label and index:value behind it"
        )
    colons = np.flatnonzero(raw == _COLON)
    if len(alone := colons[is_break[colons - 1] & is_break[colons + 1]]):
        at = int(np.searchsorted(line[is_label], np.searchsorted(line_ends, alone[0])))
        raise _malformed_error(first_row + at, "has a colon without an index")
    tokens = _pack(raw, is_break, begins, ends)
    is_query = _find_queries(tokens, is_key)
    query_values, entries = np.roll(is_query, 1), is_value.copy()
    entries[query_values] = False
    if (wrong := is_query & ~np.roll(is_label, 1)).any():
        raise _malformed_error(
            first_row + int(row[np.argmax(wrong)]), "has qid elsewhere than behind the label"
        )
    num_rows = int(np.count_nonzero(is_label))
    has_query = np.zeros(num_rows, np.bool_)
    has_query[row[is_query]] = True
    bounds = np.zeros(num_rows + 1, np.int64)
    np.cumsum(np.bincount(row[entries], minlength=num_rows), out=bounds[1:])
    indices = _read_indices(_choose(tokens, is_key & ~is_query), row[entries] + first_row, budget)
    labels, queries, values = (_choose(tokens, chosen) for chosen in (is_label, query_values, entries))
    return _Lines(first_row, labels, queries, has_query, indices, values, bounds)


def _pack(raw: Any, is_break: Any, begins: Any, ends: Any) -> Strings:
    offsets = np.zeros(len(begins) + 1, np.int64)
    np.cumsum(ends - begins, out=offsets[1:])
    return Strings(raw[~is_break], offsets)


def _find_queries(tokens: Strings, is_key: Mask) -> Mask:
    """Which tokens are `qid` before a colon."""
    found = np.flatnonzero(is_key & (np.diff(tokens.offsets) == len(_QUERY)))
    for at, character in enumerate(_QUERY.encode()):
        found = found[tokens.data[tokens.offsets[found] + at] == character]
    is_query = np.zeros(len(tokens), np.bool_)
    is_query[found] = True
    return is_query


def _choose(strings: Strings, chosen: Mask) -> Strings:
    lengths = np.diff(strings.offsets)
    offsets = np.zeros(np.count_nonzero(chosen) + 1, np.int64)
    np.cumsum(lengths[chosen], out=offsets[1:])
    return Strings(strings.data[np.repeat(chosen, lengths)], offsets)


def _read_indices(texts: Strings, rows: Ints, budget: Budget) -> Ints:
    try:
        indices: Ints = convert_texts(texts, INT64, Reading(), budget)
    except ItemError as error:
        raise _malformed_error(int(rows[error.index]), "has an index that is no integer of 64 bits") from None
    if (wrong := (indices < 0) | (indices >= MAX_DIM)).any():
        raise _malformed_error(
            int(rows[np.argmax(wrong)]), f"has an index that is not from 0 to {MAX_DIM - 1}"
        )
    return indices


def _malformed_error(row: int, what: str) -> MalformedInput:
    return MalformedInput(
        f"Row {row} of LibSVM {what}. A line is a label, and index:value for each entry.",
        code="invalid_libsvm",
        row=row,
    )


def _head(blocks: Iterator[_Lines], options: RecordsDecodeOptions) -> Iterator[_Lines]:
    for block in blocks:
        yield block
        if options.infer == "head" and block.first_row + block.num_rows >= HEAD_ROWS:
            return


def _infer(head: list[_Lines], options: RecordsDecodeOptions) -> Schema:
    """The schema of the first rows, or of all."""
    num_rows = [block.num_rows for block in head]
    if options.infer == "head" and head:
        num_rows[-1] = min(num_rows[-1], HEAD_ROWS - head[-1].first_row)
    is_integer, with_query, size = True, 0, 1
    for block, count in zip(head, num_rows, strict=True):
        kinds, _ = read_numbers(block.labels.part(0, count))
        is_integer = is_integer and bool(((kinds == INTEGER) | (kinds == NEGATIVE_ZERO)).all())
        with_query += int(np.count_nonzero(block.has_query[:count]))
        size = max(size, int(block.indices[: block.bounds[count]].max(initial=0)) + 1)
    features = [Feature(_LABEL, INT64 if is_integer else FLOAT64, inferred=True)]
    if with_query:
        features.append(Feature(_QUERY, INT64, nullable=with_query < sum(num_rows), inferred=True))
    features.append(Feature(_FEATURES, FLOAT64, (size,), "sparse", inferred=True))
    return Schema(tuple(features))


@dataclass(frozen=True, slots=True)
class _BatchBuilder:
    """Makes batches of lines.

    Attributes:
        roles: as `_find_roles` gives them.
        drops_undeclared: a qid that the schema does not have is left out.
    """

    schema: Schema
    roles: dict[str, int]
    reading: Reading
    drops_undeclared: bool
    budget: Budget

    def build(self, blocks: Iterable[_Lines]) -> Iterator[Batch]:
        """The rows of all lines."""
        with Lease(self.budget) as lease:
            for block in blocks:
                num_bytes = _VALUE_BYTES * (len(block.values) + 2 * block.num_rows)
                lease.charge(num_bytes, "Values of LibSVM")
                batch = self._batch(block)
                for first in range(0, batch.num_rows, MAX_BATCH_ROWS):
                    yield batch.rows(first, min(first + MAX_BATCH_ROWS, batch.num_rows))
                lease.release()
                self.budget.release(block.nbytes)
                # What is released is not held while the next lines are read.
                del batch, block

    def _batch(self, block: _Lines) -> Batch:
        columns: list[Column] = [Column(np.empty(0))] * len(self.schema)
        label, entries = self.roles[_LABEL], self.roles[_FEATURES]
        rows = np.arange(block.num_rows) + block.first_row
        columns[label] = Column(self._convert(block.labels, label, rows))
        self._check_indices(block, rows)
        values = self._convert(block.values, entries, np.repeat(rows, np.diff(block.bounds)))
        columns[entries] = Column(values, (block.bounds,), coordinates=block.indices[:, None])
        if _QUERY in self.roles:
            columns[self.roles[_QUERY]] = self._query_column(block, rows)
        elif block.has_query.any() and not self.drops_undeclared:
            row = int(rows[np.argmax(block.has_query)])
            raise SchemaConflict(
                f"Row {row} has a qid, which the schema lacks. Declare it, or set undeclared=drop.",
                row=row,
                feature=_QUERY,
            )
        return Batch(block.num_rows, tuple(columns))

    def _query_column(self, block: _Lines, rows: Ints) -> Column:
        place = self.roles[_QUERY]
        present = None if block.has_query.all() else block.has_query
        if present is not None and not self.schema.features[place].nullable:
            row = int(rows[np.argmin(present)])
            raise SchemaConflict(
                f"Row {row} has no qid. Declare a schema in which {_QUERY!r} is nullable, or set infer=all.",
                row=row,
                feature=_QUERY,
            )
        return Column(self._convert(block.queries, place, rows[block.has_query]), present=present)

    def _convert(self, texts: Strings, place: int, rows: Ints) -> NDArray[Any]:
        """The numbers of the feature at `place` in the schema; `rows` are theirs, for errors."""
        feature = self.schema.features[place]
        try:
            return convert_texts(texts, feature.dtype, self.reading, self.budget)
        except ItemError as error:
            raise cell_error(error, feature.name, int(rows[error.index])) from None

    def _check_indices(self, block: _Lines, rows: Ints) -> None:
        """Refuse an index beyond the size of the feature."""
        feature = self.schema.features[self.roles[_FEATURES]]
        size = feature.known_values
        if not (wrong := block.indices >= size).any():
            return
        at = int(np.argmax(wrong))
        row = int(rows[np.searchsorted(block.bounds, at, "right") - 1])
        hint = "Declare a larger shape."
        if not self.reading.declared:
            hint = f"None of the first {HEAD_ROWS} rows has one so high: set infer=all, or declare a schema."
        raise SchemaConflict(
            f"Row {row} has the index {block.indices[at]}, but the size of {feature.name!r} is {size}. "
            f"{hint}",
            row=row,
            feature=feature.name,
        )


def _lines(records: Records, roles: dict[str, int], options: RecordsEncodeOptions) -> Iterator[str]:
    first_row = 0
    for batch in records.batches:
        texts: dict[str, Iterator[str]] = {}
        for role, place in roles.items():
            feature, column = records.schema.features[place], batch.columns[place]
            _require_present(feature, column, role, first_row)
            texts[role] = _number_texts(feature, column, options, first_row, batch.num_rows)
        entries = batch.columns[roles[_FEATURES]]
        pairs = map(" {}:{}".format, _indices_of(entries), texts[_FEATURES])
        query = batch.columns[roles[_QUERY]].present if _QUERY in roles else None
        has_query = [_QUERY in roles] * batch.num_rows if query is None else query.tolist()
        counts = np.diff(entries.splits[0]).tolist()
        for count, with_query in zip(counts, has_query, strict=True):
            qid = f" qid:{next(texts[_QUERY])}" if with_query else ""
            yield f"{next(texts[_LABEL])}{qid}"
            for begin in range(0, count, _ENTRIES_AT_ONCE):
                yield "".join(islice(pairs, min(_ENTRIES_AT_ONCE, count - begin)))
            yield "\n"
        first_row += batch.num_rows


def _indices_of(entries: Column) -> Iterator[int]:
    indices = np.asarray(entries.coordinates).reshape(-1)
    for begin in range(0, len(indices), _ENTRIES_AT_ONCE):
        yield from indices[begin : begin + _ENTRIES_AT_ONCE].tolist()


def _require_present(feature: Feature, column: Column, role: str, first_row: int) -> None:
    """Refuse a row without label or without entries, which a line cannot say."""
    if role == _QUERY or column.present is None or column.present.all():
        return
    row = first_row + int(np.argmin(column.present))
    raise UnprocessableInput(
        f"Row {row} lacks feature {feature.name!r}, and no line of LibSVM says so. Choose another format.",
        code="not_expressible",
        row=row,
        feature=feature.name,
    )


def _number_texts(
    feature: Feature, column: Column, options: RecordsEncodeOptions, first_row: int, num_rows: int
) -> Iterator[str]:
    """The numbers as text, some at a time: one row can have millions."""
    for begin in range(0, len(column.values), _ENTRIES_AT_ONCE):
        values = part(column.values, begin, min(begin + _ENTRIES_AT_ONCE, len(column.values)))
        try:
            yield from bytes(joined_values(values, feature.dtype, options)).decode().split(",")
        except ItemError as error:
            row = column.find_row(column.value_bounds(num_rows), begin + error.index)
            raise cell_error(error, feature.name, first_row + row) from None
