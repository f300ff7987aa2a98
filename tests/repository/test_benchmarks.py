"""What the benchmarks have written agrees with itself; nothing here is decided by time."""

import gc
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.measure import Answer, Peer, Session
from benchmarks.run import merged
from benchmarks.table import RESULTS, TABLE, newest_results, read_results, results_table

ROOT = Path(__file__).parents[2]


def test_the_page_of_results_is_what_the_newest_results_give() -> None:
    assert TABLE.read_text(encoding="utf-8") == results_table(newest_results())


def test_the_results_answer_every_benchmark_there_is() -> None:
    run = (ROOT / "benchmarks" / "run.py").read_text(encoding="utf-8")
    benchmarks = {path.stem for path in (ROOT / "benchmarks").glob("bench_*.py")}
    assert set(re.findall(r'"(bench_\w+)"', run)) == benchmarks


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.jsonl")), ids=lambda path: path.name)
def test_results_name_no_place(path: Path) -> None:
    assert "/" not in "".join(read_results(path).machine.values())
    assert path.name.startswith(read_results(path).machine["date"])


def test_an_answer_comes_back_from_json() -> None:
    answer = Answer("Rows to TFRecord", "2 rows", "rows", 0.5, 1.0, None, "TensorFlow", 4.0, 10.0)
    assert answer.to_json()["ratio"] == answer.ratio == 8
    assert not answer.is_reached
    assert Answer.from_json(answer.to_json()) == answer


def test_answers_asked_again_replace_those_before_in_their_place() -> None:
    first, second, third = (
        Answer("Question", case, "rows", 1.0, None, None, "peer", 2.0) for case in ("a", "b", "c")
    )
    again = replace(second, seconds=4.0)
    assert merged([first, second], [third, again]) == [first, again, third]


@pytest.fixture
def _little_to_collect() -> Iterator[None]:
    """The session collects garbage before each run, which takes a second after thousands of tests."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_little_to_collect")
def test_a_session_asks_each_peer_and_a_speed(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[str] = []

    def run(name: str, items: int) -> int:
        calls.append(name)
        # Work that the processor's clock sees.
        sum(range(10_000))
        return items

    session = Session(runs=2)
    peer = Peer("theirs", lambda: run("theirs", 5), target=3)
    session.ask(
        "Question", "case", "rows", lambda: run("ours", 10), [peer], num_bytes=1000, least_gigabytes=2
    )
    # One call to learn how many items a run is, one that is not counted, and the runs in turns.
    assert calls == ["ours", "ours", "theirs", "ours", "theirs", "ours", "theirs"]
    theirs, speed = session.answers
    assert (theirs.peer, theirs.target) == ("theirs", 3)
    assert (speed.peer, speed.target) == ("2 GB/s", 1)
    assert speed.peer_seconds == pytest.approx(100 / 2e9)
    assert "Question, case" in capsys.readouterr().out
