"""The one batch of an Arrow stream whose only column is one list of numbers, while it arrives or leaves.

Its values are one buffer at the end of the stream, so what stands before and behind them follows from how
many they are. It is read as Arrow's own writer writes it, byte for byte; anything else is read whole, by
`arrow_ipc.py`, which says what is wrong with it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ...domain.limits import KIB
from ...errors import InputError
from .flatbuffers import root_table
from .ipc import arrow_faults, serialize_arrow
from .ipc_schema import check_schema_table, measure_key_values
from .messages import CONTINUATION, END, SCHEMA

__all__ = ["MAX_HEAD_BYTES", "BatchHead", "list_type", "padding_of", "read_batch_head", "serialize_batch"]

#: What is looked at to find the two messages; a stream with longer ones is read whole.
MAX_HEAD_BYTES: Final = 32 * KIB
#: Arrow pads buffers to this.
_ALIGNMENT: Final = 8
_LENGTH: Final = struct.Struct("<i")
_INT64: Final = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class BatchHead:
    """What the two first messages of a stream say: its schema, and one list of numbers.

    Attributes:
        name: of the column.
        offset: where the values begin in the stream.
    """

    schema: pa.Schema
    name: str
    offset: int


def read_batch_head(head: bytes) -> BatchHead | None:
    """What a stream that begins with `head` says; None where it holds more than one list of numbers."""
    if head[:4] != CONTINUATION or len(head) < 8:
        return None
    size = _LENGTH.unpack_from(head, 4)[0]
    if not 0 < size <= len(head) - 8:
        return None
    try:
        with arrow_faults("The schema of the Arrow stream"):
            _check_schema(head[8 : 8 + size])
            schema = pa.ipc.read_schema(pa.py_buffer(head[: 8 + size]))
            names = schema.names  # decoded here: they may not be UTF-8
    except InputError:
        return None
    lists = list_type(schema.field(0).type) if len(names) == 1 else None
    if lists is None or lists.list_size < 1 or not _has_fixed_width(lists.value_type):
        return None
    message = _records_message(lists.value_type, lists.list_size)
    offset = 8 + size + len(message)
    return BatchHead(schema, names[0], offset) if head[8 + size : offset] == message else None


def _check_schema(metadata: bytes) -> None:
    """As `MessageFile` does before Arrow sees it."""
    message = root_table(metadata)
    table = message.table(2)
    measure_key_values(message, 4)
    if table is None or message.integer(1, "B") != SCHEMA or message.integer(3, "q"):
        raise ValueError("not a schema")
    check_schema_table(table)


def list_type(column: pa.DataType) -> pa.FixedSizeListType[Any, Any] | None:
    """The lists that a column holds, if they are all of one size and in the order of their axes."""
    if isinstance(column, pa.FixedShapeTensorType):
        if column.permutation is not None:
            return None
        column = column.storage_type
    return column if isinstance(column, pa.FixedSizeListType) else None


def _has_fixed_width(item: pa.DataType) -> bool:
    types = pa.types
    is_number = types.is_integer(item) or types.is_floating(item)
    return is_number or (types.is_fixed_size_binary(item) and item.byte_width > 0)


def padding_of(num_bytes: int) -> int:
    """Bytes behind the values that belong to the batch."""
    return -num_bytes % _ALIGNMENT


def serialize_batch(schema: pa.Schema, item: pa.DataType, num_values: int) -> tuple[bytes, bytes]:
    """What stands before and behind the values of one list of numbers, the only value of a stream.

    Args:
        item: a number, or binary of a fixed size.
    """
    stream = b"".join(serialize_arrow(schema, [], "stream"))
    padding = bytes(padding_of(num_values * item.bit_width // 8))
    return stream[: -len(END)] + _records_message(item, num_values), padding + END


def _records_message(item: pa.DataType, num_values: int) -> bytes:
    """The message of such a batch without its body: that of a list of one value, with other lengths."""
    values = pa.Array.from_buffers(item, 1, [None, pa.py_buffer(bytes(item.bit_width // 8))])
    column = pa.Array.from_buffers(pa.list_(item, 1), 1, [None], children=[values])
    whole = pa.RecordBatch.from_arrays([column], names=["x"]).serialize().to_pybytes()
    message = bytearray(whole[: 8 + _LENGTH.unpack_from(whole, 4)[0]])
    table = root_table(bytes(message[8:]))
    records = table.table(2)
    if records is None:
        raise ValueError("Arrow wrote a batch without a header")
    num_bytes = num_values * item.bit_width // 8
    for position, number in (
        (table.position(3), num_bytes + padding_of(num_bytes)),
        (records.vector_position(1) + 16, num_values),  # of the second of two nodes
        (records.vector_position(2) + 40, num_bytes),  # of the third of three buffers
    ):
        _INT64.pack_into(message, 8 + position, number)
    return bytes(message)
