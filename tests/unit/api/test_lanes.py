"""Few wait for a thread, none for long; who would is told at once."""

import asyncio
import time

import pytest

from app.api import lanes
from app.api.lanes import Lane
from app.errors import Overloaded


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
