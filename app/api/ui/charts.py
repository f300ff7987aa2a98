"""Small charts: where the parts of an SVG lie. The macros of `charts.html` draw them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...services.convert.distribution import DistributionJson

#: Units of a chart's view box; an SVG scales them to its place.
WIDTH: Final = 600.0
HEIGHT: Final = 120.0
_WIDEST: Final = 28.0
#: Of a histogram with a bin for each whole number.
_MOST_BINS: Final = 64


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a chart, from its upper left corner, and what it says."""

    x: float
    y: float
    width: float
    height: float
    title: str


def bars(values: Sequence[float], titles: Sequence[str]) -> list[Bar]:
    """A bar for each value, from left to right; values are at least 0. The highest fills the chart."""
    if not values:
        return []
    step = min(WIDTH / len(values), _WIDEST)
    most = max(values) or 1
    found = []
    for at, (value, title) in enumerate(zip(values, titles, strict=True)):
        height = max(HEIGHT * value / most, 1.0 if value else 0.0)
        width = max(step - 2, step * 0.7)
        found.append(
            Bar(round(at * step, 2), round(HEIGHT - height, 2), round(width, 2), round(height, 2), title)
        )
    return found


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram of one side, or of two on the same axis.

    Attributes:
        title: what is counted.
        description: the same in words.
        bars: of the first side: the share of its values in each bin.
        line: of the second side, as points of a stepped line; empty without one.
        low, high: the ends of the axis.
        is_exact: no bin was estimated.
        only: the one value that is there, if there is no other: that takes no picture.
    """

    title: str
    description: str
    bars: list[Bar]
    line: str
    low: str
    high: str
    is_exact: bool
    only: str


def histogram(
    title: str,
    spreads: Sequence[DistributionJson | None],
    counted: Sequence[Sequence[tuple[float, int]] | None],
    sides: Sequence[str],
    *,
    is_whole: bool,
    number: Callable[[float], str],
) -> Histogram | None:
    """One or two distributions as a histogram; None where no side has one.

    Args:
        counted: of each side all values and their counts, if they are known: these fit any bins.
        is_whole: the values are whole numbers.
    """
    known = [_unfold(spread, is_whole=is_whole) for spread in spreads if spread is not None]
    if not known:
        return None
    edges = known[0][0] if len(known) == 1 else _common_edges(known, is_whole=is_whole)
    shares = [
        None if spread is None else _shares(_unfold(spread, is_whole=is_whole), values, edges)
        for spread, values in zip(spreads, counted, strict=True)
    ]
    has_units = is_whole and len(edges) > 1 and bool(np.all(np.diff(edges) == 1))
    names = [
        number(low) if has_units or low == high else f"{number(low)} to {number(high)}"
        for low, high in pairwise(edges.tolist())
    ]
    most = max(float(each.max()) for each in shares if each is not None) or 1.0
    first = shares[0]
    titles = [
        f"{name}: " + ", ".join(_part(side, each, place) for side, each in zip(sides, shares, strict=True))
        for place, name in enumerate(names)
    ]
    step = WIDTH / len(names)
    drawn = [] if first is None else first.tolist()
    return Histogram(
        title,
        _in_words(names, shares, sides),
        [
            Bar(
                round(at * step, 2),
                round(HEIGHT - _height(share / most), 2),
                round(step - min(1.5, step / 4), 2),
                round(_height(share / most), 2),
                titles[at],
            )
            for at, share in enumerate(drawn)
        ],
        "" if len(shares) == 1 or shares[1] is None else _stepped((shares[1] / most).tolist(), step),
        number(edges[0].item()),
        number(edges[-1].item() - (1 if has_units else 0)),
        all(spread is None or spread["exact"] for spread in spreads),
        names[0] if len(names) == 1 else "",
    )


def _height(share: float) -> float:
    return max(HEIGHT * share, 1.0 if share else 0.0)


def _part(side: str, shares: NDArray[np.float64] | None, place: int) -> str:
    share = 0.0 if shares is None else float(shares[place])
    return f"{side} {share:.1%}".strip()


def _in_words(
    names: Sequence[str], shares: Sequence[NDArray[np.float64] | None], sides: Sequence[str]
) -> str:
    told = []
    for side, each in zip(sides, shares, strict=True):
        if each is not None:
            place = int(each.argmax())
            told.append(f"{side}: most in {names[place]}, {each[place]:.1%}".removeprefix(": "))
    return f"{len(names)} bins. {'; '.join(told)}."


def _stepped(heights: Sequence[float], step: float) -> str:
    points = [f"0,{HEIGHT:g}"]
    for at, share in enumerate(heights):
        y = round(HEIGHT - _height(share), 2)
        points += [f"{at * step:.2f},{y:g}", f"{(at + 1) * step:.2f},{y:g}"]
    return " ".join([*points, f"{WIDTH:g},{HEIGHT:g}"])


_Bins = tuple[NDArray[np.float64], NDArray[np.float64]]


def _unfold(spread: DistributionJson, *, is_whole: bool) -> _Bins:
    """Edges and counts; a whole number that is alone has a bin as wide as those of others."""
    edges, counts = np.array(spread["edges"], np.float64), np.array(spread["counts"], np.float64)
    if is_whole and len(edges) == 2 and edges[0] == edges[1]:
        edges[1] += 1
    return edges, counts


def _common_edges(known: Sequence[_Bins], *, is_whole: bool) -> NDArray[np.float64]:
    low, high = min(float(edges[0]) for edges, _ in known), max(float(edges[-1]) for edges, _ in known)
    if low == high:
        return np.array([low, high])
    if is_whole and high - low <= _MOST_BINS and all(np.all(np.diff(edges) == 1) for edges, _ in known):
        return np.arange(low, high + 1)
    # Half of each, because float64 may not hold how far they are apart.
    edges = np.linspace(low / 2, high / 2, max(len(counts) for _, counts in known) + 1) * 2
    edges[0], edges[-1] = low, high
    return edges


def _shares(
    bins: _Bins, counted: Sequence[tuple[float, int]] | None, edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The share of the values in each bin between `edges`; within a bin of its own they lie evenly."""
    own_edges, counts = bins
    if np.array_equal(own_edges, edges):
        found = counts
    elif counted is not None:
        values, weights = zip(*counted, strict=True)
        found = np.histogram(values, edges, weights=weights)[0]
    elif own_edges[0] == own_edges[-1]:
        found = np.histogram(own_edges[:1], edges, weights=counts)[0]
    else:
        ends = np.concatenate(([0.0], np.cumsum(counts)))
        found = np.diff(np.interp(edges, own_edges, ends))
    shares: NDArray[np.float64] = found / max(1.0, float(counts.sum()))
    return shares
