"""Mixtures: shares are exact, every place is known by itself, and parts of workers make up the whole."""

from itertools import chain

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.sharding.mixture import MixedPart, Mixture
from app.domain.sharding.row_order import RowOrder

WEIGHTS = st.lists(st.integers(1, 30), min_size=1, max_size=5)


def turns_of(mixture: Mixture, num_places: int) -> list[int]:
    return [int(mixture.turns[place % len(mixture.turns)]) for place in range(num_places)]


@settings(max_examples=100, deadline=None)
@given(WEIGHTS)
def test_at_any_place_each_source_has_had_its_share_to_within_a_row(weights: list[int]) -> None:
    mixture = Mixture(tuple(weights))
    total = sum(weights)
    turns = turns_of(mixture, 3 * total)
    for source, weight in enumerate(weights):
        counts = np.cumsum(np.array(turns) == source)
        shares = np.arange(1, len(turns) + 1) * weight / total
        assert np.abs(counts - shares).max() < 1
        assert counts[total - 1 :: total].tolist() == [weight, 2 * weight, 3 * weight]


@settings(max_examples=100, deadline=None)
@given(WEIGHTS)
def test_rows_and_places_are_found_without_those_before(weights: list[int]) -> None:
    mixture = Mixture(tuple(weights))
    turns = turns_of(mixture, 200)
    for source in range(len(weights)):
        places = [place for place, turn in enumerate(turns) if turn == source]
        assert mixture.place_of(source, np.arange(len(places))).tolist() == places
        before = [turns[:place].count(source) for place in range(200)]
        assert mixture.rows_before(source, np.arange(200)).tolist() == before


def test_common_factor_of_weights_changes_nothing() -> None:
    assert Mixture((6, 2)).turns.tolist() == Mixture((3, 1)).turns.tolist() == [0, 0, 0, 1]


@settings(max_examples=100, deadline=None)
@given(WEIGHTS, st.data())
def test_mixture_ends_at_the_first_empty_source(weights: list[int], data: st.DataObject) -> None:
    mixture = Mixture(tuple(weights))
    left = data.draw(st.lists(st.integers(0, 50), min_size=len(weights), max_size=len(weights)))
    num_places = mixture.num_places(left)
    for turn in turns_of(mixture, num_places):
        left[turn] -= 1
    assert min(left) >= 0
    assert left[turns_of(mixture, num_places + 1)[-1]] == 0


@settings(max_examples=200, deadline=None)
@given(
    WEIGHTS,
    st.integers(0, 400),
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from([0, 12, 24, 36]),
    st.integers(0, 450),
    st.booleans(),
)
def test_the_parts_of_a_worker_are_the_rows_of_its_places(
    weights: list[int], num_places: int, num_workers: int, step: int, start: int, drop: bool
) -> None:
    mixture = Mixture(tuple(weights))
    turns = turns_of(mixture, num_places)
    for worker in range(num_workers):
        order = RowOrder(
            worker=worker, num_workers=num_workers, global_batch=step, start=start, drop_remainder=drop
        )
        whole = order.part(num_places)
        places = whole.between(0, num_places).tolist()
        assert list(chain(*mixture.iter_turns(whole))) == [turns[place] for place in places]
        for source in range(len(weights)):
            part = MixedPart(mixture, source, whole)
            rows = [turns[:place].count(source) for place in places if turns[place] == source]
            assert part.num_rows == len(rows)
            assert part.between(0, turns.count(source)).tolist() == rows
            low, high = part.bounds
            assert all(low <= row < high for row in rows)
