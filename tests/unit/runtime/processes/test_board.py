"""Workers of one service share limits: each is two objects over the same memory here, as in two processes."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.limits import MIB
from app.errors import Overloaded, SpoolFull
from app.runtime import memory
from app.runtime.memory import MemoryPool
from app.runtime.processes.board import Board, Worker, new_board
from app.runtime.spool import Spool
from tests.support.waiting import wait_for


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    descriptor = new_board(2)
    yield [Worker(number, 2, 0, Board(descriptor, 2)) for number in range(2)]
    os.close(descriptor)


def test_workers_share_the_memory_for_requests(workers: list[Worker]) -> None:
    first, second = (MemoryPool(8 * MIB, taken=worker.memory) for worker in workers)
    held = first.share()
    held.charge(6 * MIB)
    with pytest.raises(Overloaded, match="nothing was done"):
        second.share().reserve(3 * MIB)
    assert (first.used, second.used) == (6 * MIB, 0)
    assert not second.share().reserve_spare(MIB)
    other = second.share()
    other.charge(2 * MIB)
    with pytest.raises(Overloaded, match="nothing was done"):
        first.share().charge(1)
    held.end()
    other.charge(6 * MIB)
    assert (first.used, second.used) == (0, 8 * MIB)


def test_a_request_waits_for_memory_that_another_worker_releases(workers: list[Worker]) -> None:
    first, second = (MemoryPool(8 * MIB, taken=worker.memory) for worker in workers)
    held, waits = first.share(), second.share()
    held.charge(6 * MIB)
    waits.charge(MIB)
    thread = threading.Thread(target=waits.charge, args=(4 * MIB,))
    thread.start()
    wait_for(lambda: waits in second._waiting)
    held.end()
    thread.join()
    assert second.used == 5 * MIB


def test_two_workers_that_wait_for_each_other_do_not_wait_for_ever(
    workers: list[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_LONGEST_WAIT_S", 0.2)
    first, second = (MemoryPool(8 * MIB, taken=worker.memory) for worker in workers)
    shares = [first.share(), second.share()]
    for share in shares:
        share.charge(4 * MIB)
    for share in shares:
        with pytest.raises(Overloaded, match="given up"):
            share.charge(MIB)


def test_workers_share_the_spool(workers: list[Worker], tmp_path: Path) -> None:
    first, second = (Spool(tmp_path, 100, worker.spool) for worker in workers)
    with first.open() as file:
        file.append(bytes(60))
        assert (first.used, second.used, second.available) == (60, 0, 40)
        with second.open() as other:
            other.append(bytes(40))
            with pytest.raises(SpoolFull):
                other.append(bytes(1))
    assert (second.available, first.used, second.used) == (100, 0, 0)


def test_replaced_worker_frees_its_share(workers: list[Worker], tmp_path: Path) -> None:
    gone, left = workers
    MemoryPool(8 * MIB, taken=gone.memory).share().charge(8 * MIB)
    Spool(tmp_path, 100, gone.spool).reserve(100)
    left.board.beat(1, ready=True)
    left.board.clear(0)
    assert (left.memory.total, left.spool.total, left.board.num_ready) == (0, 0, 1)


def test_workers_are_ready_that_say_so(workers: list[Worker]) -> None:
    boards = [worker.board for worker in workers]
    assert (boards[0].num_listening, boards[0].num_ready) == (0, 0)
    boards[0].beat(0, ready=False)
    boards[1].beat(1, ready=True)
    assert [(board.num_listening, board.num_ready) for board in boards] == [(2, 1), (2, 1)]
    boards[0].beat(0, ready=True)
    assert boards[1].num_ready == 2
    boards[1].beat(1, ready=False)
    assert boards[0].num_ready == 1


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(time, "monotonic_ns", lambda: int(self.now_s * 1e9))


def test_silence_is_counted_from_the_last_beat(
    workers: list[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, board = Clock(monkeypatch), workers[0].board
    board.clear(0)
    board.beat(1, ready=True)
    clock.now_s += 3
    board.beat(0, ready=False)
    clock.now_s += 4
    assert (board.silent_s(0), board.silent_s(1)) == (4, 7)
    board.clear(1)
    assert board.silent_s(1) is None


def test_a_worker_that_was_ready_and_is_silent_is_ready_no_more(
    workers: list[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, board = Clock(monkeypatch), workers[0].board
    board.beat(0, ready=True)
    clock.now_s += 8
    board.beat(1, ready=True)
    clock.now_s += 1
    assert (board.num_listening, board.num_ready) == (2, 2)
    clock.now_s += 1
    assert (board.num_listening, board.num_ready) == (2, 1)
    board.beat(0, ready=True)
    assert board.num_ready == 2


def test_a_worker_that_is_just_beating_for_the_first_time_is_not_silent(
    workers: list[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float | None] = []

    def look() -> int:
        monkeypatch.undo()
        seen.append(workers[1].board.silent_s(0))
        return time.monotonic_ns()

    monkeypatch.setattr(time, "monotonic_ns", look)
    workers[0].board.beat(0, ready=False)
    assert seen == [None]
