"""Rows of several splits in turns: the same for any number of workers, from any row on."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.limits import KIB, MIB, Limits
from app.domain.sharding.mixture import Mixture
from app.domain.sharding.row_order import RowOrder
from app.errors import LimitExceeded, UnprocessableInput
from app.runtime.budget import Budget
from app.services.datasets.read.stored_split import read_mixture
from tests.unit.services.datasets.read.test_shuffled_rows import Rows, values_of

SIZES = st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=4), min_size=1, max_size=4)


class Sources:
    """Some splits, and how often each has its turn."""

    def __init__(self, sizes: Sequence[Sequence[int]], weights: Sequence[int]) -> None:
        self.rows = [Rows(list(of_split)) for of_split in sizes]
        self.weights = tuple(weights[: len(sizes)])

    def read(self, order: RowOrder) -> list[Any]:
        found = read_mixture([rows.stored() for rows in self.rows], self.weights, order, Budget())
        values = values_of(found)
        assert found.num_rows == len(values)
        return values

    def expected(self, order: RowOrder) -> list[Any]:
        """Each split read by itself, then row by row in turns."""
        whole = RowOrder(order.shuffle_buffer, order.seed, order.epoch)
        each = [iter(values_of(rows.read(whole, Budget()))) for rows in self.rows]
        mixture = Mixture(self.weights)
        num_places = mixture.num_places([rows.count for rows in self.rows])
        mixed = [next(each[int(mixture.turns[place % len(mixture.turns)])]) for place in range(num_places)]
        return [mixed[place] for place in order.part(num_places).between(0, num_places)]


@settings(max_examples=40, deadline=None)
@given(
    sizes=SIZES,
    weights=st.lists(st.integers(1, 9), min_size=4, max_size=4),
    buffer=st.sampled_from([0, 1, 7, 50, 1000]),
    workers=st.sampled_from([1, 2, 3, 4, 6]),
    step=st.sampled_from([0, 12, 24]),
    start=st.integers(0, 200),
)
def test_a_mixture_is_its_splits_in_turns(
    sizes: list[list[int]], weights: list[int], buffer: int, workers: int, step: int, start: int
) -> None:
    sources = Sources(sizes, weights)
    for worker in range(workers):
        order = RowOrder(buffer, 7, 1, worker, workers, step, start)
        assert sources.read(order) == sources.expected(order)


@pytest.mark.parametrize("buffer", [0, 100], ids=["in order", "shuffled"])
def test_workers_together_and_from_any_step_on_get_the_same(buffer: int) -> None:
    sources = Sources([[300, 200, 400], [250], [100, 100]], [5, 2, 1])
    alone = sources.read(RowOrder(buffer, 3, global_batch=24))
    assert len(alone) > 800
    for start in (24, 240, 720):
        assert sources.read(RowOrder(buffer, 3, global_batch=24, start=start)) == alone[start:]
    for workers in (2, 3, 8):
        orders = [
            RowOrder(buffer, 3, 0, worker, workers, 24, drop_remainder=True) for worker in range(workers)
        ]
        shares = [iter(sources.read(order)) for order in orders]
        part, steps = 24 // workers, len(alone) // 24
        together = [[next(share) for _ in range(part)] for _ in range(steps) for share in shares]
        assert list(chain(*together)) == alone[: 24 * steps]


def test_a_split_without_rows_ends_it_at_its_turn() -> None:
    sources = Sources([[10], []], [3, 1])
    assert sources.read(RowOrder()) == sources.expected(RowOrder())
    assert len(sources.read(RowOrder())) == 3


def test_splits_with_other_features_are_not_mixed() -> None:
    splits = [Rows([3]).stored(), Rows([3], pad=10).stored()]
    with pytest.raises(UnprocessableInput) as caught:
        read_mixture(splits, [1, 1], RowOrder(), Budget())
    assert caught.value.code == "mixed_schemas"


def test_held_rows_of_all_splits_are_charged() -> None:
    splits = [Rows([50, 50], pad=10 * KIB).stored() for _ in range(4)]
    with pytest.raises(LimitExceeded):
        values_of(read_mixture(splits, [1] * 4, RowOrder(), Budget(Limits(max_decoded_bytes=1 * MIB))))
