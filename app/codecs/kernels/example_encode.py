"""Arrow columns to serialized `tf.train.Example` messages in TFRecord frames, a column at a time.

    Example { Features features = 1 }     Features { map<string, Feature> feature = 1 }
    Feature { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3 } }

Source: `tensorflow/core/example/{example,feature}.proto`. Two passes over a chunk of rows: the first one
adds up sizes, the second one writes every column's entry at the row's cursor. A *body* is what stands
inside the list: the packed values of a FloatList or an Int64List, all fields of a BytesList.
"""

from __future__ import annotations

from .framing import HEADER_BYTES, OVERHEAD_BYTES, write_footer, write_header
from .memory import Bytes, Ints, MutableBytes, MutableInts, Words, copy_bytes
from .varint import field_size, varint_size, write_length, write_packed_varint

__all__ = [
    "HEAD_ROOM",
    "MAX_FIELD_OVERHEAD",
    "add_entry_sizes",
    "begin_frames",
    "bytes_bodies",
    "end_frames",
    "frame_ends",
    "int_bodies",
    "write_bytes",
    "write_floats",
    "write_ints",
]

#: Tag and length of a field: what a varint can take at most.
MAX_FIELD_OVERHEAD = 11
#: Scratch that an entry's head takes beyond the key: entry, value, list and packed tags and lengths.
HEAD_ROOM = 4 * MAX_FIELD_OVERHEAD

_FIELD_1 = 0x0A
_FIELD_2 = 0x12


def int_bodies(values: Words, offsets: Ints, bodies: MutableInts) -> None:
    """Bytes that each row's integers take as varints.

    Args:
        values: two's complement.
        offsets: row `r` holds `values[offsets[r]:offsets[r + 1]]`.
    """
    for row in range(bodies.size):
        total = 0
        for index in range(offsets[row], offsets[row + 1]):
            total += varint_size(values[index])
        bodies[row] = total


def bytes_bodies(prefix_size: int, value_offsets: Ints, offsets: Ints, bodies: MutableInts) -> None:
    """Bytes that each row's values take as fields of a BytesList.

    Args:
        prefix_size: of the bytes that stand before every value.
        value_offsets: value `v` is `data[value_offsets[v]:value_offsets[v + 1]]`.
        offsets: row `r` holds the values from `offsets[r]` to `offsets[r + 1]`.
    """
    for row in range(bodies.size):
        total = 0
        for value in range(offsets[row], offsets[row + 1]):
            total += field_size(prefix_size + value_offsets[value + 1] - value_offsets[value])
        bodies[row] = total


def _list_size(body: int, packed: int) -> int:
    return field_size(body) if packed and body else body


def _entry_size(body: int, packed: int, key_size: int) -> int:
    return key_size + field_size(field_size(_list_size(body, packed)))


def add_entry_sizes(bodies: Ints, present: Bytes, packed: int, key_size: int, features: MutableInts) -> None:
    """Add one column's entries to the sizes of the rows' Features messages.

    Args:
        present: 0 where the row lacks the feature.
        packed: 1 for FloatList and Int64List, 0 for BytesList.
        key_size: bytes of the entry's key, with tag and length.
    """
    for row in range(bodies.size):
        if present[row]:
            features[row] += field_size(_entry_size(bodies[row], packed, key_size))


def frame_ends(features: Ints, ends: MutableInts) -> None:
    """Where each row's frame ends, the first one beginning at 0."""
    position = 0
    for row in range(features.size):
        position += OVERHEAD_BYTES + field_size(features[row])
        ends[row] = position


def begin_frames(features: Ints, first: int, last: int, cursors: MutableInts, out: MutableBytes) -> None:
    """Write headers, and tag and length of Features, of the rows `first` to `last`, side by side."""
    position = 0
    for row in range(first, last):
        payload = field_size(features[row])
        at = write_header(out, position, payload)
        cursors[row] = write_length(out, at, _FIELD_1, features[row])
        position = at + payload + OVERHEAD_BYTES - HEADER_BYTES


def end_frames(features: Ints, first: int, last: int, out: MutableBytes) -> int:
    """Write the payloads' CRCs; the bytes of all frames."""
    position = 0
    for row in range(first, last):
        begin = position + HEADER_BYTES
        position = write_footer(out, begin, begin + field_size(features[row]))
    return position


def _write_head(out: MutableBytes, key: Bytes, kind: int, body: int, packed: int) -> int:
    """Write all of an entry that stands before its body at the start of `out`; its bytes."""
    list_size = _list_size(body, packed)
    at = write_length(out, 0, _FIELD_1, _entry_size(body, packed, key.size))
    copy_bytes(out, at, key, 0, key.size)
    at = write_length(out, at + key.size, _FIELD_2, field_size(list_size))
    at = write_length(out, at, kind, list_size)
    if packed and body:
        at = write_length(out, at, _FIELD_1, body)
    return at


def write_floats(
    raw: Bytes,
    offsets: Ints,
    bodies: Ints,
    present: Bytes,
    key: Bytes,
    head: MutableBytes,
    first: int,
    last: int,
    cursors: MutableInts,
    out: MutableBytes,
) -> None:
    """Write one FloatList an entry.

    Args:
        raw: the little-endian float32 values.
        key: the key's field, with tag and length.
        head: scratch of `key.size + HEAD_ROOM` bytes; rows with bodies of one size share their heads.
        first, last: the rows to write.
        cursors: by row, where to write; moved behind the entry.
    """
    head_body = -1
    head_size = 0
    for row in range(first, last):
        if not present[row]:
            continue
        if bodies[row] != head_body:
            head_body = bodies[row]
            head_size = _write_head(head, key, 0x12, head_body, 1)
        at = cursors[row]
        copy_bytes(out, at, head, 0, head_size)
        copy_bytes(out, at + head_size, raw, 4 * offsets[row], head_body)
        cursors[row] = at + head_size + head_body


def write_ints(
    values: Words,
    offsets: Ints,
    bodies: Ints,
    present: Bytes,
    key: Bytes,
    head: MutableBytes,
    first: int,
    last: int,
    cursors: MutableInts,
    out: MutableBytes,
) -> None:
    """Write one Int64List an entry; arguments as of `int_bodies` and `write_floats`."""
    head_body = -1
    head_size = 0
    for row in range(first, last):
        if not present[row]:
            continue
        if bodies[row] != head_body:
            head_body = bodies[row]
            head_size = _write_head(head, key, 0x1A, head_body, 1)
        at = cursors[row]
        copy_bytes(out, at, head, 0, head_size)
        at += head_size
        end = at + head_body
        for index in range(offsets[row], offsets[row + 1]):
            at = write_packed_varint(out, at, values[index], end)
        cursors[row] = at


def write_bytes(
    prefix: Bytes,
    data: Bytes,
    value_offsets: Ints,
    offsets: Ints,
    bodies: Ints,
    present: Bytes,
    key: Bytes,
    head: MutableBytes,
    first: int,
    last: int,
    cursors: MutableInts,
    out: MutableBytes,
) -> None:
    """Write one BytesList an entry; arguments as of `bytes_bodies` and `write_floats`."""
    head_body = -1
    head_size = 0
    for row in range(first, last):
        if not present[row]:
            continue
        if bodies[row] != head_body:
            head_body = bodies[row]
            head_size = _write_head(head, key, 0x0A, head_body, 0)
        at = cursors[row]
        copy_bytes(out, at, head, 0, head_size)
        at += head_size
        for value in range(offsets[row], offsets[row + 1]):
            begin = value_offsets[value]
            size = value_offsets[value + 1] - begin
            at = write_length(out, at, _FIELD_1, prefix.size + size)
            copy_bytes(out, at, prefix, 0, prefix.size)
            copy_bytes(out, at + prefix.size, data, begin, size)
            at += prefix.size + size
        cursors[row] = at
