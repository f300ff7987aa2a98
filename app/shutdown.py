"""How the process ends: unready at once, then closed to new connections, and gone before it is killed."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

import uvicorn

logger = logging.getLogger(__name__)

#: What is left of Kubernetes' 30 s (terminationGracePeriodSeconds) after the default of shutdown_grace_s,
#: less a second. A store that hangs keeps threads for longer, which only the end of the process stops.
_LAST_S: Final = 4.0
#: Of them, those in which clients whose requests were given up can still read why: a connection that is
#: closed while its client sends is reset, and what was answered is lost with it.
_TELLING_S: Final = 2
_BEAT_EVERY_S: Final = 1.0


class Server(uvicorn.Server):
    """Runs until SIGTERM or SIGINT.

    SIGTERM makes it unready at once. For `delay_s` more it takes connections, until whoever sends it requests
    has seen that; then it answers what is under way. What is not whole after `grace_s` is answered 503, and
    whatever holds it up then is left behind.

    Args:
        config: of uvicorn; how long it waits for connections is set here.
        on_start: called once it listens.
        on_leave: makes `/readyz` say that it is about to end.
        on_close: ends answers that would go on; called once no connections are taken any more.
        on_beat: called every second, as long as the event loop turns.
        delay_s: from SIGTERM to the closing of the listener; part of `grace_s`.
        grace_s: what requests under way have from SIGTERM on.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        on_start: Callable[[], None],
        on_leave: Callable[[], None],
        on_close: Callable[[], None] = lambda: None,
        on_beat: Callable[[], None] = lambda: None,
        delay_s: float,
        grace_s: float,
    ) -> None:
        super().__init__(config)
        self._answers_for_s = max(0.0, grace_s - delay_s)
        config.timeout_graceful_shutdown = math.ceil(self._answers_for_s) + _TELLING_S
        self._on_start = on_start
        self._on_leave = on_leave
        self._on_close = on_close
        self._on_beat = on_beat
        self._delay_s = delay_s
        self._grace_s = grace_s
        self._leave_at: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._beat(asyncio.get_running_loop())
        self._on_start()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._on_beat()
        loop.call_later(_BEAT_EVERY_S, self._beat, loop)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        cut = asyncio.get_running_loop().call_later(self._answers_for_s, self._give_up_requests)
        self._on_close()
        try:
            await super().shutdown(sockets)
        finally:
            cut.cancel()

    def _give_up_requests(self) -> None:
        # Each answers that the service is shutting down, and closes its connection. uvicorn cancels them too,
        # but then closes all connections at once.
        for task in self.server_state.tasks:
            task.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._leave_at is None:
            self._on_leave()
            threading.Thread(target=self._end_in_time, name="end-in-time", daemon=True).start()
            if sig == signal.SIGTERM and self._delay_s:
                self._leave_at = time.monotonic() + self._delay_s
                return
            self._leave_at = time.monotonic()
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        if self._leave_at is not None and not self.should_exit and time.monotonic() >= self._leave_at:
            super().handle_exit(signal.SIGTERM, None)
        return await super().on_tick(counter)

    def _end_in_time(self) -> None:
        time.sleep(self._grace_s + _LAST_S)  # noqa: TID251  # no turn is held here
        logger.error("not at its end %g s after the signal: leaving work behind", self._grace_s + _LAST_S)
        sys.stdout.flush()
        os._exit(1)
