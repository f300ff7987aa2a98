"""How many connections there may be: who gives way when there are too many, and how probes get through.

At the cap, the connection that has been idle longest gives way to a new one. Where none has been idle for
long, all being at work or about to be, the new one is let in beside the cap, for one request: a probe is
answered, anything else is told to come again. Of those there are few, and the oldest gives way too. So
neither idle connections nor busy ones keep a probe out.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Final, Protocol

#: What is answered beside the cap.
PROBES: Final = frozenset({"/livez", "/readyz", "/startupz", "/v2/health/live", "/v2/health/ready"})

#: Idle for less, a connection may have its next request under way; uvicorn by default keeps them for 5 s.
_IDLE_S: Final = 5.0
#: Connections beside the cap.
_BESIDE: Final = 64


class Evictable(Protocol):
    """A connection that can be told to go."""

    #: Since when it has had no request to answer; None while it has.
    idle_since: float | None

    def evict(self) -> None:
        """Close at once."""


class Connections:
    """The open connections of one process. Times are those of the event loop, in seconds."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._counted: set[Evictable] = set()
        self._beside: dict[Evictable, None] = {}
        #: Whether the process is about to end: no connection is kept after its next answer, so that clients
        #: which come again are sent elsewhere.
        self.leaving = False

    @property
    def num_open(self) -> int:
        """Open connections, those beside the cap too."""
        return len(self._counted) + len(self._beside)

    def admit(self, connection: Evictable, now: float) -> bool:
        """Count a new connection; false where it is beside the cap."""
        if len(self._counted) >= self.limit and not self._make_room(now):
            if len(self._beside) >= _BESIDE:
                self._evict(next(iter(self._beside)))
            self._beside[connection] = None
            return False
        self._counted.add(connection)
        return True

    def forget(self, connection: Evictable) -> None:
        """It is closed, or about to be."""
        self._counted.discard(connection)
        self._beside.pop(connection, None)

    def _make_room(self, now: float) -> bool:
        # Looked for among all: that is rare, and every request would pay for keeping them in order.
        idle = [(one.idle_since, one) for one in self._counted if one.idle_since is not None]
        since, longest = min(idle, key=itemgetter(0), default=(now, None))
        if longest is None or now - since < _IDLE_S:
            return False
        self._evict(longest)
        return True

    def _evict(self, connection: Evictable) -> None:
        self.forget(connection)
        connection.evict()
