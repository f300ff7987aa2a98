"""Serialized `tf.train.Example` and `SequenceExample` messages: every byte is checked, plain values are read.

Both messages are one format: an Example's `features` have the field number and the layout of a
SequenceExample's `context`, so a SequenceExample is an Example with a second part, its feature lists. The
messages are those of `example_encode` and `sequence_encode`.

Bytes mean what `FromString` of the two messages reads in them: the last entry of a key wins, fields come in
any order, both parts may be repeated, lists are packed or not or both, lists of one Feature are joined,
unknown fields are skipped, a Feature without a kind is absent, a step without a kind holds no values. Where
`tf.io.parse_example` reads only a list's first packed run, protobuf's reading holds. Refused though protobuf
takes them:
- groups;
- a Feature of two kinds, in which the two parsers read different values (`AMBIGUOUS`);
- a map entry with an unknown field, a second key or a second value, which `tf.io.parse_example` refuses, too;
- a message that has fields, but no entry in either part: it is another one (`FOREIGN`).

`read_messages` walks each message once. A cell (feature x row) notes where the Feature lies, of what kind it
is and how much it holds. A feature's mode may ask for more: numbers of a known count, and the content of
tensors of a known shape, go straight to the arena. An entry that is written as TensorFlow writes it is read
the short way, any other one the long way; both check the same.
"""

from __future__ import annotations

import numpy as np

from .addresses import copy_from, raw_address, raw_int_from
from .memory import (
    Bytes,
    Ints,
    MutableBytes,
    MutableFlags,
    MutableInts,
    load_word,
    raw_load,
    same_bytes,
    store_word,
)
from .utf8 import valid_utf8
from .varint import count_varints, read_length, read_packed_varint, read_tag, read_two_varints, skip_field

#: What a cell holds; the numbers of lists are the fields of Feature.
KIND_ABSENT = 0
KIND_BYTES = 1
KIND_FLOAT = 2
KIND_INT64 = 3
#: What a feature list holds besides: no step that has a kind, or steps of two kinds.
KIND_NONE = 4
KIND_MIXED = 5
#: Added to the kind of a Feature that does not hold what its feature's mode expects.
UNFIT = 0x80

#: Why `read_messages` stopped.
DONE = 0
MALFORMED = 1
SEQUENCE = 2
AMBIGUOUS = 3
FULL = 4
FOREIGN = 5

#: The parts of a message.
FEATURES = 0
FEATURE_LISTS = 1

#: What is read of a feature:
MODE_CELL = 0  # where its Feature or FeatureList lies
MODE_FLOATS = 1  # `width` float32, to the arena
MODE_INTS = 2  # `width` int64, to the arena
MODE_CONTENT = 3  # one bytes value: where it lies, and `width` bytes of it behind a prefix, to the arena
MODE_SPAN = 4  # one bytes value: where it lies

#: Numbers that describe a feature:
PLAN_FIELDS = 6
_MODE = 0
_KIND = 1  # of its Features; KIND_ABSENT where that is not known
_WIDTH = 2
_OUT = 3  # where its values begin in the arena
_PREFIX = 4  # where the prefix begins in `prefixes`
_PREFIX_END = 5

#: Numbers that are noted for a feature whose key is not known: row, key begin, key end, kind, part.
UNKNOWN_FIELDS = 5

#: Where a walk stopped: row, position, how much of `unknown` is filled; and scratch.
STOP_FIELDS = 8
_ROW = 0
_POSITION = 1
_FILLED = 2
_SEEN = 3  # of the message: what it has
_KEY_BEGIN = 4  # of the entry
_KEY_END = 5
_VALUE_BEGIN = 6
_VALUE_END = 7

_ENTRY = 1
_STRANGER = 2

#: Heads that are kept of each feature, by the first byte of the entry's length.
HEAD_SLOTS = 4
#: Bytes for one: its size, the size of the body behind it, where the value begins, and so much of the head.
HEAD_BYTES = 128
_NOTED = 16
_MAX_HEAD = HEAD_BYTES - _NOTED
#: Features that are looked for in their usual order before all are searched.
_TRIES = 3

_FIELD_1 = 0x0A
_FIELD_2 = 0x12
_FIXED32_1 = 0x0D
_VARINT_1 = 0x08
_BYTES_LIST = 0x0A
_FLOAT_LIST = 0x12
_INT64_LIST = 0x1A
#: From here on the length of a list in a Feature takes two bytes.
_LONG = 130

# What a walk through a Feature answers in place of a position.
_TWO_KINDS = -1 << 62


def _compare(data: Bytes, begin: int, size: int, other: Bytes, other_begin: int, other_size: int) -> int:
    for index in range(min(size, other_size)):
        difference = int(np.int64(data[begin + index])) - int(np.int64(other[other_begin + index]))
        if difference != 0:
            return difference
    return size - other_size


def _find_key(
    data: Bytes, begin: int, end: int, guess: int, keys: Bytes, key_offsets: Ints, low: int, high: int
) -> int:
    """The number of the key `data[begin:end]` among the sorted keys `low` to `high`, or -1.

    The guess is tried first, then all by bisection.
    """
    size = end - begin
    if low <= guess < high:
        at = key_offsets[guess]
        if key_offsets[guess + 1] - at == size and same_bytes(data, begin, keys, at, size):
            return guess
    while low < high:
        middle = (low + high) >> 1
        at = key_offsets[middle]
        order = _compare(data, begin, size, keys, at, key_offsets[middle + 1] - at)
        if order == 0:
            return middle
        if order < 0:
            high = middle
        else:
            low = middle + 1
    return -1


# The long way: whatever protobuf allows.


def _list_extent(data: Bytes, begin: int, end: int, kind: int) -> tuple[int, int]:
    """How many values a list holds, or `~p`; and for a BytesList the sum of their bytes."""
    count = 0
    num_bytes = 0
    position = begin
    while position < end:
        start = position
        tag, position = read_tag(data, position, end)
        if position < 0:
            return position, 0
        if tag == _FIELD_1:
            size, position = read_length(data, position, end)
            if position < 0:
                return position, 0
            more = 1
            if kind == KIND_FLOAT:
                more = size >> 2
                if size & 3:
                    return ~start, 0
            elif kind == KIND_INT64:
                more = count_varints(data, position, position + size)
                if more < 0:
                    return more, 0
            else:
                num_bytes += size
            count += more
            position += size
        else:
            position = skip_field(data, position, end, tag)
            if position < 0:
                return position, 0
            if (kind == KIND_FLOAT and tag == _FIXED32_1) or (kind == KIND_INT64 and tag == _VARINT_1):
                count += 1
    return count, num_bytes


def _feature_extent(data: Bytes, begin: int, end: int) -> tuple[int, int, int]:
    """The kind of a Feature, how many values it holds, and the bytes of a BytesList's values.

    Instead of the count: `~p` where malformed, `_TWO_KINDS` where two of them are set.
    """
    kind = KIND_ABSENT
    count = 0
    num_bytes = 0
    position = begin
    while position < end:
        tag, position = read_tag(data, position, end)
        if position < 0:
            return kind, position, 0
        number = tag >> 3
        if (tag & 7) == 2 and KIND_BYTES <= number <= KIND_INT64:
            size, position = read_length(data, position, end)
            if position < 0:
                return kind, position, 0
            if kind not in (KIND_ABSENT, number):
                return kind, _TWO_KINDS, 0
            kind = number
            more, more_bytes = _list_extent(data, position, position + size, kind)
            if more < 0:
                return kind, more, 0
            count += more
            num_bytes += more_bytes
            position += size
        else:
            position = skip_field(data, position, end, tag)
            if position < 0:
                return kind, position, 0
    return kind, count, num_bytes


def _step_extent(data: Bytes, begin: int, end: int) -> tuple[int, int, int]:
    """As `_feature_extent`, at once where a short step is as every writer writes it: one list, one run."""
    size = end - begin
    if (
        4 <= size < _LONG
        and data[begin + 1] == size - 2
        and data[begin + 2] == _FIELD_1
        and data[begin + 3] == size - 4
    ):
        tag = data[begin]
        if tag == _INT64_LIST:
            count = 1
            if size != 5 or data[begin + 4] >= 0x80:
                count = count_varints(data, begin + 4, end)
            if count >= 0:
                return KIND_INT64, count, 0
        elif tag == _FLOAT_LIST and size & 3 == 0:
            return KIND_FLOAT, (size >> 2) - 1, 0
        elif tag == _BYTES_LIST:
            return KIND_BYTES, 1, size - 4
    return _feature_extent(data, begin, end)


def _list_steps(data: Bytes, begin: int, end: int) -> tuple[int, int, int]:
    """The kind of a FeatureList's steps, how many there are, and how many values each has.

    The values are -1 where the steps differ, -2 where there is no step. Instead of the number of steps: `~p`
    where malformed, `_TWO_KINDS` where a Feature has two of them.
    """
    kind = KIND_NONE
    steps = 0
    width = -2
    position = begin
    while position < end:
        tag, position = read_tag(data, position, end)
        if position < 0:
            return kind, position, 0
        if tag != _FIELD_1:
            position = skip_field(data, position, end, tag)
            if position < 0:
                return kind, position, 0
            continue
        size, position = read_length(data, position, end)
        if position < 0:
            return kind, position, 0
        step_kind, count, _ = _step_extent(data, position, position + size)
        if count < 0:
            return kind, count, 0
        if step_kind != KIND_ABSENT and step_kind != kind:
            kind = step_kind if kind == KIND_NONE else KIND_MIXED
        width = count if steps == 0 or width == count else -1
        steps += 1
        position += size
    return kind, steps, width


def _read_entry(data: Bytes, begin: int, end: int, stop: MutableInts) -> int:
    """Note in `stop` where key and value begin and end; an absent one is empty. 0, or `~p`."""
    for index in range(4):
        stop[_KEY_BEGIN + index] = begin
    seen = 0
    position = begin
    while position < end:
        start = position
        tag, position = read_tag(data, position, end)
        if position < 0:
            return position
        field = 1 if tag == _FIELD_1 else 2
        if tag not in (_FIELD_1, _FIELD_2) or seen & field:
            return ~start
        seen |= field
        size, position = read_length(data, position, end)
        if position < 0:
            return position
        stop[_KEY_BEGIN + 2 * field - 2] = position
        position += size
        stop[_KEY_BEGIN + 2 * field - 1] = position
    return 0


# Values of Features that are known to be well-formed.


def next_list(data: Bytes, position: int, end: int, kind: int) -> tuple[int, int, int]:
    """The next list of a Feature from `position`: its begin, its end, and where to go on.

    The begin is -1 where no list is left.
    """
    while position < end:
        tag, position = read_tag(data, position, end)
        if position < 0:
            break
        if tag == (kind << 3) + 2:
            size, position = read_length(data, position, end)
            if position < 0:
                break
            return position, position + size, position + size
        position = skip_field(data, position, end, tag)
        if position < 0:
            break
    return -1, -1, end


def _read_float_list(data: Bytes, position: int, end: int, out: MutableBytes, at: int) -> int:
    while position < end:
        tag, position = read_tag(data, position, end)
        if position < 0:
            break
        size = 0
        if tag == _FIELD_1:
            size, position = read_length(data, position, end)
        elif tag == _FIXED32_1:
            size = 4
        if size:
            copy_from(out, at, raw_address(data), data.size, position, size)
            at += size
            position += size
        elif tag != _FIELD_1:
            position = skip_field(data, position, end, tag)
        if position < 0:
            break
    return at


def _read_int_list(data: Bytes, position: int, end: int, out: MutableBytes, at: int) -> int:
    while position < end:
        tag, position = read_tag(data, position, end)
        if position < 0:
            break
        run_end = position
        if tag == _FIELD_1:
            size, position = read_length(data, position, end)
            run_end = position + size
        elif tag == _VARINT_1:
            run_end = position + 1
        else:
            position = skip_field(data, position, end, tag)
            run_end = position
        if position < 0:
            break
        while position < run_end:
            byte = np.uint64(data[position])
            if byte < np.uint64(0x80):
                store_word(out, at, byte)
                position += 1
            else:
                value, position = read_packed_varint(data, position, end)
                store_word(out, at, value)
            at += 8
    return at


def read_numbers(data: Bytes, position: int, end: int, kind: int, out: MutableBytes, at: int) -> None:
    """Store the numbers of the Feature `data[position:end]` from `out[at]` on."""
    while True:
        begin, list_end, position = next_list(data, position, end, kind)
        if begin < 0:
            break
        if kind == KIND_FLOAT:
            at = _read_float_list(data, begin, list_end, out, at)
        else:
            at = _read_int_list(data, begin, list_end, out, at)


def find_value(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """Where the first bytes value of the Feature `data[position:end]` begins and ends; -1 if it has none."""
    while True:
        begin, list_end, position = next_list(data, position, end, KIND_BYTES)
        if begin < 0:
            return -1, -1
        while 0 <= begin < list_end:
            tag, begin = read_tag(data, begin, list_end)
            if begin < 0:
                break
            if tag == _FIELD_1:
                size, begin = read_length(data, begin, list_end)
                return begin, begin + size
            begin = skip_field(data, begin, list_end, tag)


# The short way: an entry as TensorFlow writes it.


def _same_head(data: Bytes, begin: int, heads: Bytes, at: int, size: int) -> bool:
    """Compare up to `_MAX_HEAD` bytes, of which whole words are there on both sides."""
    index = 0
    while index + 8 <= size:
        if raw_load(data, begin + index) != raw_load(heads, at + index):
            return False
        index += 8
    if index == size:
        return True
    above = np.uint64(8 * (8 - (size - index)))
    return bool((raw_load(data, begin + index) ^ raw_load(heads, at + index)) << above == np.uint64(0))


def _read_key(data: Bytes, begin: int, end: int) -> tuple[int, int, int]:
    """Where the key of the entry at `begin` begins and ends, and where the entry does.

    -1 if it does not begin with its key.
    """
    if end - begin < 2 or data[begin] != _FIELD_1:
        return -1, 0, 0
    size, position = read_length(data, begin + 1, end)
    if position < 0:
        return -1, 0, 0
    entry_end = position + size
    if position >= entry_end or data[position] != _FIELD_1:
        return -1, 0, 0
    size, position = read_length(data, position + 1, entry_end)
    return position, position + size, entry_end


def _read_body(data: Bytes, position: int, end: int, kind: int) -> tuple[int, int]:
    """Where the value of an entry begins whose key ends at `position`, and where its list's content does.

    -1 if it is not one list in a Feature and one packed run in a list, and nothing else.
    """
    value = -1
    for level in range(3):
        if level == 2 and (kind == KIND_BYTES or position == end):
            break
        tag = _FIELD_2 if level == 0 else (kind << 3) + 2 if level == 1 else _FIELD_1
        if position >= end or data[position] != tag:
            return -1, 0
        size, position = read_length(data, position + 1, end)
        if position < 0 or position + size != end:
            return -1, 0
        if level == 0:
            value = position
    return value, position


def _slot(key: int, size: np.uint8) -> int:
    """Where the head is kept of entries of this key whose length begins with the byte `size`."""
    return (key * HEAD_SLOTS + int(np.int64(size)) % HEAD_SLOTS) * HEAD_BYTES


def _keep_head(
    heads: MutableBytes, at: int, data: Bytes, begin: int, value: int, body: int, end: int
) -> None:
    size = body - begin
    if size > _MAX_HEAD:
        return
    copy_from(heads, at + _NOTED, raw_address(data), data.size, begin, size)
    store_word(heads, at, np.uint64(size) | (np.uint64(value - begin) << np.uint64(32)))
    store_word(heads, at + 8, np.uint64(end - body))


def _read_run(data: Bytes, position: int, end: int, width: int, out: MutableBytes, at: int) -> bool:
    """Whether exactly `width` integers fill the range; they are stored."""
    left = width
    while left > 0:
        # Two at a time where they are short: where the next one begins is known late.
        first, second, behind = read_two_varints(data, position, end)
        if left > 1 and behind >= 0:
            store_word(out, at, first)
            store_word(out, at + 8, second)
            at += 16
            left -= 2
        else:
            first, behind = read_packed_varint(data, position, end)
            if behind < 0:
                return False
            store_word(out, at, first)
            at += 8
            left -= 1
        position = behind
    return position == end


def _only_value(data: Bytes, position: int, end: int) -> int:
    """Where the one value that fills a BytesList begins, or a negative number."""
    if position >= end or data[position] != _FIELD_1:
        return -1
    size, position = read_length(data, position + 1, end)
    return position if position >= 0 and position + size == end else -1


def _count_values(data: Bytes, position: int, end: int, kind: int) -> tuple[int, int]:
    """How many values a body holds, or a negative number, and the bytes of a BytesList's."""
    if kind == KIND_FLOAT:
        return -1 if (end - position) & 3 else (end - position) >> 2, 0
    if kind == KIND_INT64:
        return count_varints(data, position, end), 0
    count = 0
    num_bytes = 0
    while position < end:
        if data[position] != _FIELD_1:
            return -1, 0
        size, position = read_length(data, position + 1, end)
        if position < 0:
            return -1, 0
        position += size
        num_bytes += size
        count += 1
    return count, num_bytes


def _copy_content(
    data: Bytes, begin: int, end: int, prefixes: Bytes, prefix: int, prefix_end: int, width: int,
    arena: MutableBytes, at: int,
) -> bool:  # fmt: skip
    """Whether `data[begin:end]` is the prefix and `width` bytes, which are copied."""
    size = prefix_end - prefix
    if end - begin != size + width or not same_bytes(data, begin, prefixes, prefix, size):
        return False
    copy_from(arena, at, raw_address(data), data.size, begin + size, width)
    return True


def read_messages(
    data: Bytes,
    starts: Ints,
    sizes: Ints,
    stride: int,
    is_sequence: int,
    keys: Bytes,
    key_offsets: Ints,
    num_features: int,
    plan: Ints,
    prefixes: Bytes,
    follow: MutableInts,
    heads: MutableBytes,
    fitting: MutableInts,
    kinds: MutableFlags,
    begins: MutableInts,
    ends: MutableInts,
    counts: MutableInts,
    num_bytes: MutableInts,
    arena: MutableBytes,
    unknown: MutableInts,
    stop: MutableInts,
) -> int:
    """Read the records at `starts`, of `sizes` bytes.

    Cell `feature * stride + row` of `kinds` (0 at first), `begins`, `ends`, `counts` and `num_bytes` is
    filled where the row has the feature. Where numbers go to the arena, only the kind is sure to be filled;
    with `UNFIT` all are. Of a feature list, `kinds` are those of its steps, `counts` their numbers, and
    `num_bytes` how many values each of them has: -1 where they differ, -2 where there is no step.

    Args:
        stride: cells from one feature to the next, at least as many as rows.
        is_sequence: 1 where feature lists are read, 0 where they are refused (`SEQUENCE`).
        keys: the known keys, those of features before those of feature lists, both sorted; key `k` is
            `keys[key_offsets[k]:key_offsets[k + 1]]`.
        num_features: how many of them are keys of features.
        plan: `PLAN_FIELDS` numbers for each key.
        follow: by key number plus one, which key to expect next; first and last for the beginnings of the
            parts. Kept from call to call.
        heads: `HEAD_SLOTS * HEAD_BYTES` bytes for each key and one more, zeros at first. Kept from call to
            call.
        fitting: by key, 0 at first: how many rows have it as the plan says; the values of these rows lie one
            behind the other in the arena.
        arena: has room for the values of as many rows.
        unknown: filled with `UNKNOWN_FIELDS` numbers for each present feature with another key; of no length
            to pass over them.
        stop: filled as `STOP_FIELDS` says.

    Returns:
        DONE, or why it stopped. FULL: `unknown` has no room for another one; the row is not finished.
    """
    stop[_FILLED] = 0
    for row in range(starts.size):
        begin = starts[row]
        position = begin
        end = position + sizes[row]
        stop[_ROW] = row
        stop[_POSITION] = position
        stop[_SEEN] = 0
        if position < 0 or sizes[row] < 0 or end > data.size:
            return MALFORMED
        while position < end:
            stop[_POSITION] = position
            tag, position = read_tag(data, position, end)
            if position >= 0 and tag == _FIELD_2 and not is_sequence:
                return SEQUENCE
            if position >= 0 and tag in (_FIELD_1, _FIELD_2):
                size, position = read_length(data, position, end)
            elif position >= 0:
                position = skip_field(data, position, end, tag)
                stop[_SEEN] |= _STRANGER
            if position < 0:
                stop[_POSITION] = ~position
                return MALFORMED
            if tag not in (_FIELD_1, _FIELD_2):
                continue
            part = FEATURES if tag == _FIELD_1 else FEATURE_LISTS
            reason = _read_part(
                data, position, position + size, part, row, stride, keys,
                key_offsets, num_features, plan, prefixes, follow, heads, fitting,
                kinds, begins, ends, counts, num_bytes, arena, unknown, stop,
            )  # fmt: skip
            if reason != DONE:
                return reason
            position += size
        if stop[_SEEN] == _STRANGER:
            stop[_POSITION] = begin
            return FOREIGN
    return DONE


def _read_part(
    data: Bytes,
    position: int,
    end: int,
    part: int,
    row: int,
    stride: int,
    keys: Bytes,
    key_offsets: Ints,
    num_features: int,
    plan: Ints,
    prefixes: Bytes,
    follow: MutableInts,
    heads: MutableBytes,
    fitting: MutableInts,
    kinds: MutableFlags,
    begins: MutableInts,
    ends: MutableInts,
    counts: MutableInts,
    num_bytes: MutableInts,
    arena: MutableBytes,
    unknown: MutableInts,
    stop: MutableInts,
) -> int:
    """Read the entries of one part of a message."""
    num_keys = key_offsets.size - 1
    low = 0 if part == FEATURES else num_features
    high = num_features if part == FEATURES else num_keys
    previous = 0 if part == FEATURES else num_keys + 1
    seen = 0
    most_tries = _TRIES
    while position < end:
        key = follow[previous]
        value = -1
        body = 0
        entry_end = 0
        if part == FEATURES and key < high and end - position >= 2:
            slot = _slot(key, data[position + 1])
            noted = load_word(heads, slot)
            size = int(np.int64(noted & np.uint64(0xFFFFFFFF)))
            if (
                size > 0
                and position + size + 8 <= data.size
                and _same_head(data, position, heads, slot + _NOTED, size)
            ):
                body = position + size
                entry_end = body + int(np.int64(load_word(heads, slot + 8)))
                if entry_end <= end:
                    value = position + int(np.int64(noted >> np.uint64(32)))
            else:
                key_begin, key_end, entry_end = _read_key(data, position, end)
                tries = most_tries if key_begin >= 0 else 0
                while tries > 0 and key < high:
                    at = key_offsets[key]
                    size = key_offsets[key + 1] - at
                    if key_end - key_begin == size and same_bytes(data, key_begin, keys, at, size):
                        kind = raw_int_from(raw_address(plan) + 8 * (PLAN_FIELDS * key + _KIND))
                        if kind != KIND_ABSENT:
                            value, body = _read_body(data, key_end, entry_end, kind)
                        if value >= 0:
                            slot = _slot(key, data[position + 1])
                            _keep_head(heads, slot, data, position, value, body, entry_end)
                        break
                    key = follow[key + 1]
                    tries -= 1
        if value >= 0:
            at = raw_address(plan) + 8 * PLAN_FIELDS * key
            mode, kind = raw_int_from(at + 8 * _MODE), raw_int_from(at + 8 * _KIND)
            width, out = raw_int_from(at + 8 * _WIDTH), raw_int_from(at + 8 * _OUT)
            cell = key * stride + row
            place = fitting[key]
            if kinds[cell] == kind:  # the key is repeated
                place -= 1
            is_plain = True
            if mode == MODE_FLOATS:
                is_plain = entry_end - body == 4 * width
                if is_plain:
                    copy_from(arena, out + 4 * width * place, raw_address(data), data.size, body, 4 * width)
            elif mode == MODE_INTS:
                is_plain = _read_run(data, body, entry_end, width, arena, out + 8 * width * place)
            elif mode == MODE_CELL:
                count, value_bytes = _count_values(data, body, entry_end, kind)
                is_plain = count >= 0
                if is_plain:
                    begins[cell] = value
                    ends[cell] = entry_end
                    counts[cell] = count
                    num_bytes[cell] = value_bytes
            else:
                body = _only_value(data, body, entry_end)
                is_plain = body >= 0
                if is_plain and mode == MODE_CONTENT:
                    prefix, prefix_end = raw_int_from(at + 8 * _PREFIX), raw_int_from(at + 8 * _PREFIX_END)
                    is_plain = _copy_content(
                        data, body, entry_end, prefixes, prefix, prefix_end, width, arena, out + width * place
                    )
                if is_plain:
                    begins[cell] = body
                    ends[cell] = entry_end
                    counts[cell] = 1
            if is_plain:
                kinds[cell] = np.uint8(kind)
                fitting[key] = place + 1
                seen |= _ENTRY
                position = entry_end
                previous = key + 1
                continue
        tag, position = read_tag(data, position, end)
        size = 0
        if position >= 0 and tag == _FIELD_1:
            size, position = read_length(data, position, end)
        elif position >= 0:
            position = skip_field(data, position, end, tag)
            seen |= _STRANGER
        if position < 0:
            stop[_POSITION] = ~position
            return MALFORMED
        if tag != _FIELD_1:
            continue
        stop[_POSITION] = position
        seen |= _ENTRY
        after = _read_entry(data, position, position + size, stop)
        if after < 0:
            stop[_POSITION] = ~after
            return MALFORMED
        position += size
        if part == FEATURES:
            found, count, value_bytes = _feature_extent(data, stop[_VALUE_BEGIN], stop[_VALUE_END])
        else:
            found, count, value_bytes = _list_steps(data, stop[_VALUE_BEGIN], stop[_VALUE_END])
        if count < 0:
            if count == _TWO_KINDS:
                return AMBIGUOUS
            stop[_POSITION] = ~count
            return MALFORMED
        key = _find_key(
            data, stop[_KEY_BEGIN], stop[_KEY_END], follow[previous], keys, key_offsets, low, high
        )
        most_tries = _TRIES if key >= 0 else 1
        if key < 0:
            if not valid_utf8(data, stop[_KEY_BEGIN], stop[_KEY_END]):
                return MALFORMED
            if found != KIND_ABSENT and unknown.size:
                filled = stop[_FILLED]
                if filled + UNKNOWN_FIELDS > unknown.size:
                    return FULL
                unknown[filled] = row
                unknown[filled + 1] = stop[_KEY_BEGIN]
                unknown[filled + 2] = stop[_KEY_END]
                unknown[filled + 3] = found
                unknown[filled + 4] = part
                stop[_FILLED] = filled + UNKNOWN_FIELDS
            continue
        follow[previous] = key
        previous = key + 1
        cell = key * stride + row
        at = raw_address(plan) + 8 * PLAN_FIELDS * key
        kind = raw_int_from(at + 8 * _KIND)
        if kind != KIND_ABSENT and kinds[cell] == kind:  # the key is repeated
            fitting[key] -= 1
        begins[cell] = stop[_VALUE_BEGIN]
        ends[cell] = stop[_VALUE_END]
        counts[cell] = count
        num_bytes[cell] = value_bytes
        mode = raw_int_from(at + 8 * _MODE)
        if found == kind and mode != MODE_CELL:
            width = raw_int_from(at + 8 * _WIDTH)
            out = raw_int_from(at + 8 * _OUT)
            fits = count == (width if mode in (MODE_FLOATS, MODE_INTS) else 1)
            if fits and mode == MODE_FLOATS:
                out += 4 * width * fitting[key]
                read_numbers(data, begins[cell], ends[cell], KIND_FLOAT, arena, out)
            elif fits and mode == MODE_INTS:
                out += 8 * width * fitting[key]
                read_numbers(data, begins[cell], ends[cell], KIND_INT64, arena, out)
            elif fits:
                body, entry_end = find_value(data, begins[cell], ends[cell])
                begins[cell] = body
                ends[cell] = entry_end
                if mode == MODE_CONTENT:
                    prefix, prefix_end = raw_int_from(at + 8 * _PREFIX), raw_int_from(at + 8 * _PREFIX_END)
                    out += width * fitting[key]
                    fits = _copy_content(
                        data, body, entry_end, prefixes, prefix, prefix_end, width, arena, out
                    )
            if not fits:
                found += UNFIT
        kinds[cell] = np.uint8(found)
        if found == kind:
            fitting[key] += 1
    stop[_SEEN] |= seen
    return DONE


def index_steps(
    data: Bytes,
    kinds: Bytes,
    begins: Ints,
    ends: Ints,
    step_starts: Ints,
    default_kind: int,
    mode: int,
    step_kinds: MutableFlags,
    step_begins: MutableInts,
    step_ends: MutableInts,
    counts: MutableInts,
    num_bytes: MutableInts,
) -> None:
    """Find the Features of one feature list in all rows, each a cell as `read_messages` fills them.

    Args:
        kinds, begins, ends: the cells of the feature list, by row.
        step_starts: by row, the number of its first step, and the number of steps at the end.
        default_kind: of a step without a kind, which holds no values.
        mode: MODE_SPAN where a step's cell is to say where its one bytes value lies.
    """
    for row in range(kinds.size):
        if kinds[row] == KIND_ABSENT:
            continue
        step = step_starts[row]
        position = begins[row]
        end = ends[row]
        while 0 <= position < end:
            tag, position = read_tag(data, position, end)
            if position < 0:
                break
            if tag != _FIELD_1:
                position = skip_field(data, position, end, tag)
                continue
            size, position = read_length(data, position, end)
            kind, count, value_bytes = _step_extent(data, position, position + size)
            begin = position
            position += size
            step_end = position
            if mode == MODE_SPAN and kind == KIND_BYTES and count == 1:
                begin, step_end = find_value(data, begin, step_end)
            step_begins[step] = begin
            step_ends[step] = step_end
            counts[step] = count
            num_bytes[step] = value_bytes
            step_kinds[step] = kind
            if kind == KIND_ABSENT:
                step_kinds[step] = np.uint8(default_kind)
            step += 1
