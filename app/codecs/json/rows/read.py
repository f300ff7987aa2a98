"""Records as one JSON text: rows, columns, and the columns of an Open Inference request.

Which of them a body is follows from its shape alone (`_read_body`); the table stands in the HTTP
contract. A body is parsed whole, but for large ones of rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from ....domain.immutable import immutable
from ....domain.limits import MIB
from ....errors import (
    AmbiguousInput,
    InputError,
    MalformedInput,
    UnprocessableInput,
)
from ....runtime.budget import Budget
from ....runtime.streams import Arriving, Buffer, WholeBody
from ...columns import Records
from ...kernels.json.tape import ARRAY, OBJECT
from ...options import RecordsDecodeOptions
from ...records.body_schema import with_body_schema
from ..document import read_text
from ..forms import IGNORED_MEMBERS
from ..tape import (
    Items,
    Tape,
    members_of,
)
from ..tape_reader import TapeReader, Unread
from ..text import parse_json
from .blocks import (
    ColumnBlock,
    RowBlock,
    records_from_blocks,
)
from .objects import (
    INSTANCES,
    ObjectReader,
    find_rows,
)
from .oip import read_oip_columns
from .row_texts import (
    head_rows,
    not_a_row,
    records_from_texts,
)
from .write import RESERVED

#: Rows of a body up to this size are parsed at once, and what is wrong with any of them is found at once.
_WHOLE_UP_TO: Final = 1 * MIB
#: So much of a text that is not JSON is looked at to tell what it is.
_LOOKED_AT: Final = 1024


@immutable()
class _Body:
    """A body whose form is known.

    Attributes:
        kind: how to read `value`.
        value: the rows, the one object of columns, or the inputs.
        schema: the member `schema`, if there is one.
    """

    kind: Literal["rows", "columns", "oip"]
    value: Items
    schema: Items | None = None


def decode(whole: WholeBody, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The rows or columns of the body; of a large one, rows are read as they are drawn.

    Raises:
        MalformedInput: not strict JSON; a schema here and another one elsewhere (`schema_twice`).
        AmbiguousInput: none of the forms.
        UnprocessableInput: columns that differ in length (`row_count_mismatch`) or have none (`no_rows`).
        InputError: what `records_from_blocks` and `records_from_texts` raise.
    """
    is_large = isinstance(whole, Arriving) or whole.size > _WHOLE_UP_TO
    if is_large and (records := _decode_rows(whole, options, budget)) is not None:
        return records
    tape = _read_document(whole.view(), options, budget)
    body = _read_body(tape.roots)
    if body.schema is not None:
        options = with_body_schema(body.schema.python(0), options, budget.limits)
    block: RowBlock | ColumnBlock
    num_bytes = tape.num_bytes
    if body.kind == "rows":
        block = RowBlock(body.value, num_bytes)
    elif body.kind == "columns":
        columns = members_of(body.value, 0)
        num_rows = _count_rows(columns)
        block = ColumnBlock({name: cells.children(0) for name, cells in columns.items()}, num_rows, num_bytes)
    else:
        remaining = budget.remaining
        inputs, schema = read_oip_columns(body.value, options.schema, budget)
        num_bytes += remaining - budget.remaining
        _refuse_uneven({name: len(cells) for name, cells in inputs.items()})
        block = ColumnBlock(inputs, max(map(len, inputs.values()), default=0), num_bytes)
        options = replace(options, schema=schema)
    records = records_from_blocks(iter([block]), options, budget)
    return records if body.schema is None else replace(records, is_declared=True)


def _read_document(text: Buffer, options: RecordsDecodeOptions, budget: Budget) -> Tape:
    """One JSON text."""
    names = () if options.schema is None else options.schema.names
    try:
        return read_text(text, budget, bare=options.nonfinite == "bare", names=names)
    except MalformedInput as error:
        if _is_another_line(memoryview(text), error):
            raise MalformedInput(
                "This is NDJSON, an object a line, and not one JSON text. Send it as application/x-ndjson, "
                "or with from=ndjson.",
                code=error.code,
                offset=error.location.offset,
            ) from None
        raise


def _is_another_line(text: memoryview, error: MalformedInput) -> bool:
    """Whether the text is an object, and fails where another one begins below it."""
    at = error.location.offset
    if error.code != "invalid_json" or not at or bytes(text[at : at + 1]) != b"{":
        return False
    begin, before = bytes(text[:_LOOKED_AT]), bytes(text[max(0, at - _LOOKED_AT) : at])
    return begin.lstrip()[:1] == b"{" and b"\n" in before[len(before.rstrip()) :]


def _decode_rows(whole: WholeBody, options: RecordsDecodeOptions, budget: Budget) -> Records | None:
    """The rows of a body that is rows beyond doubt."""
    found = find_rows(whole, budget)
    if found is None:
        return None
    try:
        tape = _read_document(found.around, options, budget)
    except InputError:  # the general way finds it as well, and says where
        budget.release(found.num_bytes)
        return None
    budget.release(tape.num_bytes)
    body = _read_body(tape.roots)
    if body.schema is not None:
        options = with_body_schema(body.schema.python(0), options, budget.limits)
    reader = ObjectReader(whole.view(), found, budget, head_rows(options))
    depth = 1 if tape.root_kinds[0] == ARRAY else 2
    records = records_from_texts(reader, options, budget, enclosed_by=depth)
    return replace(records, is_declared=body.schema is not None)


def decode_bodies(
    bodies: Iterable[bytes], options: RecordsDecodeOptions, budget: Budget
) -> tuple[Records, list[int]]:
    """The rows of several bodies as if they were one, and how many there are in each.

    Raises:
        AmbiguousInput: a body that is not rows and nothing else.
        InputError: what `decode` of one of them raises.
    """
    texts = list(bodies)
    ends = np.cumsum([len(text) + 1 for text in texts]) - 1
    starts = ends - [len(text) for text in texts]
    names = () if options.schema is None else options.schema.names
    reader = TapeReader(names, budget, bare=options.nonfinite == "bare")
    try:
        # A text that does not end leads into the next one; what stands between is no value.
        tape = reader.read(np.frombuffer(b",".join(texts), np.uint8), starts, ends)
    except Unread as unread:
        parse_json(texts[unread.index], budget, bare_nonfinite=options.nonfinite == "bare")
        raise AssertionError("the kernel reads what the parser does") from None  # pragma: no cover
    found = [_read_body(tape.roots.take(slice(index, index + 1))) for index in range(len(texts))]
    if any(body.kind != "rows" or body.schema is not None or not len(body.value) for body in found):
        raise AmbiguousInput("Some of these bodies are not rows alone.")
    counts = [len(body.value) for body in found]
    rows = Items(
        tape,
        np.concatenate([body.value.kinds for body in found]),
        np.concatenate([body.value.words for body in found]),
    )
    return records_from_blocks(iter([RowBlock(rows, tape.num_bytes)]), options, budget), counts


def parse_row(text: Buffer, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """One bare JSON object as one row: never an envelope, no key is reserved.

    Raises:
        MalformedInput: not strict JSON, or not an object.
        InputError: what `records_from_blocks` raises.
    """
    tape = read_text(text, budget, bare=options.nonfinite == "bare")
    if not tape.roots.only(OBJECT):
        raise not_a_row()
    return records_from_blocks(iter([RowBlock(tape.roots, tape.num_bytes)]), options, budget)


def _read_body(body: Items) -> _Body:
    if (rows := _rows_of(body)) is not None:
        return _Body("rows", rows)
    if not body.only(OBJECT):
        raise _ambiguous("neither an array of objects nor an object")
    names = body.member_names(0)
    if RESERVED.isdisjoint(names):
        return _Body("columns", body)
    members = members_of(body, 0)
    schema = members.pop("schema", None)
    if members.keys() == {"columns"} and members["columns"].only(OBJECT):
        return _Body("columns", members["columns"], schema)
    kept = members.keys() - IGNORED_MEMBERS
    if kept == {INSTANCES} and (rows := _rows_of(members[INSTANCES])) is not None:
        return _Body("rows", rows, schema)
    if kept == {"inputs"}:
        inputs = members["inputs"]
        if inputs.only(OBJECT):
            return _Body("columns", inputs, schema)
        found = _rows_of(inputs)
        if found is not None and all("datatype" in found.member_names(at) for at in range(len(found))):
            return _Body("oip", found, schema)
    raise _ambiguous(f"an object with {', '.join(map(repr, sorted(names)[:8]))[:200]}")


def _rows_of(value: Items) -> Items | None:
    """The objects of an array that holds nothing else."""
    if not value.only(ARRAY):
        return None
    rows, _ = value.open()
    return rows if rows.only(OBJECT) else None


def _ambiguous(what: str) -> AmbiguousInput:
    return AmbiguousInput(
        f"This body is {what}, which no format of records is. Send rows as [{{...}}, ...] or "
        '{"instances": [{...}, ...]}, columns as {"columns": {"name": [...], ...}} or {"inputs": {...}}, '
        'or Open Inference {"inputs": [{"name", "datatype", "shape", "data"}, ...]}.'
    )


def _count_rows(columns: dict[str, Items]) -> int:
    for name, cells in columns.items():
        if not cells.only(ARRAY):
            raise UnprocessableInput(
                f"Column {name[:64]!r} is not an array; the first axis of every column counts the rows. "
                "One row is sent as [{...}].",
                code="no_rows",
                feature=name,
            )
    counts = {name: int(cells.counts()[0]) for name, cells in columns.items()}
    _refuse_uneven(counts)
    return next(iter(counts.values()), 0)


def _refuse_uneven(counts: dict[str, int]) -> None:
    first = next(iter(counts), "")
    for name, count in counts.items():
        if count != counts[first]:
            raise UnprocessableInput(
                f"Column {name[:64]!r} has {count} rows, but {first[:64]!r} has {counts[first]}.",
                code="row_count_mismatch",
                feature=name,
            )
