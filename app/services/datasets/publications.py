"""Publications under way in this replica: each in a thread of its own, which outlives an impatient client.

Nothing is lost with them: what a publication has done is on the store, where any replica takes it up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, NotRequired

from typing_extensions import TypedDict

from ...domain.manifest import Manifest
from ...errors import Overloaded
from ...runtime.memory import MemoryPool
from ...runtime.turns import waiting
from ..deferred import settle
from .append.result import AppendJson
from .publish.room import ROOM_BYTES, Room

#: Publishes; told to whom the version's name is to be announced, once it is fixed, and where there is room.
Publish = Callable[[Callable[[str], None], Room], Manifest]

#: Publications at a time, where there is memory for so many: they share the threads that talk to the store.
_CAPACITY: Final = 16
#: How long an outcome waits for the client that was told to come back.
_KEPT_S: Final = 600.0


class UnderwayJson(TypedDict):
    """A publication that goes on; `version` comes once it is fixed, `append` where rows came along."""

    dataset: str
    state: Literal["publishing"]
    version: NotRequired[str]
    append: NotRequired[AppendJson]


@dataclass(frozen=True, slots=True)
class Underway:
    """A publication that goes on. `version` is None until it is fixed."""

    version: str | None

    def to_json(self, dataset: str) -> UnderwayJson:
        """What a client is told."""
        told: UnderwayJson = {"dataset": dataset, "state": "publishing"}
        if self.version is not None:
            told["version"] = self.version
        return told


@dataclass(eq=False, slots=True)
class _Run:
    dataset: str
    room: Room
    outcome: Future[Manifest] = field(default_factory=Future)
    version: str | None = None
    ended: float | None = None

    def announce(self, version: str) -> None:
        self.version = version

    def work(self, publish: Publish) -> None:
        try:
            settle(self.outcome, lambda: publish(self.announce, self.room))
        finally:
            self.room.end()
            self.ended = time.monotonic()


class Publications:
    """Runs publications. Safe to use from several threads.

    Args:
        wait_s: how long who asks for one waits for it.
        memory: what all requests may hold, of which each takes its room before it begins.
    """

    def __init__(self, wait_s: float, memory: MemoryPool) -> None:
        self._wait_s = wait_s
        self._memory = memory
        self._lock = threading.Lock()
        self._running: set[_Run] = set()
        self._followed: dict[Hashable, _Run] = {}

    def run(
        self, request: Hashable, publish: Publish, *, dataset: str, exact: bool, room: Room | None = None
    ) -> Manifest | Underway:
        """Publish, or follow the publication that the same request began; wait for it, but not for long.

        Args:
            request: what tells it from others.
            publish: the work.
            dataset: that is published.
            exact: whether only a repetition can be equal to `request`. Another is followed only once it
                has been answered as under way: else it may be a stranger's, with fewer rows in it.
            room: what `reserve` gave for it; taken now where it is not given.

        Raises:
            Overloaded: too many are under way (`too_many_publications`), or there is no memory.
            ShardsmithError: as the work raises it.
        """
        with self._lock:
            run = self._followed.get(request) or self._start(publish, dataset, room)
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

    @property
    def num_running(self) -> int:
        """Publications under way."""
        return len(self.under_way())

    def under_way(self) -> Sequence[tuple[str, str | None]]:
        """The dataset and the version of each publication under way; None until that is fixed."""
        with self._lock:
            return sorted(
                ((run.dataset, run.version) for run in self._running if not run.outcome.done()), key=str
            )

    def reserve(self) -> Room:
        """Room for a publication, before who asks for it does anything else; to be ended by the caller.

        Raises:
            Overloaded: too many are under way (`too_many_publications`), or there is no memory.
        """
        with self._lock:
            return self._reserve()

    def _reserve(self) -> Room:
        self._tidy()
        if len(self._running) >= _CAPACITY:
            raise Overloaded(
                f"{_CAPACITY} publications are under way in this replica. Try again.",
                code="too_many_publications",
                short="publications",
            )
        # Beside one, no more than leave half of the memory to all other requests.
        held = sum(run.room.num_bytes for run in self._running)
        if held and held + ROOM_BYTES > self._memory.max_bytes // 2:
            raise Overloaded(
                "The memory for publications is taken in this replica. Try again.",
                code="too_many_publications",
                short="memory",
            )
        return Room(self._memory)

    def _start(self, publish: Publish, dataset: str, room: Room | None) -> _Run:
        run = _Run(dataset, self._reserve() if room is None else room.retain())
        try:
            # A daemon: on shutdown it just dies, and another replica finishes what it began.
            work = partial(copy_context().run, run.work, publish)
            threading.Thread(target=work, name=f"publish-{dataset}", daemon=True).start()
        except RuntimeError:  # the system gives no more threads
            run.room.end()
            raise
        self._running.add(run)
        return run

    def _tidy(self) -> None:
        self._running = {run for run in self._running if not run.outcome.done()}
        before = time.monotonic() - _KEPT_S
        self._followed = {
            request: run for request, run in self._followed.items() if run.ended is None or run.ended > before
        }
