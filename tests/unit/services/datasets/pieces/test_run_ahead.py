"""Calls made ahead: all results in order, no more calls under way than were asked for."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from app.services.datasets.pieces.run_ahead import run_ahead


def calls(made: list[int], sizes: list[int], drawn: list[int]) -> Iterator[tuple[int, Callable[[], int]]]:
    def call(number: int) -> int:
        made.append(number)
        return number

    for number, size in enumerate(sizes):
        drawn.append(number)
        yield size, partial(call, number)


@pytest.mark.parametrize("most", [1, 3, 100])
@pytest.mark.parametrize("threads", [None, 1, 4])
def test_all_results_come_in_order(most: int, threads: int | None) -> None:
    sizes = [1] * 20
    if threads is None:
        assert list(run_ahead(calls([], sizes, []), None, most=most)) == list(range(20))
        return
    with ThreadPoolExecutor(threads) as pool:
        assert list(run_ahead(calls([], sizes, []), pool, most=most)) == list(range(20))


def test_no_more_calls_are_under_way_than_asked_for() -> None:
    drawn: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        results = run_ahead(calls([], [1] * 20, drawn), pool, most=3)
        assert next(results) == 0
    assert drawn == [0, 1, 2, 3]


def test_results_together_hold_no_more_than_asked_for_but_one_may() -> None:
    drawn: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        results = run_ahead(calls([], [4, 4, 4, 50, 1], drawn), pool, most=100, most_bytes=10)
        assert next(results) == 0
        assert drawn == [0, 1, 2]
        assert list(results) == [1, 2, 3, 4]


def test_without_threads_a_call_is_made_when_its_result_is_asked_for() -> None:
    made: list[int] = []
    results = run_ahead(calls(made, [1] * 3, []), None, most=3)
    assert made == []
    assert next(results) == 0
    assert made == [0]


def test_error_of_a_call_is_raised_in_order() -> None:
    def broken() -> int:
        raise ValueError("broken")

    with ThreadPoolExecutor(2) as pool:
        results = run_ahead(iter([(1, lambda: 1), (1, broken), (1, lambda: 3)]), pool, most=3)
        assert next(results) == 1
        with pytest.raises(ValueError, match="broken"):
            next(results)


def test_closed_early_it_makes_no_call_that_has_not_begun() -> None:
    made: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        results = run_ahead(calls(made, [1] * 20, []), pool, most=3)
        next(results)
        results.close()
    assert len(made) <= 3
