"""What strings in a page of Parquet become: lengths read without the strings.

Source: github.com/apache/parquet-format, `Encodings.md`.
"""

from __future__ import annotations

import numpy as np

from .memory import Bytes
from .varint import read_varint

#: Arrow counts lengths by int32.
_MAX_LENGTH = 2**31 - 1


def longest_string(data: Bytes) -> int:
    """The longest of the strings in a PLAIN page, each behind its length (u32)."""
    longest = 0
    position = 0
    while position + 4 <= len(data):
        size = 0
        for index in range(4):
            size |= int(np.int64(data[position + index])) << (8 * index)
        longest = max(longest, size)
        position += 4 + size
    return longest


def sum_deltas(data: Bytes, position: int) -> int:
    """The sum of the lengths at `position` in DELTA_BINARY_PACKED; -1 where they are no lengths."""
    block_size, position = _number(data, position)
    num_miniblocks, position = _number(data, position)
    count, position = _number(data, position)
    value, position = _zigzag(data, position)
    if position < 0 or num_miniblocks < 1 or block_size % num_miniblocks:
        return -1
    if count == 0:
        return 0
    if not 0 <= value <= _MAX_LENGTH:
        return -1
    values_each = block_size // num_miniblocks
    total = value
    count -= 1
    while count > 0:
        smallest, position = _zigzag(data, position)
        if position < 0 or position + num_miniblocks > len(data):
            return -1
        widths = position
        position += num_miniblocks
        for index in range(num_miniblocks):
            if count <= 0:
                break
            width = int(np.int64(data[widths + index]))
            if width > 32 or position + (values_each * width + 7) // 8 > len(data):
                return -1
            for item in range(min(values_each, count)):
                value += smallest + _packed(data, position, item * width, width)
                if not 0 <= value <= _MAX_LENGTH:
                    return -1
                total += value
            count -= values_each
            position += values_each * width // 8
    return total


def _packed(data: Bytes, begin: int, bit: int, width: int) -> int:
    """An integer of `width` bits, which begins with the bit `bit` behind `begin`."""
    value = 0
    position = begin + bit // 8
    shift = -(bit % 8)
    while shift < width:
        byte = int(np.int64(data[position]))
        value += byte << shift if shift >= 0 else byte >> -shift
        shift += 8
        position += 1
    return value & ((1 << width) - 1)


def _number(data: Bytes, position: int) -> tuple[int, int]:
    """A varint below 2^31; a negative position where there is none."""
    if position < 0:
        return 0, position
    value, position = read_varint(data, position, len(data))
    if value > np.uint64(_MAX_LENGTH):
        return 0, -1
    return int(np.int64(value)), position


def _zigzag(data: Bytes, position: int) -> tuple[int, int]:
    """A signed varint of 33 bits at most."""
    if position < 0:
        return 0, position
    value, position = read_varint(data, position, len(data))
    if value >= np.uint64(2**34):
        return 0, -1
    number = int(np.int64(value >> np.uint64(1)))
    return (-number - 1 if value & np.uint64(1) else number), position
