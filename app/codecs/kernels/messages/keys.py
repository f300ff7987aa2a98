"""The table of the features that are looked for."""

from __future__ import annotations

import numpy as np

from ..addresses import raw_address, raw_int_from
from ..memory import Bytes, Ints, same_bytes

#: Numbers of a key in the table of keys:
KEY_FIELDS = 10
MODE = 0
KIND = 1  # of its Features; KIND_ABSENT where that is not known
WIDTH = 2
OUT = 3  # where its values begin in the arena
PREFIX = 4  # where the prefix begins in `texts`, and where it ends
PREFIX_END = 5
KEY = 6  # where the key begins in `texts`, and where it ends
KEY_END = 7
NEXT = 8  # the key to expect behind it
FITTING = 9  # how many rows have it as MODE and WIDTH say
#: Rows of the table behind those of the keys, of which only NEXT counts: the beginning of each part.
NUM_PARTS = 2

#: What is read of a feature:
MODE_CELL = 0  # where its Feature or FeatureList lies
MODE_FLOATS = 1  # `width` float32, to the arena
MODE_INTS = 2  # `width` int64, to the arena
MODE_CONTENT = 3  # one bytes value: where it lies, and `width` bytes of it behind a prefix, to the arena
MODE_SPAN = 4  # one bytes value: where it lies


def _compare(data: Bytes, begin: int, size: int, other: Bytes, other_begin: int, other_size: int) -> int:
    for index in range(min(size, other_size)):
        difference = int(np.int64(data[begin + index])) - int(np.int64(other[other_begin + index]))
        if difference != 0:
            return difference
    return size - other_size


def key_field(table: Ints, key: int, field: int) -> int:
    """A number of a key that is in the table."""
    return raw_int_from(raw_address(table) + 8 * (KEY_FIELDS * key + field))


def is_key(data: Bytes, begin: int, end: int, table: Ints, texts: Bytes, key: int) -> bool:
    """Whether `data[begin:end]` is this key."""
    at = key_field(table, key, KEY)
    size = end - begin
    return key_field(table, key, KEY_END) - at == size and same_bytes(data, begin, texts, at, size)


def find_key(
    data: Bytes, begin: int, end: int, guess: int, table: Ints, texts: Bytes, low: int, high: int
) -> int:
    """The number of the key `data[begin:end]` among the sorted keys `low` to `high`, or -1.

    The guess is tried first, then all by bisection.
    """
    if low <= guess < high and is_key(data, begin, end, table, texts, guess):
        return guess
    while low < high:
        middle = (low + high) >> 1
        at = key_field(table, middle, KEY)
        order = _compare(data, begin, end - begin, texts, at, key_field(table, middle, KEY_END) - at)
        if order == 0:
            return middle
        if order < 0:
            high = middle
        else:
            low = middle + 1
    return -1
