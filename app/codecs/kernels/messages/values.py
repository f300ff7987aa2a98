"""Values of serialized messages, a feature at a time.

Cells are those of `message_read`, which has found their bytes well-formed.
"""

from __future__ import annotations

import numpy as np

from ..addresses import copy_from, raw_address
from ..memory import Bytes, Ints, MutableBytes, MutableInts, same_bytes, store_word
from ..varint import field_size, read_length, read_packed_varint, read_tag, skip_field, write_length
from .wire import FIELD_1, FIXED32_1, KIND_ABSENT, KIND_BYTES, KIND_FLOAT, VARINT_1, next_list


def _read_float_list(data: Bytes, position: int, end: int, out: MutableBytes, at: int) -> int:
    while position < end:
        tag, position = read_tag(data, position, end)
        if position < 0:
            break
        size = 0
        if tag == FIELD_1:
            size, position = read_length(data, position, end)
        elif tag == FIXED32_1:
            size = 4
        if size:
            copy_from(out, at, raw_address(data), data.size, position, size)
            at += size
            position += size
        elif tag != FIELD_1:
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
        if tag == FIELD_1:
            size, position = read_length(data, position, end)
            run_end = position + size
        elif tag == VARINT_1:
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


def read_number_lists(
    data: Bytes, kinds: Bytes, begins: Ints, ends: Ints, kind: int, value_starts: Ints, out: MutableBytes
) -> None:
    """Store the float32 or int64 values of one feature.

    Args:
        kinds, begins, ends: of the feature's cells, by row.
        kind: rows of another one are passed over.
        value_starts: by row, the number of the first value in `out`.
        out: the values' bytes.
    """
    itemsize = 4 if kind == KIND_FLOAT else 8
    for row in range(kinds.size):
        if kinds[row] == kind:
            read_numbers(data, begins[row], ends[row], kind, out, itemsize * value_starts[row])


def read_bytes_lists(
    data: Bytes,
    kinds: Bytes,
    begins: Ints,
    ends: Ints,
    value_starts: Ints,
    out: MutableBytes,
    out_offsets: MutableInts,
) -> None:
    """Copy the bytes values of one feature, one behind the other.

    Args:
        value_starts: by row, the number of the first value, and the number of values at the end.
        out_offsets: filled with where each value begins in `out`, and the end.
    """
    at = 0
    out_offsets[0] = 0
    for row in range(kinds.size):
        number = value_starts[row]
        position = begins[row]
        while kinds[row] == KIND_BYTES:
            begin, end, position = next_list(data, position, ends[row], KIND_BYTES)
            if begin < 0:
                break
            while 0 <= begin < end:
                tag, begin = read_tag(data, begin, end)
                if begin < 0:
                    break
                if tag != FIELD_1:
                    begin = skip_field(data, begin, end, tag)
                    continue
                size, begin = read_length(data, begin, end)
                copy_from(out, at, raw_address(data), data.size, begin, size)
                begin += size
                at += size
                number += 1
                out_offsets[number] = at


def gather_spans(
    data: Bytes, kinds: Bytes, begins: Ints, ends: Ints, out: MutableBytes, out_offsets: MutableInts
) -> None:
    """Copy the bytes from `begins` to `ends` of each row that has the feature, one behind the other.

    Args:
        out_offsets: filled with where each row's bytes begin in `out`, and the end.
    """
    at = 0
    number = 0
    out_offsets[0] = 0
    for row in range(kinds.size):
        if kinds[row] == KIND_ABSENT:
            continue
        size = ends[row] - begins[row]
        copy_from(out, at, raw_address(data), data.size, begins[row], size)
        at += size
        number += 1
        out_offsets[number] = at


def copy_spans(
    data: Bytes, kinds: Bytes, begins: Ints, ends: Ints, prefix: Bytes, out_starts: Ints, out: MutableBytes
) -> int:
    """Copy what stands behind `prefix` in the one bytes value of each row that has the feature.

    Args:
        begins, ends: of the values.
        out_starts: by row, where its bytes go in `out`, and the end; what is left must have that size.

    Returns:
        -1, or the first row whose value has another prefix or size.
    """
    for row in range(kinds.size):
        if kinds[row] == KIND_ABSENT:
            continue
        begin = begins[row] + prefix.size
        size = ends[row] - begin
        if size < 0 or size != out_starts[row + 1] - out_starts[row]:
            return row
        if not same_bytes(data, begins[row], prefix, 0, prefix.size):
            return row
        copy_from(out, out_starts[row], raw_address(data), data.size, begin, size)
    return -1


def count_strings(data: Bytes, position: int, tag: int) -> tuple[int, int, int]:
    """How many length-delimited fields of one tag follow one another, and the bytes that they hold.

    Args:
        tag: below 128.

    Returns:
        Both numbers, and the position behind the last of them: of another field, or of one that is malformed.
    """
    count = 0
    num_bytes = 0
    while position < data.size and data[position] == tag:
        size, begin = read_length(data, position + 1, data.size)
        if begin < 0:
            break
        count += 1
        num_bytes += size
        position = begin + size
    return count, num_bytes, position


def read_strings(data: Bytes, position: int, out: MutableBytes, out_offsets: MutableInts) -> None:
    """Copy what fields that `count_strings` has counted hold, one behind the other.

    Args:
        out_offsets: filled with where each string begins in `out`, and the end.
    """
    at = 0
    out_offsets[0] = 0
    for index in range(1, out_offsets.size):
        size, begin = read_length(data, position + 1, data.size)
        copy_from(out, at, raw_address(data), data.size, begin, size)
        at += size
        position = begin + size
        out_offsets[index] = at


def measure_strings(offsets: Ints, first: int, most_bytes: int, long: int) -> tuple[int, int]:
    """How many strings from `first` on are written together, and the bytes of their fields.

    Args:
        offsets: where each string begins, and the end.
        most_bytes: what their fields may take, unless it is one alone.
        long: a string of so many bytes is alone.

    Returns:
        The number of the string behind them, and the bytes.
    """
    total = 0
    for index in range(first, offsets.size - 1):
        size = offsets[index + 1] - offsets[index]
        if index > first and (size >= long or total + field_size(size) > most_bytes):
            return index, total
        total += field_size(size)
        if size >= long:
            return index + 1, total
    return offsets.size - 1, total


def write_strings(data: Bytes, offsets: Ints, first: int, stop: int, tag: int, out: MutableBytes) -> None:
    """Write the strings `first` to `stop` as length-delimited fields.

    Args:
        offsets: where each string begins in `data`, and the end.
        tag: below 128.
        out: as long as the fields.
    """
    at = 0
    for index in range(first, stop):
        size = offsets[index + 1] - offsets[index]
        at = write_length(out, at, tag, size)
        copy_from(out, at, raw_address(data), data.size, offsets[index], size)
        at += size
