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

`read_messages` reads a row that is laid out as an earlier one without walking it (`layout.py`), and walks
any other row once. A cell (feature x row) notes where the Feature lies, of what kind it is and how much it
holds. A feature's mode may ask for more: numbers of a known count, and the content of tensors of a known
shape, go straight to the arena. In a row that is walked, an entry that is written as TensorFlow writes it is
read the short way, any other one the long way. All of these check the same.
"""

from __future__ import annotations

import numpy as np

from ..addresses import copy_from, raw_address
from ..memory import Bytes, Ints, MutableBytes, MutableFlags, MutableInts, MutableWords, load_word
from ..utf8 import valid_utf8
from ..varint import read_length, read_tag, skip_field
from .head import (
    NOTED,
    copy_content,
    count_values,
    head_slot,
    keep_head,
    only_value,
    read_body,
    read_key,
    read_run,
    same_head,
)
from .keys import (
    FITTING,
    KEY_FIELDS,
    KIND,
    MODE,
    MODE_CELL,
    MODE_CONTENT,
    MODE_FLOATS,
    MODE_INTS,
    MODE_SPAN,
    NEXT,
    NUM_PARTS,
    OUT,
    PREFIX,
    PREFIX_END,
    WIDTH,
    find_key,
    is_key,
    key_field,
)
from .layout import match_rows, note_layout, read_alike
from .values import read_numbers
from .wire import (
    FIELD_1,
    FIELD_2,
    KIND_ABSENT,
    KIND_BYTES,
    KIND_FLOAT,
    KIND_INT64,
    TWO_KINDS,
    feature_extent,
    find_value,
    list_steps,
    read_entry,
    step_extent,
)

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

#: Features that are looked for in their usual order before all are searched.
_TRIES = 3


def _is_plain_entry(data: Bytes, key_begin: int, key_end: int, end: int) -> bool:
    """Whether the key is UTF-8, and a well-formed Feature and nothing else is behind it."""
    if key_end >= end or data[key_end] != FIELD_2:
        return False
    size, value = read_length(data, key_end + 1, end)
    if value < 0 or value + size != end or not valid_utf8(data, key_begin, key_end):
        return False
    return step_extent(data, value, end)[1] >= 0


def read_messages(
    data: Bytes,
    starts: Ints,
    sizes: Ints,
    is_sequence: int,
    table: MutableInts,
    texts: Bytes,
    num_features: int,
    heads: MutableBytes,
    layouts: MutableInts,
    words: MutableWords,
    kinds: MutableFlags,
    numbers: MutableInts,
    stride: int,
    arena: MutableBytes,
    unknown: MutableInts,
    stop: MutableInts,
) -> int:
    """Read the records at `starts`, of `sizes` bytes.

    Cell `key * stride + row` is filled where the row has the feature. Of a feature list, the kind is that of
    its steps, the count their number, and in place of the bytes is how many values each of them has: -1 where
    they differ, -2 where there is no step.

    Args:
        is_sequence: 1 where feature lists are read, 0 where they are refused (`SEQUENCE`).
        table: `KEY_FIELDS` numbers for each known key, those of features before those of feature lists, both
            sorted; and as many for the beginning of each part. `FITTING` is 0 at first; the values of rows
            that fit lie one behind the other in the arena. `NEXT` is kept from call to call.
        texts: the bytes of keys and prefixes.
        num_features: how many keys are those of features.
        heads: `HEAD_SLOTS * HEAD_BYTES` bytes for each key and one more, zeros at first. Kept from call to
            call.
        layouts, words: `layouts_size` numbers and `LAYOUTS` times `2 * layout_words` words for the keys of
            features, zeros at first. Kept from call to call.
        kinds: by cell, 0 at first.
        numbers: by cell, where the Feature begins; behind these, by cell, where it ends; how many values it
            has; and the bytes of a BytesList's values. Where the mode sends numbers to the arena, they are
            sure to be filled with `UNFIT` alone.
        stride: cells from one key to the next, at least as many as rows.
        arena: has room for the values of all rows.
        unknown: filled with `UNKNOWN_FIELDS` numbers for each present feature with another key; of no length
            to pass over them.
        stop: filled as `STOP_FIELDS` says.

    Returns:
        DONE, or why it stopped. FULL: `unknown` has no room for another one; the row is not finished.
    """
    stop[_FILLED] = 0
    row = 0
    walk_until = 0
    while row < starts.size:
        if row >= walk_until:
            count = match_rows(data, starts, sizes, row, num_features, layouts, words)
            if count > 0:
                done = read_alike(
                    data,
                    starts,
                    row,
                    count,
                    num_features,
                    table,
                    texts,
                    layouts,
                    kinds,
                    numbers,
                    stride,
                    arena,
                )
                if done < count:  # lest each of many such rows costs reading those behind it twice
                    walk_until = row + count
                row += done
                continue
        reason = _read_row(
            data, starts[row], sizes[row], is_sequence, row, table, texts, num_features, heads,
            kinds, numbers, stride, arena, unknown, stop,
        )  # fmt: skip
        if reason != DONE:
            return reason
        note_layout(data, starts[row], starts[row] + sizes[row], num_features, table, texts, layouts, words)
        row += 1
    return DONE


def _read_row(
    data: Bytes,
    begin: int,
    size: int,
    is_sequence: int,
    row: int,
    table: MutableInts,
    texts: Bytes,
    num_features: int,
    heads: MutableBytes,
    kinds: MutableFlags,
    numbers: MutableInts,
    stride: int,
    arena: MutableBytes,
    unknown: MutableInts,
    stop: MutableInts,
) -> int:
    """Read one record."""
    position = begin
    end = begin + size
    stop[_ROW] = row
    stop[_POSITION] = begin
    stop[_SEEN] = 0
    if begin < 0 or size < 0 or end > data.size:
        return MALFORMED
    while position < end:
        stop[_POSITION] = position
        tag, position = read_tag(data, position, end)
        if position >= 0 and tag == FIELD_2 and not is_sequence:
            return SEQUENCE
        length = 0
        if position >= 0 and tag in (FIELD_1, FIELD_2):
            length, position = read_length(data, position, end)
        elif position >= 0:
            position = skip_field(data, position, end, tag)
            stop[_SEEN] |= _STRANGER
        if position < 0:
            stop[_POSITION] = ~position
            return MALFORMED
        if tag not in (FIELD_1, FIELD_2):
            continue
        part = FEATURES if tag == FIELD_1 else FEATURE_LISTS
        reason = _read_part(
            data, position, position + length, part, row, table, texts, num_features, heads,
            kinds, numbers, stride, arena, unknown, stop,
        )  # fmt: skip
        if reason != DONE:
            return reason
        position += length
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
    table: MutableInts,
    texts: Bytes,
    num_features: int,
    heads: MutableBytes,
    kinds: MutableFlags,
    numbers: MutableInts,
    stride: int,
    arena: MutableBytes,
    unknown: MutableInts,
    stop: MutableInts,
) -> int:
    """Read the entries of one part of a message."""
    num_keys = table.size // KEY_FIELDS - NUM_PARTS
    low = 0 if part == FEATURES else num_features
    high = num_features if part == FEATURES else num_keys
    previous = num_keys + part
    num_cells = kinds.size
    seen = 0
    most_tries = _TRIES
    while position < end:
        key = key_field(table, previous, NEXT)
        value = -1
        body = 0
        entry_end = 0
        if part == FEATURES and key < high and end - position >= 2:
            slot = head_slot(key, data[position + 1])
            noted = load_word(heads, slot)
            size = int(np.int64(noted & np.uint64(0xFFFFFFFF)))
            if (
                size > 0
                and position + size + 8 <= data.size
                and same_head(data, position, heads, slot + NOTED, size)
            ):
                body = position + size
                entry_end = body + int(np.int64(load_word(heads, slot + 8)))
                if entry_end <= end:
                    value = position + int(np.int64(noted >> np.uint64(32)))
            else:
                key_begin, key_end, entry_end = read_key(data, position, end)
                tries = most_tries if key_begin >= 0 else 0
                while tries > 0 and key < high:
                    if is_key(data, key_begin, key_end, table, texts, key):
                        kind = key_field(table, key, KIND)
                        if kind != KIND_ABSENT:
                            value, body = read_body(data, key_end, entry_end, kind)
                        if value >= 0:
                            slot = head_slot(key, data[position + 1])
                            keep_head(heads, slot, data, position, value, body, entry_end)
                        break
                    key = key_field(table, key, NEXT)
                    tries -= 1
                if (
                    key_begin >= 0
                    and value < 0
                    and unknown.size == 0
                    and find_key(data, key_begin, key_end, low, table, texts, low, high) < 0
                    and _is_plain_entry(data, key_begin, key_end, entry_end)
                ):  # nobody asks for it
                    seen |= _ENTRY
                    position = entry_end
                    most_tries = 1
                    continue
        if value >= 0:
            mode, kind = key_field(table, key, MODE), key_field(table, key, KIND)
            width, out = key_field(table, key, WIDTH), key_field(table, key, OUT)
            cell = key * stride + row
            place = key_field(table, key, FITTING)
            if kinds[cell] == kind:  # the key is repeated
                place -= 1
            is_plain = True
            if mode == MODE_FLOATS:
                is_plain = entry_end - body == 4 * width
                if is_plain:
                    copy_from(arena, out + 4 * width * place, raw_address(data), data.size, body, 4 * width)
            elif mode == MODE_INTS:
                is_plain = read_run(data, body, entry_end, width, arena, out + 8 * width * place)
            elif mode == MODE_CELL:
                count, value_bytes = count_values(data, body, entry_end, kind)
                is_plain = count >= 0
                if is_plain:
                    numbers[cell] = value
                    numbers[num_cells + cell] = entry_end
                    numbers[2 * num_cells + cell] = count
                    numbers[3 * num_cells + cell] = value_bytes
            else:
                body = only_value(data, body, entry_end)
                is_plain = body >= 0
                if is_plain and mode == MODE_CONTENT:
                    prefix, prefix_end = key_field(table, key, PREFIX), key_field(table, key, PREFIX_END)
                    is_plain = copy_content(
                        data, body, entry_end, texts, prefix, prefix_end, width, arena, out + width * place
                    )
                if is_plain:
                    numbers[cell] = body
                    numbers[num_cells + cell] = entry_end
                    numbers[2 * num_cells + cell] = 1
            if is_plain:
                kinds[cell] = np.uint8(kind)
                table[KEY_FIELDS * key + FITTING] = place + 1
                seen |= _ENTRY
                position = entry_end
                previous = key
                continue
        tag, position = read_tag(data, position, end)
        size = 0
        if position >= 0 and tag == FIELD_1:
            size, position = read_length(data, position, end)
        elif position >= 0:
            position = skip_field(data, position, end, tag)
            seen |= _STRANGER
        if position < 0:
            stop[_POSITION] = ~position
            return MALFORMED
        if tag != FIELD_1:
            continue
        stop[_POSITION] = position
        seen |= _ENTRY
        after = read_entry(data, position, position + size, stop, _KEY_BEGIN)
        if after < 0:
            stop[_POSITION] = ~after
            return MALFORMED
        position += size
        if part == FEATURES:
            found, count, value_bytes = feature_extent(data, stop[_VALUE_BEGIN], stop[_VALUE_END])
        else:
            found, count, value_bytes = list_steps(data, stop[_VALUE_BEGIN], stop[_VALUE_END])
        if count < 0:
            if count == TWO_KINDS:
                return AMBIGUOUS
            stop[_POSITION] = ~count
            return MALFORMED
        guess = key_field(table, previous, NEXT)
        key = find_key(data, stop[_KEY_BEGIN], stop[_KEY_END], guess, table, texts, low, high)
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
        table[KEY_FIELDS * previous + NEXT] = key
        previous = key
        cell = key * stride + row
        kind = key_field(table, key, KIND)
        place = key_field(table, key, FITTING)
        if kind != KIND_ABSENT and kinds[cell] == kind:  # the key is repeated
            place -= 1
        begin = stop[_VALUE_BEGIN]
        value_end = stop[_VALUE_END]
        mode = key_field(table, key, MODE)
        if found == kind and mode != MODE_CELL:
            width = key_field(table, key, WIDTH)
            out = key_field(table, key, OUT)
            fits = count == (width if mode in (MODE_FLOATS, MODE_INTS) else 1)
            if fits and mode == MODE_FLOATS:
                read_numbers(data, begin, value_end, KIND_FLOAT, arena, out + 4 * width * place)
            elif fits and mode == MODE_INTS:
                read_numbers(data, begin, value_end, KIND_INT64, arena, out + 8 * width * place)
            elif fits:
                begin, value_end = find_value(data, begin, value_end)
                if mode == MODE_CONTENT:
                    prefix, prefix_end = key_field(table, key, PREFIX), key_field(table, key, PREFIX_END)
                    fits = copy_content(
                        data, begin, value_end, texts, prefix, prefix_end, width, arena, out + width * place
                    )
            if not fits:
                found += UNFIT
        numbers[cell] = begin
        numbers[num_cells + cell] = value_end
        numbers[2 * num_cells + cell] = count
        numbers[3 * num_cells + cell] = value_bytes
        kinds[cell] = np.uint8(found)
        table[KEY_FIELDS * key + FITTING] = place + 1 if found == kind else place
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
            if tag != FIELD_1:
                position = skip_field(data, position, end, tag)
                continue
            size, position = read_length(data, position, end)
            kind, count, value_bytes = step_extent(data, position, position + size)
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
