from functools import partial

import pytest

from app.errors import LimitExceeded
from app.runtime.amplification import ALLOWANCE_BYTES, Amplification, Way
from app.runtime.budget import Budget


def test_any_body_may_become_the_allowance_and_a_large_one_so_many_times_its_size() -> None:
    Amplification(1100, lambda: 1).add("decoded", ALLOWANCE_BYTES)
    Amplification(1100, lambda: 10**6).add("decoded", 1100 * 10**6)
    for received, most in ((1, ALLOWANCE_BYTES), (10**6, 1100 * 10**6)):
        counted = Amplification(1100, partial(int, received))
        counted.add("answered", most - 1)
        counted.add("answered", 1)
        with pytest.raises(LimitExceeded) as caught:
            counted.add("answered", 1)
        assert caught.value.code == "amplification_exceeded"
        assert str(most + 1) in caught.value.detail


def test_each_way_is_counted_by_itself() -> None:
    counted = Amplification(2, lambda: 10, allowance=5)
    ways: tuple[Way, ...] = ("inflated", "decoded", "stored", "answered")
    for way in ways:
        counted.add(way, 20)
    with pytest.raises(LimitExceeded) as caught:
        counted.add("inflated", 1)
    assert caught.value.code == "compression_ratio_exceeded"


def test_bytes_received_meanwhile_count() -> None:
    received = 10
    counted = Amplification(2, lambda: received, allowance=0)
    counted.add("stored", 20)
    received = 11
    counted.add("stored", 2)
    with pytest.raises(LimitExceeded):
        counted.add("stored", 1)


def test_body_read_again_is_counted_again() -> None:
    budget = Budget(amplification=Amplification(2, lambda: 10, allowance=0))
    budget.amplify("decoded", 20)
    budget.anew().amplify("decoded", 20)
    with pytest.raises(LimitExceeded):
        budget.amplify("decoded", 1)


def test_budget_without_a_body_is_not_bounded() -> None:
    Budget().amplify("answered", 2**60)
