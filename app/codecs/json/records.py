"""Records as one JSON text: rows, columns, and the columns of an Open Inference request.

Which of them a body is follows from its shape alone (`_read_body`); the table stands in the HTTP
contract. A body is parsed whole, but for large ones of rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from ...domain.limits import MIB
from ...errors import AmbiguousInput, InputError, MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, WholeBody
from ..columns import Records
from ..options import RecordsDecodeOptions
from ..records.body_schema import with_body_schema
from .blocks import Block, ColumnBlock, RowBlock, records_from_blocks
from .forms import IGNORED_MEMBERS, is_oip
from .objects import INSTANCES, ObjectReader, find_rows
from .oip import read_oip_columns
from .row_texts import head_rows, records_from_texts, require_row
from .text import parse_json
from .write_rows import RESERVED

_ABSENT: Final = object()
#: Rows of a body up to this size are parsed at once, and what is wrong with any of them is found at once.
_WHOLE_UP_TO: Final = 1 * MIB
#: So much of a text that is not JSON is looked at to tell what it is.
_LOOKED_AT: Final = 1024


@dataclass(frozen=True, slots=True)
class _Body:
    """A body whose form is known.

    Attributes:
        kind: how to read `value`.
        schema: the JSON of the member `schema`, or `_ABSENT`.
    """

    kind: Literal["rows", "columns", "oip"]
    value: Any
    schema: Any = _ABSENT


def decode(whole: WholeBody, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The rows or columns of the body; of a large one, rows are read as they are drawn.

    Raises:
        MalformedInput: not strict JSON; a schema here and another one elsewhere (`schema_twice`).
        AmbiguousInput: none of the forms.
        UnprocessableInput: columns that differ in length (`row_count_mismatch`) or have none (`no_rows`).
        InputError: as `records_from_blocks` and `records_from_texts`.
    """
    text = whole.view()
    if len(text) > _WHOLE_UP_TO and (records := _decode_rows(text, options, budget)) is not None:
        return records
    try:
        document = parse_json(text, budget, bare_nonfinite=options.nonfinite == "bare")
    except MalformedInput as error:
        if _is_another_line(text, error):
            raise MalformedInput(
                "This is NDJSON, an object a line, and not one JSON text. Send it as application/x-ndjson, "
                "or with ?from=ndjson.",
                code=error.code,
                offset=error.location.offset,
            ) from None
        raise
    body = _read_body(document.value)
    if body.schema is not _ABSENT:
        options = with_body_schema(body.schema, options, budget.limits)
    block: Block
    if body.kind == "rows":
        block = RowBlock(body.value, document.num_bytes)
    elif body.kind == "columns":
        block = ColumnBlock(body.value, _count_rows(body.value), document.num_bytes)
    else:
        remaining = budget.remaining
        columns, schema = read_oip_columns(body.value, options.schema, budget)
        num_bytes = document.num_bytes + remaining - budget.remaining
        block = ColumnBlock(columns, _count_rows(columns), num_bytes)
        options = replace(options, schema=schema)
    records = records_from_blocks(iter([block]), options, budget)
    return replace(records, is_declared=body.schema is not _ABSENT)


def _is_another_line(text: memoryview, error: MalformedInput) -> bool:
    """Whether the text is an object, and fails where another one begins below it."""
    at = error.location.offset
    if error.code != "invalid_json" or not at or bytes(text[at : at + 1]) != b"{":
        return False
    begin, before = bytes(text[:_LOOKED_AT]), bytes(text[max(0, at - _LOOKED_AT) : at])
    return begin.lstrip()[:1] == b"{" and b"\n" in before[len(before.rstrip()) :]


def _decode_rows(text: memoryview, options: RecordsDecodeOptions, budget: Budget) -> Records | None:
    """The rows of a body that is rows beyond doubt."""
    found = find_rows(text, budget)
    if found is None:
        return None
    before = budget.remaining
    try:
        document = parse_json(found.around, budget, bare_nonfinite=options.nonfinite == "bare")
    except InputError:  # the general way finds it as well, and says where
        return None
    finally:
        budget.release(before - budget.remaining)
    body = _read_body(document.value)
    if body.schema is not _ABSENT:
        options = with_body_schema(body.schema, options, budget.limits)
    reader = ObjectReader(text, found.begin, budget, head_rows(options))
    depth = 1 if isinstance(document.value, list) else 2
    records = records_from_texts(reader, options, budget, enclosed_by=depth)
    return replace(records, is_declared=body.schema is not _ABSENT)


def decode_bodies(
    bodies: Iterable[bytes], options: RecordsDecodeOptions, budget: Budget
) -> tuple[Records, list[int]]:
    """The rows of several bodies as if they were one, and how many there are in each.

    Raises:
        AmbiguousInput: a body that is not rows and nothing else.
        InputError: as `decode` of one of them.
    """
    rows: list[dict[str, Any]] = []
    counts: list[int] = []
    num_bytes = 0
    for text in bodies:
        document = parse_json(text, budget, bare_nonfinite=options.nonfinite == "bare")
        body = _read_body(document.value)
        if body.kind != "rows" or body.schema is not _ABSENT or not body.value:
            raise AmbiguousInput("Some of these bodies are not rows alone.")
        rows += body.value
        counts.append(len(body.value))
        num_bytes += document.num_bytes
    return records_from_blocks(iter([RowBlock(rows, num_bytes)]), options, budget), counts


def parse_row(text: Buffer, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """One bare JSON object as one row: never an envelope, no key is reserved.

    Raises:
        MalformedInput: not strict JSON, or not an object.
        InputError: as `records_from_blocks`.
    """
    document = parse_json(text, budget, bare_nonfinite=options.nonfinite == "bare")
    block = RowBlock([require_row(document)], document.num_bytes)
    return records_from_blocks(iter([block]), options, budget)


def _read_body(body: Any) -> _Body:
    if _are_objects(body):
        return _Body("rows", body)
    if not isinstance(body, dict):
        raise _ambiguous("neither an array of objects nor an object")
    if not RESERVED & body.keys():
        return _Body("columns", body)
    members = body.keys() - {"schema"}
    schema = body.get("schema", _ABSENT)
    if members == {"columns"} and isinstance(body["columns"], dict):
        return _Body("columns", body["columns"], schema)
    members -= IGNORED_MEMBERS
    if members == {INSTANCES} and _are_objects(body[INSTANCES]):
        return _Body("rows", body[INSTANCES], schema)
    if members == {"inputs"}:
        inputs = body["inputs"]
        if isinstance(inputs, dict):
            return _Body("columns", inputs, schema)
        if inputs == [] or is_oip(inputs):
            return _Body("oip", inputs, schema)
    raise _ambiguous(f"an object with {', '.join(map(repr, sorted(body)[:8]))[:200]}")


def _are_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _ambiguous(what: str) -> AmbiguousInput:
    return AmbiguousInput(
        f"This body is {what}, which no form of records is. Send rows as [{{...}}, ...] or "
        '{"instances": [{...}, ...]}, columns as {"columns": {"name": [...], ...}} or {"inputs": {...}}, '
        'or Open Inference {"inputs": [{"name", "datatype", "shape", "data"}, ...]}.'
    )


def _count_rows(columns: dict[str, Any]) -> int:
    first = next(iter(columns), "")
    for name, cells in columns.items():
        if not isinstance(cells, list):
            raise UnprocessableInput(
                f"Column {name[:64]!r} is not an array; the first axis of every column counts the rows. "
                "One row is sent as [{...}].",
                code="no_rows",
                feature=name,
            )
        if len(cells) != len(columns[first]):
            raise UnprocessableInput(
                f"Column {name[:64]!r} has {len(cells)} rows, but {first[:64]!r} has {len(columns[first])}.",
                code="row_count_mismatch",
                feature=name,
            )
    return len(columns[first]) if columns else 0
