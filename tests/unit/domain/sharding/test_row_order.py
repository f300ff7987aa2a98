"""Orders and shares: determined by their numbers alone."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.sharding.row_order import RowOrder


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 40))
def test_shares_are_all_rows_once_and_alike_in_size(num_rows: int, num_workers: int) -> None:
    shares = [RowOrder(worker=w, num_workers=num_workers).share(num_rows) for w in range(num_workers)]
    assert [row for start, stop in shares for row in range(start, stop)] == list(range(num_rows))
    sizes = {stop - start for start, stop in shares}
    assert max(sizes) - min(sizes) <= 1


def test_without_a_shuffle_runs_stay_in_order() -> None:
    assert RowOrder(seed=1, epoch=2).arrange_runs(4).tolist() == [0, 1, 2, 3]


def test_all_workers_have_the_same_order_of_runs() -> None:
    orders = [RowOrder(10, 7, 3, worker, 5).arrange_runs(100).tolist() for worker in range(5)]
    assert all(order == orders[0] for order in orders)
    assert sorted(orders[0]) == list(range(100))


def test_seeds_and_epochs_make_other_orders() -> None:
    orders = {tuple(RowOrder(10, seed, epoch).arrange_runs(20)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


def test_an_order_is_the_same_for_ever() -> None:
    """A training that is taken up again, perhaps with another release, sees the order it began with."""
    order = RowOrder(10, seed=42, epoch=1)
    assert order.arrange_runs(8).tolist() == [1, 2, 5, 3, 6, 0, 4, 7]
    assert order.slots().below(1000, 5).tolist() == [976, 654, 644, 251, 255]
    assert order.slots().permutation(8).tolist() == [7, 3, 4, 6, 2, 1, 5, 0]


def test_slots_do_not_depend_on_how_many_are_taken_at_a_time() -> None:
    one, other = (RowOrder(10, 1).slots() for _ in range(2))
    assert one.below(10, 50).tolist() == [int(other.below(10, 1)[0]) for _ in range(50)]


def test_slots_are_spread_evenly() -> None:
    counts = np.bincount(RowOrder(10, 1).slots().below(10, 100_000), minlength=10)
    assert len(counts) == 10
    assert abs(counts - 10_000).max() < 500
