"""Rows of one layout: serialized Examples straight to columns, where they are as TensorFlow writes them.

Such a row has the expected features in the expected order, each length in the fewest bytes or not, but
one list in a Feature, one packed run in a list, and nothing else. Its values go where they belong as they
are met. Whatever differs from that is left to `example_index` and `example_values`, which read anything;
nothing is decided here but that a row is of the layout, so both always find the same.
"""

from __future__ import annotations

import numpy as np

from .addresses import copy_from, raw_address, raw_int_from
from .example_index import KIND_ABSENT, KIND_BYTES, KIND_FLOAT, KIND_INT64
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
from .varint import count_varints, read_length, read_packed_varint, read_two_varints

__all__ = [
    "HEAD_BYTES",
    "HEAD_SLOTS",
    "MODE_CELL",
    "MODE_CONTENT",
    "MODE_FLOATS",
    "MODE_INTS",
    "MODE_SPAN",
    "PLAN_FIELDS",
    "gather_spans",
    "read_examples",
]

#: What becomes of a feature:
MODE_CELL = 0  # its cell is filled as `index_examples` does; the only one that may be absent
MODE_FLOATS = 1  # `width` float32 a row go to the arena
MODE_INTS = 2  # `width` int64 a row go to the arena
MODE_CONTENT = 3  # `width` bytes a row, behind a prefix, go to the arena
MODE_SPAN = 4  # one bytes value; where it begins and ends is noted in its cell

#: Numbers that describe a feature, in the order of the rows:
PLAN_FIELDS = 8
_MODE = 0
_KIND = 1  # KIND_BYTES, KIND_FLOAT or KIND_INT64
_WIDTH = 2
_OUT = 3  # where its values begin in the arena
_KEY = 4  # where the key's field begins in `texts`, with tag and length
_PREFIX = 5  # where it ends, and the prefix begins
_END = 6  # where that ends
_CELL = 7  # number of its first cell

#: Heads that are kept of each feature, by the first byte of the entry's length.
HEAD_SLOTS = 4
#: Bytes for one: its size, the size of the body behind it, where the value begins, and so much of the head.
HEAD_BYTES = 64
_NOTED = 16
_MAX_HEAD = HEAD_BYTES - _NOTED

_FIELD_1 = 0x0A
_FIELD_2 = 0x12


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


def _read_head(
    data: Bytes, begin: int, end: int, kind: int, texts: Bytes, key: int, key_end: int
) -> tuple[int, int, int]:
    """Where an entry's value begins, where its body does, and where it ends; -1 if it is not as expected."""
    if end - begin < 2 or data[begin] != _FIELD_1:
        return -1, 0, 0
    size, position = read_length(data, begin + 1, end)
    if position < 0:
        return -1, 0, 0
    entry_end = position + size
    key_size = key_end - key
    if entry_end - position < key_size or not same_bytes(data, position, texts, key, key_size):
        return -1, 0, 0
    position += key_size
    value = -1
    for level in range(3):
        if level == 2 and (kind == KIND_BYTES or position == entry_end):
            break
        tag = _FIELD_2 if level == 0 else (kind << 3) + 2 if level == 1 else _FIELD_1
        if position >= entry_end or data[position] != tag:
            return -1, 0, 0
        size, position = read_length(data, position + 1, entry_end)
        if position < 0 or position + size != entry_end:
            return -1, 0, 0
        if level == 0:
            value = position
    return value, position, entry_end


def _keep_head(
    heads: MutableBytes, at: int, data: Bytes, begin: int, value: int, body: int, end: int
) -> None:
    size = body - begin
    if size > _MAX_HEAD:
        return
    copy_from(heads, at + _NOTED, raw_address(data), data.size, begin, size)
    store_word(heads, at, np.uint64(size) | (np.uint64(value - begin) << np.uint64(32)))
    store_word(heads, at + 8, np.uint64(end - body))


def _read_ints(data: Bytes, position: int, end: int, width: int, out: MutableBytes, at: int) -> bool:
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


def _single_value(data: Bytes, position: int, end: int) -> int:
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


def read_examples(
    data: Bytes,
    starts: Ints,
    sizes: Ints,
    plan: Ints,
    texts: Bytes,
    heads: MutableBytes,
    kinds: MutableFlags,
    begins: MutableInts,
    ends: MutableInts,
    counts: MutableInts,
    num_bytes: MutableInts,
    arena: MutableBytes,
) -> int:
    """Read the records at `starts`, of `sizes` bytes, up to the first one that is not of the layout.

    Args:
        plan: `PLAN_FIELDS` numbers a feature, in the order of the rows.
        texts: keys and prefixes.
        heads: `HEAD_SLOTS * HEAD_BYTES` bytes a feature, zeros at first; kept from call to call.
        kinds, begins, ends, counts, num_bytes: the cells, as of `index_examples`, of the features that have
            MODE_CELL or MODE_SPAN; with the latter, `begins` and `ends` are those of the value.
        arena: where the values go.

    Returns:
        How many rows are read. The next one, if any, is not of the layout, or is malformed.
    """
    for row in range(starts.size):
        begin = starts[row]
        end = begin + sizes[row]
        if begin < 0 or sizes[row] < 0 or end > data.size:
            return row
        if not _read_row(
            data, begin, end, row, plan, texts, heads, kinds, begins, ends, counts, num_bytes, arena
        ):
            return row
    return starts.size


def _read_row(
    data: Bytes,
    begin: int,
    end: int,
    row: int,
    plan: Ints,
    texts: Bytes,
    heads: MutableBytes,
    kinds: MutableFlags,
    begins: MutableInts,
    ends: MutableInts,
    counts: MutableInts,
    num_bytes: MutableInts,
    arena: MutableBytes,
) -> bool:
    """Whether the record `data[begin:end]` is of the layout; then its values are read."""
    if begin == end or data[begin] != _FIELD_1:
        return False
    size, position = read_length(data, begin + 1, end)
    if position < 0 or position + size != end:
        return False
    for number in range(plan.size // PLAN_FIELDS):
        at = raw_address(plan) + 8 * PLAN_FIELDS * number
        mode, kind = raw_int_from(at + 8 * _MODE), raw_int_from(at + 8 * _KIND)
        width, out = raw_int_from(at + 8 * _WIDTH), raw_int_from(at + 8 * _OUT)
        value = -1
        body = 0
        entry_end = 0
        if end - position >= 2:
            slot = (number * HEAD_SLOTS + int(np.int64(data[position + 1])) % HEAD_SLOTS) * HEAD_BYTES
            noted = load_word(heads, slot)
            size = int(np.int64(noted & np.uint64(0xFFFFFFFF)))
            if (
                size > 0
                and position + _MAX_HEAD <= data.size
                and _same_head(data, position, heads, slot + _NOTED, size)
            ):
                body = position + size
                entry_end = body + int(np.int64(load_word(heads, slot + 8)))
                if entry_end > end:
                    return False
                value = position + int(np.int64(noted >> np.uint64(32)))
            else:
                key, key_end = raw_int_from(at + 8 * _KEY), raw_int_from(at + 8 * _PREFIX)
                value, body, entry_end = _read_head(data, position, end, kind, texts, key, key_end)
                if value >= 0:
                    _keep_head(heads, slot, data, position, value, body, entry_end)
        cell = raw_int_from(at + 8 * _CELL) + row
        if value < 0:
            if mode != MODE_CELL:
                return False
            kinds[cell] = KIND_ABSENT
            counts[cell] = 0
            num_bytes[cell] = 0
            continue
        position = entry_end
        if mode == MODE_FLOATS:
            if entry_end - body != 4 * width:
                return False
            copy_from(arena, out + 4 * width * row, raw_address(data), data.size, body, 4 * width)
        elif mode == MODE_INTS:
            if not _read_ints(data, body, entry_end, width, arena, out + 8 * width * row):
                return False
        elif mode == MODE_CELL:
            count, value_bytes = _count_values(data, body, entry_end, kind)
            if count < 0:
                return False
            kinds[cell] = kind
            begins[cell] = value
            ends[cell] = entry_end
            counts[cell] = count
            num_bytes[cell] = value_bytes
        else:
            body = _single_value(data, body, entry_end)
            if body < 0:
                return False
            if mode == MODE_SPAN:
                begins[cell] = body
                ends[cell] = entry_end
            else:
                prefix = raw_int_from(at + 8 * _PREFIX)
                size = raw_int_from(at + 8 * _END) - prefix
                if entry_end - body != size + width or not same_bytes(data, body, texts, prefix, size):
                    return False
                copy_from(arena, out + width * row, raw_address(data), data.size, body + size, width)
    return position == end


def gather_spans(data: Bytes, begins: Ints, ends: Ints, out: MutableBytes, out_offsets: MutableInts) -> None:
    """Copy the bytes from `begins` to `ends` of each row, one behind the other.

    Args:
        out_offsets: filled with where each row's bytes begin in `out`, and the end.
    """
    at = 0
    out_offsets[0] = 0
    for row in range(begins.size):
        size = ends[row] - begins[row]
        copy_from(out, at, raw_address(data), data.size, begins[row], size)
        at += size
        out_offsets[row + 1] = at
