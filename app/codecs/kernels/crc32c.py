"""CRC32C (Castagnoli), and its masked form as TFRecord stores it.

Sources: RFC 3720 appendix B.4 (test vectors), `tensorflow/core/lib/hash/crc32c.h` (the mask). One
algorithm for every machine: words of eight bytes, in three lanes where the buffer is long. What
differs is `raw_crc_word`: slicing by eight here, one SSE4.2 instruction in `compile.py`.
"""

from __future__ import annotations

import numpy as np

from .memory import Bytes, load_word, raw_load, raw_prefetch

_POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41, bits reversed
_MASK_DELTA = 0xA282EAD8
_ALL_ONES = np.uint64(0xFFFFFFFF)

# The instruction answers after three cycles but starts every cycle, so three lanes run side by side.
_LANE = 1024

#: From this size on a range fills the lanes by itself.
LANES_BYTES = 3 * _LANE

#: Bytes of a cache line, and how far ahead lines are prefetched. Without it the processor waits for memory:
#: it does not foresee that each lane jumps to the place behind the other two.
_LINE = 64
_AHEAD = 2 * LANES_BYTES


def _byte_tables() -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    """`tables[k][b]`: the CRC of byte `b` followed by `k` zero bytes."""
    tables = np.zeros((8, 256), np.uint64)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for index in range(1, 8):
        previous = tables[index - 1]
        tables[index] = (previous >> np.uint64(8)) ^ tables[0][previous & np.uint64(0xFF)]
    return tables


def _lane_tables() -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    """`tables[k][b]`: what byte `k` of a CRC, being `b`, becomes behind `_LANE` zero bytes."""
    values = np.arange(256, dtype=np.uint64) << (np.arange(4, dtype=np.uint64) * np.uint64(8))[:, None]
    for _ in range(_LANE):
        values = (values >> np.uint64(8)) ^ _TABLES[0][values & np.uint64(0xFF)]
    return values


_TABLES = _byte_tables()
_LANE_TABLES = _lane_tables()


def raw_crc_word(crc: np.uint64, word: np.uint64) -> np.uint64:
    """The unfinished CRC extended by the eight little-endian bytes of `word`."""
    word ^= crc
    result = np.uint64(0)
    for index in range(8):
        result ^= _TABLES[7 - index, int(np.int64((word >> np.uint64(8 * index)) & np.uint64(0xFF)))]
    return result


def _behind_lane(crc: np.uint64) -> np.uint64:
    result = np.uint64(0)
    for index in range(4):
        result ^= _LANE_TABLES[index, int(np.int64((crc >> np.uint64(8 * index)) & np.uint64(0xFF)))]
    return result


def _words(state: np.uint64, data: Bytes, begin: int, end: int) -> np.uint64:
    """Extend the state by what is left of `data[begin:end]`, whose bounds have been checked."""
    position = begin
    while end - position >= 8:
        state = raw_crc_word(state, raw_load(data, position))
        position += 8
    if position == end:
        return state
    if end >= 8:
        # The last bytes as the upper end of a word: zeros in front of them leave a state of 0 alone.
        bits = np.uint64(8 * (end - position))
        above = np.uint64(64) - bits
        rest = ((raw_load(data, end - 8) >> above) ^ state) << above
        return raw_crc_word(np.uint64(0), rest) ^ (state >> bits)
    while position < end:
        low = int(np.int64((state ^ np.uint64(data[position])) & np.uint64(0xFF)))
        state = (state >> np.uint64(8)) ^ _TABLES[0, low]
        position += 1
    return state


def _check_range(data: Bytes, begin: int, end: int) -> None:
    if begin < 0 or begin > end or end > data.size:
        raise IndexError("range out of bounds")


def extend_crc(crc: np.uint64, data: Bytes, begin: int, end: int) -> np.uint64:
    """The CRC32C of what `crc` covers followed by `data[begin:end]`; 0 covers nothing.

    Raises:
        IndexError: not wholly inside.
    """
    _check_range(data, begin, end)
    state = crc ^ _ALL_ONES
    position = begin
    while end - position >= 3 * _LANE:
        second = np.uint64(0)
        third = np.uint64(0)
        for line in range(position, position + _LANE, _LINE):
            raw_prefetch(data, line + _AHEAD)
            raw_prefetch(data, line + _LANE + _AHEAD)
            raw_prefetch(data, line + 2 * _LANE + _AHEAD)
            for index in range(line, line + _LINE, 8):
                state = raw_crc_word(state, raw_load(data, index))
                second = raw_crc_word(second, raw_load(data, index + _LANE))
                third = raw_crc_word(third, raw_load(data, index + 2 * _LANE))
        state = _behind_lane(_behind_lane(state) ^ second) ^ third
        position += 3 * _LANE
    return _words(state, data, position, end) ^ _ALL_ONES


def crc32c(data: Bytes, begin: int, end: int) -> np.uint64:
    """The CRC32C of `data[begin:end]`."""
    return extend_crc(np.uint64(0), data, begin, end)


def word_crc(data: Bytes, begin: int) -> np.uint64:
    """The CRC32C of eight bytes.

    Raises:
        IndexError: not wholly inside.
    """
    return raw_crc_word(_ALL_ONES, load_word(data, begin)) ^ _ALL_ONES


def three_crcs(
    data: Bytes, first: int, first_end: int, second: int, second_end: int, third: int, third_end: int
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """The CRC32C of three ranges, side by side as far as the shortest of them reaches.

    Raises:
        IndexError: not wholly inside.
    """
    _check_range(data, first, first_end)
    _check_range(data, second, second_end)
    _check_range(data, third, third_end)
    shared = min(first_end - first, second_end - second, third_end - third) & ~7
    one = _ALL_ONES
    two = _ALL_ONES
    three = _ALL_ONES
    for index in range(0, shared, 8):
        one = raw_crc_word(one, raw_load(data, first + index))
        two = raw_crc_word(two, raw_load(data, second + index))
        three = raw_crc_word(three, raw_load(data, third + index))
    return (
        _words(one, data, first + shared, first_end) ^ _ALL_ONES,
        _words(two, data, second + shared, second_end) ^ _ALL_ONES,
        _words(three, data, third + shared, third_end) ^ _ALL_ONES,
    )


def mask_crc(crc: np.uint64) -> np.uint64:
    """The CRC rotated and offset, so that the CRC of data that holds CRCs stays a good one."""
    rotated = (crc >> np.uint64(15)) | ((crc << np.uint64(17)) & np.uint64(0xFFFFFFFF))
    return (rotated + np.uint64(_MASK_DELTA)) & np.uint64(0xFFFFFFFF)
