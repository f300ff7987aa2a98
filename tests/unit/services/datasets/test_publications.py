"""Publications outlive the patience of a client; the same request again follows them."""

import threading
from collections.abc import Callable

import pytest

from app.domain.limits import MIB
from app.domain.manifest import Manifest
from app.errors import Conflict, Overloaded
from app.runtime.memory import MemoryPool
from app.services.datasets import publications
from app.services.datasets.publications import Publications, Publish, Underway
from app.services.datasets.publish.room import Room
from tests.support.dataset_rows import SCHEMA

DONE = Manifest("d", "1.0.0", {}, SCHEMA)


def memory() -> MemoryPool:
    return MemoryPool(8 << 30)


class Work:
    """A publication that ends when it is told to."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.count = 0

    def __call__(self, announce: Callable[[str], None], _: Room) -> Manifest:
        self.count += 1
        announce("1.0.0")
        self.begun.set()
        self.may_end.wait()
        return DONE


def run(underway: Publications, request: str, publish: Publish, *, exact: bool = True) -> Manifest | Underway:
    return underway.run(request, publish, dataset="d", exact=exact)


def run_to_its_end(underway: Publications, request: str, publish: Publish, *, exact: bool = True) -> Manifest:
    while isinstance(outcome := run(underway, request, publish, exact=exact), Underway):
        pass
    return outcome


def test_a_short_publication_is_answered_at_once() -> None:
    assert run(Publications(60, memory()), "a", lambda *_: DONE) is DONE


def test_error_reaches_the_client_and_the_next_request_starts_again() -> None:
    underway = Publications(60, memory())

    def fails(*_: object) -> Manifest:
        raise Conflict("no")

    with pytest.raises(Conflict):
        run(underway, "a", fails)
    assert run(underway, "a", lambda *_: DONE) is DONE


@pytest.mark.parametrize("exact", [True, False])
def test_the_same_request_follows_a_long_publication_to_its_end(exact: bool) -> None:
    work, underway = Work(), Publications(0.01, memory())
    assert isinstance(run(underway, "a", work, exact=exact), Underway)
    work.begun.wait()
    assert run(underway, "a", work, exact=exact) == Underway("1.0.0")
    work.may_end.set()
    assert run_to_its_end(underway, "a", work, exact=exact) is DONE
    assert work.count == 1
    own = Manifest("d", "1.1.0", {}, SCHEMA)
    assert run_to_its_end(underway, "a", lambda *_: own, exact=exact) is own


def test_another_request_does_not_follow() -> None:
    work, underway = Work(), Publications(0.01, memory())
    run(underway, "a", work)
    assert run_to_its_end(underway, "b", lambda *_: DONE) is DONE
    work.may_end.set()


def test_a_stranger_follows_only_what_was_let_go_of() -> None:
    work, underway = Work(), Publications(60, memory())
    answers: list[Manifest | Underway] = []
    first = threading.Thread(target=lambda: answers.append(run(underway, "a", work, exact=False)))
    first.start()
    work.begun.wait()
    own = Manifest("d", "1.1.0", {}, SCHEMA)
    assert run(underway, "a", lambda *_: own, exact=False) is own
    work.may_end.set()
    first.join()
    assert answers == [DONE]


def test_a_repetition_joins_at_once_where_it_can_only_be_one() -> None:
    work, underway = Work(), Publications(60, memory())
    answers: list[Manifest | Underway] = []
    threads = [threading.Thread(target=lambda: answers.append(run(underway, "a", work))) for _ in range(3)]
    threads[0].start()
    work.begun.wait()
    for thread in threads[1:]:
        thread.start()
    while len(underway._followed) != 1:
        pass
    work.may_end.set()
    for thread in threads:
        thread.join()
    assert answers == [DONE] * 3


def test_so_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publications, "_CAPACITY", 2)
    work, underway = Work(), Publications(0.0, memory())
    run(underway, "a", work)
    run(underway, "b", work)
    with pytest.raises(Overloaded) as caught:
        run(underway, "c", work)
    assert caught.value.code == "too_many_publications"
    with pytest.raises(Overloaded):
        underway.reserve()
    work.may_end.set()


def test_publications_leave_half_of_the_memory_free() -> None:
    pool = MemoryPool(400 * MIB)
    work, underway = Work(), Publications(0.0, pool)
    run(underway, "a", work)
    with pytest.raises(Overloaded) as caught:
        run(underway, "b", work)
    assert caught.value.code == "too_many_publications"
    work.may_end.set()
    run_to_its_end(underway, "a", work)
    run_to_its_end(underway, "b", work)
    assert (work.count, pool.used) == (2, 0)


def test_each_takes_its_memory_before_it_begins_and_gives_it_back() -> None:
    pool = MemoryPool(800 * MIB)
    work, underway = Work(), Publications(0.0, pool)
    others = [pool.share(), pool.share()]
    others[0].reserve(400 * MIB)
    run(underway, "a", work)
    others[1].reserve(130 * MIB)
    with pytest.raises(Overloaded, match="nothing was done"):
        run(underway, "b", work)
    with pytest.raises(Overloaded, match="nothing was done"):
        underway.reserve()
    assert work.count == 1
    work.may_end.set()
    run_to_its_end(underway, "a", work)
    for other in others:
        other.end()
    assert pool.used == 0


def test_reservation_lasts_as_long_as_the_publication() -> None:
    pool = MemoryPool(300 * MIB)
    work, underway = Work(), Publications(0.0, pool)
    with underway.reserve() as room:
        held = pool.used
        underway.run("a", work, dataset="d", exact=True, room=room)
    assert pool.used == held > 0
    work.may_end.set()
    run_to_its_end(underway, "a", work)
    assert pool.used == 0


def test_who_follows_another_gives_back_what_was_reserved() -> None:
    pool = MemoryPool(800 * MIB)
    work, underway = Work(), Publications(0.0, pool)
    run(underway, "a", work)
    held = pool.used
    with underway.reserve() as room:
        assert pool.used == 2 * held
        underway.run("a", work, dataset="d", exact=True, room=room)
    assert pool.used == held
    work.may_end.set()


def test_publication_without_a_thread_releases_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = MemoryPool(300 * MIB)
    underway = Publications(60, pool)

    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    with pytest.raises(RuntimeError):
        run(underway, "a", lambda *_: DONE)
    assert pool.used == 0
    assert not underway._running


def test_an_outcome_that_nobody_comes_for_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publications, "_KEPT_S", -1.0)
    work, underway = Work(), Publications(0.01, memory())
    assert isinstance(run(underway, "a", work), Underway)
    work.may_end.set()
    begun = next(iter(underway._running))
    while begun.ended is None:
        pass
    run(underway, "b", lambda *_: DONE)
    assert "a" not in underway._followed


def test_status_of_a_publication() -> None:
    assert Underway(None).to_json("d") == {"dataset": "d", "state": "publishing"}
    assert Underway("1.2.0").to_json("d") == {"dataset": "d", "state": "publishing", "version": "1.2.0"}
