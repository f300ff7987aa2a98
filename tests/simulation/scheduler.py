"""Who runs next, and when: greenlets under a seeded scheduler, in virtual time.

Each step of an actor is one request to the simulated store. Before it, the scheduler may hand over
to another actor, let time pass, pause the actor for days, or kill its replica.
"""

from __future__ import annotations

import math
import random
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

import greenlet

from tests.support.faulty_store import Killed

__all__ = ["DAY", "HOUR", "Actor", "Event", "GreenletExecutor", "Process", "Scheduler", "StepLimit"]

ResultT = TypeVar("ResultT")

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
#: A request that lived longer is killed; what it sent lands `_LONGEST_FLIGHT_S` later at most. The
#: protocol forgets a slot seven days after its end, so these two stay well below that together.
_LONGEST_REQUEST_S: Final = 2 * DAY
LONGEST_FLIGHT_S: Final = 2 * DAY
_MAX_STEPS: Final = 60_000
_EPOCH: Final = 1_700_000_000.0

Happening = Literal["kill", "pause", "crowd"]


class StepLimit(Exception):
    """The run does not come to an end."""


@dataclass
class Process:
    """One life of a replica: its clock is off by `skew` seconds."""

    name: str
    skew: float
    dead: bool = False


class Actor:
    """One client, or one thread of a process, in a greenlet of its own.

    Attributes:
        process: that serves the request under way.
        since: when that request began.
    """

    def __init__(
        self, name: str, run: Callable[[], None], now: float, process: Process | None, hub: greenlet.greenlet
    ) -> None:
        self.name = name
        self.wake = self.since = now
        self.process = process
        self.greenlet = greenlet.greenlet(run, hub)


@dataclass(frozen=True, slots=True)
class Event:
    """What happens at the `count`-th request of a kind; `seconds` is how long a pause takes."""

    happening: Happening
    count: int
    seconds: float


@dataclass
class _Flight:
    """A request that left a process and has not reached the store."""

    due: float
    land: Callable[[], None]


@dataclass
class Scheduler:
    """Runs actors until all are done.

    Attributes:
        switching: how likely another actor goes on at a step.
        events: what happens to whom, by the kind of request and by `any`.
        trace: told of every step, for a replay.
    """

    rng: random.Random
    switching: float = 0.5
    latency: float = 0.02
    events: dict[str, list[Event]] = field(default_factory=dict)
    trace: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self.now = _EPOCH
        self.steps = 0
        self.kills = 0
        self.current: Actor | None = None
        self._hub = greenlet.getcurrent()
        self._actors: list[Actor] = []
        self._flights: list[_Flight] = []
        self._counts: Counter[str] = Counter()
        self.calm = False

    def spawn(self, name: str, run: Callable[[], None], process: Process | None = None) -> None:
        self._actors.append(Actor(name, run, self.now, process, self._hub))

    def fly(self, land: Callable[[], None]) -> None:
        """Let a request reach the store some time later."""
        delay = self.rng.choice((0.1, 3.0, 20.0, 100.0, 2 * HOUR, 26 * HOUR, LONGEST_FLIGHT_S))
        self._flights.append(_Flight(self.now + delay * self.rng.random(), land))

    def run(self) -> None:
        """Until every actor has come to its end."""
        while self._actors:
            self._turn()

    def await_(self, future: Future[Any]) -> None:
        """Let others go on until `future` is done."""
        actor = self.current
        if actor is None:  # all is calm
            while not future.done():
                self._turn()
            return
        while not future.done():
            actor.wake = math.inf
            future.add_done_callback(lambda _: self._wake(actor))
            self._hub.switch()
            self._check(actor)

    def _wake(self, actor: Actor) -> None:
        actor.wake = min(actor.wake, self.now)

    def settle(self) -> None:
        """Let every request under way land, or be lost."""
        while self._flights:
            flight = self._flights.pop(self.rng.randrange(len(self._flights)))
            self.now = max(self.now, flight.due)
            if self.rng.random() < 0.8:
                flight.land()

    def _turn(self) -> None:
        ready: list[Actor | _Flight] = [actor for actor in self._actors if actor.wake <= self.now]
        if self._flights:
            ready += [flight for flight in self._flights if flight.due <= self.now]
        if not ready:
            moments = [actor.wake for actor in self._actors]
            moments += [flight.due for flight in self._flights]
            self.now = min(moments, default=math.inf)
            if self.now == math.inf:
                raise StepLimit("everybody waits for somebody else")
            return
        chosen = ready[int(self.rng.random() * len(ready))]
        if isinstance(chosen, _Flight):
            self._flights.remove(chosen)
            chosen.land()
            return
        self.current = chosen
        chosen.greenlet.switch()
        self.current = None
        if chosen.greenlet.dead:
            self._actors.remove(chosen)

    def sleep(self, seconds: float) -> None:
        """`time.sleep` of the current actor."""
        actor = self.current
        if actor is None:
            self.run()  # threads that nobody waits for
            self.now += seconds
            return
        if seconds <= 0:
            return
        actor.wake = self.now + seconds
        self._hub.switch()
        self._check(actor)

    def step(self, kind: str, what: str) -> None:
        """One request of the current actor's process, before it takes effect.

        Raises:
            Killed: the process is gone.
        """
        self.steps += 1
        self.now += self.latency * self.rng.random()
        actor = self.current
        if actor is None:
            return
        if self.trace is not None:
            process = actor.process.name if actor.process else "-"
            self.trace(f"{self.now - _EPOCH:12.2f} {actor.name:>10} {process:>4} {kind:<18} {what}")
        if self.steps > _MAX_STEPS:
            raise StepLimit(f"no end after {self.steps} steps")
        if self.events and not self.calm:
            self._happen(actor, kind)
        if actor.wake > self.now or self.rng.random() < self.switching:
            self._hub.switch()
        self._check(actor)

    def kill(self, process: Process) -> None:
        process.dead = True
        self.kills += 1
        for actor in self._actors:
            if actor.process is process:
                actor.wake = self.now
        if self.trace is not None:
            self.trace(f"{self.now - _EPOCH:12.2f} {'':>10} {process.name:>4} KILLED")

    def _check(self, actor: Actor) -> None:
        process = actor.process
        if process is None:
            return
        if self.now - actor.since > _LONGEST_REQUEST_S and not process.dead:
            self.kill(process)
        if process.dead:
            raise Killed

    def _happen(self, actor: Actor, kind: str) -> None:
        for counted in (kind, "any"):
            due = self.events.get(counted)
            if due is None:
                continue
            self._counts[counted] += 1
            for event in due:
                if event.count == self._counts[counted]:
                    self._apply(event, actor)

    def _apply(self, event: Event, actor: Actor) -> None:
        if self.trace is not None:
            self.trace(f"{self.now - _EPOCH:12.2f} {actor.name:>10} {event.happening} {event.seconds:.0f} s")
        if event.happening == "kill":
            if actor.process is not None:
                self.kill(actor.process)
        elif event.happening == "pause":
            actor.wake = self.now + event.seconds
        else:
            self.now += event.seconds

    @contextmanager
    def clocks(self) -> Iterator[None]:
        """Time and chance come from here, for the code under test too."""
        rng = self.rng

        def time_ns() -> int:
            process = self.current.process if self.current is not None else None
            return int((self.now + (process.skew if process else 0.0)) * 1e9)

        kept = (time.sleep, time.monotonic, time.time_ns, secrets.token_hex, random.uniform)
        time.sleep = self.sleep  # type: ignore[assignment]
        time.monotonic = lambda: self.now
        time.time_ns = time_ns
        secrets.token_hex = lambda nbytes=None: rng.randbytes(nbytes or 32).hex()
        random.uniform = rng.uniform
        try:
            yield
        finally:
            time.sleep, time.monotonic, time.time_ns, secrets.token_hex, random.uniform = kept


class _Result(Future[ResultT]):
    """A future that others go on during a wait for; without the locks of one for threads."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._callbacks: list[Callable[[Future[ResultT]], object]] = []
        self._error: BaseException | None = None
        self._value: ResultT | None = None
        self._is_done = False

    def done(self) -> bool:
        return self._is_done

    def result(self, timeout: float | None = None) -> ResultT:
        if not self._is_done:
            self._scheduler.await_(self)
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self._is_done:
            self._scheduler.await_(self)
        return self._error

    def cancel(self) -> bool:
        return False

    def add_done_callback(self, fn: Callable[[Future[ResultT]], object]) -> None:
        if self._is_done:
            fn(self)
        else:
            self._callbacks.append(fn)

    def run(self, function: Callable[..., ResultT], args: Any, kwargs: Any) -> None:
        try:
            self._value = function(*args, **kwargs)
        except BaseException as error:  # handed to whoever waits, as a thread does
            self._error = error
        self._is_done = True
        for callback in self._callbacks:
            callback(self)


class GreenletExecutor(ThreadPoolExecutor):
    """An executor whose threads are actors of a process, so that their requests are scheduled too."""

    def __init__(self, scheduler: Scheduler, process: Process, num_threads: int) -> None:
        super().__init__(1)
        self._scheduler = scheduler
        self._process = process
        self._idle = num_threads
        self._waiting: deque[Callable[[], None]] = deque()

    def submit(self, function: Callable[..., ResultT], /, *args: Any, **kwargs: Any) -> Future[ResultT]:
        future: _Result[ResultT] = _Result(self._scheduler)
        self._waiting.append(lambda: future.run(function, args, kwargs))
        if self._idle:
            self._idle -= 1
            self._scheduler.spawn(f"{self._process.name} thread", self._thread, self._process)
        return future

    def _thread(self) -> None:
        while self._waiting:
            self._waiting.popleft()()
        self._idle += 1
