from __future__ import annotations

import numpy as np
import pytest

from app.codecs.kernels import memory


def bytes_of(size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.arange(size, dtype=np.uint8)


def test_bytes_are_copied_to_where_they_belong() -> None:
    target = np.zeros(6, np.uint8)
    memory.copy_bytes(target, 1, bytes_of(9), 3, 4)
    assert target.tolist() == [0, 3, 4, 5, 6, 0]


@pytest.mark.parametrize(
    ("at", "begin", "size"), [(-1, 0, 1), (0, -1, 1), (0, 0, -1), (3, 0, 2), (0, 3, 2), (5, 0, 0)]
)
def test_nothing_is_copied_out_of_bounds(at: int, begin: int, size: int) -> None:
    target = np.zeros(4, np.uint8)
    with pytest.raises(IndexError):
        memory.copy_bytes(target, at, bytes_of(4), begin, size)
    assert not target.any()


def test_words_are_little_endian_at_any_alignment() -> None:
    assert memory.load_word(bytes_of(9), 1) == 0x0807060504030201
    target = np.zeros(9, np.uint8)
    memory.store_word(target, 1, np.uint64(0x0807060504030201))
    assert target.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("begin", [-1, 2])
def test_no_word_lies_out_of_bounds(begin: int) -> None:
    with pytest.raises(IndexError):
        memory.load_word(bytes_of(9), begin)
    with pytest.raises(IndexError):
        memory.store_word(bytes_of(9), begin, np.uint64(0))


@pytest.mark.parametrize(("word", "bits"), [(0, 1), (1, 1), (2, 2), (255, 8), (2**63, 64), (2**64 - 1, 64)])
def test_bits_are_counted_up_to_the_highest_set(word: int, bits: int) -> None:
    assert memory.bit_length(np.uint64(word)) == bits


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 17])
def test_bytes_are_the_same_where_none_differs(size: int) -> None:
    data = bytes_of(20)
    other = np.concatenate([np.zeros(3, np.uint8), data])
    assert memory.same_bytes(data, 0, other, 3, size)
    for position in range(size):
        changed = other.copy()
        changed[3 + position] ^= 1
        assert not memory.same_bytes(data, 0, changed, 3, size)


@pytest.mark.parametrize(
    ("left", "right"), [(0, 5), (2**63, 2), (2**64 - 1, 2**64 - 1), (0x0123456789ABCDEF, 0xFEDCBA9876543210)]
)
def test_a_product_has_two_words(left: int, right: int) -> None:
    high = memory.multiply_high(np.uint64(left), np.uint64(right))
    low = memory.multiply_low(np.uint64(left), np.uint64(right))
    assert int(high) << 64 | int(low) == left * right


@pytest.mark.parametrize(("dividend", "divisor"), [(1, 3.0), (0, 1e22), (2**53, 10.0)])
def test_a_quotient_is_rounded_once(dividend: int, divisor: float) -> None:
    bits = memory.quotient_bits(dividend, np.float64(divisor))
    assert bits.view(np.float64) == dividend / divisor
