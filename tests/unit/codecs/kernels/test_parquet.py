"""Lengths of strings in pages of Parquet, next to pages that Arrow wrote (test_parquet.py) and by hand."""

import numpy as np
import pytest

from app.codecs import kernels


def page(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(data, np.uint8)


@pytest.mark.parametrize(
    ("data", "longest"),
    [
        (b"", 0),
        (b"\3\0\0\0abc\5\0\0\0abcde\0\0\0\0", 5),
        (b"\0\1\0\0" + bytes(256), 256),
        (b"\xff\xff\xff\xff", 2**32 - 1),
        (b"\3\0\0", 0),
    ],
)
def test_the_longest_string(data: bytes, longest: int) -> None:
    assert kernels.load().longest_string(page(data)) == longest


#: A block of 128 in four miniblocks, five values, the first one 3.
HEAD = bytes([128, 1, 4, 5, 6])


@pytest.mark.parametrize(
    ("data", "total"),
    [
        (bytes([128, 1, 4, 0, 0]), 0),
        (bytes([128, 1, 4, 1, 6]), 3),
        (HEAD + bytes([2, 0, 0, 0, 0]), 3 + 4 + 5 + 6 + 7),
        (HEAD + bytes([0, 2, 0, 0, 0, 0b11100100, *bytes(7)]), 3 + 3 + 4 + 6 + 9),
        (HEAD + bytes([1, 4, 0, 0, 0, 0x32, 0x43, *bytes(14)]), 3 + 4 + 6 + 8 + 11),
        (HEAD + bytes([9, 0, 0, 0, 0]), -1),  # -2 after two steps
        (HEAD + bytes([0, 33, 0, 0, 0]) + bytes(200), -1),
        (HEAD + bytes([0, 8, 0, 0, 0]) + bytes(31), -1),
        (HEAD, -1),
        (bytes([128, 1, 0, 5, 6]), -1),
        (bytes([128, 1, 3, 5, 6, *bytes(20)]), -1),
        (b"\xff" * 20, -1),
    ],
)
def test_the_sum_of_lengths(data: bytes, total: int) -> None:
    assert kernels.load().sum_deltas(page(data), 0) == total
    assert kernels.load().sum_deltas(page(b"ab" + data), 2) == total
