"""When Python looks for cycles that nothing refers to any more: while no request waits for it.

All threads stand still meanwhile, as long as there are objects to look at: with large bodies of JSON under
way that took up to 0.7 s at a time. What requests leave behind is freed without that, but for a few cycles.
"""

from __future__ import annotations

import gc
import time
from typing import Final

#: With Python's 700 a tenth of the time of small appends went into looking for cycles, of which they make
#: none. Only the youngest objects are looked at unasked: what survives is the values of some body.
_THRESHOLDS: Final = (10_000, 1_000_000, 1_000_000)
#: Between two looks at everything, where nothing is under way; and where something always is.
_IDLE_S: Final = 10.0
_BUSY_S: Final = 600.0


def collect_when_idle() -> None:
    """Set up."""
    keep_what_is_loaded()
    gc.set_threshold(*_THRESHOLDS)


def keep_what_is_loaded() -> None:
    """What there is by now is not looked at again: the objects of numba alone take 50 ms each time.

    What is garbage by then would be kept for good.
    """
    gc.collect()
    gc.freeze()


class Garbage:
    """Looks for cycles now and then."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def collect(self, *, idle: bool) -> None:
        """Look, if it is time to; `idle` where no request is under way."""
        now = time.monotonic()
        if now - self._last < (_IDLE_S if idle else _BUSY_S):
            return
        self._last = now
        _, survived, _ = gc.get_count()
        if survived:
            gc.collect()
