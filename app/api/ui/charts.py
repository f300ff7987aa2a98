"""Small charts: where the parts of an SVG lie. The macros of `charts.html` draw them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: Units of a chart's view box; an SVG scales them to its place.
WIDTH: Final = 600.0
HEIGHT: Final = 120.0
_WIDEST: Final = 28.0


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
