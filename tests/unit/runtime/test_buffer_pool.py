"""Buffers that are lent out and used again: not while anybody still looks at them, and all charged."""

import threading
from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.limits import Limits
from app.errors import LimitExceeded
from app.runtime.budget import Budget
from app.runtime.buffer_pool import BufferPool


def pool_of(budget: Budget, *, most_lent: int = 2) -> BufferPool:
    return BufferPool(budget, "The parts", most_lent=most_lent)


def lent(pool: BufferPool, data: bytes) -> memoryview:
    buffer = pool.take(len(data))
    buffer[: len(data)] = np.frombuffer(data, np.uint8)
    return pool.lend(buffer, len(data))


def used(budget: Budget) -> int:
    return budget.limits.max_decoded_bytes - budget.remaining


def test_a_buffer_is_used_again_once_nobody_holds_it() -> None:
    budget = Budget()
    pool = pool_of(budget)
    buffer = pool.take(100)
    view = pool.lend(buffer, 60)
    assert view.readonly
    assert len(view) == 60
    assert pool.take(100) is not buffer
    del view
    assert pool.take(50) is buffer
    assert used(budget) == 200


def test_whatever_is_made_of_it_holds_it() -> None:
    pool = pool_of(Budget())
    buffer = pool.take(8)
    kept = [pool.lend(buffer, 8)]
    kept.append(kept[0][2:6])
    array = np.frombuffer(kept[1], np.uint8)[1:]
    kept.clear()
    other = pool.take(8)
    assert other is not buffer
    del array
    assert pool.take(8) is buffer


def test_buffer_returns_from_any_thread() -> None:
    pool = pool_of(Budget())
    buffer = pool.take(8)
    held = deque([pool.lend(buffer, 8)])
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert pool.take(8) is buffer


def test_a_buffer_is_used_for_what_it_fits() -> None:
    budget = Budget()
    pool = pool_of(budget, most_lent=4)
    sizes = [len(view) for view in [lent(pool, bytes(size)) for size in (8, 12, 20)]]
    assert len(pool.take(9)) == 12
    assert len(pool.take(21)) == 21
    assert len(pool.take(3)) == 3
    assert len(pool.take(4)) == 8
    assert used(budget) == sum(sizes) + 21 + 3


def test_a_buffer_that_is_dropped_is_charged_no_more() -> None:
    budget = Budget()
    pool = pool_of(budget)
    pool.drop(pool.take(8))
    assert used(budget) == 0


def test_buffers_are_bounded_by_the_budget() -> None:
    budget = Budget(Limits(max_decoded_bytes=20))
    pool = pool_of(budget)
    held = [lent(pool, bytes(10)), lent(pool, bytes(10))]
    with pytest.raises(LimitExceeded, match="The parts would take 10 bytes") as caught:
        pool.take(10)
    assert caught.value.code == "payload_too_large"
    del held[0]
    assert len(pool.take(10)) == 10


def test_long_held_buffer_is_not_reused() -> None:
    budget = Budget()
    pool = pool_of(budget, most_lent=2)
    held = deque(lent(pool, bytes([number]) * 10) for number in range(3))
    buffer = pool.take(10)
    assert used(budget) == 30  # the first is its holder's
    assert bytes(held.popleft()) == bytes(10)
    pool.drop(buffer)
    pool.take(10)
    assert used(budget) == 30
    assert [bytes(view) for view in held] == [b"\1" * 10, b"\2" * 10]


def test_closed_it_has_charged_nothing_and_what_is_lent_stays_as_it_is() -> None:
    budget = Budget()
    pool = pool_of(budget)
    view = lent(pool, b"abc")
    lent(pool, b"free")
    pool.take(10)
    pool.close()
    assert used(budget) == 0
    assert bytes(view) == b"abc"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3)), max_size=40))
def test_nothing_that_is_held_ever_changes(steps: list[tuple[int, int]]) -> None:
    budget = Budget()
    pool = pool_of(budget, most_lent=2)
    held: deque[tuple[bytes, memoryview]] = deque()
    for number, (size, most) in enumerate(steps):
        buffer = pool.take(size)
        buffer[:] = 0xDB  # whoever still reads a buffer that was free sees this
        data = bytes([number]) * size
        buffer[:size] = np.frombuffer(data, np.uint8)
        held.append((data, pool.lend(buffer, size)))
        while len(held) > most:
            held.popleft()
        assert all(view == data for data, view in held)
    held.clear()
    pool.close()
    assert used(budget) == 0
