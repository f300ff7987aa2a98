"""The memory that all requests together may hold, and the share of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from ..errors import LimitExceeded, Overloaded, StreamInterrupted
from .tally import Tally
from .turns import offer_turn, waiting

#: How long a request that has begun waits for memory: as long as for a worker.
_LONGEST_WAIT_S: Final = 10.0
#: Releases of other processes are not announced, and are looked for so often.
_LOOK_EVERY_S: Final = 0.05
#: A share grows and shrinks in steps, so that most charges need no lock.
_STEP: Final = 1024 * 1024
#: At most this share of the pool may stay with the allocator as freed memory before more is handed out.
_LARGEST_UNUSED: Final = 0.25
#: Memory that a request could do without is taken while so many times as much is free.
_SPARE: Final = 8


_TAKEN: Final = "The memory for requests is taken; nothing was done. Try again."


class MemoryPool:
    """At most `max_bytes` for all shares together. Safe to use from several threads.

    If there is no room, a request that has not begun is refused, and one that has begun waits for a while. If
    all that have begun wait, none would ever release anything. Then the youngest of them is refused, so that
    the others can finish.

    Args:
        max_bytes: over all shares, those of other processes with the same tally included.
        return_unused: makes the allocator return freed memory to the system.
        taken: counts the bytes of all shares.
    """

    def __init__(
        self,
        max_bytes: int,
        return_unused: Callable[[], None] = lambda: None,
        taken: Tally | None = None,
    ) -> None:
        self.max_bytes = max_bytes
        self._return_unused = return_unused
        self._taken = taken or Tally()
        #: Bytes released since the allocator was last asked to return memory.
        self._freed = 0
        self._changed = threading.Condition()
        self._begun: set[MemoryShare] = set()
        self._waiting: list[MemoryShare] = []

    @property
    def used(self) -> int:
        """Bytes of all shares of this process."""
        return self._taken.own

    @property
    def num_waiting(self) -> int:
        """Requests that wait for memory."""
        return len(self._waiting)

    def share(self, *, max_seconds: float = float("inf")) -> MemoryShare:
        """A new, empty share for one request.

        Args:
            max_seconds: how long the request may take from now on.
        """
        return MemoryShare(self, max_seconds)

    def reserve(self, share: MemoryShare, num_bytes: int) -> None:
        """Take memory for a request that has not begun.

        Raises:
            Overloaded: there is no room.
        """
        with self._changed:
            if not self._take(share, num_bytes):
                raise Overloaded(_TAKEN, short="memory")

    def reserve_spare(self, share: MemoryShare, num_bytes: int) -> bool:
        """Take memory if several times as much is free; whether it was taken."""
        with self._changed:
            if self._taken.total + _SPARE * num_bytes > self.max_bytes:
                return False
            return self._take(share, num_bytes)

    def grow(self, share: MemoryShare, num_bytes: int) -> None:
        """Take memory for a request that computes, or wait for it.

        Raises:
            Overloaded: there is no room, and none came in time.
            StreamInterrupted: the request was given up.
        """
        if self._freed > _LARGEST_UNUSED * self.max_bytes:
            self._freed = 0  # without the lock: at worst two threads ask the allocator
            self._return_unused()
        with self._changed:
            if self._take_step(share, num_bytes):
                self._begun.add(share)
                return
            if share not in self._begun:
                raise Overloaded(_TAKEN, short="memory")
        with waiting(), self._changed:  # in this order: a thread that waits for a turn must not hold the lock
            self._wait_for_room(share, num_bytes)

    def _take_step(self, share: MemoryShare, num_bytes: int) -> bool:
        """Take `num_bytes`, and where that is less than a step and there is room a whole one."""
        return (num_bytes < _STEP and self._take(share, _STEP)) or self._take(share, num_bytes)

    def _take(self, share: MemoryShare, num_bytes: int) -> bool:
        """Take `num_bytes` if there is room."""
        if not self._taken.add(num_bytes, self.max_bytes):
            return False
        share.held += num_bytes
        return True

    def _wait_for_room(self, share: MemoryShare, num_bytes: int) -> None:
        give_up = time.monotonic() + _LONGEST_WAIT_S
        self._waiting.append(share)
        try:
            if self._nobody_works():
                self._changed.notify_all()  # the youngest may be asleep
            while not self._take_step(share, num_bytes):
                left = give_up - time.monotonic()
                if left <= 0 or (self._nobody_works() and share is max(self._waiting, key=_began)):
                    raise Overloaded(
                        "The memory for requests is taken; the request was given up. Try again.",
                        short="memory",
                    )
                self._changed.wait(min(left, _LOOK_EVERY_S) if self._taken.is_shared else left)
                share.require_open()
        finally:
            self._waiting.remove(share)

    def _nobody_works(self) -> bool:
        return self._begun.issubset(self._waiting) and not self._taken.of_others

    def shrink(self, share: MemoryShare, num_bytes: int) -> None:
        """Take `num_bytes` back from a share."""
        with self._changed:
            self._take_back(share, min(num_bytes, share.held))

    def retain_for(self, share: MemoryShare) -> None:
        """Add a holder."""
        with self._changed:
            share.holders += 1

    def end_for(self, share: MemoryShare) -> None:
        """Remove a holder; after the last one, take everything back."""
        with self._changed:
            share.holders -= 1
            if share.holders:
                return
            self._begun.discard(share)
            self._take_back(share, share.held)

    def _take_back(self, share: MemoryShare, num_bytes: int) -> None:
        self._taken.remove(num_bytes)
        self._freed += num_bytes
        share.held -= num_bytes
        self._changed.notify_all()


class MemoryShare:
    """The memory of one request, from before it begins until it ends.

    Only one thread at a time may charge it. It also limits time: if the request has taken too long or was
    given up, the next charge fails.
    """

    def __init__(self, pool: MemoryPool, max_seconds: float) -> None:
        self._pool = pool
        self._max_seconds = max_seconds
        self.began = time.monotonic()
        #: Bytes taken from the pool, and how many parts of the program hold them. Only the pool changes
        #: these.
        self.held, self.holders = 0, 1
        self._reserved = 0
        self._charged = 0
        self._given_up = False

    @property
    def max_bytes(self) -> int:
        """Bytes that all shares together may take."""
        return self._pool.max_bytes

    def reserve(self, num_bytes: int) -> None:
        """Take, without waiting, what the request needs from before it begins until it ends.

        A share reserves at most half of the pool, however much is asked for: a replica with little memory has
        to be able to read everything that is stored.

        Raises:
            Overloaded: there is no room.
        """
        num_bytes = min(num_bytes, self.max_bytes // 2 - self._reserved)
        if num_bytes > 0:
            self._pool.reserve(self, num_bytes)
            self._reserved += num_bytes

    def reserve_spare(self, num_bytes: int) -> bool:
        """Reserve memory that the request can do without, while a great deal is free; whether that is so."""
        is_taken = self._pool.reserve_spare(self, num_bytes)
        self._reserved += num_bytes if is_taken else 0
        return is_taken

    def release_reserved(self, num_bytes: int) -> None:
        """Release reserved bytes that are not needed any more, and all that is held beyond the rest."""
        self._reserved -= min(num_bytes, self._reserved)
        surplus = self.held - self._reserved - self._charged
        if surplus > 0:  # unless the share has ended
            self._pool.shrink(self, surplus)

    def charge(self, num_bytes: int) -> None:
        """Take `num_bytes` more, and wait for them if necessary.

        Raises:
            Overloaded: there is no room, and none came in time.
            LimitExceeded: the request has taken too long (`time_limit`).
            StreamInterrupted: it was given up.
        """
        self.require_open()
        offer_turn()
        missing = self._reserved + self._charged + num_bytes - self.held
        if missing > 0:
            self._pool.grow(self, missing)
        self._charged += num_bytes

    def release(self, num_bytes: int) -> None:
        """Release bytes that were charged."""
        self._charged -= num_bytes
        surplus = self.held - self._reserved - self._charged
        if surplus > 2 * _STEP:
            self._pool.shrink(self, surplus - _STEP)

    def require_open(self) -> None:
        """Stop work that has taken too long or is no longer wanted. Call this between two steps.

        Raises:
            LimitExceeded: the request has taken too long (`time_limit`).
            StreamInterrupted: it was given up.
        """
        self.require_not_given_up()
        if time.monotonic() - self.began > self._max_seconds:
            raise LimitExceeded(
                f"The request took more than {self._max_seconds:g} s. Send it in smaller pieces.",
                code="time_limit",
            )

    def require_not_given_up(self) -> None:
        """Stop work that is no longer wanted. Call this between steps of work that may outlast a request.

        Raises:
            StreamInterrupted: the request was given up.
        """
        if self._given_up:
            raise StreamInterrupted("The request was given up.")

    def give_up(self) -> None:
        """Note that the answer is no longer wanted."""
        self._given_up = True

    def retain(self) -> None:
        """Add a holder of the share, who has to call `end` later."""
        self._pool.retain_for(self)

    def end(self) -> None:
        """Remove a holder; after the last one, release everything."""
        self._pool.end_for(self)


def _began(share: MemoryShare) -> float:
    return share.began
