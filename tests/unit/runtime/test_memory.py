"""All requests together hold no more than the pool has; each gives back what it has when it ends."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from app.domain.limits import MIB, Limits
from app.errors import LimitExceeded, Overloaded, StreamInterrupted
from app.runtime import memory
from app.runtime.budget import Budget
from app.runtime.memory import MemoryPool, MemoryShare
from tests.support.waiting import wait_for


def begun(pool: MemoryPool, num_bytes: int) -> MemoryShare:
    share = pool.share()
    share.charge(num_bytes)
    return share


def test_charges_to_a_budget_come_out_of_the_pool_and_go_back() -> None:
    pool = MemoryPool(64 * MIB)
    share = pool.share()
    budget = Budget(Limits(), share)
    budget.charge(10 * MIB, "Something")
    assert pool.used == 10 * MIB
    budget.release(10 * MIB)
    assert pool.used <= MIB
    budget.anew().charge(3, "Something else")
    share.end()
    assert pool.used == 0


def test_request_beyond_the_pool_is_413() -> None:
    budget = Budget(Limits(), MemoryPool(8 * MIB).share())
    with pytest.raises(LimitExceeded) as caught:
        budget.charge(9 * MIB, "The tensor")
    assert caught.value.code == "payload_too_large"


def test_who_has_yet_to_begin_is_refused_at_once() -> None:
    pool = MemoryPool(8 * MIB)
    begun(pool, 7 * MIB)
    with pytest.raises(Overloaded, match="nothing was done"):
        pool.share().reserve(2 * MIB)
    late = pool.share()
    with pytest.raises(Overloaded, match="nothing was done"):
        Budget(Limits(), late).charge(2 * MIB, "The tensor")
    late.end()
    assert pool.used == 7 * MIB


def test_no_more_than_half_of_the_pool_is_reserved_for_one() -> None:
    pool = MemoryPool(8 * MIB)
    share = pool.share()
    for _ in range(3):
        Budget(Limits(), share).reserve(3 * MIB)
    assert pool.used == 4 * MIB
    share.charge(MIB)
    assert pool.used == 5 * MIB
    share.end()
    assert pool.used == 0


def test_budget_without_a_pool_reserves_nothing() -> None:
    Budget().reserve(1 << 60)


def test_a_refused_charge_leaves_a_budget_as_it_was() -> None:
    pool = MemoryPool(8 * MIB)
    begun(pool, 7 * MIB)
    budget = Budget(Limits(), pool.share())
    before = budget.remaining
    with pytest.raises(Overloaded):
        budget.charge(2 * MIB, "The tensor")
    assert budget.remaining == before


def test_who_has_begun_waits_for_others_to_end() -> None:
    pool = MemoryPool(8 * MIB)
    first, second = begun(pool, 4 * MIB), begun(pool, 3 * MIB)
    with ThreadPoolExecutor(1) as threads:
        more = threads.submit(second.charge, 4 * MIB)
        wait_for(lambda: bool(pool._waiting))
        first.end()
        more.result(30)
    assert pool.used == 7 * MIB


def test_where_all_wait_the_youngest_is_refused_and_the_others_end() -> None:
    pool = MemoryPool(9 * MIB)
    shares = [begun(pool, 3 * MIB) for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:

        def grow(share: MemoryShare) -> None:
            try:
                share.charge(3 * MIB)
            finally:
                share.end()

        ends: list[Future[None]] = []
        for share in shares:
            ends.append(threads.submit(grow, share))
            if share is not shares[-1]:
                wait_for(lambda: len(pool._waiting) == len(ends))
        assert ends[0].result(30) is None
        assert ends[1].result(30) is None
        with pytest.raises(Overloaded, match="given up"):
            ends[2].result(30)
    assert pool.used == 0


def test_who_waits_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_LONGEST_WAIT_S", 0.01)
    pool = MemoryPool(8 * MIB)
    begun(pool, 4 * MIB)
    second = begun(pool, 3 * MIB)
    with pytest.raises(Overloaded, match="given up"):
        second.charge(4 * MIB)


def test_nothing_goes_back_while_a_part_of_the_program_holds_it() -> None:
    pool = MemoryPool(8 * MIB)
    share = begun(pool, 3 * MIB)
    share.retain()
    share.end()
    assert pool.used == 3 * MIB
    share.end()
    assert pool.used == 0


def test_reservation_is_released_once() -> None:
    pool = MemoryPool(64 * MIB)
    share = pool.share()
    share.reserve(8 * MIB)
    share.charge(3 * MIB)
    share.release_reserved(6 * MIB)
    assert pool.used == 5 * MIB
    share.end()
    share.release_reserved(2 * MIB)
    assert pool.used == 0


def test_a_request_that_was_given_up_goes_no_further() -> None:
    share = begun(MemoryPool(8 * MIB), MIB)
    share.give_up()
    with pytest.raises(StreamInterrupted):
        share.charge(1)


def test_a_request_that_takes_too_long_goes_no_further() -> None:
    budget = Budget(Limits(), MemoryPool(8 * MIB).share(max_seconds=-1.0))
    with pytest.raises(LimitExceeded) as caught:
        budget.charge(1, "Something")
    assert caught.value.code == "time_limit"


def test_concurrent_charges_are_all_released() -> None:
    pool = MemoryPool(16 * MIB)
    most = 0

    def request(size: int) -> None:
        nonlocal most
        share = pool.share()
        budget = Budget(Limits(), share)
        try:
            for _ in range(20):
                budget.charge(size, "Something")
                most = max(most, pool.used)
                if size % 2:
                    budget.release(size)
        except Overloaded:
            pass
        finally:
            share.end()

    threads = [threading.Thread(target=request, args=(size * MIB // 7,)) for size in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most <= pool.max_bytes
    assert pool.used == 0


def test_the_allocator_gives_back_what_ended_requests_had_before_more_is_handed_out() -> None:
    asked: list[int] = []
    pool = MemoryPool(64 * MIB, lambda: asked.append(pool.used))
    for _ in range(3):
        begun(pool, 8 * MIB).end()
    assert asked == []
    share = begun(pool, 8 * MIB)
    assert asked == [0], "before it is handed out"
    share.charge(8 * MIB)
    assert len(asked) == 1


def test_exchanged_charge_is_never_released_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[int] = []
    monkeypatch.setattr(MemoryShare, "release", lambda _, num_bytes: released.append(num_bytes))
    budget = Budget(Limits(), MemoryPool(64 * MIB).share())
    free = budget.remaining
    budget.charge(32 * MIB, "One thing")
    budget.exchange(32 * MIB, 40 * MIB, "What is made of it")
    assert (free - budget.remaining, released) == (40 * MIB, [])
    budget.exchange(40 * MIB, 8 * MIB, "What is made of that")
    assert (free - budget.remaining, released) == (8 * MIB, [32 * MIB])
