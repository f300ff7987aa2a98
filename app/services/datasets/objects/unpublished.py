"""Which dataset has waited longest for a publication, as far as this process knows.

What this process acknowledges is noted here, and what collection finds. What other replicas acknowledge and
publish is not told to it. So `oldest` is looked up on the store now and then, before it is believed.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import NamedTuple

from .layout import Layout


class Acknowledged(NamedTuple):
    """An acknowledged append: when, in seconds since 1970, and its id."""

    at: float
    append_id: str


@dataclass(slots=True)
class _Waiting:
    first: Acknowledged
    last: Acknowledged


class Unpublished:
    """The oldest and the newest append of each dataset that may be in no version. Safe to use from threads.

    Attributes:
        changed: set when something may have been published.
        is_watched: somebody looks up what is noted. Until then nothing is, since it would stay for ever.
    """

    def __init__(self) -> None:
        self.changed = threading.Event()
        self.is_watched = False
        self._lock = threading.Lock()
        self._waiting: dict[Layout, _Waiting] = {}

    def add(self, layout: Layout, append: Acknowledged) -> None:
        """Note an append that no version can hold yet."""
        if not self.is_watched:
            return
        with self._lock:
            waiting = self._waiting.get(layout)
            if waiting is None:
                self._waiting[layout] = _Waiting(append, append)
                return
            waiting.first = min(waiting.first, append)
            waiting.last = max(waiting.last, append)

    def oldest(self) -> tuple[Layout, Acknowledged, Acknowledged] | None:
        """The dataset that has waited longest, with its first and last append; None if none waits."""
        with self._lock:
            found = min(self._waiting.items(), key=lambda item: item[1].first, default=None)
            return None if found is None else (found[0], found[1].first, found[1].last)

    def forget_until(self, layout: Layout, append: Acknowledged) -> None:
        """All appends of the dataset up to this one are published, or gone."""
        with self._lock:
            waiting = self._waiting.get(layout)
            if waiting is None:
                return
            if waiting.last <= append:
                del self._waiting[layout]
            else:
                # Which came between is not known; the newest is one that is not published.
                waiting.first = waiting.last

    @property
    def age_s(self) -> float:
        """Seconds since the oldest was acknowledged; 0 if none waits."""
        found = self.oldest()
        return 0.0 if found is None else max(0.0, time.time() - found[1].at)
