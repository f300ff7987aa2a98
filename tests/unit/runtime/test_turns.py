"""No more threads compute at a time than there are turns; who waits lends its turn to another."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.errors import Overloaded
from app.runtime import turns
from app.runtime.turns import Turns, has_turn, offer_turn, pause, waiting
from tests.support.waiting import wait_for


class Worker:
    """A thread that takes its turn and keeps it until it is told to end."""

    def __init__(self, of: Turns, during: "threading.Event | None" = None) -> None:
        self.begun, self.end = threading.Event(), threading.Event()
        self._of, self._during = of, during
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        with self._of.turn():
            self.begun.set()
            if self._during is not None:
                with waiting():
                    self._during.wait(30)
            self.end.wait(30)

    def stop(self) -> None:
        self.end.set()
        self.thread.join(30)


def test_no_more_compute_than_there_are_turns() -> None:
    of = Turns(2)
    computing, most, lock = 0, 0, threading.Lock()

    def compute() -> None:
        nonlocal computing, most
        with of.turn():
            with lock:
                computing += 1
                most = max(most, computing)
            threading.Event().wait(0.002)
            with lock:
                computing -= 1

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(compute) for _ in range(40)]:
            done.result()
    assert most <= 2
    assert not of.wanted


def test_who_waits_for_something_else_lends_its_turn() -> None:
    of, something = Turns(1), threading.Event()
    first = Worker(of, during=something)
    second = Worker(of)
    assert second.begun.wait(30)
    something.set()
    wait_for(lambda: of.wanted)
    second.stop()
    first.stop()
    assert not of.wanted


def test_who_comes_back_goes_before_who_has_not_begun() -> None:
    of, something = Turns(1), threading.Event()
    first = Worker(of, during=something)
    second = Worker(of)
    assert second.begun.wait(30)
    third = Worker(of)
    wait_for(lambda: of.wanted)
    something.set()
    wait_for(lambda: len(of._returning) == 1)
    second.stop()
    wait_for(lambda: not of._returning)
    assert not third.begun.is_set()
    first.stop()
    assert third.begun.wait(30)
    third.stop()


def test_who_computes_long_gives_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_SLICE_S", -1.0)
    of = Turns(1)
    with of.turn():
        other = Worker(of)
        wait_for(lambda: of.wanted)
        other.end.set()
        offer_turn()
        assert other.begun.is_set()
    other.stop()


def test_who_has_begun_goes_on_without_a_turn_rather_than_wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_PATIENCE_S", 0.01)
    of, something = Turns(1), threading.Event()
    first = Worker(of, during=something)
    never_pauses = Worker(of)
    assert never_pauses.begun.wait(30)
    something.set()
    first.stop()  # though the other keeps the turn
    assert not first.thread.is_alive()
    never_pauses.stop()
    with of.turn():
        assert of._free == 0


def test_who_waits_too_long_to_begin_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_PATIENCE_S", 0.01)
    of = Turns(1)
    never_pauses = Worker(of)
    assert never_pauses.begun.wait(30)
    with pytest.raises(Overloaded, match="nothing was done"), of.turn():
        pass
    never_pauses.stop()
    with of.turn():
        assert of._free == 0


def test_who_pauses_lends_its_turn() -> None:
    of, held = Turns(1), []

    def sleep(_: float) -> None:
        held.append(has_turn())

    with pytest.MonkeyPatch.context() as patch, of.turn():
        patch.setattr("app.runtime.turns.time.sleep", sleep)
        pause(1)
        pause(0)  # is none
        assert has_turn()
    assert held == [False]
    assert not has_turn()


def test_without_a_turn_there_is_nothing_to_lend() -> None:
    with waiting():
        offer_turn()


def test_who_computes_makes_way_for_what_is_more_urgent(monkeypatch: pytest.MonkeyPatch) -> None:
    late = [True, True, False]
    pauses: list[float] = []
    monkeypatch.setattr(turns, "_SLICE_S", 60.0)
    of = Turns(1, lambda: late.pop(0))
    with of.turn():
        monkeypatch.setattr("app.runtime.turns.time.sleep", pauses.append)
        offer_turn()
        monkeypatch.undo()
    assert len(pauses) == 2


def test_way_is_not_made_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    of = Turns(1, lambda: True)
    with of.turn():
        monkeypatch.setattr("app.runtime.turns._PAUSE_S", 0.0)
        offer_turn()


def test_only_waits_for_a_turn_are_reported() -> None:
    waits: list[float] = []
    of = Turns(1, on_wait=waits.append)
    with of.turn():
        assert (of.in_use, of.num_waiting) == (1, 0)
    assert waits == []
    with ThreadPoolExecutor(1) as pool:
        with of.turn():
            other = pool.submit(_take, of)
            wait_for(lambda: of.num_waiting == 1)
        other.result()
    assert len(waits) == 1
    assert waits[0] > 0
    assert (of.in_use, of.num_waiting) == (0, 0)


def _take(of: Turns) -> None:
    with of.turn():
        pass
