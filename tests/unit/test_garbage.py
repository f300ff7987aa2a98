"""Cycles are looked for while nothing is under way; or now and then, where something always is."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from app import garbage
from app.garbage import Garbage, keep_what_is_loaded


class Node:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    gc.collect()
    monkeypatch.setattr(garbage, "_IDLE_S", -1.0)
    monkeypatch.setattr(garbage, "_BUSY_S", 600.0)
    gc.callbacks.append(note)
    yield generations
    gc.callbacks.remove(note)


def test_everything_is_looked_at_while_nothing_is_under_way(looked: list[int]) -> None:
    Node()
    gc.collect(0)
    Garbage().collect(idle=True)
    assert looked[-1] == 2


def test_requests_are_not_held_up(looked: list[int]) -> None:
    gc.collect(0)
    Garbage().collect(idle=False)
    assert 2 not in looked


def test_who_is_never_idle_is_held_up_now_and_then(
    looked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "_BUSY_S", -1.0)
    gc.collect(0)
    Garbage().collect(idle=False)
    assert looked[-1] == 2


def test_garbage_is_not_kept_with_what_is_loaded() -> None:
    found = weakref.ref(Node())
    gc.disable()
    try:
        assert found() is not None
        keep_what_is_loaded()
        assert found() is None
    finally:
        gc.enable()
