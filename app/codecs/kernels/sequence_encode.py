"""Arrow columns to serialized `tf.train.SequenceExample` messages in TFRecord frames, a column at a time.

    SequenceExample { Features context = 1; FeatureLists feature_lists = 2 }
    FeatureLists { map<string, FeatureList> feature_list = 1 }
    FeatureList { repeated Feature feature = 1 }

Source: `tensorflow/core/example/{example,feature}.proto`. Both parts are maps, the context as in an Example.
A *step* is one Feature of a FeatureList, or a context's only one (`wrapped` is 0: no FeatureList is around
it); its *body* is what stands inside its list: the packed values of a FloatList or an Int64List, all fields
of a BytesList. Two passes over a chunk of rows: the first one adds up sizes, the second one writes every
column's entry at the row's cursor.
"""

from __future__ import annotations

from .example_encode import MAX_FIELD_OVERHEAD
from .framing import HEADER_BYTES, OVERHEAD_BYTES, write_footer, write_header
from .memory import Bytes, Ints, MutableBytes, MutableInts, Words, copy_bytes
from .varint import field_size, varint_size, write_length, write_packed_varint

__all__ = [
    "STEP_HEAD_BYTES",
    "add_map_entry_sizes",
    "begin_contexts",
    "begin_feature_lists",
    "bytes_step_bodies",
    "end_payloads",
    "int_step_bodies",
    "list_sizes",
    "payload_sizes",
    "write_bytes_steps",
    "write_float_steps",
    "write_int_steps",
]

#: Scratch that a step's head takes: tags and lengths of the Feature, its list, and packed values.
STEP_HEAD_BYTES = 3 * MAX_FIELD_OVERHEAD

_FIELD_1 = 0x0A
_FIELD_2 = 0x12
_FLOAT_LIST = 0x12
_INT64_LIST = 0x1A


def _step_list_size(body: int, packed: int) -> int:
    return field_size(body) if packed and body else body


def int_step_bodies(values: Words, offsets: Ints, bodies: MutableInts) -> None:
    """Bytes that each step's integers take as varints.

    Args:
        values: two's complement.
        offsets: step `s` holds the values from `offsets[s]` to `offsets[s + 1]`.
    """
    for step in range(bodies.size):
        total = 0
        for index in range(offsets[step], offsets[step + 1]):
            total += varint_size(values[index])
        bodies[step] = total


def bytes_step_bodies(prefix_size: int, value_offsets: Ints, offsets: Ints, bodies: MutableInts) -> None:
    """Bytes that each step's values take as fields of a BytesList; arguments as of `write_bytes_steps`."""
    for step in range(bodies.size):
        total = 0
        for value in range(offsets[step], offsets[step + 1]):
            total += field_size(prefix_size + value_offsets[value + 1] - value_offsets[value])
        bodies[step] = total


def list_sizes(bodies: Ints, packed: int, wrapped: int, steps: Ints, lists: MutableInts) -> None:
    """Bytes of the value of each row's map entry: a FeatureList, or a Feature where not `wrapped`.

    Args:
        bodies: by step.
        packed: 1 for FloatList and Int64List, 0 for BytesList.
        steps: row `r` has the steps from `steps[r]` to `steps[r + 1]`.
    """
    for row in range(lists.size):
        total = 0
        for step in range(steps[row], steps[row + 1]):
            size = field_size(_step_list_size(bodies[step], packed))
            total += field_size(size) if wrapped else size
        lists[row] = total


def add_map_entry_sizes(lists: Ints, present: Bytes, key_size: int, maps: MutableInts) -> None:
    """Add one column's entries to the sizes of the rows' Features or FeatureLists messages."""
    for row in range(lists.size):
        if present[row]:
            maps[row] += field_size(key_size + field_size(lists[row]))


def payload_sizes(
    contexts: Ints, has_context: int, feature_lists: Ints, has_lists: int, payloads: MutableInts
) -> None:
    """Bytes of each row's message, with the fields that all rows have."""
    for row in range(payloads.size):
        size = 0
        if has_context:
            size += field_size(contexts[row])
        if has_lists:
            size += field_size(feature_lists[row])
        payloads[row] = size


def begin_contexts(
    payloads: Ints,
    contexts: Ints,
    has_context: int,
    first: int,
    last: int,
    cursors: MutableInts,
    out: MutableBytes,
) -> None:
    """Write headers, and tag and length of the context, of the rows `first` to `last`, side by side."""
    position = 0
    for row in range(first, last):
        at = write_header(out, position, payloads[row])
        if has_context:
            at = write_length(out, at, _FIELD_1, contexts[row])
        cursors[row] = at
        position += OVERHEAD_BYTES + payloads[row]


def begin_feature_lists(
    feature_lists: Ints, first: int, last: int, cursors: MutableInts, out: MutableBytes
) -> None:
    """Write tag and length of the feature lists, behind the context."""
    for row in range(first, last):
        cursors[row] = write_length(out, cursors[row], _FIELD_2, feature_lists[row])


def end_payloads(payloads: Ints, first: int, last: int, out: MutableBytes) -> None:
    """Write the payloads' CRCs."""
    position = 0
    for row in range(first, last):
        begin = position + HEADER_BYTES
        position = write_footer(out, begin, begin + payloads[row])


def _begin_entry(out: MutableBytes, at: int, key: Bytes, size: int) -> int:
    """Write what stands before the value of a map entry, which has `size` bytes."""
    at = write_length(out, at, _FIELD_1, key.size + field_size(size))
    copy_bytes(out, at, key, 0, key.size)
    return write_length(out, at + key.size, _FIELD_2, size)


def _write_step_head(out: MutableBytes, kind: int, body: int, wrapped: int) -> int:
    """Write all of a step of numbers that stands before its body at the start of `out`; its bytes."""
    size = _step_list_size(body, 1)
    at = 0
    if wrapped:
        at = write_length(out, at, _FIELD_1, field_size(size))
    at = write_length(out, at, kind, size)
    if body:
        at = write_length(out, at, _FIELD_1, body)
    return at


def write_float_steps(
    raw: Bytes,
    offsets: Ints,
    head: MutableBytes,
    bodies: Ints,
    wrapped: int,
    steps: Ints,
    lists: Ints,
    present: Bytes,
    key: Bytes,
    first: int,
    last: int,
    cursors: MutableInts,
    out: MutableBytes,
) -> None:
    """Write one map entry a row, of FloatLists.

    Args:
        raw: the little-endian float32 values.
        offsets: step `s` holds the values from `offsets[s]` to `offsets[s + 1]`.
        head: scratch of `STEP_HEAD_BYTES`; steps with bodies of one size share their heads.
        bodies, wrapped, steps, lists: as of `list_sizes`.
        present: 0 where the row lacks the feature.
        key: the key's field, with tag and length.
        first, last: the rows to write.
        cursors: by row, where to write; moved behind the entry.
    """
    head_body = -1
    head_size = 0
    for row in range(first, last):
        if not present[row]:
            continue
        at = _begin_entry(out, cursors[row], key, lists[row])
        for step in range(steps[row], steps[row + 1]):
            if bodies[step] != head_body:
                head_body = bodies[step]
                head_size = _write_step_head(head, _FLOAT_LIST, head_body, wrapped)
            copy_bytes(out, at, head, 0, head_size)
            copy_bytes(out, at + head_size, raw, 4 * offsets[step], head_body)
            at += head_size + head_body
        cursors[row] = at


def write_int_steps(
    values: Words,
    offsets: Ints,
    head: MutableBytes,
    bodies: Ints,
    wrapped: int,
    steps: Ints,
    lists: Ints,
    present: Bytes,
    key: Bytes,
    first: int,
    last: int,
    cursors: MutableInts,
    out: MutableBytes,
) -> None:
    """Write one map entry a row, of Int64Lists; arguments as of `write_float_steps`."""
    head_body = -1
    head_size = 0
    for row in range(first, last):
        if not present[row]:
            continue
        at = _begin_entry(out, cursors[row], key, lists[row])
        for step in range(steps[row], steps[row + 1]):
            if bodies[step] != head_body:
                head_body = bodies[step]
                head_size = _write_step_head(head, _INT64_LIST, head_body, wrapped)
            copy_bytes(out, at, head, 0, head_size)
            at += head_size
            end = at + head_body
            for index in range(offsets[step], offsets[step + 1]):
                at = write_packed_varint(out, at, values[index], end)
        cursors[row] = at


def write_bytes_steps(
    prefix: Bytes,
    data: Bytes,
    value_offsets: Ints,
    offsets: Ints,
    bodies: Ints,
    wrapped: int,
    steps: Ints,
    lists: Ints,
    present: Bytes,
    key: Bytes,
    first: int,
    last: int,
    cursors: MutableInts,
    out: MutableBytes,
) -> None:
    """Write one map entry a row, of BytesLists; arguments as of `write_float_steps`.

    Args:
        prefix: stands before every value.
        value_offsets: value `v` is `data[value_offsets[v]:value_offsets[v + 1]]`.
    """
    for row in range(first, last):
        if not present[row]:
            continue
        at = _begin_entry(out, cursors[row], key, lists[row])
        for step in range(steps[row], steps[row + 1]):
            if wrapped:
                at = write_length(out, at, _FIELD_1, field_size(bodies[step]))
            at = write_length(out, at, _FIELD_1, bodies[step])
            for value in range(offsets[step], offsets[step + 1]):
                begin = value_offsets[value]
                size = value_offsets[value + 1] - begin
                at = write_length(out, at, _FIELD_1, prefix.size + size)
                copy_bytes(out, at, prefix, 0, prefix.size)
                copy_bytes(out, at + prefix.size, data, begin, size)
                at += prefix.size + size
        cursors[row] = at
