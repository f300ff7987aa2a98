"""Which features of some rows were rounded when they were stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True)
class RoundedFeatures:
    """The features with at least one rounded value, as the encoder finds them.

    Attributes:
        with_rows: also note in which rows, for bodies of few rows.
        owners: the feature of each list that is stored under a name of its own.
        candidates: the features of which values may be rounded, known before any value is.
        rows: feature -> the rows with a rounded value, in one array a batch; none without `with_rows`.
    """

    with_rows: bool = False
    owners: Mapping[str, str] = field(default_factory=dict)
    candidates: Sequence[str] = ()
    rows: dict[str, list[NDArray[np.int64]]] = field(default_factory=dict)

    def add(self, feature: str, rows: NDArray[np.int64] | None) -> None:
        """Add a feature, or one of the lists that it is stored as."""
        found = self.rows.setdefault(self.owners.get(feature, feature), [])
        if rows is not None:
            found.append(rows)

    @property
    def names(self) -> list[str]:
        """The features, sorted."""
        return sorted(self.rows)

    def names_between(self, first: int, last: int) -> list[str]:
        """The features with a rounded value in the rows from `first` up to `last`; needs `with_rows`."""
        return [
            name
            for name in self.names
            if any(((first <= rows) & (rows < last)).any() for rows in self.rows[name])
        ]
