"""How much this process has acknowledged lately. Nothing else knows: the store is not asked for it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

#: Seconds that are kept.
KEPT_S: Final = 60


class Amount(NamedTuple):
    """Of appends, in some time."""

    num_appends: int = 0
    num_records: int = 0

    def plus(self, other: Amount) -> Amount:
        """Both together."""
        return Amount(self.num_appends + other.num_appends, self.num_records + other.num_records)


class RecentAppends:
    """What was acknowledged in each of the last seconds, by dataset. Safe to use from several threads.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seconds: deque[tuple[int, dict[str, Amount]]] = deque()

    def add(self, dataset: str, amount: Amount) -> None:
        """Note appends."""
        with self._lock:
            now = self._forget()
            if not self._seconds or self._seconds[-1][0] != now:
                self._seconds.append((now, {}))
            of_second = self._seconds[-1][1]
            of_second[dataset] = of_second.get(dataset, Amount()).plus(amount)

    @property
    def datasets(self) -> Collection[str]:
        """Those that were appended to."""
        with self._lock:
            self._forget()
            return {dataset for _, of_second in self._seconds for dataset in of_second}

    def by_second(self, datasets: Collection[str]) -> Sequence[Amount]:
        """What these datasets had in each of the last `KEPT_S` whole seconds, oldest first."""
        with self._lock:
            now = self._forget()
            found = [Amount()] * KEPT_S
            for second, of_second in self._seconds:
                if second < now:  # the one that is under way would look like a pause
                    for dataset in datasets:
                        place = second - now + KEPT_S
                        found[place] = found[place].plus(of_second.get(dataset, Amount()))
            return found

    def _forget(self) -> int:
        now = int(self._clock())
        while self._seconds and self._seconds[0][0] < now - KEPT_S:
            self._seconds.popleft()
        return now
