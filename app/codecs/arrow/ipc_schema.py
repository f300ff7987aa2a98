"""The schema of Arrow IPC, measured before Arrow builds it.

Tables of a FlatBuffer may be shared, so that a few kilobytes can spell a tree of any size.

Source: `Schema.fbs` of Arrow 26.
"""

from __future__ import annotations

from typing import Final

from ...domain.limits import KIB, MIB
from ...errors import LimitExceeded, UnprocessableInput
from .flatbuffers import FlatTable, root_table

__all__ = ["check_schema_table", "measure_key_values", "read_field_metadata", "unsupported"]

_TIMESTAMP: Final = 10
_UNION: Final = 14
#: Fields of all levels, and the bytes of their names and metadata: what is shared counts each time.
_MAX_FIELDS: Final = 100_000
_MAX_FIELD_DEPTH: Final = 32
_MAX_SCHEMA_TEXT: Final = 64 * MIB
#: What Arrow takes for a field in memory.
_FIELD_BYTES: Final = 1 * KIB
#: What it takes for a pair of metadata beside its text.
_PAIR_BYTES: Final = 64


def check_schema_table(schema: FlatTable) -> int:
    """The bytes that Arrow takes for this schema, which is small enough to be read.

    Raises:
        MalformedInput: corrupt (`invalid_arrow`).
        UnprocessableInput: big-endian (`unsupported_arrow`).
        LimitExceeded: more fields, deeper, or with more metadata than is read (`schema_too_large`).
    """
    if schema.integer(0, "h"):
        raise unsupported("Big-endian Arrow is not read; write it little-endian")
    text = measure_key_values(schema, 2)
    num_fields = 0
    level = [schema.tables(1)]
    while level:
        if (field := next(level[-1], None)) is None:
            level.pop()
            continue
        num_fields += 1
        text += field.num_bytes(0) + _measure_type(field) + measure_key_values(field, 6)
        level.append(field.tables(5))
        if num_fields > _MAX_FIELDS or text > _MAX_SCHEMA_TEXT or len(level) > _MAX_FIELD_DEPTH:
            raise LimitExceeded(
                f"The Arrow schema has more than {_MAX_FIELDS} fields, {_MAX_FIELD_DEPTH} levels or "
                f"{_MAX_SCHEMA_TEXT} bytes of names and metadata.",
                code="schema_too_large",
            )
    return text + num_fields * _FIELD_BYTES


def _measure_type(field: FlatTable) -> int:
    """The bytes of what stands in a type beside numbers: a time zone, the numbers of a union's members."""
    layout = field.table(3)
    if layout is None or field.integer(2, "B") not in (_TIMESTAMP, _UNION):
        return 0
    return 4 * layout.num_bytes(1)


def read_field_metadata(message: memoryview) -> dict[bytes, bytes]:
    """The metadata of the first field of a serialized schema that is trusted.

    pyarrow takes that of an extension away from the field, and does not tell it.
    """
    schema = root_table(message[8:]).table(2)
    field = None if schema is None else next(schema.tables(1), None)
    return {} if field is None else {pair.text(0): pair.text(1) for pair in field.tables(6)}


def measure_key_values(table: FlatTable, number: int) -> int:
    """The bytes of metadata in a field of `table`, what is shared counted each time.

    Raises:
        LimitExceeded: too many (`schema_too_large`).
    """
    total = 0
    for pair in table.tables(number):
        total += _PAIR_BYTES + pair.num_bytes(0) + pair.num_bytes(1)
        if total > _MAX_SCHEMA_TEXT:
            raise LimitExceeded(
                f"More than {_MAX_SCHEMA_TEXT} bytes of metadata in one place.", code="schema_too_large"
            )
    return total


def unsupported(what: str) -> UnprocessableInput:
    """Arrow that is as it should be, and not served."""
    return UnprocessableInput(f"{what}.", code="unsupported_arrow")
