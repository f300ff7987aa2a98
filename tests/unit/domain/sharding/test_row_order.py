"""Orders and shares: determined by their numbers alone."""

import tracemalloc
from itertools import chain

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.domain.sharding.row_order import MAX_SHUFFLE_BUFFER, RowOrder
from app.domain.sharding.windows import Windows

STEPS = st.sampled_from([0, 24, 48, 240])
WORKERS = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24])


def parts(
    num_rows: int, num_workers: int, step: int = 0, start: int = 0, *, drop: bool = False
) -> list[list[int]]:
    """The places of each worker; what a part says of itself is so."""
    found = []
    for worker in range(num_workers):
        order = RowOrder(
            worker=worker, num_workers=num_workers, global_batch=step, start=start, drop_remainder=drop
        )
        part = order.part(num_rows)
        places = part.between(0, num_rows).tolist()
        assert part.num_rows == len(places)
        low, high = part.bounds
        assert (low, high) == (places[0], places[-1] + 1) if places else low == high
        found.append(places)
    return found


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 40), st.integers(0, 1200))
def test_shares_are_all_rows_once_and_alike_in_size(num_rows: int, num_workers: int, start: int) -> None:
    shares = parts(num_rows, num_workers, start=start)
    assert list(chain(*shares)) == list(range(start, num_rows))
    sizes = set(map(len, shares))
    assert max(sizes) - min(sizes) <= 1


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1000), WORKERS, st.sampled_from([24, 48, 240]), st.integers(0, 1200), st.booleans())
def test_a_step_is_the_same_however_many_share_it(
    num_rows: int, num_workers: int, step: int, start: int, drop: bool
) -> None:
    [alone] = parts(num_rows, 1, step, start, drop=drop)
    shares = parts(num_rows, num_workers, step, start, drop=drop)
    together = []
    for begin in range(start, num_rows, step):
        of_step = [[place for place in share if begin <= place < begin + step] for share in shares]
        sizes = set(map(len, of_step))
        assert max(sizes) - min(sizes) <= (num_rows - begin < step)
        together += list(chain(*of_step))
    assert together == alone
    end = num_rows - (num_rows - start) % step if drop else num_rows
    assert alone == list(range(start, end))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 500), WORKERS, st.integers(0, 500), st.integers(0, 600))
def test_an_order_ends_where_it_is_to_stop(num_rows: int, num_workers: int, start: int, stop: int) -> None:
    orders = [
        RowOrder(worker=worker, num_workers=num_workers, global_batch=24, start=start, stop=stop)
        for worker in range(num_workers)
    ]
    found = sorted(chain(*(order.part(num_rows).between(0, num_rows).tolist() for order in orders)))
    assert found == list(range(start, min(stop, num_rows)))


def test_without_a_shuffle_runs_stay_in_order() -> None:
    assert RowOrder(seed=1, epoch=2).arrange_runs(4).tolist() == [0, 1, 2, 3]


def test_all_workers_have_the_same_order() -> None:
    orders = [RowOrder(10, 7, 3, worker, 5) for worker in range(5)]
    runs = [order.arrange_runs(100).tolist() for order in orders]
    assert all(run == runs[0] for run in runs)
    assert sorted(runs[0]) == list(range(100))
    rows = [order.arrange_rows(Windows.of(100, 4, 10), 0, 10).tolist() for order in orders]
    assert all(row == rows[0] for row in rows)


def test_seeds_and_epochs_make_other_orders() -> None:
    orders = [RowOrder(10, seed, epoch) for seed in range(3) for epoch in range(3)]
    assert len({tuple(order.arrange_runs(20)) for order in orders}) == 9
    assert len({tuple(order.arrange_rows(Windows.of(20, 4, 10), 0, 2)) for order in orders}) == 9


def test_an_order_is_the_same_for_ever() -> None:
    """A training that is taken up again, perhaps with another release, sees the order it began with."""
    order = RowOrder(6, seed=42, epoch=1)
    assert order.arrange_runs(8).tolist() == [1, 2, 5, 3, 6, 0, 4, 7]
    windows = Windows.of(22, 3, 6)
    assert order.arrange_rows(windows, 1, 4).tolist() == [
        2,
        10,
        17,
        16,
        9,
        3,
        19,
        18,
        5,
        11,
        12,
        4,
        21,
        20,
        13,
        6,
    ]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 300), st.integers(0, 1000), st.integers(1, 20), st.data())
def test_each_window_is_shuffled_by_itself_and_found_without_the_others(
    size: int, num_rows: int, num_runs: int, data: st.DataObject
) -> None:
    order, windows = RowOrder(size, 1), Windows.of(num_rows, num_runs, size)
    count = -(-num_rows // windows.size)
    assert windows.size <= size
    rows = order.arrange_rows(windows, 0, count)
    assert sorted(rows) == list(range(num_rows))
    lanes = {}
    for window in range(count):
        first, last = windows.places(window, window + 1)
        taken = [range(*windows.lane(lane, window, window + 1)) for lane in range(windows.num_lanes)]
        assert sorted(rows[first:last]) == list(chain(*taken))
        lanes[window] = [len(rows) for rows in taken]
        assert lanes[window] == [windows.depth] * windows.num_lanes or window == count - 1
    assume(num_rows)
    low = data.draw(st.integers(0, num_rows - 1))
    high = data.draw(st.integers(low + 1, num_rows))
    found = windows.holding(low, high)
    first, last = windows.places(*found)
    assert first <= low < first + windows.size
    assert high <= last < high + windows.size
    assert order.arrange_rows(windows, *found).tolist() == rows[first:last].tolist()


def test_a_window_of_one_row_keeps_the_order() -> None:
    windows = Windows.of(50, 7, 1)
    assert RowOrder(1, 5).arrange_rows(windows, 0, 50).tolist() == list(range(50))


def test_lanes_are_alike_in_length() -> None:
    windows = Windows.of(1003, 100, 80)
    bounds = [windows.lane(lane, 0, windows.num_full + 1) for lane in range(windows.num_lanes)]
    assert (windows.num_lanes, windows.depth) == (8, 10)
    assert [low for low, _ in bounds] == [0, *(high for _, high in bounds[:-1])]
    assert {high - low for low, high in bounds} == {125, 126}


@pytest.mark.parametrize("size", [8, 64, 1000])
def test_each_row_of_a_window_may_come_to_each_place_of_it(size: int) -> None:
    """Places are spread evenly: over many windows, the mean of each is in the middle."""
    windows = Windows.of(2000 * size, 1, size)
    rows = RowOrder(size, 3).arrange_rows(windows, 0, 2000).reshape(-1, size) % size
    spread = np.sqrt((size**2 - 1) / 12 / 2000)
    assert abs(rows.mean(axis=0) - (size - 1) / 2).max() < 5 * spread
    follows = np.mean(rows[:, 1:] == rows[:, :-1] + 1)
    assert abs(follows - 1 / size) < 5 * np.sqrt(1 / size / rows.size)


def test_a_window_far_larger_than_all_rows_takes_no_more_memory() -> None:
    windows = Windows.of(10, 1, MAX_SHUFFLE_BUFFER)
    tracemalloc.start()
    try:
        rows = RowOrder(MAX_SHUFFLE_BUFFER, 1).arrange_rows(windows, 0, 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sorted(rows) == list(range(10))
    assert peak < 1_000_000
