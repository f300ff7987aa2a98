"""Division: how the rows that were appended to one split are dealt out to several.

Where a row goes follows from what the row is, by a seeded hash: so it goes there whoever asks and
however often, and no row that a version holds ever moves to another split in a later one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Division"]


@dataclass(frozen=True, slots=True)
class Division:
    """Deals out the rows appended to `source`; rows of other splits, and of the base, stay where they are.

    Attributes:
        source: the split whose rows are dealt out.
        fractions: how much of them each split gets, as exact decimals whose sum is 1.
        by: the feature whose value decides, so that equal values stay together; None: the row itself,
            which is its append and its place in it.
        seed: another seed deals otherwise.
    """

    source: str
    fractions: Mapping[str, str]
    by: str | None = None
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"source": self.source, "fractions": dict(self.fractions), "by": self.by, "seed": self.seed}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Division:
        return cls(value["source"], value["fractions"], value["by"], value["seed"])
