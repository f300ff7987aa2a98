"""Copies and loads from plain addresses: how one kernel reads as many arrays as a schema has features.

A row of the table names an array by address and size; `messages/examples/lower.py` takes both from an array
that `Entries` holds on to. As in `memory`, what begins with `raw_` is the plain twin of an intrinsic and
checks nothing, so it is called behind a check of the place against the size.
"""

from __future__ import annotations

import ctypes

import numpy as np

from .memory import Bytes, Ints, MutableBytes, Words, raw_store

_BLOCK = 32
#: Longer copies are worth the call of a memcpy.
_SHORT = 512


def raw_address(array: Bytes | Ints | Words) -> int:
    """Where the array's memory begins."""
    return int(array.ctypes.data)


def raw_copy_from(target: MutableBytes, at: int, address: int, size: int) -> None:
    """Unchecked memcpy of `size` bytes."""
    target[at : at + size] = np.frombuffer(ctypes.string_at(int(address), int(size)), np.uint8)


def raw_block_from(target: MutableBytes, at: int, address: int) -> None:
    """Unchecked copy of 32 bytes."""
    raw_copy_from(target, at, address, _BLOCK)


def raw_half_from(target: MutableBytes, at: int, address: int) -> None:
    """Unchecked copy of four bytes."""
    raw_copy_from(target, at, address, 4)


def raw_byte_from(address: int) -> np.uint8:
    """Unchecked byte."""
    return np.uint8(ctypes.string_at(int(address), 1)[0])


def raw_int_from(address: int) -> int:
    """Unchecked int64."""
    return int.from_bytes(ctypes.string_at(int(address), 8), "little", signed=True)


def raw_word_from(address: int) -> np.uint64:
    """Unchecked little-endian word of eight bytes, at any alignment."""
    return np.uint64(int.from_bytes(ctypes.string_at(int(address), 8), "little"))


def copy_from(target: MutableBytes, at: int, address: int, room: int, begin: int, size: int) -> None:
    """Copy `size` bytes from `begin` of the `room` bytes at `address`; they do not overlap `target[at:]`.

    Raises:
        IndexError: not wholly inside both.
    """
    if size < 0 or at < 0 or begin < 0 or at > target.size - size or begin > room - size:
        raise IndexError("copy out of bounds")
    source = address + begin
    if size > _SHORT:
        raw_copy_from(target, at, source, size)
    elif size >= _BLOCK:
        # The last block overlaps the one before it.
        last = size - _BLOCK
        for index in range(0, last, _BLOCK):
            raw_block_from(target, at + index, source + index)
        raw_block_from(target, at + last, source + last)
    elif size >= 8:
        last = size - 8
        for index in range(0, last, 8):
            raw_store(target, at + index, raw_word_from(source + index))
        raw_store(target, at + last, raw_word_from(source + last))
    elif size >= 4:
        raw_half_from(target, at, source)
        raw_half_from(target, at + size - 4, source + size - 4)
    elif size > 0:
        word_at = at
        for index in range(size):
            raw_copy_from(target, word_at + index, source + index, 1)
