"""Features, entries and feature lists as they lie in a message, in whatever way protobuf allows.

A walk answers `~p` in place of a number where the bytes are malformed at `p`.
"""

from __future__ import annotations

from ..memory import Bytes, MutableInts
from ..varint import count_varints, read_length, read_tag, skip_field

#: What a cell holds; the numbers of lists are the fields of Feature.
KIND_ABSENT = 0
KIND_BYTES = 1
KIND_FLOAT = 2
KIND_INT64 = 3
#: What a feature list holds besides: no step that has a kind, or steps of two kinds.
KIND_NONE = 4
KIND_MIXED = 5

#: Tags of one byte: field number and wire type.
FIELD_1 = 0x0A
FIELD_2 = 0x12
FIXED32_1 = 0x0D
VARINT_1 = 0x08
BYTES_LIST = 0x0A
FLOAT_LIST = 0x12
INT64_LIST = 0x1A
#: From here on the length of a list in a Feature takes two bytes.
_LONG = 130

# What a walk through a Feature answers in place of a position.
TWO_KINDS = -1 << 62


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
        if tag == FIELD_1:
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
            if (kind == KIND_FLOAT and tag == FIXED32_1) or (kind == KIND_INT64 and tag == VARINT_1):
                count += 1
    return count, num_bytes


def feature_extent(data: Bytes, begin: int, end: int) -> tuple[int, int, int]:
    """The kind of a Feature, how many values it holds, and the bytes of a BytesList's values.

    Instead of the count: `~p` where malformed, `TWO_KINDS` where two of them are set.
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
                return kind, TWO_KINDS, 0
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


def step_extent(data: Bytes, begin: int, end: int) -> tuple[int, int, int]:
    """As `feature_extent`, at once where a short step is as every writer writes it: one list, one run."""
    size = end - begin
    if (
        4 <= size < _LONG
        and data[begin + 1] == size - 2
        and data[begin + 2] == FIELD_1
        and data[begin + 3] == size - 4
    ):
        tag = data[begin]
        if tag == INT64_LIST:
            count = 1
            if size != 5 or data[begin + 4] >= 0x80:
                count = count_varints(data, begin + 4, end)
            if count >= 0:
                return KIND_INT64, count, 0
        elif tag == FLOAT_LIST and size & 3 == 0:
            return KIND_FLOAT, (size >> 2) - 1, 0
        elif tag == BYTES_LIST:
            return KIND_BYTES, 1, size - 4
    return feature_extent(data, begin, end)


def list_steps(data: Bytes, begin: int, end: int) -> tuple[int, int, int]:
    """The kind of a FeatureList's steps, how many there are, and how many values each has.

    The values are -1 where the steps differ, -2 where there is no step. Instead of the number of steps: `~p`
    where malformed, `TWO_KINDS` where a Feature has two of them.
    """
    kind = KIND_NONE
    steps = 0
    width = -2
    position = begin
    while position < end:
        tag, position = read_tag(data, position, end)
        if position < 0:
            return kind, position, 0
        if tag != FIELD_1:
            position = skip_field(data, position, end, tag)
            if position < 0:
                return kind, position, 0
            continue
        size, position = read_length(data, position, end)
        if position < 0:
            return kind, position, 0
        step_kind, count, _ = step_extent(data, position, position + size)
        if count < 0:
            return kind, count, 0
        if step_kind != KIND_ABSENT and step_kind != kind:
            kind = step_kind if kind == KIND_NONE else KIND_MIXED
        width = count if steps == 0 or width == count else -1
        steps += 1
        position += size
    return kind, steps, width


def read_entry(data: Bytes, begin: int, end: int, out: MutableInts, at: int) -> int:
    """Note from `out[at]` on where key and value begin and end; an absent one is empty. 0, or `~p`."""
    for index in range(4):
        out[at + index] = begin
    seen = 0
    position = begin
    while position < end:
        start = position
        tag, position = read_tag(data, position, end)
        if position < 0:
            return position
        field = 1 if tag == FIELD_1 else 2
        if tag not in (FIELD_1, FIELD_2) or seen & field:
            return ~start
        seen |= field
        size, position = read_length(data, position, end)
        if position < 0:
            return position
        out[at + 2 * field - 2] = position
        position += size
        out[at + 2 * field - 1] = position
    return 0


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
            if tag == FIELD_1:
                size, begin = read_length(data, begin, list_end)
                return begin, begin + size
            begin = skip_field(data, begin, list_end, tag)
