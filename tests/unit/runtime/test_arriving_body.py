"""A body whose reader begins before all of it is there: nothing is lost, however far the reader got."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from app.domain.limits import MIB
from app.errors import SpoolFull, StreamInterrupted
from app.runtime import arriving_body
from app.runtime.arriving_body import ArrivingBody
from app.runtime.budget import Budget
from app.runtime.memory import MemoryPool
from app.runtime.spool import Spool
from app.runtime.streams import ByteStream
from app.runtime.workspace import Workspace
from tests.support.bodies import stream_of

BODY = np.random.default_rng(0).bytes(3 * MIB + 5)


def arriving(workspace: Workspace, source: ByteStream | None = None) -> ArrivingBody:
    return ArrivingBody(source or stream_of(BODY, 100_000), workspace, len(BODY))


@pytest.mark.parametrize("most_held", [len(BODY), len(BODY) - 1])
@pytest.mark.parametrize("num_read", [0, 1, 12, 1000])
def test_all_of_it_is_there_however_much_was_read_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_read: int, most_held: int
) -> None:
    monkeypatch.setattr(arriving_body, "_READ_IN_MEMORY", most_held)
    monkeypatch.setattr(arriving_body, "_SLACK_S", 60.0)  # however slow the machine is
    spool, budget = Spool(tmp_path, 16 * MIB), Budget()
    with Workspace(budget, spool) as workspace:
        body = ArrivingBody(stream_of(BODY, 100_000), workspace, len(BODY))
        views = [bytes(view) for view, _ in zip(body.read_ahead(), range(num_read), strict=False)]
        sizes = [min(100_000 * count, len(BODY)) for count in range(1, min(num_read, 32) + 1)]
        assert views == [BODY[:size] for size in sizes]
        assert (bytes(body.view()), body.size, body.read_at(7, 9)) == (BODY, len(BODY), BODY[7:16])
        assert body.read_at(len(BODY) - 2, 9) == BODY[-2:]
        is_held = num_read == 1000 and len(BODY) <= most_held
        assert spool.used == (0 if is_held else len(BODY))
        assert budget.spooled == len(BODY)
    del body
    assert spool.used == 0


def test_a_body_that_comes_slowly_is_not_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(arriving_body, "monotonic", lambda: next(clock) / 10)
    with Workspace(Budget(), Spool(None, 16 * MIB)) as workspace:
        body = arriving(workspace)
        assert 0 < len(list(body.read_ahead())) < 5
        assert bytes(body.view()) == BODY


class Stopping:
    """A `TimedStream` whose sender stops for a while once the first pieces are there."""

    def __init__(self) -> None:
        self._source = stream_of(BODY, 100_000)
        self._left = 15

    def wait_readable(self, _seconds: float) -> bool:
        return self._left > 0

    def read(self, n: int, /) -> bytes:
        self._left -= 1
        return self._source.read(n)


def test_a_sender_that_stops_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving_body, "monotonic", lambda: 0.0)
    with Workspace(Budget(), Spool(None, 16 * MIB)) as workspace:
        body = arriving(workspace, Stopping())
        assert len(list(body.read_ahead())) == 15
        assert bytes(body.view()) == BODY


def test_a_sender_that_leaves_is_an_error_for_either_reader(tmp_path: Path) -> None:
    class Leaving:
        def __init__(self) -> None:
            self._left = 15

        def read(self, n: int, /) -> bytes:
            self._left -= 1
            if self._left < 0:
                raise StreamInterrupted("The client went away.")
            return bytes(min(n, 100_000))

    spool = Spool(tmp_path, 16 * MIB)
    with Workspace(Budget(), spool) as workspace, pytest.raises(StreamInterrupted):
        list(arriving(workspace, Leaving()).read_ahead())
    with Workspace(Budget(), spool) as workspace, pytest.raises(StreamInterrupted):
        arriving(workspace, Leaving()).view()
    assert spool.used == 0


@pytest.mark.parametrize(("pool_mib", "is_held"), [(25, True), (24, False)])
def test_a_body_is_held_while_there_is_memory_to_spare(tmp_path: Path, pool_mib: int, is_held: bool) -> None:
    pool, spool = MemoryPool(pool_mib * MIB), Spool(tmp_path, 16 * MIB)
    share = pool.share()
    with Workspace(Budget(share=share), spool) as workspace:
        body = ArrivingBody(stream_of(BODY, 100_000), workspace, declared_size=len(BODY))
        views = body.read_ahead()
        next(views)
        assert (pool.used, spool.used) == ((len(BODY), 0) if is_held else (0, 100_000))
        assert [len(view) for view in views][-1] == len(BODY)
        assert (pool.used, spool.used) == ((len(BODY), 0) if is_held else (0, len(BODY)))
    share.end()
    assert pool.used == 0


@pytest.mark.parametrize(("share", "is_held"), [(len(BODY), True), (len(BODY) - 1, False)])
def test_a_body_is_held_only_if_the_spool_would_take_it(tmp_path: Path, share: int, is_held: bool) -> None:
    spool = Spool(tmp_path, 4 * share)
    with Workspace(Budget(), spool) as workspace:
        body = arriving(workspace)
        views = body.read_ahead()
        next(views)
        assert (spool.used == 0) == is_held
        with nullcontext() if is_held else pytest.raises(SpoolFull):
            assert [len(view) for view in views][-1] == len(BODY)


def test_held_part_of_a_body_moves_to_the_spool(tmp_path: Path) -> None:
    pool, spool = MemoryPool(100 * MIB), Spool(tmp_path, 16 * MIB)
    with Workspace(Budget(share=pool.share()), spool) as workspace:
        body = ArrivingBody(stream_of(BODY, 100_000), workspace, declared_size=len(BODY))
        next(body.read_ahead())
        assert bytes(body.view()) == BODY
        assert (pool.used, spool.used) == (0, len(BODY))
