"""Entries as TensorFlow writes them: a head that is the same from row to row, and one list behind it."""

from __future__ import annotations

import numpy as np

from ..addresses import copy_from, raw_address
from ..memory import Bytes, MutableBytes, raw_load, raw_store, same_bytes, store_word
from ..varint import count_varints, read_length, read_packed_varint, read_two_varints
from .wire import FIELD_1, FIELD_2, KIND_BYTES, KIND_FLOAT, KIND_INT64

#: Heads that are kept of each feature, by the first byte of the entry's length.
HEAD_SLOTS = 4
#: Bytes for one: its size, the size of the body behind it, where the value begins, and so much of the head.
HEAD_BYTES = 128
NOTED = 16
_MAX_HEAD = HEAD_BYTES - NOTED


def same_head(data: Bytes, begin: int, heads: Bytes, at: int, size: int) -> bool:
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


def read_key(data: Bytes, begin: int, end: int) -> tuple[int, int, int]:
    """Where the key of the entry at `begin` begins and ends, and where the entry does.

    -1 if it does not begin with its key.
    """
    if end - begin < 2 or data[begin] != FIELD_1:
        return -1, 0, 0
    size, position = read_length(data, begin + 1, end)
    if position < 0:
        return -1, 0, 0
    entry_end = position + size
    if position >= entry_end or data[position] != FIELD_1:
        return -1, 0, 0
    size, position = read_length(data, position + 1, entry_end)
    return position, position + size, entry_end


def read_body(data: Bytes, position: int, end: int, kind: int) -> tuple[int, int]:
    """Where the value of an entry begins whose key ends at `position`, and where its list's content does.

    -1 if it is not one list in a Feature and one packed run in a list, and nothing else.
    """
    value = -1
    for level in range(3):
        if level == 2 and (kind == KIND_BYTES or position == end):
            break
        tag = FIELD_2 if level == 0 else (kind << 3) + 2 if level == 1 else FIELD_1
        if position >= end or data[position] != tag:
            return -1, 0
        size, position = read_length(data, position + 1, end)
        if position < 0 or position + size != end:
            return -1, 0
        if level == 0:
            value = position
    return value, position


def head_slot(key: int, size: np.uint8) -> int:
    """Where the head is kept of entries of this key whose length begins with the byte `size`."""
    return (key * HEAD_SLOTS + int(np.int64(size)) % HEAD_SLOTS) * HEAD_BYTES


def keep_head(heads: MutableBytes, at: int, data: Bytes, begin: int, value: int, body: int, end: int) -> None:
    size = body - begin
    if size > _MAX_HEAD:
        return
    copy_from(heads, at + NOTED, raw_address(data), data.size, begin, size)
    store_word(heads, at, np.uint64(size) | (np.uint64(value - begin) << np.uint64(32)))
    store_word(heads, at + 8, np.uint64(end - body))


def read_run(data: Bytes, position: int, end: int, width: int, out: MutableBytes, at: int) -> bool:
    """Whether exactly `width` integers fill the range; they are stored.

    Raises:
        IndexError: there is no room for them, or the range is not in `data`.
    """
    if position < 0 or end > data.size or at < 0 or at + 8 * width > out.size:
        raise IndexError("integers out of bounds")
    left = width
    while left > 1:
        # Two at a time where they are short: where the next one begins is known late.
        first, second, behind = read_two_varints(data, position, end)
        if behind >= 0:
            raw_store(out, at, first)
            raw_store(out, at + 8, second)
            at += 16
            left -= 2
        else:
            first, behind = read_packed_varint(data, position, end)
            if behind < 0:
                return False
            raw_store(out, at, first)
            at += 8
            left -= 1
        position = behind
    if left > 0:
        first, position = read_packed_varint(data, position, end)
        if position < 0:
            return False
        raw_store(out, at, first)
    return position == end


def only_value(data: Bytes, position: int, end: int) -> int:
    """Where the one value that fills a BytesList begins, or a negative number."""
    if position >= end or data[position] != FIELD_1:
        return -1
    size, position = read_length(data, position + 1, end)
    return position if position >= 0 and position + size == end else -1


def count_values(data: Bytes, position: int, end: int, kind: int) -> tuple[int, int]:
    """How many values a body holds, or a negative number, and the bytes of a BytesList's."""
    if kind == KIND_FLOAT:
        return -1 if (end - position) & 3 else (end - position) >> 2, 0
    if kind == KIND_INT64:
        return count_varints(data, position, end), 0
    count = 0
    num_bytes = 0
    while position < end:
        if data[position] != FIELD_1:
            return -1, 0
        size, position = read_length(data, position + 1, end)
        if position < 0:
            return -1, 0
        position += size
        num_bytes += size
        count += 1
    return count, num_bytes


def copy_content(
    data: Bytes, begin: int, end: int, prefixes: Bytes, prefix: int, prefix_end: int, width: int,
    arena: MutableBytes, at: int,
) -> bool:  # fmt: skip
    """Whether `data[begin:end]` is the prefix and `width` bytes, which are copied."""
    size = prefix_end - prefix
    if end - begin != size + width or not same_bytes(data, begin, prefixes, prefix, size):
        return False
    copy_from(arena, at, raw_address(data), data.size, begin + size, width)
    return True
