"""Columns to serialized `tf.train.Example` and `SequenceExample` messages in TFRecord frames, row by row.

    Example { Features features = 1 }     Features { map<string, Feature> feature = 1 }
    Feature { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3 } }
    SequenceExample { Features context = 1; FeatureLists feature_lists = 2 }
    FeatureLists { map<string, FeatureList> feature_list = 1 }
    FeatureList { repeated Feature feature = 1 }

Source: `tensorflow/core/example/{example,feature}.proto`. Both messages are *parts*, which are maps; an
Example has the first one alone. The *body* of a list is what stands inside it: the packed values of a
FloatList or an Int64List, all fields of a BytesList. The body of an entry is that of its list, or all of a
FeatureList, whose features are its *steps*. The *head* is all of an entry that stands before its body; it
depends on the key and on the body's size alone, so that heads are kept.

A row is measured first, which tells the sizes of its bodies and so its heads, and then written. Where
each body is as large as in the row before, the frame of that row is copied whole and only the bodies
are written into it.
"""

from __future__ import annotations

from ..addresses import copy_from, raw_address, raw_byte_from, raw_int_from, raw_word_from
from ..memory import Bytes, Ints, MutableBytes, MutableInts
from ..varint import field_size, varint_size, write_length, write_packed_varint
from .framing import OVERHEAD_BYTES, write_footers, write_header

#: Tag and length of a field: what a varint can take at most.
MAX_FIELD_OVERHEAD = 11
#: What a head takes at most beyond the key: entry, value, list and packed tags and lengths.
HEAD_ROOM = 4 * MAX_FIELD_OVERHEAD

#: Numbers that describe a column:
COLUMN_FIELDS = 19
_KIND = 0  # tag of the list in Feature
_VALUES = 1  # address of the values
_VALUES_SIZE = 2  # their bytes
_STARTS = 3  # address of an int64 by item and one more: number of its first value; 0 where items are alike
_WIDTH = 4  # values of an item where they are alike; an item is a row, or a step
_SPANS = 5  # address of an int64 by value and one more: where its bytes begin; 0 where values are alike
_SPAN = 6  # bytes of a value where they are alike
_NUM_VALUES = 7  # how many there are
_PRESENT = 8  # address of a byte by row, 0 where the row lacks the feature; 0 where none does
_PREFIX = 9  # address of the bytes that stand before each value
_PREFIX_SIZE = 10
_KEY = 11  # address of the key's field in the entry, with tag and length
_KEY_SIZE = 12
_HEADS = 13  # where the column's heads begin in `heads`
_HEAD_STEP = 14  # bytes from one of them to the next
_FIXED_BODY = 15  # size of the list's body where all items have the same, else -1
_STEPS = 16  # address of an int64 by row and one more: number of its first step; 0 where rows have no steps
_NUM_STEPS = 17  # how many there are
_STEP_BODIES = 18  # address of an int64 by step: the size of its list's body

#: The parts of a message, as flags.
FIRST_PART = 1
SECOND_PART = 2

#: Tags of the lists in Feature.
BYTES = 0x0A
FLOATS = 0x12
INTS = 0x1A

#: Numbers that are noted of a column while rows are written:
STATE_FIELDS = 5
_BODY = 0  # size of the row's body, -1 where the row lacks the feature
_HEAD = 1  # where in `heads` the head for it is
_HEAD_SIZE = 2
_HOLE = 3  # where in the model the body lies
_MODEL_BODY = 4  # its size there

_FIELD_1 = 0x0A
_FIELD_2 = 0x12

#: What `encode_messages` answers where values do not lie where the table says.
IMPOSSIBLE = -1

#: A frame up to this size is worth copying for its heads.
_MAX_COPIED = 2048
#: Checksums are taken after so many bytes, while these are in the first-level cache.
_CHECKSUM_BYTES = 1 << 14
#: So many rows are written at a time.
_MAX_ALIKE = 64


def _list_size(body: int, packed: bool) -> int:
    return field_size(body) if packed and body else body


def _write_list_head(out: MutableBytes, at: int, kind: int, body: int) -> int:
    """Write what stands before the body of a list in its Feature; the position behind it."""
    packed = kind != BYTES
    at = write_length(out, at, kind, _list_size(body, packed))
    if packed and body:
        at = write_length(out, at, _FIELD_1, body)
    return at


def _write_head(out: MutableBytes, at: int, column: int, body: int) -> int:
    """Write a head at `at`; its bytes."""
    begin = at
    kind, key_size = _field(column, _KIND), _field(column, _KEY_SIZE)
    wrapped = _field(column, _STEPS) != 0
    value = body if wrapped else field_size(_list_size(body, kind != BYTES))
    at = write_length(out, at, _FIELD_1, key_size + field_size(value))
    copy_from(out, at, _field(column, _KEY), key_size, 0, key_size)
    at = write_length(out, at + key_size, _FIELD_2, value)
    return (at if wrapped else _write_list_head(out, at, kind, body)) - begin


def _int_at(address: int, index: int) -> int:
    return raw_int_from(address + 8 * index)


def _column(columns: Ints, number: int) -> int:
    """Address of a column in the table, whose size the caller has checked."""
    return raw_address(columns) + 8 * COLUMN_FIELDS * number


def _field(column: int, field: int) -> int:
    return _int_at(column, field)


def _first_value(column: int, item: int) -> int:
    """The number of an item's first value; of the item behind the last one, how many values there are."""
    if _field(column, _STARTS) == 0:
        return item * _field(column, _WIDTH)
    return _int_at(_field(column, _STARTS), item)


def _span_begin(column: int, value: int) -> int:
    """Where the bytes of a value begin; of the value behind the last one, where they end."""
    if _field(column, _SPANS) == 0:
        return value * _field(column, _SPAN)
    return _int_at(_field(column, _SPANS), value)


def _body_size(column: int, row: int) -> int:
    """The size of an entry's body, or IMPOSSIBLE."""
    if _field(column, _STEPS) == 0:
        return _list_body_size(column, row)
    first = _int_at(_field(column, _STEPS), row)
    last = _int_at(_field(column, _STEPS), row + 1)
    if first < 0 or last < first or last > _field(column, _NUM_STEPS):
        return IMPOSSIBLE
    packed = _field(column, _KIND) != BYTES
    total = 0
    for step in range(first, last):
        body = _int_at(_field(column, _STEP_BODIES), step)
        if body < 0:
            return IMPOSSIBLE
        total += field_size(field_size(_list_size(body, packed)))
    return total


def _list_body_size(column: int, item: int) -> int:
    """The size of the body of an item's list, or IMPOSSIBLE."""
    if _field(column, _FIXED_BODY) >= 0:
        return _field(column, _FIXED_BODY)
    first = _first_value(column, item)
    last = _first_value(column, item + 1)
    if first < 0 or last < first or last > _field(column, _NUM_VALUES):
        return IMPOSSIBLE
    if _field(column, _KIND) == FLOATS:
        return 4 * (last - first)
    total = 0
    if _field(column, _KIND) == INTS:
        address = _field(column, _VALUES)
        if last - first == 1:
            return varint_size(raw_word_from(address + 8 * first))
        for index in range(first, last):
            total += varint_size(raw_word_from(address + 8 * index))
        return total
    prefix_size = _field(column, _PREFIX_SIZE)
    for index in range(first, last):
        size = _span_begin(column, index + 1) - _span_begin(column, index)
        if size < 0:
            return IMPOSSIBLE
        total += field_size(prefix_size + size)
    return total


def _choose_head(
    columns: Ints,
    number: int,
    body: int,
    heads: MutableBytes,
    head_bodies: MutableInts,
    head_sizes: MutableInts,
    state: MutableInts,
) -> bool:
    """Note the head for a body of this size, written where it is not there yet.

    Returns:
        Whether the column's body is as large as in the row before.
    """
    at = number * STATE_FIELDS
    if state[at + _BODY] == body:
        return True
    column = _column(columns, number)
    slots = head_bodies.size * STATE_FIELDS // state.size
    index = (body ^ (body >> 3)) & (slots - 1)
    slot = number * slots + index
    begin = _field(column, _HEADS) + index * _field(column, _HEAD_STEP)
    if head_bodies[slot] != body:
        head_sizes[slot] = _write_head(heads, begin, column, body)
        head_bodies[slot] = body
    state[at + _BODY] = body
    state[at + _HEAD] = begin
    state[at + _HEAD_SIZE] = head_sizes[slot]
    return False


def _write_body(column: int, row: int, out: MutableBytes, at: int, body: int) -> int:
    """Write the values of a row; the position behind them."""
    if _field(column, _STEPS) == 0:
        return _write_list_body(column, row, out, at, body)
    kind = _field(column, _KIND)
    packed = kind != BYTES
    for step in range(_int_at(_field(column, _STEPS), row), _int_at(_field(column, _STEPS), row + 1)):
        size = _int_at(_field(column, _STEP_BODIES), step)
        at = write_length(out, at, _FIELD_1, field_size(_list_size(size, packed)))
        at = _write_list_head(out, at, kind, size)
        at = _write_list_body(column, step, out, at, size)
    return at


def _write_list_body(column: int, item: int, out: MutableBytes, at: int, body: int) -> int:
    """Write the values of an item; the position behind them."""
    kind = _field(column, _KIND)
    values = _field(column, _VALUES)
    room = _field(column, _VALUES_SIZE)
    first = _first_value(column, item)
    if kind == FLOATS:
        copy_from(out, at, values, room, 4 * first, body)
        return at + body
    last = _first_value(column, item + 1)
    if kind == INTS:
        end = at + body
        for index in range(first, last):
            at = write_packed_varint(out, at, raw_word_from(values + 8 * index), end)
        return at
    prefix_size = _field(column, _PREFIX_SIZE)
    begin = _span_begin(column, first)
    for index in range(first, last):
        after = _span_begin(column, index + 1)
        at = write_length(out, at, _FIELD_1, prefix_size + after - begin)
        if prefix_size:
            copy_from(out, at, _field(column, _PREFIX), prefix_size, 0, prefix_size)
        at += prefix_size
        copy_from(out, at, values, room, begin, after - begin)
        at += after - begin
        begin = after
    return at


def _is_sound(column: int, rows: int) -> bool:
    """Whether what the table says of a column once lies inside its arrays."""
    num_values = _field(column, _NUM_VALUES)
    num_items = rows if _field(column, _STEPS) == 0 else _field(column, _NUM_STEPS)
    if _field(column, _STARTS) == 0 and num_items * _field(column, _WIDTH) > num_values:
        return False
    return _field(column, _KIND) != INTS or 8 * num_values <= _field(column, _VALUES_SIZE)


def _payload_size(parts: int, first: int, second: int) -> int:
    """Bytes of a message whose parts have these sizes."""
    size = field_size(first) if parts & FIRST_PART else 0
    return size + (field_size(second) if parts & SECOND_PART else 0)


def _write_frame(
    columns: Ints,
    row: int,
    parts: int,
    num_first: int,
    first: int,
    second: int,
    heads: Bytes,
    state: MutableInts,
    out: MutableBytes,
    position: int,
) -> None:
    """Write a frame but for its last checksum, and note where its bodies are."""
    at = write_header(out, position, _payload_size(parts, first, second))
    if parts & FIRST_PART:
        at = write_length(out, at, _FIELD_1, first)
    num_columns = state.size // STATE_FIELDS
    for number in range(num_columns + 1):
        if number == num_first and parts & SECOND_PART:
            at = write_length(out, at, _FIELD_2, second)
        if number == num_columns:
            break
        noted = number * STATE_FIELDS
        body = state[noted + _BODY]
        state[noted + _MODEL_BODY] = -1
        if body >= 0:
            size = state[noted + _HEAD_SIZE]
            copy_from(out, at, raw_address(heads), heads.size, state[noted + _HEAD], size)
            at += size
            state[noted + _HOLE] = at - position
            state[noted + _MODEL_BODY] = body
            at = _write_body(_column(columns, number), row, out, at, body)


def _write_alike(
    columns: Ints, row: int, count: int, state: Ints, out: MutableBytes, model: int, frame: int, position: int
) -> None:
    """Write rows whose bodies are as large as those of the model, a frame that is there already.

    One column after the other: each has its values side by side, but all columns may be at addresses
    that fall into the same few lines of a cache.
    """
    for index in range(count):
        copy_from(out, position + index * frame, raw_address(out), out.size, model, frame)
    for number in range(state.size // STATE_FIELDS):
        noted = raw_address(state) + 8 * STATE_FIELDS * number
        body = _field(noted, _MODEL_BODY)
        column = _column(columns, number)
        if body > 0:
            at = position + _field(noted, _HOLE)
            for index in range(count):
                _write_body(column, row + index, out, at + index * frame, body)


def step_bodies(columns: Ints, number: int, bodies: MutableInts) -> bool:
    """Fill in the size of the body of each step's list; whether the table is right.

    Args:
        columns, number: of `encode_messages`, and which of the columns.
    """
    if columns.size < (number + 1) * COLUMN_FIELDS:
        return False
    column = _column(columns, number)
    if bodies.size != _field(column, _NUM_STEPS) or not _is_sound(column, 0):
        return False
    for step in range(bodies.size):
        bodies[step] = _list_body_size(column, step)
        if bodies[step] < 0:
            return False
    return True


def encode_messages(
    columns: Ints,
    parts: int,
    num_first: int,
    rows: int,
    first: int,
    max_payload: int,
    heads: MutableBytes,
    head_bodies: MutableInts,
    head_sizes: MutableInts,
    state: MutableInts,
    varying: MutableInts,
    out: MutableBytes,
    stop: MutableInts,
) -> int:
    """Write the frames of the rows from `first` on, as many as `out` has room for.

    Args:
        columns: `COLUMN_FIELDS` numbers a column, in the order of the wire, those of the first part before
            those of the second; the addresses and sizes are those of arrays that the caller holds.
        parts: which of `FIRST_PART` and `SECOND_PART` each message has, with or without entries.
        num_first: how many columns the first part has.
        rows: how many there are.
        max_payload: bytes of a message at most.
        heads: memory for the heads.
        head_bodies, head_sizes: by slot, of a power of two for each column: the body's size that its head
            is for, -1 at first, and the bytes of the head. Kept from call to call.
        state: scratch of `STATE_FIELDS` numbers a column.
        varying: scratch of a number a column.
        stop: filled with the bytes that are written, the bytes of the next row's frame where it had no
            room, and those of the next row's message where they are above `max_payload`.

    Returns:
        How many rows are written; IMPOSSIBLE where the table is wrong, which is a fault of ours.
    """
    stop[0] = 0
    stop[1] = 0
    stop[2] = 0
    fixed = 0  # of the first part, as `fixed_second` of the second
    fixed_second = 0
    num_varying = 0
    if columns.size != varying.size * COLUMN_FIELDS or state.size != varying.size * STATE_FIELDS:
        return IMPOSSIBLE
    for number in range(varying.size):
        column = _column(columns, number)
        noted = number * STATE_FIELDS
        state[noted + _BODY] = -1
        if not _is_sound(column, rows):
            return IMPOSSIBLE
        is_fixed = _field(column, _FIXED_BODY) >= 0 and _field(column, _STEPS) == 0
        if not is_fixed or _field(column, _PRESENT) != 0:
            varying[num_varying] = number
            num_varying += 1
        else:
            body = _field(column, _FIXED_BODY)
            _choose_head(columns, number, body, heads, head_bodies, head_sizes, state)
            if number < num_first:
                fixed += state[noted + _HEAD_SIZE] + body
            else:
                fixed_second += state[noted + _HEAD_SIZE] + body
    model = -1  # a frame some rows back: what was just stored is slow to load
    model_size = 0
    alike = 0  # rows behind the model that are measured, but not written
    position = 0  # behind these
    checked = 0
    row = first
    frame = 0
    while frame >= 0:
        frame = -1
        first_size = fixed
        second_size = fixed_second
        same = model >= 0 and alike < _MAX_ALIKE
        if row < rows:
            for index in range(num_varying):
                number = varying[index]
                noted = number * STATE_FIELDS
                column = _column(columns, number)
                if _field(column, _PRESENT) != 0 and not raw_byte_from(_field(column, _PRESENT) + row):
                    same = same and state[noted + _BODY] < 0
                    state[noted + _BODY] = -1
                    continue
                body = _body_size(column, row)
                if body < 0:
                    return IMPOSSIBLE
                unchanged = _choose_head(columns, number, body, heads, head_bodies, head_sizes, state)
                same = same and unchanged
                if number < num_first:
                    first_size += state[noted + _HEAD_SIZE] + body
                else:
                    second_size += state[noted + _HEAD_SIZE] + body
            payload = _payload_size(parts, first_size, second_size)
            frame = OVERHEAD_BYTES + payload
            if payload > max_payload:
                stop[2] = payload
                frame = -1
            elif frame > out.size - position:
                stop[1] = frame
                frame = -1
            elif same and frame <= _MAX_COPIED:
                alike += 1
                position += frame
                row += 1
                continue
        if alike:
            begin = position - alike * model_size
            _write_alike(columns, row - alike, alike, state, out, model, model_size, begin)
            alike = 0
        if position - checked >= _CHECKSUM_BYTES or frame < 0:
            write_footers(out, checked, position)
            checked = position
        if frame >= 0:
            _write_frame(columns, row, parts, num_first, first_size, second_size, heads, state, out, position)
            model = position
            model_size = frame
            position += frame
            row += 1
    stop[0] = position
    return row - first
