"""Mixtures: rows of several sources in turns, as often as their weights say. Pure functions of a few numbers.

The turns repeat in rounds. In a round each source has as many turns as its weight, spread evenly: after any
number of places a source has had its share of them to within one row. So the row at any place is known
without those before it, and the rows of a source keep their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .row_order import Part
from .windows import Ints

#: Turns of a round, at most.
MAX_ROUND: Final = 10_000
#: Places that are looked at together.
_PLACES: Final = 8192


@dataclass(frozen=True, slots=True)
class Mixture:
    """Sources by their weights.

    Attributes:
        weights: 1 or more each; what they have in common changes nothing.
        turns: `[round]`, the number of the source that has each turn.
        places: for each source, which turns it has.
    """

    weights: tuple[int, ...]
    turns: Ints = field(init=False, repr=False, compare=False)
    places: tuple[Ints, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        turns = np.array(_turns(self.weights))
        object.__setattr__(self, "turns", turns)
        places = tuple(np.flatnonzero(turns == source) for source in range(len(self.weights)))
        object.__setattr__(self, "places", places)

    def place_of(self, source: int, rows: Ints) -> Ints:
        """The places of these rows of a source."""
        rounds, turns = np.divmod(rows, len(self.places[source]))
        places: Ints = rounds * len(self.turns) + self.places[source][turns]
        return places

    def rows_before(self, source: int, places: Ints) -> Ints:
        """How many rows of a source come before each of these places."""
        rounds, turns = np.divmod(places, len(self.turns))
        mine = self.places[source]
        rows: Ints = rounds * len(mine) + np.searchsorted(mine, turns)
        return rows

    def num_places(self, num_rows: Sequence[int]) -> int:
        """How many places there are until a source that has its turn has no more rows.

        Args:
            num_rows: of each source.
        """
        ends = (self.place_of(source, np.array([count])) for source, count in enumerate(num_rows))
        return min(int(end[0]) for end in ends)

    def iter_turns(self, part: Part) -> Iterator[Ints]:
        """For each place of `part`, the source whose row is there; some at a time."""
        begin, end = part.bounds
        for first in range(begin, end, _PLACES):
            places = part.between(first, min(end, first + _PLACES))
            if len(places):
                yield self.turns[places % len(self.turns)]


@lru_cache(64)
def _turns(weights: tuple[int, ...]) -> list[int]:
    """The source of each turn of a round.

    A row of a source has to come before the source's share has grown by one more, and not before it has begun
    to grow to it. Of those that may come, the one that has to come first does: so all of them come in time
    (Baruah et al., "Proportionate progress", Algorithmica 15, 1996).
    """
    common = math.gcd(*weights)
    least = [weight // common for weight in weights]
    length = sum(least)
    rows = sorted(
        (row * length // weight, -(-(row + 1) * length // weight), source)
        for source, weight in enumerate(least)
        for row in range(weight)
    )
    turns: list[int] = []
    may_come: list[tuple[int, int]] = []
    upcoming = iter([*rows, (length, length, 0)])
    begin, until, source = next(upcoming)
    for turn in range(length):
        while begin <= turn:
            heappush(may_come, (until, source))
            begin, until, source = next(upcoming)
        turns.append(heappop(may_come)[1])
    return turns


@dataclass(frozen=True, slots=True)
class MixedPart:
    """The places in the order of one source that belong to a part of the mixture; as `Part`.

    Attributes:
        mixture: of all.
        source: the number of this one.
        whole: the part of the mixture.
    """

    mixture: Mixture
    source: int
    whole: Part

    @property
    def num_rows(self) -> int:
        """How many places there are."""
        whole = self.whole
        # Steps repeat once they have begun at each turn of a round that they ever begin at.
        period = len(self.mixture.turns) // math.gcd(whole.step, len(self.mixture.turns))
        begins = whole.start + whole.step * np.arange(min(whole.num_steps, period))
        counts = self._count(begins + whole.begin, begins + whole.end)
        periods, rest = divmod(whole.num_steps, period)
        full = (periods * int(counts.sum()) if periods else 0) + int(counts[:rest].sum())
        last = np.array([whole.start + whole.step * whole.num_steps])
        return full + int(self._count(last + whole.last_begin, last + whole.last_end)[0])

    def _count(self, begins: Ints, ends: Ints) -> Ints:
        return self.mixture.rows_before(self.source, ends) - self.mixture.rows_before(self.source, begins)

    @property
    def bounds(self) -> tuple[int, int]:
        """The first place, or one before it, and the end of the last one."""
        first, last = self.mixture.rows_before(self.source, np.array(self.whole.bounds)).tolist()
        return first, last

    def holds(self, places: Ints) -> NDArray[np.bool_]:
        """Whether each of `places` belongs to it."""
        return self.whole.holds(self.mixture.place_of(self.source, places))

    def between(self, first: int, last: int) -> Ints:
        """The places that belong to it from `first` up to `last`."""
        places = np.arange(first, last)
        return places[self.holds(places)]
