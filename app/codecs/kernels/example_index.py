"""Serialized `tf.train.Example` messages: where each feature lies, and whether all is well-formed.

The messages are those of `example_encode`. `index_examples` walks every byte of every message once,
checks each length against the end of what encloses it, and notes for each cell (feature x row) where its
Feature lies, of what kind it is and how much it holds; the kernels of `example_values` rely on that.

Bytes mean what `tf.train.Example.FromString` reads in them: the last entry of a key wins, fields come
in any order, `features` may be repeated, lists are packed or not or both, lists of one Feature are
joined, unknown fields are skipped, a Feature without a kind is absent. Where `tf.io.parse_example`
reads only a list's first packed run, protobuf's reading holds. Refused though protobuf takes them:
groups; a Feature of two kinds, where the two parsers read different values (`AMBIGUOUS`); a map entry
with an unknown field, a second key or a second value, which `tf.io.parse_example` refuses too.
"""

from __future__ import annotations

import numpy as np

from .memory import Bytes, Ints, MutableFlags, MutableInts, same_bytes
from .utf8 import valid_utf8
from .varint import count_varints, read_length, read_tag, skip_field

__all__ = [
    "AMBIGUOUS",
    "DONE",
    "FULL",
    "KIND_ABSENT",
    "KIND_BYTES",
    "KIND_FLOAT",
    "KIND_INT64",
    "MALFORMED",
    "SEQUENCE",
    "UNKNOWN_FIELDS",
    "index_examples",
]

#: What a cell holds; the numbers are the fields of Feature.
KIND_ABSENT = 0
KIND_BYTES = 1
KIND_FLOAT = 2
KIND_INT64 = 3

#: Why `index_examples` stopped.
DONE = 0
MALFORMED = 1
SEQUENCE = 2
AMBIGUOUS = 3
FULL = 4

#: Numbers that `index_examples` notes for a feature whose key is not known.
UNKNOWN_FIELDS = 4

_LEN_1 = 0x0A
_LEN_2 = 0x12
_FIXED32_1 = 0x0D
_VARINT_1 = 0x08

# What `_list_extent` and `_feature_extent` answer in place of a position.
_TWO_KINDS = -1 << 62


def _compare(data: Bytes, begin: int, size: int, other: Bytes, other_begin: int, other_size: int) -> int:
    for index in range(min(size, other_size)):
        difference = int(np.int64(data[begin + index])) - int(np.int64(other[other_begin + index]))
        if difference != 0:
            return difference
    return size - other_size


def _find_key(data: Bytes, begin: int, end: int, guess: int, keys: Bytes, key_offsets: Ints) -> int:
    """The number of the key `data[begin:end]`, or -1. The guess is tried first, then all by bisection."""
    size = end - begin
    num_keys = key_offsets.size - 1
    if guess < num_keys:
        at = key_offsets[guess]
        if key_offsets[guess + 1] - at == size and same_bytes(data, begin, keys, at, size):
            return guess
    low = 0
    high = num_keys
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
        if tag == _LEN_1:
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


def _read_entry(data: Bytes, begin: int, end: int, entry: MutableInts) -> int:
    """Fill `entry` with where key and value begin and end; an absent one is empty. 0, or `~p`."""
    for index in range(4):
        entry[index] = begin
    seen = 0
    position = begin
    while position < end:
        start = position
        tag, position = read_tag(data, position, end)
        if position < 0:
            return position
        field = 1 if tag == _LEN_1 else 2
        if tag not in (_LEN_1, _LEN_2) or seen & field:
            return ~start
        seen |= field
        size, position = read_length(data, position, end)
        if position < 0:
            return position
        entry[2 * field - 2] = position
        position += size
        entry[2 * field - 1] = position
    return 0


def index_examples(
    data: Bytes,
    starts: Ints,
    sizes: Ints,
    keys: Bytes,
    key_offsets: Ints,
    follow: MutableInts,
    kinds: MutableFlags,
    begins: MutableInts,
    ends: MutableInts,
    counts: MutableInts,
    num_bytes: MutableInts,
    unknown: MutableInts,
    entry: MutableInts,
    stop: MutableInts,
) -> int:
    """Find the features of the records at `starts`, of `sizes` bytes.

    Cell `feature * rows + row` of `kinds` (0 at first), `begins`, `ends`, `counts` and `num_bytes` is
    filled where the row has the feature.

    Args:
        keys: the known keys, sorted; key `k` is `keys[key_offsets[k]:key_offsets[k + 1]]`.
        follow: by key number plus one, which key to expect next; kept from call to call.
        unknown: filled with (row, key begin, key end, kind) of each present feature with another key;
            of no length to pass over them.
        entry: scratch of four numbers.
        stop: filled with the row and the position where the walk stopped, and how much of `unknown` is
            filled.

    Returns:
        DONE, or why it stopped. FULL: `unknown` has no room for another one; the row is not finished.
    """
    stop[2] = 0
    for row in range(starts.size):
        stop[0] = row
        position = starts[row]
        end = position + sizes[row]
        stop[1] = position
        if position < 0 or sizes[row] < 0 or end > data.size:
            return MALFORMED
        while position < end:
            stop[1] = position
            tag, position = read_tag(data, position, end)
            if tag == _LEN_2 and position >= 0:
                return SEQUENCE
            if tag != _LEN_1 or position < 0:
                position = position if position < 0 else skip_field(data, position, end, tag)
                if position < 0:
                    stop[1] = ~position
                    return MALFORMED
                continue
            size, position = read_length(data, position, end)
            if position < 0:
                stop[1] = ~position
                return MALFORMED
            reason = _index_features(
                data, position, position + size, row, starts.size, keys, key_offsets, follow,
                kinds, begins, ends, counts, num_bytes, unknown, entry, stop,
            )  # fmt: skip
            if reason != DONE:
                return reason
            position += size
    return DONE


def _index_features(
    data: Bytes,
    position: int,
    end: int,
    row: int,
    rows: int,
    keys: Bytes,
    key_offsets: Ints,
    follow: MutableInts,
    kinds: MutableFlags,
    begins: MutableInts,
    ends: MutableInts,
    counts: MutableInts,
    num_bytes: MutableInts,
    unknown: MutableInts,
    entry: MutableInts,
    stop: MutableInts,
) -> int:
    previous = 0
    while position < end:
        tag, position = read_tag(data, position, end)
        size = 0
        if position >= 0 and tag == _LEN_1:
            size, position = read_length(data, position, end)
        elif position >= 0:
            position = skip_field(data, position, end, tag)
        if position < 0:
            stop[1] = ~position
            return MALFORMED
        if tag != _LEN_1:
            continue
        stop[1] = position
        after = _read_entry(data, position, position + size, entry)
        if after < 0:
            stop[1] = ~after
            return MALFORMED
        position += size
        kind, count, value_bytes = _feature_extent(data, entry[2], entry[3])
        if count < 0:
            if count == _TWO_KINDS:
                return AMBIGUOUS
            stop[1] = ~count
            return MALFORMED
        key = _find_key(data, entry[0], entry[1], follow[previous], keys, key_offsets)
        if key >= 0:
            follow[previous] = key
            previous = key + 1
            cell = key * rows + row
            kinds[cell] = kind
            begins[cell] = entry[2]
            ends[cell] = entry[3]
            counts[cell] = count
            num_bytes[cell] = value_bytes
            continue
        if not valid_utf8(data, entry[0], entry[1]):
            return MALFORMED
        if kind != KIND_ABSENT and unknown.size:
            if stop[2] + UNKNOWN_FIELDS > unknown.size:
                return FULL
            unknown[stop[2]] = row
            unknown[stop[2] + 1] = entry[0]
            unknown[stop[2] + 2] = entry[1]
            unknown[stop[2] + 3] = kind
            stop[2] += UNKNOWN_FIELDS
    return DONE
