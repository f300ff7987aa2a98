"""Few wait for a thread, none for long; who would is told at once."""

import asyncio
import threading
import time
import traceback
import weakref

import pytest

from app.api.execution import lanes
from app.api.execution.lanes import Lane, Promise
from app.errors import Overloaded, StreamInterrupted


async def turn_of_the_loop() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_who_finds_the_queue_full_is_refused_at_once() -> None:
    async def run() -> None:
        lane = Lane(1, "test", queued=1)
        await lane.enter()
        waits = asyncio.create_task(lane.enter())
        await turn_of_the_loop()
        with pytest.raises(Overloaded, match="nothing was done"):
            await lane.enter()
        lane.leave()
        await waits
        lane.close()

    asyncio.run(run())


def test_who_would_wait_long_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        lane = Lane(1, "test", queued=100)
        await lane.enter()
        first = asyncio.create_task(lane.enter())
        await turn_of_the_loop()
        monkeypatch.setattr(lanes, "_LONGEST_QUEUE_S", -1.0)
        with pytest.raises(Overloaded):
            await lane.enter()
        monkeypatch.undo()
        second = asyncio.create_task(lane.enter())
        await turn_of_the_loop()
        for waits in (first, second):  # in their order
            lane.leave()
            await waits
        lane.close()

    asyncio.run(run())


def test_who_waits_in_vain_is_refused_and_takes_no_thread_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        lane = Lane(1, "test", queued=1)
        await lane.enter()
        monkeypatch.setattr(lanes, "_ADMISSION_WAIT_S", 0.01)
        with pytest.raises(Overloaded, match="came free"):
            await lane.enter()
        lane.leave()
        await turn_of_the_loop()
        await lane.enter()
        lane.close()

    asyncio.run(run())


def test_who_leaves_the_queue_lets_the_next_one_have_the_thread() -> None:
    async def run() -> None:
        lane = Lane(1, "test", queued=2)
        await lane.enter()
        leaves, stays = asyncio.create_task(lane.enter()), asyncio.create_task(lane.enter())
        await turn_of_the_loop()
        lane.leave()
        leaves.cancel()  # as it may just have been given the thread
        await stays
        lane.close()

    asyncio.run(run())


def test_threads_that_began_together_are_given_the_time_to_end_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    async def run() -> None:
        nonlocal now
        lane = Lane(32, "test", queued=128)
        for _ in range(32):
            await lane.enter()
        waiting = [asyncio.create_task(lane.enter())]
        await turn_of_the_loop()
        now += 0.2
        waiting += [asyncio.create_task(lane.enter()) for _ in range(60)]
        await turn_of_the_loop()
        assert not any(task.done() for task in waiting)
        now += 5
        with pytest.raises(Overloaded):
            await lane.enter()
        for task in waiting:
            lane.leave()
            await task
        lane.close()

    asyncio.run(run())


def test_no_group_has_more_than_half_of_the_threads() -> None:
    async def run() -> None:
        lane = Lane(4, "test", queued=4)
        for _ in range(2):
            await lane.enter(("slow",))
        waits = asyncio.create_task(lane.enter(("slow",)))
        await turn_of_the_loop()
        for _ in range(2):
            await lane.enter(("other",))
        assert not waits.done()
        lane.leave(("slow",))
        await waits
        lane.close()

    asyncio.run(run())


def test_no_group_has_more_than_half_of_the_queue() -> None:
    async def run() -> None:
        lane = Lane(2, "test", queued=4)
        await lane.enter(("one",))
        await lane.enter(("two",))
        waiting = [asyncio.create_task(lane.enter(("one",))) for _ in range(2)]
        await turn_of_the_loop()
        assert lane.is_full_for(("one",))
        assert not lane.is_full_for(("two",))
        waiting.append(asyncio.create_task(lane.enter(("two",))))
        await turn_of_the_loop()
        for group in ("one", "two", "one"):
            lane.leave((group,))
            await turn_of_the_loop()
        await asyncio.gather(*waiting)
        lane.close()

    asyncio.run(run())


def test_a_request_counts_with_each_of_its_groups() -> None:
    async def run() -> None:
        lane = Lane(4, "test", queued=4)
        await lane.enter(("one", "store"))
        await lane.enter(("two", "store"))
        waits = asyncio.create_task(lane.enter(("three", "store")))
        await turn_of_the_loop()
        await lane.enter(("three",))
        assert not waits.done()
        lane.leave(("one", "store"))
        await waits
        lane.close()

    asyncio.run(run())


def test_no_caller_takes_all_of_a_group_that_it_shares() -> None:
    async def run() -> None:
        lane = Lane(16, "test", queued=8)
        for _ in range(6):
            await lane.enter(("one", "store"))
        waits = [asyncio.create_task(lane.enter(("one", "store"))) for _ in range(3)]
        await turn_of_the_loop()
        for _ in range(2):
            await lane.enter(("two", "store"))
        await lane.enter(("one",))
        assert not any(wait.done() for wait in waits)
        for _ in range(3):
            lane.leave(("one", "store"))
        await asyncio.gather(*waits)
        for held in [("one", "store")] * 6 + [("two", "store")] * 2 + [("one",)]:
            lane.leave(held)
        await turn_of_the_loop()
        assert not lane._held, "nothing is kept of callers that have left"
        lane.close()

    asyncio.run(run())


def test_who_has_fewest_threads_goes_first() -> None:
    order: list[str] = []

    async def run() -> None:
        lane = Lane(4, "test", queued=8)

        async def enter(caller: str) -> None:
            await lane.enter((caller,))
            order.append(caller)

        for caller in ("many", "many", "few", "else"):
            await lane.enter((caller,))
        waiting = [asyncio.create_task(enter(caller)) for caller in ("few", "few", "new")]
        await turn_of_the_loop()
        lane.leave(("many",))
        await turn_of_the_loop()
        lane.leave(("many",))
        await turn_of_the_loop()
        assert order == ["new", "few"]
        lane.leave(("few",))
        await asyncio.gather(*waiting)
        lane.close()

    asyncio.run(run())


def test_the_thread_of_who_leaves_just_as_it_is_given_one_is_free_again() -> None:
    async def run() -> None:
        lane = Lane(2, "test", queued=4)
        await lane.enter(("one",))
        leaves = asyncio.create_task(lane.enter(("one",)))
        await turn_of_the_loop()
        lane._give_back(("one",))
        leaves.cancel()
        await turn_of_the_loop()
        await lane.enter(("one",))
        await lane.enter(("two",))
        lane.close()

    asyncio.run(run())


def test_request_that_waits_too_long_for_a_thread_is_refused() -> None:
    begun, going_on = threading.Event(), threading.Event()
    done: list[str] = []

    def hang() -> None:
        begun.set()
        going_on.wait(30)

    async def run() -> None:
        lane = Lane(1, "test")
        hanging = asyncio.create_task(lane.go_on(hang, within_s=30))
        await asyncio.to_thread(begun.wait, 30)
        with pytest.raises(Overloaded, match="nothing was done"):
            await lane.go_on(lambda: done.append("on"), within_s=0.01)
        promised: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await lane.enter()
        lane.start(lambda: done.append("start"), Promise(promised), (), within_s=0.01)
        with pytest.raises(Overloaded, match="nothing was done"):
            await promised
        going_on.set()
        await hanging
        lane.close()

    asyncio.run(run())
    assert done == []


class Held:
    """What a request works on."""


def test_a_kept_error_holds_nothing_of_the_request() -> None:
    """Frames that raised it refer to the error, and it to them: only a search for cycles would free them."""
    held: list[weakref.ref[Held]] = []

    def work() -> None:
        data = Held()
        held.append(weakref.ref(data))
        try:
            raise StreamInterrupted("The client has gone.")
        except StreamInterrupted as error:
            cause = error
            raise ValueError("cut") from cause

    async def run() -> None:
        promised: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        Promise(promised).kept_by(work)
        await asyncio.sleep(0)
        error = promised.exception()
        assert held[0]() is None
        assert error is not None
        assert any(frame.name == "work" for frame in traceback.extract_tb(error.__traceback__))

    asyncio.run(run())
