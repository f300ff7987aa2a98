"""The time that a client earns by its bytes."""

import pytest

from app.api.http1.allowance import NEVER, Allowance


def started(rate: int = 100, *, grace_s: float = 5) -> Allowance:
    allowance = Allowance(rate, stall_s=60)
    allowance.start(1000.0, grace_s)
    return allowance


def test_deadline_starts_with_the_grace() -> None:
    assert started().due == 1005
    assert started(grace_s=90).due == 1060
    assert started(0).due == 1060


def test_bytes_earn_time_by_the_rate() -> None:
    allowance = started()
    allowance.earn(300, 1001.0)
    assert allowance.due == 1008
    allowance.earn(0, 1002.0)
    assert allowance.due == 1008


def test_no_more_time_is_earned_than_a_client_may_be_silent() -> None:
    allowance = started()
    allowance.earn(10**9, 1001.0)
    assert allowance.due == 1061


def test_without_a_rate_any_byte_earns_all_of_it() -> None:
    allowance = started(0)
    allowance.earn(1, 1010.0)
    assert allowance.due == 1070


def test_client_below_the_rate_misses_its_deadline() -> None:
    allowance = started()
    for second in range(1, 20):
        allowance.earn(50, 1000.0 + second)
    assert allowance.due == pytest.approx(1014.5)  # past, by then


def test_deadline_is_paused_while_not_reading() -> None:
    allowance = started()
    allowance.freeze(1002.0)
    allowance.freeze(1003.0)
    assert (allowance.due, allowance.frozen, allowance.idle) == (NEVER, True, False)
    allowance.thaw(2000.0)
    assert (allowance.due, allowance.frozen) == (2003, False)


@pytest.mark.parametrize(("rate", "num_bytes", "due"), [(100, 200, 2005), (100, 10**6, 2060), (0, 1, 2060)])
def test_the_bytes_that_made_us_stop_reading_earn_their_time(rate: int, num_bytes: int, due: float) -> None:
    allowance = started(rate)
    allowance.freeze(1002.0)
    allowance.earn(num_bytes, 1002.0)
    allowance.thaw(2000.0)
    assert (allowance.due, allowance.frozen) == (due, False)


def test_stopped_allowance_ignores_calls() -> None:
    allowance = Allowance(100, stall_s=60)
    allowance.earn(100, 1.0)
    allowance.freeze(1.0)
    allowance.thaw(2.0)
    assert (allowance.due, allowance.idle) == (NEVER, True)
    allowance = started()
    allowance.freeze(1001.0)
    allowance.stop()
    allowance.thaw(1002.0)
    assert (allowance.due, allowance.idle) == (NEVER, True)
