"""Conversions counted by format: each stage its own time, and rows and bytes of what succeeded."""

import threading
from collections.abc import Iterator
from itertools import count
from typing import TypeVar

import pytest

from app.telemetry import stages
from app.telemetry.metrics import REGISTRY
from app.telemetry.stages import CountingStage
from app.tracing import Stage

T = TypeVar("T")

SECONDS = "shardsmith_codec_cpu_seconds_total"


def nanoseconds(direction: str, form: str) -> int:
    value = REGISTRY.get_sample_value(SECONDS, {"direction": direction, "form": form})
    return round((value or 0) * 1e9)


def counted(name: str, form: str) -> float:
    return REGISTRY.get_sample_value(f"shardsmith_{name}_total", {"form": form}) or 0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by 1 ns whenever it is read."""
    ticks = count()
    monkeypatch.setattr(stages._this.clock, "now", lambda: next(ticks))


def test_the_time_of_an_inner_stage_is_its_own() -> None:
    inner, outer = (CountingStage(name, "nested", None, None) for name in ("decode", "encode"))
    batches = inner.drawn(iter([b"ab", b"c"]), lambda batch: (len(batch), 0))

    def chunks() -> Iterator[bytes]:
        for batch in batches:
            yield batch * 2

    assert list(outer.drawn(chunks(), lambda chunk: (0, len(chunk)))) == [b"abab", b"cc"]
    # The inner one is entered three times, which takes 1 each. The outer one begins and ends round each.
    assert nanoseconds("decode", "nested") == 3
    assert nanoseconds("encode", "nested") == 3 * 3 - 3
    assert counted("decoded_rows", "nested") == 3
    assert counted("encoded_bytes", "nested") == 6
    with outer:
        pass
    assert nanoseconds("encode", "nested") == 6 + 1  # nothing of an inner one is left over


class _Broken(Exception):
    """What a piece of work fails with."""


def _fail() -> None:
    raise _Broken


def _fail_after(stage: Stage, num_rows: int) -> None:
    stage.count(num_rows)
    _fail()


def test_failed_stage_counts_time_and_no_rows() -> None:
    arrived = [0]
    inner = CountingStage("decode", "failing", lambda: arrived[0], None)
    outer = CountingStage("encode", "failing", None, None)

    def batches() -> Iterator[bytes]:
        arrived[0] = 10
        yield b"abc"
        arrived[0] = 20
        _fail()

    with outer, pytest.raises(_Broken):
        list(inner.drawn(batches(), lambda batch: (len(batch), 0)))
    with outer, pytest.raises(_Broken), inner:
        _fail_after(inner, 5)
    assert nanoseconds("decode", "failing") == 3
    assert nanoseconds("encode", "failing") == 5 - 2 + 3 - 1
    assert counted("decoded_rows", "failing") == 3
    assert counted("decoded_bytes", "failing") == 0


def test_bytes_that_arrive_count_once() -> None:
    arrived = count(10, 10)
    stage = CountingStage("decode", "arriving", lambda: next(arrived), None)
    with stage:
        stage.count(1)
    assert list(stage.drawn(iter("ab"))) == ["a", "b"]
    with stage:
        stage.count()
    assert counted("decoded_bytes", "arriving") == 30
    assert counted("decoded_rows", "arriving") == 1


def test_abandoned_stage_counts_what_was_read() -> None:
    stage = CountingStage("decode", "left", lambda: 10, None)
    drawn = stage.drawn(iter([b"abc", b"d"]), lambda batch: (len(batch), 0))
    assert next(drawn) == b"abc"
    del drawn
    assert nanoseconds("decode", "left") == 1
    assert counted("decoded_rows", "left") == 3
    assert counted("decoded_bytes", "left") == 10


def test_additions_of_several_threads_are_not_lost() -> None:
    def convert() -> None:
        for _ in range(5_000):
            stage = CountingStage("encode", "shared", None, None)
            with stage:
                stage.count(1, 2)

    threads = [threading.Thread(target=convert) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted("encoded_rows", "shared") == 20_000
    assert counted("encoded_bytes", "shared") == 40_000


class _Noted(Stage):
    """Notes what is done with it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def __enter__(self) -> Stage:
        self.done.append("enter")
        return self

    def __exit__(self, *_: object) -> None:
        self.done.append("exit")

    def drawn(self, items: Iterator[T], measure: object = None) -> Iterator[T]:
        self.done.append("drawn")
        return items


def test_a_stage_is_recorded_too() -> None:
    recorded = _Noted()
    stage = CountingStage("encode", "recorded", None, recorded)
    with stage:
        stage.count(1)
    assert list(stage.drawn(iter("a"))) == ["a"]
    assert recorded.done == ["enter", "exit", "drawn"]
    assert counted("encoded_rows", "recorded") == 1
