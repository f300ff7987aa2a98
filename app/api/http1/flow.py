"""Backpressure on one connection, in both directions, and who it is that keeps the other waiting."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl

from .deadlines import Deadlines


class Flow(FlowControl):
    """uvicorn's, under which the client's time for its body stands still while we do not read."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, deadlines: Deadlines
    ) -> None:
        super().__init__(transport)
        self._loop = loop
        self._deadlines = deadlines
        #: Nothing more is read, whoever asks for it.
        self.held = False
        #: The client has closed its side.
        self.ended = False

    def closing(self) -> None:
        """Where the transport has been told to close, it waits for what was written to be taken."""
        if self._transport.is_closing():
            self._deadlines.watch_taking()

    def pause_reading(self) -> None:
        """Read no more from the connection."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()
            self._deadlines.body.freeze(self._loop.time())

    def resume_reading(self) -> None:
        """Read on."""
        if self.held:
            return
        if self.read_paused:
            self.read_paused = False
            self._transport.resume_reading()
        if self._deadlines.body.frozen:
            self._deadlines.body.thaw(self._loop.time())
            self._deadlines.set_timer()
