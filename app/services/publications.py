"""Publications under way in this replica: each in a thread of its own, which outlives an impatient client.

Nothing is lost with them: what a publication has done is on the store, where any replica takes it up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, Final

from ..domain.manifest import Manifest
from ..domain.turns import waiting
from ..errors import Overloaded
from .deferred import settle

__all__ = ["Publications", "Publish", "Underway"]

#: Publishes; told to whom the version's name is to be announced, once it is fixed.
Publish = Callable[[Callable[[str], None]], Manifest]

#: Publications at a time; each holds the pieces of a shard in memory.
_CAPACITY: Final = 16
#: How long an outcome waits for the client that was told to come back.
_KEPT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Underway:
    """A publication that goes on. `version` is None until it is fixed."""

    version: str | None

    def to_json(self) -> dict[str, Any]:
        """What a client is told."""
        return {"state": "publishing", **({} if self.version is None else {"version": self.version})}

    def location(self, dataset: str) -> str:
        """Where the version will be, relative to the datasets; as long as it is not fixed, the versions."""
        return f"{dataset}/versions" if self.version is None else f"{dataset}/versions/{self.version}"


@dataclass(eq=False, slots=True)
class _Run:
    outcome: Future[Manifest] = field(default_factory=Future)
    version: str | None = None
    ended: float | None = None

    def announce(self, version: str) -> None:
        self.version = version

    def work(self, publish: Publish) -> None:
        settle(self.outcome, lambda: publish(self.announce))
        self.ended = time.monotonic()


class Publications:
    """Runs publications. Safe to use from several threads."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._running: set[_Run] = set()
        self._followed: dict[Hashable, _Run] = {}

    def run(self, request: Hashable, publish: Publish, *, name: str, exact: bool) -> Manifest | Underway:
        """Publish, or follow the publication that the same request began; wait for it, but not for long.

        Args:
            request: what tells it from others.
            publish: the work.
            name: of the thread.
            exact: whether only a repetition can be equal to `request`. Another is followed only once it
                has been answered as under way: else it may be a stranger's, with fewer rows in it.

        Raises:
            Overloaded: too many are under way (`too_many_publications`).
            ShardsmithError: as the work raises it.
        """
        with self._lock:
            run = self._followed.get(request) or self._start(publish, name)
            if exact:
                self._followed[request] = run
        with waiting():
            wait([run.outcome], self._wait_s)
        with self._lock:
            if not run.outcome.done():
                self._followed[request] = run
                return Underway(run.version)
            if self._followed.get(request) is run:
                del self._followed[request]
        return run.outcome.result()

    def require_room(self) -> None:
        """Refuse what would begin a publication, before it has done anything else.

        Raises:
            Overloaded: too many are under way (`too_many_publications`).
        """
        with self._lock:
            self._require_room()

    def _require_room(self) -> None:
        self._tidy()
        if len(self._running) >= _CAPACITY:
            raise Overloaded(
                f"{_CAPACITY} publications are under way in this replica. Try again.",
                code="too_many_publications",
            )

    def _start(self, publish: Publish, name: str) -> _Run:
        self._require_room()
        run = _Run()
        self._running.add(run)
        # A daemon: on shutdown it just dies, and another replica finishes what it began.
        threading.Thread(target=run.work, args=(publish,), name=name, daemon=True).start()
        return run

    def _tidy(self) -> None:
        self._running = {run for run in self._running if not run.outcome.done()}
        before = time.monotonic() - _KEPT_S
        self._followed = {
            request: run for request, run in self._followed.items() if run.ended is None or run.ended > before
        }
