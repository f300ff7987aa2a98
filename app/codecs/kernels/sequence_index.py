"""Serialized `tf.train.SequenceExample` messages: where the context and each feature list lie.

The messages are those of `example_encode`. `find_contexts` finds what `example_index.index_examples` then
walks as the features of an Example. `index_feature_lists` walks every byte of the feature lists once, checks
it as `index_examples` checks features, and notes for each cell (feature x row) where its FeatureList lies;
`index_steps` relies on that.

Bytes mean what `tf.train.SequenceExample.FromString` reads in them: what the docstring of `example_index`
says of an Example's features holds for both maps, and `context` and `feature_lists` may be repeated and
come in any order. A step without a kind holds no values. Refused though protobuf takes it: what is refused
there.
"""

from __future__ import annotations

import numpy as np

from .example_index import (
    _TWO_KINDS,
    AMBIGUOUS,
    DONE,
    FULL,
    KIND_ABSENT,
    KIND_BYTES,
    KIND_FLOAT,
    KIND_INT64,
    MALFORMED,
    UNKNOWN_FIELDS,
    _feature_extent,
    _find_key,
    _read_entry,
)
from .memory import Bytes, Ints, MutableBytes, MutableFlags, MutableInts, copy_bytes
from .utf8 import valid_utf8
from .varint import count_varints, read_length, read_tag, skip_field

__all__ = [
    "KIND_MIXED",
    "KIND_NONE",
    "copy_contexts",
    "find_contexts",
    "index_feature_lists",
    "index_steps",
]

#: What a FeatureList holds beside the kinds of Feature: no step that has a kind, or steps of two kinds.
KIND_NONE = 4
KIND_MIXED = 5

_LEN_1 = 0x0A
_LEN_2 = 0x12
_BYTES_LIST = 0x0A
_FLOAT_LIST = 0x12
_INT64_LIST = 0x1A
#: From here on the length of a list in a Feature takes two bytes.
_LONG = 130


def _skip(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """The tag of the field at `position`, and the position behind the field, or `~p`."""
    tag, position = read_tag(data, position, end)
    if position < 0:
        return tag, position
    return tag, skip_field(data, position, end, tag)


def find_contexts(
    data: Bytes, starts: Ints, sizes: Ints, begins: MutableInts, context_sizes: MutableInts, stop: MutableInts
) -> int:
    """Find the fields `context` of the records at `starts`, of `sizes` bytes.

    Args:
        begins, context_sizes: filled with where the first such field begins, tag and all, and the bytes
            up to the end of the last one; 0 bytes where there is none, -1 where feature lists
            lie between them.
        stop: filled with the row and the position where the walk stopped.

    Returns:
        DONE or MALFORMED.
    """
    for row in range(starts.size):
        position = starts[row]
        end = position + sizes[row]
        stop[0] = row
        stop[1] = position
        if position < 0 or sizes[row] < 0 or end > data.size:
            return MALFORMED
        begins[row] = position
        context_sizes[row] = 0
        interrupted = False
        while position < end:
            begin = position
            tag, position = _skip(data, position, end)
            if position < 0:
                stop[1] = ~position
                return MALFORMED
            if tag == _LEN_2:
                interrupted = context_sizes[row] != 0
            elif tag == _LEN_1 and context_sizes[row] >= 0:
                if context_sizes[row] == 0:
                    begins[row] = begin
                context_sizes[row] = -1 if interrupted else position - begins[row]
    return DONE


def copy_contexts(data: Bytes, begin: int, end: int, out: MutableBytes, at: int) -> int:
    """Copy the fields `context` of the record in `data[begin:end]` to `out[at:]`; the end of the copy.

    The record is one that `find_contexts` has found well-formed.
    """
    position = begin
    while 0 <= position < end:
        field = position
        tag, position = _skip(data, position, end)
        if tag == _LEN_1 and position >= 0:
            copy_bytes(out, at, data, field, position - field)
            at += position - field
    return at


def _step_extent(data: Bytes, begin: int, end: int) -> tuple[int, int, int]:
    """As `_feature_extent`, at once where a short step is as every writer writes it: one list, one run."""
    size = end - begin
    if (
        4 <= size < _LONG
        and data[begin + 1] == size - 2
        and data[begin + 2] == _LEN_1
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


def _list_steps(data: Bytes, begin: int, end: int) -> tuple[int, int]:
    """The kind of a FeatureList's steps, and how many there are.

    Instead of the number: `~p` where malformed, `_TWO_KINDS` where a Feature has two of them.
    """
    kind = KIND_NONE
    steps = 0
    position = begin
    while position < end:
        tag, position = read_tag(data, position, end)
        if position < 0:
            return kind, position
        if tag != _LEN_1:
            position = skip_field(data, position, end, tag)
            if position < 0:
                return kind, position
            continue
        size, position = read_length(data, position, end)
        if position < 0:
            return kind, position
        step_kind, count, _ = _step_extent(data, position, position + size)
        if count < 0:
            return kind, count
        if step_kind != KIND_ABSENT and step_kind != kind:
            kind = step_kind if kind == KIND_NONE else KIND_MIXED
        steps += 1
        position += size
    return kind, steps


def index_feature_lists(
    data: Bytes,
    starts: Ints,
    sizes: Ints,
    keys: Bytes,
    key_offsets: Ints,
    follow: MutableInts,
    kinds: MutableFlags,
    begins: MutableInts,
    ends: MutableInts,
    steps: MutableInts,
    unknown: MutableInts,
    entry: MutableInts,
    stop: MutableInts,
) -> int:
    """Find the feature lists of the records at `starts`, of `sizes` bytes, as `find_contexts` has found them.

    Cell `feature * rows + row` of `kinds` (0 at first), `begins`, `ends` and `steps` is filled where the
    row has the feature list. Other arguments and answers are those of `index_examples`; a list
    without steps is noted in `unknown`, too.
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
            field = position
            tag, position = _skip(data, position, end)
            if position < 0:
                stop[1] = ~position
                return MALFORMED
            if tag != _LEN_2:
                continue
            _, begin = read_tag(data, field, end)
            _, begin = read_length(data, begin, end)
            reason = _index_lists(
                data, begin, position, row, starts.size, keys, key_offsets, follow, kinds, begins, ends,
                steps, unknown, entry, stop,
            )  # fmt: skip
            if reason != DONE:
                return reason
    return DONE


def _index_lists(
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
    steps: MutableInts,
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
        kind, count = _list_steps(data, entry[2], entry[3])
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
            steps[cell] = count
            continue
        if not valid_utf8(data, entry[0], entry[1]):
            return MALFORMED
        if unknown.size:
            if stop[2] + UNKNOWN_FIELDS > unknown.size:
                return FULL
            unknown[stop[2]] = row
            unknown[stop[2] + 1] = entry[0]
            unknown[stop[2] + 2] = entry[1]
            unknown[stop[2] + 3] = kind
            stop[2] += UNKNOWN_FIELDS
    return DONE


def index_steps(
    data: Bytes,
    kinds: Bytes,
    begins: Ints,
    ends: Ints,
    step_starts: Ints,
    default_kind: int,
    step_kinds: MutableFlags,
    step_begins: MutableInts,
    step_ends: MutableInts,
    counts: MutableInts,
    num_bytes: MutableInts,
) -> None:
    """Find the Features of one feature list in all rows, each a cell as `index_examples` fills them.

    Args:
        kinds, begins, ends: the cells of the feature list, by row.
        step_starts: by row, the number of its first step, and the number of steps at the end.
        default_kind: of a step without a kind, which holds no values.
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
            if tag != _LEN_1:
                position = skip_field(data, position, end, tag)
                continue
            size, position = read_length(data, position, end)
            kind, count, value_bytes = _step_extent(data, position, position + size)
            step_begins[step] = position
            position += size
            step_ends[step] = position
            counts[step] = count
            num_bytes[step] = value_bytes
            step_kinds[step] = kind
            if kind == KIND_ABSENT:
                step_kinds[step] = np.uint8(default_kind)
            step += 1
