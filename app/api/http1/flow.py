"""Backpressure on one connection, in both directions, and who it is that keeps the other waiting."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Final

from uvicorn.protocols.http.flow_control import FlowControl

from .allowance import NEVER, Allowance

__all__ = ["Flow", "LazyTimer", "bytes_not_taken", "reset"]

_OUTQ_BYTES: Final = 4


class Flow(FlowControl):
    """uvicorn's, under which the client's time stands still while we do not read.

    Args:
        allowance: the client's time for its body.
        on_thaw: called when that runs again.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        allowance: Allowance,
        on_thaw: Callable[[], None],
    ) -> None:
        super().__init__(transport)
        self._loop = loop
        self._allowance = allowance
        self._on_thaw = on_thaw
        #: Nothing more is read, whoever asks for it.
        self.held = False

    def pause_reading(self) -> None:
        """Read no more from the connection."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()
            self._allowance.freeze(self._loop.time())

    def resume_reading(self) -> None:
        """Read on."""
        if self.held:
            return
        if self.read_paused:
            self.read_paused = False
            self._transport.resume_reading()
        if self._allowance.frozen:
            self._allowance.thaw(self._loop.time())
            self._on_thaw()


class LazyTimer:
    """Rings at the earliest time that it was asked for; who is rung looks what is due, and asks again.

    Asking for a later time than the one that is set costs nothing, so deadlines can move on with every
    request.
    """

    __slots__ = ("_at", "_handle", "_loop", "_ring")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._at = NEVER
        self._handle: asyncio.TimerHandle | None = None

    def ring_by(self, due: float) -> None:
        """Ring at `due`, by the clock of the event loop, or before."""
        if due < self._at:
            self.cancel()
            self._at = due
            self._handle = self._loop.call_at(due, self._rung)

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
    with contextlib.suppress(ImportError, OSError, ValueError):
        import fcntl
        import termios

        answer = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(_OUTQ_BYTES))
        (queued,) = struct.unpack("i", answer)
        return int(queued)
    return 0


def reset(transport: asyncio.Transport) -> None:
    """Close at once, and have the kernel forget what it still holds; nginx's reset_timedout_connection."""
    connection = transport.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
