"""FarmHash's 64-bit fingerprint, which TensorFlow assigns text to buckets by; and equal strings by it.

Source: google/farmhash, `farmhashna::Hash64`. All arithmetic is modulo 2^64; uncompiled, numpy warns of that
unless the caller tells it not to.
"""

from __future__ import annotations

import numpy as np

from .memory import Bytes, Ints, MutableInts, MutableWords, Words, load_word, same_bytes

_K0 = np.uint64(0xC3A5C85C97CB3127)
_K1 = np.uint64(0xB492B66FBE98F273)
_K2 = np.uint64(0x9AE16A3B2F90404F)


def _rotate(word: np.uint64, count: int) -> np.uint64:
    return (word >> np.uint64(count)) | (word << np.uint64(64 - count))


def _shift_mix(word: np.uint64) -> np.uint64:
    return word ^ (word >> np.uint64(47))


def _mix(first: np.uint64, second: np.uint64, factor: np.uint64) -> np.uint64:
    low = _shift_mix((first ^ second) * factor)
    return _shift_mix((second ^ low) * factor) * factor


def _half(data: Bytes, at: int) -> np.uint64:
    word = np.uint64(0)
    for index in range(4):
        word |= np.uint64(data[at + index]) << np.uint64(8 * index)
    return word


def _up_to_16(data: Bytes, begin: int, size: int) -> np.uint64:
    factor = _K2 + np.uint64(2 * size)
    if size >= 8:
        first = load_word(data, begin) + _K2
        last = load_word(data, begin + size - 8)
        return _mix(_rotate(last, 37) * factor + first, (_rotate(first, 25) + last) * factor, factor)
    if size >= 4:
        first = np.uint64(size) + (_half(data, begin) << np.uint64(3))
        return _mix(first, _half(data, begin + size - 4), factor)
    if size > 0:
        low = np.uint64(data[begin]) + (np.uint64(data[begin + size // 2]) << np.uint64(8))
        high = np.uint64(size) + (np.uint64(data[begin + size - 1]) << np.uint64(2))
        return _shift_mix((low * _K2) ^ (high * _K0)) * _K2
    return _K2


def _up_to_32(data: Bytes, begin: int, size: int) -> np.uint64:
    factor = _K2 + np.uint64(2 * size)
    a = load_word(data, begin) * _K1
    b = load_word(data, begin + 8)
    c = load_word(data, begin + size - 8) * factor
    d = load_word(data, begin + size - 16) * _K2
    return _mix(_rotate(a + b, 43) + _rotate(c, 30) + d, a + _rotate(b + _K2, 18) + c, factor)


def _up_to_64(data: Bytes, begin: int, size: int) -> np.uint64:
    factor = _K2 + np.uint64(2 * size)
    a = load_word(data, begin) * _K2
    b = load_word(data, begin + 8)
    c = load_word(data, begin + size - 8) * factor
    d = load_word(data, begin + size - 16) * _K2
    y = _rotate(a + b, 43) + _rotate(c, 30) + d
    z = _mix(y, a + _rotate(b + _K2, 18) + c, factor)
    e = load_word(data, begin + 16) * factor
    f = load_word(data, begin + 24)
    g = (y + load_word(data, begin + size - 32)) * factor
    h = (z + load_word(data, begin + size - 24)) * factor
    return _mix(_rotate(e + f, 43) + _rotate(g, 30) + h, e + _rotate(f + a, 18) + g, factor)


def _weak(data: Bytes, at: int, a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    last = load_word(data, at + 24)
    a += load_word(data, at)
    b = _rotate(b + a + last, 21)
    c = a
    a += load_word(data, at + 8)
    a += load_word(data, at + 16)
    b += _rotate(a, 44)
    return a + last, b + c


def _longer(data: Bytes, begin: int, size: int) -> np.uint64:
    seed = np.uint64(81)
    y = seed * _K1 + np.uint64(113)
    z = _shift_mix(y * _K2 + np.uint64(113)) * _K2
    x = seed * _K2 + load_word(data, begin)
    v0 = v1 = w0 = w1 = np.uint64(0)
    at = begin
    for _ in range((size - 1) // 64):
        x = _rotate(x + y + v0 + load_word(data, at + 8), 37) * _K1
        y = _rotate(y + v1 + load_word(data, at + 48), 42) * _K1
        x ^= w1
        y += v0 + load_word(data, at + 40)
        z = _rotate(z + w0, 33) * _K1
        v0, v1 = _weak(data, at, v1 * _K1, x + w0)
        w0, w1 = _weak(data, at + 32, z + w1, y + load_word(data, at + 16))
        x, z = z, x
        at += 64
    factor = _K1 + ((z & np.uint64(0xFF)) << np.uint64(1))
    at = begin + size - 64
    w0 += np.uint64((size - 1) & 63)
    v0 += w0
    w0 += v0
    x = _rotate(x + y + v0 + load_word(data, at + 8), 37) * factor
    y = _rotate(y + v1 + load_word(data, at + 48), 42) * factor
    x ^= w1 * np.uint64(9)
    y += v0 * np.uint64(9) + load_word(data, at + 40)
    z = _rotate(z + w0, 33) * factor
    v0, v1 = _weak(data, at, v1 * factor, x + w0)
    w0, w1 = _weak(data, at + 32, z + w1, y + load_word(data, at + 16))
    x, z = z, x
    return _mix(_mix(v0, w0, factor) + _shift_mix(y) * _K0 + z, _mix(v1, w1, factor) + x, factor)


def fingerprint_strings(data: Bytes, offsets: Ints, hashes: MutableWords) -> None:
    """The fingerprint of each string `data[offsets[i]:offsets[i + 1]]`."""
    for index in range(hashes.size):
        begin = offsets[index]
        size = offsets[index + 1] - begin
        if size <= 16:
            hashes[index] = _up_to_16(data, begin, size)
        elif size <= 32:
            hashes[index] = _up_to_32(data, begin, size)
        elif size <= 64:
            hashes[index] = _up_to_64(data, begin, size)
        else:
            hashes[index] = _longer(data, begin, size)


def group_strings(
    data: Bytes, offsets: Ints, hashes: Words, slots: MutableInts, first: MutableInts, counts: MutableInts
) -> int:
    """Which different strings there are, in the order in which they come, and how often each is there.

    Args:
        hashes: of the strings.
        slots: room for a hash table: a power of two, more than `first.size`.
        first: filled with the number of the first string of each group.
        counts: filled with how many each group has.

    Returns:
        The number of groups; -1 if there are more than `first.size`.
    """
    slots[:] = -1
    last_slot = np.uint64(slots.size - 1)
    num_groups = 0
    for index in range(hashes.size):
        begin = offsets[index]
        size = offsets[index + 1] - begin
        slot = hashes[index] & last_slot
        while True:
            group = slots[slot]
            if group < 0:
                if num_groups >= first.size:
                    return -1
                slots[slot] = num_groups
                first[num_groups] = index
                counts[num_groups] = 1
                num_groups += 1
                break
            other = first[group]
            if (
                hashes[other] == hashes[index]
                and offsets[other + 1] - offsets[other] == size
                and same_bytes(data, begin, data, offsets[other], size)
            ):
                counts[group] += 1
                break
            slot = (slot + np.uint64(1)) & last_slot
    return num_groups
