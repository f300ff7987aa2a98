"""CRC32C (Castagnoli), and its masked form as TFRecord stores it.

Sources: RFC 3720 appendix B.4 (test vectors), `tensorflow/core/lib/hash/crc32c.h` (the mask). One
algorithm for every machine: words of eight bytes, in three lanes where the buffer is long. What
differs is `raw_crc_word`: slicing by eight here, one SSE4.2 instruction in `compile.py`.
"""

from __future__ import annotations

import numpy as np

from .memory import Bytes, load_word

__all__ = ["crc32c", "extend_crc", "mask_crc", "raw_crc_word"]

_POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41, bits reversed
_MASK_DELTA = 0xA282EAD8

# The instruction answers after three cycles but starts every cycle, so three lanes run side by side.
_LANE = 1024


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


def extend_crc(crc: np.uint64, data: Bytes, begin: int, end: int) -> np.uint64:
    """The CRC32C of what `crc` covers followed by `data[begin:end]`; 0 covers nothing."""
    state = crc ^ np.uint64(0xFFFFFFFF)
    position = begin
    while end - position >= 3 * _LANE:
        second = np.uint64(0)
        third = np.uint64(0)
        for index in range(position, position + _LANE, 8):
            state = raw_crc_word(state, load_word(data, index))
            second = raw_crc_word(second, load_word(data, index + _LANE))
            third = raw_crc_word(third, load_word(data, index + 2 * _LANE))
        state = _behind_lane(_behind_lane(state) ^ second) ^ third
        position += 3 * _LANE
    while end - position >= 8:
        state = raw_crc_word(state, load_word(data, position))
        position += 8
    while position < end:
        low = int(np.int64((state ^ np.uint64(data[position])) & np.uint64(0xFF)))
        state = (state >> np.uint64(8)) ^ _TABLES[0, low]
        position += 1
    return state ^ np.uint64(0xFFFFFFFF)


def crc32c(data: Bytes, begin: int, end: int) -> np.uint64:
    """The CRC32C of `data[begin:end]`."""
    return extend_crc(np.uint64(0), data, begin, end)


def mask_crc(crc: np.uint64) -> np.uint64:
    """The CRC rotated and offset, so that the CRC of data that holds CRCs stays a good one."""
    rotated = (crc >> np.uint64(15)) | ((crc << np.uint64(17)) & np.uint64(0xFFFFFFFF))
    return (rotated + np.uint64(_MASK_DELTA)) & np.uint64(0xFFFFFFFF)
