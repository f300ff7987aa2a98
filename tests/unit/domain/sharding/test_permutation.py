"""The permutation of a shuffle: a bijection, the same for ever, and as if by chance."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.sharding.permutation import Permutation


def order(size: int, seed: int | str = 0) -> list[int]:
    return [int(place) for place in Permutation(size, seed).positions(np.arange(size))]


def test_order_of_published_versions_is_unchanged() -> None:
    assert order(10) == [4, 1, 3, 2, 9, 0, 5, 7, 8, 6]
    assert order(10, 1) == [5, 2, 0, 9, 6, 1, 8, 4, 7, 3]
    far = Permutation(3_000_000_000, "a").positions(np.array([0, 1, 2, 2_999_999_999]))
    assert far.tolist() == [472906599, 1395464006, 1176206913, 2837848529]
    assert sum(place * number for place, number in enumerate(order(5000, 7))) == 31_246_068_649


def test_a_bijection_of_every_size() -> None:
    powers = (2**bits + step for bits in range(8, 13) for step in (-1, 0, 1))
    for size in (*range(300), *powers, 1000, 2000):
        permutation = Permutation(size, "0/train")
        numbers = np.arange(size)
        positions = permutation.positions(numbers)
        assert positions.dtype == np.int64
        assert (np.sort(positions) == numbers).all()
        assert (permutation.numbers(positions) == numbers).all()


@pytest.mark.parametrize("size", [2**16 - 1, 2**16, 2**16 + 1, 100_003])
def test_a_bijection_of_some_large_sizes(size: int) -> None:
    assert sorted(order(size)) == list(range(size))


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 2**61), st.integers(), st.data())
def test_the_inverse_of_any_size(size: int, seed: int, data: st.DataObject) -> None:
    permutation = Permutation(size, seed)
    numbers = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=9)), np.int64)
    positions = permutation.positions(numbers)
    assert ((positions >= 0) & (positions < size)).all()
    assert (permutation.numbers(positions) == numbers).all()


def test_a_number_goes_to_its_place_however_it_is_asked_for() -> None:
    permutation = Permutation(50_000, 3)
    numbers = np.arange(50_000)
    pieces = np.concatenate([permutation.positions(part) for part in np.array_split(numbers, 7)])
    assert (permutation.positions(numbers) == pieces).all()
    assert numbers.tolist() == list(range(50_000))


@pytest.mark.parametrize(("size", "expected"), [(2, 200), (3, 200), (4, 50), (5, 10)])
def test_every_order_of_a_few_comes_equally_often(size: int, expected: int) -> None:
    orders = list(permutations(range(size)))
    found = Counter(tuple(order(size, seed)) for seed in range(expected * len(orders)))
    squares = sum((found[each] - expected) ** 2 / expected for each in orders)
    freedom = len(orders) - 1
    assert squares < freedom + 5 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("size", [1000, 4097, 100_000])
def test_places_are_as_if_by_chance(size: int) -> None:
    positions = np.array(order(size, 5))
    numbers = np.arange(size)
    # Neither where a number goes, nor how far its neighbour is, says anything about it.
    assert abs(np.corrcoef(numbers, positions)[0, 1]) < 5 / size**0.5
    assert abs(np.corrcoef(positions[:-1], positions[1:])[0, 1]) < 5 / size**0.5
    cells = np.histogram2d(numbers, positions, bins=10)[0]
    assert ((cells - size / 100) ** 2 / (size / 100)).sum() < 81 + 5 * 162**0.5
    assert np.count_nonzero(positions == numbers) < 12


def test_seeds_and_sizes_give_different_orders() -> None:
    assert len({tuple(order(100, seed)) for seed in (*range(50), "train", "0/train", -1, 2**70)}) == 54
    assert order(101)[:50] != order(100)[:50]
