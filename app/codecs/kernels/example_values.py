"""Values of serialized `tf.train.Example` messages to Arrow's memory, a feature at a time.

Cells are those of `example_index.index_examples`, which has found their bytes well-formed.
"""

from __future__ import annotations

import numpy as np

from .example_index import KIND_BYTES, KIND_FLOAT, KIND_INT64
from .memory import Bytes, Ints, MutableBytes, MutableInts, copy_bytes, same_bytes
from .varint import read_length, read_packed_varint, read_tag, skip_field

__all__ = ["copy_spans", "read_bytes", "read_floats", "read_ints", "single_spans"]

_LEN_1 = 0x0A
_FIXED32_1 = 0x0D
_VARINT_1 = 0x08


def _next_run(data: Bytes, position: int, end: int, kind: int) -> tuple[int, int, int]:
    """The next list of a Feature from `position`: its begin, its end, and where to go on.

    For bytes that `index_examples` has found well-formed; the begin is -1 where no list is left.
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


def read_floats(
    data: Bytes, kinds: Bytes, begins: Ints, ends: Ints, value_starts: Ints, out: MutableBytes
) -> None:
    """Copy the float32 values of one feature.

    Args:
        kinds, begins, ends: of the feature's cells, by row; rows of another kind are passed over.
        value_starts: by row, the number of the first value in `out`.
        out: the values' bytes.
    """
    for row in range(kinds.size):
        if kinds[row] != KIND_FLOAT:
            continue
        at = 4 * value_starts[row]
        position = begins[row]
        while True:
            begin, end, position = _next_run(data, position, ends[row], KIND_FLOAT)
            if begin < 0:
                break
            at = _read_float_list(data, begin, end, out, at)


def _read_float_list(data: Bytes, position: int, end: int, out: MutableBytes, at: int) -> int:
    while position < end:
        tag, position = read_tag(data, position, end)
        if position < 0:
            break
        size = 0
        if tag == _LEN_1:
            size, position = read_length(data, position, end)
        elif tag == _FIXED32_1:
            size = 4
        if size:
            copy_bytes(out, at, data, position, size)
            at += size
            position += size
        elif tag != _LEN_1:
            position = skip_field(data, position, end, tag)
        if position < 0:
            break
    return at


def read_ints(
    data: Bytes, kinds: Bytes, begins: Ints, ends: Ints, value_starts: Ints, out: MutableInts
) -> None:
    """Read the int64 values of one feature; arguments as of `read_floats`."""
    for row in range(kinds.size):
        if kinds[row] != KIND_INT64:
            continue
        at = value_starts[row]
        position = begins[row]
        while True:
            begin, end, position = _next_run(data, position, ends[row], KIND_INT64)
            if begin < 0:
                break
            at = _read_int_list(data, begin, end, out, at)


def _read_int_list(data: Bytes, position: int, end: int, out: MutableInts, at: int) -> int:
    while position < end:
        tag, position = read_tag(data, position, end)
        if position < 0:
            break
        run_end = position
        if tag == _LEN_1:
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
            byte = int(np.int64(data[position]))
            if byte < 0x80:
                out[at] = byte
                position += 1
            else:
                value, position = read_packed_varint(data, position, end)
                out[at] = np.int64(value)
            at += 1
    return at


def read_bytes(
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
        value_starts: by row, the number of the first value, and the number of values at the end. Rows
            of another kind get empty values.
        out_offsets: filled with where each value begins in `out`, and the end.
    """
    at = 0
    out_offsets[0] = 0
    for row in range(kinds.size):
        number = value_starts[row]
        position = begins[row]
        while kinds[row] == KIND_BYTES:
            begin, end, position = _next_run(data, position, ends[row], KIND_BYTES)
            if begin < 0:
                break
            while 0 <= begin < end:
                tag, begin = read_tag(data, begin, end)
                if begin < 0:
                    break
                if tag != _LEN_1:
                    begin = skip_field(data, begin, end, tag)
                    continue
                size, begin = read_length(data, begin, end)
                copy_bytes(out, at, data, begin, size)
                begin += size
                at += size
                number += 1
                out_offsets[number] = at
        while number < value_starts[row + 1]:
            number += 1
            out_offsets[number] = at


def single_spans(data: Bytes, kinds: Bytes, begins: MutableInts, ends: MutableInts) -> None:
    """Turn `begins` and `ends` of Features that hold one bytes value each into those of the values."""
    for row in range(kinds.size):
        position = begins[row]
        while kinds[row] == KIND_BYTES:
            begin, end, position = _next_run(data, position, ends[row], KIND_BYTES)
            found = False
            while 0 <= begin < end and not found:
                tag, begin = read_tag(data, begin, end)
                if begin < 0:
                    break
                if tag == _LEN_1:
                    size, begin = read_length(data, begin, end)
                    begins[row] = begin
                    ends[row] = begin + size
                    found = True
                else:
                    begin = skip_field(data, begin, end, tag)
            if found or begin < 0:
                break


def copy_spans(
    data: Bytes, kinds: Bytes, begins: Ints, ends: Ints, prefix: Bytes, out_starts: Ints, out: MutableBytes
) -> int:
    """Copy what stands behind `prefix` in each row's value.

    Args:
        begins, ends: of the values, as `single_spans` gives them.
        out_starts: by row, where its bytes go in `out`, and the end; what is left must have that size.

    Returns:
        -1, or the first row whose value has another prefix or size.
    """
    for row in range(kinds.size):
        if kinds[row] != KIND_BYTES:
            continue
        begin = begins[row] + prefix.size
        size = ends[row] - begin
        if size < 0 or size != out_starts[row + 1] - out_starts[row]:
            return row
        if not same_bytes(data, begins[row], prefix, 0, prefix.size):
            return row
        copy_bytes(out, out_starts[row], data, begin, size)
    return -1
