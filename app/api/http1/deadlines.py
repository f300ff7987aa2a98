"""Until when a client has to do what is its turn to do.

One timer a connection: it is set anew only where it would ring too late, so that a request which arrives in
one piece and is answered at once costs no timer.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import socket
import struct
from collections.abc import Callable
from typing import Final

from .allowance import NEVER, Allowance
from .limits import ConnectionLimits

#: How often a client that does not take its answer is looked at; Kestrel's heartbeat is 1 s.
_LOOK_S: Final = 1.0
#: How long after a deadline a client is given up, unless it turns out to have kept it.
_SECOND_LOOK_S: Final = 0.05
#: What the event loop's clock is short of a timer that rings.
_CLOCK_S: Final = 0.002
#: The size of an int in C.
_INT_BYTES: Final = 4


class Deadlines:
    """Of one connection; times are those of the event loop, in seconds.

    Args:
        on_overdue: called when the client has not sent in time what it had to.
        on_not_taking: called when it has taken too little of its answer, before it is cut.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: ConnectionLimits,
        on_overdue: Callable[[], None],
        on_not_taking: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._on_overdue = on_overdue
        self._on_not_taking = on_not_taking
        self._transport: asyncio.Transport | None = None
        self._timer = LazyTimer(loop, self._ring)
        self._due = NEVER
        self._linger_until = NEVER
        self._overdue = False
        #: The client's time for its body.
        self.body = Allowance(limits.min_rate, limits.stall_s)
        self._taking = Allowance(limits.min_rate, limits.stall_s)
        self._not_taken = 0

    def begin(self, transport: asyncio.Transport) -> None:
        """The connection is there."""
        self._transport = transport

    def end(self) -> None:
        """It is gone."""
        self._timer.cancel()
        self._transport = None

    @property
    def running(self) -> bool:
        """Whether the client has to send something, other than a body, in time."""
        return self._due != NEVER

    def stop(self) -> None:
        """Nothing, other than a body, is asked of the client."""
        self._due = NEVER

    def wait(self, seconds: float) -> float:
        """The client has so long; gives the time it is now."""
        now = self._loop.time()
        self._due = now + seconds
        self._timer.ring_by(self._due)
        return now

    def linger(self) -> None:
        """Nothing that the client sends is wanted, but for a while it may."""
        self.body.stop()
        self._linger_until = self._loop.time() + self._limits.linger_s
        self.linger_on()

    def linger_on(self) -> None:
        """It has sent some of that."""
        self._due = min(self._loop.time() + self._limits.linger_stall_s, self._linger_until)
        self.set_timer()

    def hurry(self, seconds: float) -> None:
        """The client has only so long, where it had longer."""
        self._due = min(self._due, self._loop.time() + seconds)
        self.set_timer()

    def body_came(self, num_bytes: int, *, is_read: bool) -> None:
        """Some of a body has come, and more has to; `is_read` says whether we take it."""
        now = self._loop.time()
        if self.body.idle:
            self.body.start(now, self._limits.body_grace_s)
            if not is_read:
                self.body.freeze(now)
        else:
            self.body.earn(num_bytes, now)
        self.set_timer()

    def watch_taking(self) -> None:
        """The client has yet to take what was written, if anything; where it takes too little, it is cut."""
        if self._transport is None or not self._transport.get_write_buffer_size():
            return
        if self._taking.idle:
            self._taking.start(self._loop.time(), self._limits.stall_s)
            self._not_taken = bytes_not_taken(self._transport)
            self.set_timer()

    def stop_taking(self) -> None:
        """It has taken enough of it."""
        self._taking.stop()

    def set_timer(self) -> None:
        """Have the timer ring when the first of all that is due."""
        due = min(self._due, self.body.due)
        if not self._taking.idle:
            due = min(due, self._taking.due, self._loop.time() + _LOOK_S)
        self._timer.ring_by(due)

    def _ring(self) -> None:
        if self._transport is None:
            return
        now = self._loop.time() + _CLOCK_S
        if not self._taking.idle and not self._is_taking(self._transport, now):
            self._on_not_taking()
            reset(self._transport)
            return
        if self._transport.is_closing():
            self._due = NEVER
            self.body.stop()
        elif now < min(self._due, self.body.due):
            self._overdue = False
        elif not self._overdue:
            # Where we were busy for long, what the client has sent meanwhile is only read now.
            self._overdue = True
            self._timer.ring_by(now + _SECOND_LOOK_S)
            return
        else:
            self._due, self._overdue = NEVER, False
            self._on_overdue()
        self.set_timer()

    def _is_taking(self, transport: asyncio.Transport, now: float) -> bool:
        if not transport.get_write_buffer_size():
            self._taking.stop()
            return True
        left = bytes_not_taken(transport)
        self._taking.earn(max(0, self._not_taken - left), now)
        self._not_taken = left
        return now < self._taking.due


class LazyTimer:
    """Rings at the earliest time that it was asked for; who is rung looks what is due, and asks again.

    Asking for a later time than the one that is set costs nothing, so deadlines can move on with every
    request.
    """

    __slots__ = ("_at", "_context", "_handle", "_loop", "_ring")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        # None of a request's: it is of the connection.
        self._context = contextvars.Context()
        self._at = NEVER
        self._handle: asyncio.TimerHandle | None = None

    def ring_by(self, due: float) -> None:
        """Ring at `due`, by the clock of the event loop, or before."""
        if due < self._at:
            self.cancel()
            self._at = due
            self._handle = self._loop.call_at(due, self._rung, context=self._context)

    def cancel(self) -> None:
        """Ring no more."""
        self._at = NEVER
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _rung(self) -> None:
        self._at, self._handle = NEVER, None
        self._ring()


def bytes_not_taken(transport: asyncio.Transport) -> int:
    """What the client has yet to acknowledge: written, and not in its hands.

    The kernel holds megabytes of it, and asks for more only when a third of its buffer is free: seen from
    here alone, a client that takes 20 kB/s stands still for a minute.
    """
    return transport.get_write_buffer_size() + _in_kernel(transport)


def _in_kernel(transport: asyncio.Transport) -> int:
    connection = transport.get_extra_info("socket")
    # Not to be had everywhere: then what is left here has to tell.
    with contextlib.suppress(AttributeError, ImportError, OSError):
        import fcntl
        import termios

        answer = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(_INT_BYTES))
        (queued,) = struct.unpack("i", answer)
        return int(queued)
    return 0


def reset(transport: asyncio.Transport) -> None:
    """Close at once, and have the kernel forget what it still holds; nginx's reset_timedout_connection."""
    connection = transport.get_extra_info("socket")
    with contextlib.suppress(AttributeError, OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
